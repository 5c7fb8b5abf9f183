//! Pools for tests, and a pool that loses power: then only what was written back and fenced
//! remains.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use terrace_medium::MappedMedium;
use terrace_pool::{Geometry, Pool, PoolOptions};
use terrace_testkit::crash::Memory;
use terrace_testkit::schedule::{Job, Policy, Scheduled, Scheduler, Slice};
use terrace_testkit::{Layered, Recording, Trace};

/// The medium of such a pool.
pub(crate) type Medium = Layered<true>;

const BYTES: usize = 256 << 10;

/// A pool, and a trace of everything that was done to it.
pub(crate) struct Power {
    pub(crate) pool: Pool<Medium>,
    medium: Arc<Scheduled<Recording<Memory<true>>>>,
}

fn options(boot: u128) -> PoolOptions {
    PoolOptions::anonymous().geometry(Geometry::tiny()).hash_seed(11).boot_id(boot)
}

/// A pool with the same hashes in every run.
pub(crate) fn pool<M: MappedMedium>(bytes: u64) -> Pool<M> {
    PoolOptions::anonymous().size(bytes).hash_seed(11).create().expect("memory for a pool")
}

/// An unnamed file for a pool that is created, closed and reopened.
pub(crate) struct Place(File);

impl Place {
    pub(crate) fn new() -> Self {
        static PLACES: AtomicU32 = AtomicU32::new(0);
        let name = format!("terrace-index-{}-{}", std::process::id(), PLACES.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        std::fs::remove_file(&path).expect("the file is there");
        Self(file)
    }

    pub(crate) fn options(&self) -> PoolOptions {
        let file = self.0.try_clone().expect("another handle to it");
        PoolOptions::in_file(file).size(1 << 20).hash_seed(11).assume_persistent(true)
    }
}

fn memory() -> Memory<true> {
    Memory::zeroed(BYTES, BYTES).expect("memory")
}

impl Power {
    pub(crate) fn new() -> Self {
        let medium = Arc::new(Scheduled::over(Recording::over(memory())));
        let pool = options(1).create_on(Layered::over(medium.clone())).expect("a pool");
        Self { pool, medium }
    }

    /// Everything that was done to it, in order.
    pub(crate) fn trace(&self) -> Trace {
        self.medium.below().trace()
    }

    /// The pool after a loss of power that kept as little as possible.
    pub(crate) fn after_power_loss(&self) -> Pool<Medium> {
        self.after_power_loss_at(usize::MAX, &[])
    }

    /// The pool after a loss of power behind the first `events` events. The `lines` survive as they
    /// were then, because a cache may write back any line; of the others as little as possible
    /// survives.
    pub(crate) fn after_power_loss_at(&self, events: usize, lines: &[u64]) -> Pool<Medium> {
        let trace = self.trace().begin(events);
        let mut durable = trace.durable(BYTES / 8);
        let mut cached = vec![0; BYTES / 8];
        trace.replay(&mut cached, trace.events().len());
        for word in lines.iter().flat_map(|line| (*line as usize / 64 * 8..).take(8)) {
            durable[word] = cached[word];
        }
        let memory = memory();
        memory.set_all(&durable);
        options(2).open_on(Layered::over(Arc::new(memory))).expect("the pool")
    }
}

/// Reads of one word in a row after which a thread yields, though it waits for no other; it then
/// continues.
const READS_BEFORE_YIELD: usize = 64;

/// Runs `one` for `steps` steps, then `other` until it ends or waits, and so on.
pub(crate) fn interrupted(
    scheduler: &Scheduler,
    steps: u32,
    one: impl FnOnce() + Send + 'static,
    other: impl FnOnce() + Send + 'static,
) {
    let jobs: Vec<Job> = vec![Box::new(one), Box::new(other)];
    let others = [(1, u32::MAX); READS_BEFORE_YIELD];
    let turns = std::iter::once((0, steps)).chain(others).map(|(thread, steps)| Slice { thread, steps });
    let ran = scheduler.run(jobs, &Policy::Script(turns.collect()), 0);
    assert_eq!(ran.wrong, None, "after {steps} steps");
}
