//! A pool that a test takes the power from: of what was stored, only what was written back and fenced is there after that.

use std::sync::Arc;
use terrace_pool::{Geometry, Pool, PoolOptions};
use terrace_testkit::crash::Memory;
use terrace_testkit::{Layered, Recording, What};

/// What the pool lies on.
pub(super) type Medium = Layered<true>;

const BYTES: usize = 256 << 10;

/// A pool, and all that was ever done to it.
pub(super) struct Power {
    pub(super) pool: Pool<Medium>,
    medium: Arc<Recording<Memory<true>>>,
}

fn options(boot: u128) -> PoolOptions {
    PoolOptions::anonymous().geometry(Geometry::tiny()).hash_seed(11).boot_id(boot)
}

fn memory() -> Memory<true> {
    Memory::zeroed(BYTES, BYTES).expect("memory")
}

impl Power {
    pub(super) fn new() -> Self {
        let medium = Arc::new(Recording::over(memory()));
        let pool = options(1).create_on(Layered::over(medium.clone())).expect("a pool");
        Self { pool, medium }
    }

    /// The pool as somebody finds it after a loss of power, which has kept as little as it may. What one thread has written back another one's fence makes durable, too: the dead write nothing back here.
    pub(super) fn lost(&self) -> Pool<Medium> {
        let trace = self.medium.trace();
        let (mut seen, mut durable) = (vec![0; BYTES / 8], vec![0; BYTES / 8]);
        let mut asked = Vec::new();
        for event in trace.events() {
            trace.stored(event).for_each(|(word, value)| seen[word as usize] = value);
            match event.what {
                What::WriteBack { line } => {
                    asked.extend((line / 8..line / 8 + 8).map(|word| (word, seen[word as usize])));
                }
                What::StreamedCopy(_) => asked.extend(trace.stored(event)),
                What::Fence => asked.drain(..).for_each(|(word, value)| durable[word as usize] = value),
                _ => {}
            }
        }
        let memory = memory();
        memory.set_all(&durable);
        options(2).open_on(Layered::over(Arc::new(memory))).expect("the pool")
    }
}
