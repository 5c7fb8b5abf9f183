//! Reads of 64 bytes: one by one, and many posted before the first poll.

use crate::half::print_line;
use crate::{median, micros};
use std::sync::Arc;
use std::time::Duration;
use terrace_fabric::{
    Access, Endpoint, Fabric, LibfabricConnection, Operation, Output, Place, RegionKey, Words, perform,
};

const WORDS: usize = 1 << 16;

pub(crate) fn run() {
    println!("-- reads of 64 bytes");
    let fabric = crate::fabric();
    let served = || {
        let memory = Arc::new(Words::new(WORDS));
        let mut endpoint = fabric.open().expect("an endpoint");
        let region = endpoint.register(memory, 0..8 * WORDS, Access::ReadWrite).expect("a region");
        (endpoint, region)
    };
    let [(one, of_one), (other, of_other)] = [served(), served()];
    let mut reader = crate::initiator("read-from", one.address(), of_one);
    (0..5).for_each(|_| println!("{}", reader.line("times: ")));
    let mut readers = [
        crate::initiator("read-from", one.address(), of_one),
        crate::initiator("read-from", other.address(), of_other),
    ];
    for line in 0..5 {
        let [one, other] = readers.each_mut().map(|reader| reader.line("times: "));
        if line == 3 {
            println!("two readers, two endpoints: {one} | {other}");
        }
    }
}

pub(crate) fn read_from(address: &[u8], region: RegionKey) {
    let mut connection = crate::fabric().connect(address).expect("a connection");
    for batch in [1, 4, 16, 64] {
        let took = median(4000 / batch, || read(&mut connection, region, batch));
        print_line(&format!("times: {batch} before a poll: {:.2} us each", micros(took) / batch as f64));
    }
    let at = Place { region, offset: 0 };
    let took = median(2000, || {
        done(perform(&mut connection, vec![Operation::FetchAdd { at, add: 1 }], Duration::from_secs(9)))
    });
    print_line(&format!("times: fetch-add, one by one: {:.2} us each", micros(took)));
}

fn read(connection: &mut LibfabricConnection, region: RegionKey, batch: usize) {
    let from = |index: usize| Place { region, offset: (index * 4096 % (8 * WORDS)) as u64 };
    let reads = (0..batch).map(|index| Operation::Read { from: from(index), into: vec![0; 64] });
    done(perform(connection, reads.collect(), Duration::from_secs(9)));
}

fn done(outcomes: Result<Vec<Result<Output, terrace_fabric::Failure>>, terrace_fabric::Error>) {
    assert!(outcomes.expect("a batch").iter().all(Result::is_ok));
}
