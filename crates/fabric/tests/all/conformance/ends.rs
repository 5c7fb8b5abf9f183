//! The end of an endpoint, a target, a connection.

use super::subject::{Subject, add, read, write};
use terrace_fabric::{Access, Connection, Endpoint, Fabric, Failure, Posted};

pub(super) fn closed_endpoint_does_not_answer<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(8, Access::ReadWrite);
    assert!(subject.perform_one(&mut served.connection, write(served.region, 0, &[1; 8])).is_ok());
    let memory = served.memory;
    served.endpoint.close().expect("closed");
    let outcome = subject.within_short(&mut served.connection, write(served.region, 0, &[2; 8]));
    assert_eq!(outcome, Err(Failure::Lost));
    let mut found = [0; 8];
    terrace_fabric::load_bytes(terrace_fabric::Memory::words(&*memory), 0, &mut found);
    assert_eq!(found, [1; 8]);
}

pub(super) fn dead_target_is_lost_within_the_deadline<S: Subject>() {
    let mut subject = S::new();
    let (address, region) = subject.victim();
    let mut connection = subject.initiator().connect(&address).expect("a connection");
    assert!(subject.perform_one(&mut connection, write(region, 0, &[1; 8])).is_ok());
    subject.kill_victim();
    for operation in [add(region, 0, 1), read(region, 0, 8), write(region, 0, &[2; 8])] {
        let outcome = subject.within_short(&mut connection, operation.clone());
        assert_eq!(outcome, Err(Failure::Lost), "{operation:?}");
    }
}

pub(super) fn giving_up_completes_what_is_under_way<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(8, Access::ReadWrite);
    let operations = [read(served.region, 0, 8), add(served.region, 8, 1), write(served.region, 0, &[1; 8])];
    let numbered = (5..).zip(operations).map(|(number, operation)| Posted { number, operation });
    served.connection.post(numbered.collect()).expect("posted");
    served.connection.give_up();
    let mut completions = Vec::new();
    served.connection.poll(&mut completions);
    let mut numbers: Vec<u64> = completions.iter().map(|completion| completion.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [5, 6, 7]);
    assert!(completions.iter().all(|completion| completion.outcome == Err(Failure::Lost)));
    let later = subject.perform_one(&mut served.connection, read(served.region, 0, 8));
    assert_eq!(later, Err(Failure::Lost));
}

pub(super) fn connection_to_a_closed_endpoint_is_lost<S: Subject>() {
    let mut subject = S::new();
    let endpoint = subject.target().open().expect("an endpoint");
    let address = endpoint.address().to_vec();
    endpoint.close().expect("closed");
    let served = subject.served(8, Access::Read);
    let mut connection = subject.initiator().connect(&address).expect("a connection");
    let outcome = subject.within_short(&mut connection, read(served.region, 0, 8));
    assert_eq!(outcome, Err(Failure::Lost));
}

pub(super) fn closing_one_endpoint_leaves_the_others<S: Subject>() {
    let mut subject = S::new();
    let mut one = subject.served(8, Access::ReadWrite);
    let mut other = subject.served(8, Access::ReadWrite);
    assert!(subject.perform_one(&mut one.connection, write(one.region, 0, &[1; 8])).is_ok());
    assert!(subject.perform_one(&mut other.connection, write(other.region, 0, &[1; 8])).is_ok());
    one.endpoint.close().expect("closed");
    for round in 2..20 {
        let outcome = subject.perform_one(&mut other.connection, write(other.region, 0, &[round; 8]));
        assert!(outcome.is_ok(), "{outcome:?}");
    }
    let outcome = subject.within_short(&mut one.connection, read(one.region, 0, 8));
    assert_eq!(outcome, Err(Failure::Lost));
}

pub(super) fn dropped_connection_leaves_the_endpoint<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(1 << 17, Access::ReadWrite);
    for round in 0..10 {
        let operation = write(served.region, 0, &vec![round; 1 << 20]);
        served.connection.post(vec![Posted { number: 0, operation }]).expect("posted");
        served.connection.poll(&mut Vec::new());
        served.connection = subject.initiator().connect(served.endpoint.address()).expect("a connection");
        assert!(subject.perform_one(&mut served.connection, read(served.region, 0, 8)).is_ok());
    }
}
