//! Reads and writes.

use super::subject::{LONG, Outcome, Subject, add, bytes, read, swap, write};
use std::sync::atomic::Ordering::Relaxed;
use terrace_fabric::{
    Access, Connection, Endpoint, Error, Fabric, Memory, Operation, Output, Place, Posted, Until,
};

fn buffer(outcome: Outcome) -> Vec<u8> {
    match outcome {
        Ok(Output::Buffer(bytes)) => bytes,
        other => panic!("no buffer: {other:?}"),
    }
}

pub(super) fn write_arrives_in_the_targets_memory<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(64, Access::ReadWrite);
    let sent = bytes(200, 1);
    let returned = subject.perform_one(&mut served.connection, write(served.region, 16, &sent));
    assert_eq!(buffer(returned), sent);
    assert_eq!(served.bytes(16, 200), sent);
    assert_eq!(served.bytes(0, 16), [0; 16]);
    assert_eq!(served.bytes(216, 296), [0; 296]);
}

pub(super) fn read_returns_the_targets_memory<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(64, Access::Read);
    served.memory.words().iter().zip(1..).for_each(|(word, value)| word.store(value, Relaxed));
    let found = buffer(subject.perform_one(&mut served.connection, read(served.region, 80, 64)));
    assert_eq!(found, served.bytes(80, 64));
    assert_eq!(found[..8], 11u64.to_ne_bytes());
}

pub(super) fn region_begins_where_its_range_does<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(64, Access::Read);
    let memory = served.memory.clone();
    let region = served.endpoint.register(memory, 128..192, Access::ReadWrite).expect("a region");
    let stored = write(region, 8, &[7; 8]);
    buffer(subject.perform_one(&mut served.connection, stored));
    assert_eq!(served.bytes(136, 8), [7; 8]);
    assert_eq!(
        buffer(subject.perform_one(&mut served.connection, read(region, 0, 64))),
        served.bytes(128, 64)
    );
}

pub(super) fn bytes_that_are_no_whole_words_keep_their_neighbours<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(16, Access::ReadWrite);
    let all = bytes(128, 2);
    buffer(subject.perform_one(&mut served.connection, write(served.region, 0, &all)));
    for (offset, len) in [(3, 1), (3, 4), (5, 13), (8, 8), (7, 25), (100, 28)] {
        let mut expected = served.bytes(0, 128);
        let part = bytes(len, offset);
        expected[offset as usize..][..len].copy_from_slice(&part);
        buffer(subject.perform_one(&mut served.connection, write(served.region, offset, &part)));
        assert_eq!(served.bytes(0, 128), expected, "{len} bytes at {offset}");
        let found = subject.perform_one(&mut served.connection, read(served.region, offset, len));
        assert_eq!(buffer(found), part, "{len} bytes at {offset}");
    }
}

pub(super) fn payload_of_8_mb_arrives_and_returns<S: Subject>() {
    const LEN: usize = 8 << 20;
    let mut subject = S::new();
    let mut served = subject.served(LEN / 8 + 1, Access::ReadWrite);
    let sent = bytes(LEN, 3);
    buffer(subject.perform_one(&mut served.connection, write(served.region, 8, &sent)));
    assert!(served.bytes(8, LEN) == sent, "the bytes differ");
    let found = buffer(subject.perform_one(&mut served.connection, read(served.region, 8, LEN)));
    assert!(found == sent, "the bytes read differ");
}

/// Each operation of a batch concerns a place of its own, so that their order does not matter.
pub(super) fn batch_completes_each_operation_once<S: Subject>() {
    const EACH: u64 = 48;
    let mut subject = S::new();
    let mut served = subject.served(4 * EACH as usize, Access::ReadWrite);
    served.memory.words().iter().zip(0..).for_each(|(word, value)| word.store(value, Relaxed));
    let (region, at) = (served.region, |kind: u64, index: u64| 8 * (kind * EACH + index));
    let batch = (0..EACH).flat_map(|index| {
        let (third, fourth) = (at(2, index), at(3, index));
        let stored = write(region, at(1, index), &(1000 + index).to_ne_bytes());
        [read(region, at(0, index), 8), stored, swap(region, third, third / 8, index), add(region, fourth, 5)]
    });
    let outcomes = subject.perform(&mut served.connection, batch.collect());
    for (index, outcomes) in (0..EACH).zip(outcomes.chunks(4)) {
        let expected = [
            Output::Buffer(index.to_ne_bytes().to_vec()),
            Output::Buffer((1000 + index).to_ne_bytes().to_vec()),
            Output::Before(2 * EACH + index),
            Output::Before(3 * EACH + index),
        ];
        assert_eq!(outcomes, expected.map(Ok), "of index {index}");
        let words = [1, 2, 3].map(|kind| served.memory.words()[at(kind, index) as usize / 8].load(Relaxed));
        assert_eq!(words, [1000 + index, index, 3 * EACH + index + 5], "of index {index}");
    }
}

pub(super) fn more_operations_than_a_queue_holds_complete<S: Subject>() {
    const COUNT: u64 = 3000;
    let mut subject = S::new();
    let mut served = subject.served(COUNT as usize, Access::ReadWrite);
    let stored = (0..COUNT).map(|index| write(served.region, 8 * index, &index.to_ne_bytes())).collect();
    let outcomes = subject.perform(&mut served.connection, stored);
    assert!(outcomes.iter().all(Result::is_ok));
    let found: Vec<u64> = served.memory.words().iter().map(|word| word.load(Relaxed)).collect();
    assert_eq!(found, (0..COUNT).collect::<Vec<_>>());
}

pub(super) fn write_is_persistent_or_refused_by_name<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(8, Access::ReadWrite);
    let to = Place { region: served.region, offset: 0 };
    let operation = Operation::Write { bytes: vec![1; 8], to, until: Until::Persistent };
    if served.connection.persists() {
        let outcomes = subject.perform_beside(&mut served.connection, vec![operation], LONG, &|| ());
        assert!(outcomes[0].is_ok());
    } else {
        let arrived = Posted { number: 1, operation: write(served.region, 8, &[1; 8]) };
        let batch = vec![arrived, Posted { number: 2, operation }];
        assert_eq!(served.connection.post(batch), Err(Error::NotPersistent));
        let outcome = subject.perform_one(&mut served.connection, read(served.region, 0, 16));
        assert_eq!(buffer(outcome), [0; 16], "a part of the batch was posted");
    }
    let connection = subject.initiator().connect(served.endpoint.address()).expect("a connection");
    assert_eq!(connection.persists(), served.connection.persists());
}
