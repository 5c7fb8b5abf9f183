//! Whether a read ever shows a part of a word: the target's processor stores words of equal bytes,
//! the initiator looks for words of other ones.

use crate::half::print_line;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use terrace_fabric::{Access, Endpoint, Fabric, Memory, Operation, Output, Place, RegionKey, Words, perform};

const WORDS: usize = 512;
const ROUNDS: u64 = 20_000;

pub(crate) fn run() {
    println!("-- words in reads beside stores of the target");
    let memory = Arc::new(Words::new(WORDS));
    let mut endpoint = crate::fabric().open().expect("an endpoint");
    let region = endpoint.register(memory.clone(), 0..8 * WORDS, Access::Read).expect("a region");
    let mut reader = crate::initiator("read-words", endpoint.address(), region);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = 0u8;
            while !done.load(Relaxed) {
                byte = byte.wrapping_add(1);
                let word = u64::from_ne_bytes([byte; 8]);
                memory.words().iter().for_each(|place| place.store(word, Relaxed));
            }
        });
        println!("{}", reader.line("seen: "));
        done.store(true, Relaxed);
    });
}

pub(crate) fn read_from(address: &[u8], region: RegionKey) {
    let mut connection = crate::fabric().connect(address).expect("a connection");
    let (mut mixed, mut torn, mut words) = (0u64, 0u64, 0u64);
    for round in 0..ROUNDS {
        // Of many lengths and places, so that pieces of the network end anywhere.
        let len = 64 + 8 * (round as usize % (WORDS - 8));
        let offset = (8 * WORDS - len) as u64 / 16 * 8;
        let read = Operation::Read { from: Place { region, offset }, into: vec![0; len] };
        let outcomes = perform(&mut connection, vec![read], Duration::from_secs(9)).expect("a read");
        let Ok(Output::Buffer(bytes)) = &outcomes[0] else { panic!("{outcomes:?}") };
        mixed += u64::from(bytes.iter().any(|byte| *byte != bytes[0]));
        torn += bytes.chunks(8).filter(|word| word.iter().any(|byte| *byte != word[0])).count() as u64;
        words += len as u64 / 8;
    }
    print_line(&format!("seen: {ROUNDS} reads, {mixed} of several moments; {torn} of {words} words torn"));
}
