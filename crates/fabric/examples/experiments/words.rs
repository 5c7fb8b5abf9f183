//! Whether a read ever shows a part of a word: the target's processor stores words of equal bytes,
//! the initiator looks for words of other ones.

use crate::half::print_line;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use terrace_fabric::{Access, Endpoint, Fabric, Memory, Operation, Output, Place, RegionKey, Words, perform};

const WORDS: usize = 512;
const BATCH: usize = 16;

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
        (0..2).for_each(|_| println!("{}", reader.line("seen: ")));
        done.store(true, Relaxed);
    });
}

pub(crate) fn read_from(address: &[u8], region: RegionKey) {
    let mut connection = crate::fabric().connect(address).expect("a connection");
    // Of one line, as a bucket is; then of many lengths, so that parts of the network end anywhere.
    for (name, rounds, len_of) in [
        ("64 bytes", 300_000, (|_| 64) as fn(usize) -> usize),
        ("64 bytes to 4 KiB", 60_000, |round| 64 + 8 * (round % (WORDS - 8))),
    ] {
        let mut seen = Seen::default();
        for first in (0..rounds).step_by(BATCH) {
            let read = |round| {
                let len = len_of(round);
                let offset = (round * 64 % (8 * WORDS - len + 8)) as u64;
                Operation::Read { from: Place { region, offset }, into: vec![0; len] }
            };
            let reads = (first..first + BATCH).map(read).collect();
            for outcome in perform(&mut connection, reads, Duration::from_secs(9)).expect("a batch") {
                let Ok(Output::Buffer(bytes)) = outcome else { panic!("{outcome:?}") };
                seen.note(&bytes);
            }
        }
        print_line(&format!("seen: reads of {name}: {seen:?}"));
    }
}

#[derive(Debug, Default)]
struct Seen {
    reads: u64,
    of_several_moments: u64,
    words: usize,
    torn_words: usize,
}

impl Seen {
    fn note(&mut self, bytes: &[u8]) {
        self.reads += 1;
        self.of_several_moments += u64::from(bytes.iter().any(|byte| *byte != bytes[0]));
        self.words += bytes.len() / 8;
        self.torn_words += bytes.chunks(8).filter(|word| word.iter().any(|byte| *byte != word[0])).count();
    }
}
