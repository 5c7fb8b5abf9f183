//! Orderings of the allocator that no search detects. A script ([`Breakpoint`]) stops threads in
//! the one interleaving that needs the ordering, once with all orderings and once with this one
//! weakened.
//!
//! The checks are those of all runs of the lab: races, blocks with wrong content, findings of
//! `verify`, and memory that was reclaimed but is refused.

mod collections;
mod deaths;
mod lists;
mod pins;
mod slabs;

use std::sync::Arc;
use terrace_medium::{Offset, Word};
use terrace_pool::{Geometry, Guard, Marker, Pool, PoolOptions};
use terrace_testkit::Layered;
use terrace_testkit::crash::{Memory, Violation};
use terrace_testkit::schedule::{
    Aim, Breakpoint, Policy, Reach, Scheduled, Scheduler, Weak, Weakened, Weakening, Weakenings, mark,
};

pub(crate) type Medium = Layered<false>;
pub(crate) type Shared = Pool<Medium>;

/// Size of the memory.
const BYTES: usize = 128 << 10;

/// Size of blocks, and how many of them fill a slab.
pub(crate) const BLOCK: usize = 480;
pub(crate) const PER_SLAB: usize = 8;

/// The work of threads, and their script.
pub(crate) struct Script {
    /// The work of each thread.
    pub(crate) threads: Vec<Box<dyn FnOnce() + Send>>,
    pub(crate) breakpoints: Vec<Breakpoint>,
    /// The check after all threads have ended.
    pub(crate) judge: Box<dyn FnOnce() -> Result<(), Violation> + Send>,
}

/// The options of a pool whose pins execute a barrier.
pub(crate) fn with_barriers() -> PoolOptions {
    let geometry = Geometry { thread_slots: 6, ..Geometry::tiny() };
    PoolOptions::anonymous().geometry(geometry).hash_seed(1).boot_id(1).reproducible()
}

/// The options of a pool whose pins execute no barrier.
pub(crate) fn options() -> PoolOptions {
    with_barriers().as_if_light()
}

/// Runs a scripted test. Returns what failed, and the orderings used.
fn play(
    scheduler: &Scheduler,
    make: &dyn Fn(&Scheduler, Medium) -> Script,
    missing: Option<Weakening>,
) -> (Option<Violation>, Weakenings) {
    let reach = Reach { old: u32::MAX, ..Reach::at(Aim::Cued, true) };
    let memory = Memory::<false>::zeroed(BYTES, BYTES).expect("memory for a scene");
    let weakened = Weakened::over(memory, missing, reach, u8::MAX);
    let passed = weakened.passed();
    let medium = Layered::over(Arc::new(Scheduled::over(weakened)));
    let scene = make(scheduler, medium.clone());
    let jobs = scene.threads.into_iter().map(|act| {
        let medium = medium.clone();
        let job: Box<dyn FnOnce() + Send> = Box::new(move || {
            medium.mark_call(0);
            act();
            medium.mark_call(1);
        });
        job
    });
    let ran = scheduler.run(jobs.collect(), &Policy::Cued(scene.breakpoints), 1);
    let judged = || {
        let judged = scheduler.alone(scene.judge).and_then(|judged| judged);
        judged.err().map(|wrong| format!("in the final check, {wrong}"))
    };
    let wrong = ran.wrong.or_else(|| medium.wrong()).or_else(judged);
    (wrong, passed.weakenings())
}

/// Asserts that the script passes with all orderings, and fails as expected if this ordering of the
/// access with this name is weakened.
pub(crate) fn assert_detected(
    make: impl Fn(&Scheduler, Medium) -> Script,
    point: &str,
    weak: Weak,
    expected: &str,
) {
    let scheduler = Scheduler::new();
    let (wrong, passed) = play(&scheduler, &make, None);
    assert_eq!(wrong, None, "with all orderings");
    let is_meant = |it: &&Weakening| it.weak == weak && it.point == Some(point);
    let weakening = passed.iter().find(is_meant).unwrap_or_else(|| panic!("{point} has no {weak:?} here"));
    let (wrong, _) = play(&scheduler, &make, Some(*weakening));
    let wrong = wrong.unwrap_or_else(|| panic!("without {weak:?} at {point} nothing fails"));
    assert!(wrong.contains(expected), "{wrong}");
}

/// The word at an offset.
pub(crate) fn word(pool: &Shared, offset: u64) -> &Word {
    pool.region().at(Offset::new(offset))
}

/// The content of a block.
fn bytes_of(stamp: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64 / 8).flat_map(|at| stamp.wrapping_add(at << 32).to_le_bytes()).collect()
}

/// Allocates and writes a block of this size, if there is room.
pub(crate) fn block(guard: &Guard<'_, Medium>, bytes: usize, stamp: u64) -> Option<u64> {
    let block = guard.alloc(bytes).ok()?;
    block.write(0, &bytes_of(stamp, bytes));
    // PERSIST: the block before anything that names it.
    Some(block.persist().into_offset())
}

/// Prepares the test in new memory. The first thread of the test is the one that runs this.
pub(crate) fn prepare<T: Send + 'static>(
    scheduler: &Scheduler,
    make: impl FnOnce() -> T + Send + 'static,
) -> T {
    scheduler.alone(make).expect("what the threads begin with")
}

/// As [`prepare`], with a new pool. Returns the pool as well.
pub(crate) fn pool_with<T: Send + 'static>(
    scheduler: &Scheduler,
    medium: Medium,
    options: PoolOptions,
    make: impl FnOnce(&Shared) -> T + Send + 'static,
) -> (Shared, T) {
    prepare(scheduler, move || {
        let pool = options.create_on(medium).expect("a pool");
        let made = make(&pool);
        (pool, made)
    })
}

/// Allocates blocks of one slab or more.
pub(crate) fn blocks(guard: &Guard<'_, Medium>, count: usize) -> Vec<u64> {
    (0..count).map(|_| block(guard, BLOCK, 3).expect("room")).collect()
}

/// Allocates all the rest of a pool in blocks of these sizes. Returns their offsets and sizes.
pub(crate) fn fill(guard: &Guard<'_, Medium>, sizes: &[usize]) -> Vec<(u64, usize)> {
    let all = sizes.iter().map(|&bytes| {
        let taken: Vec<u64> = std::iter::from_fn(|| block(guard, bytes, 5)).collect();
        taken.into_iter().map(move |at| (at, bytes)).collect::<Vec<_>>()
    });
    all.collect::<Vec<_>>().concat()
}

/// Accesses the pool once, so that this thread has a thread slot, then stops at mark 1.
pub(crate) fn visit(pool: &Shared) {
    drop(pool.pin());
    mark(1);
}

/// Marks blocks of one size for the collector.
pub(crate) fn mark_blocks(marker: &mut Marker<'_>, kept: &[u64], bytes: usize) {
    kept.iter().for_each(|&at| marker.mark(at, bytes));
}

/// Marks blocks for the collector, each with its size.
pub(crate) fn mark_sized_blocks(marker: &mut Marker<'_>, kept: &[(u64, usize)]) {
    kept.iter().for_each(|&(at, bytes)| marker.mark(at, bytes));
}

/// Checks that all bytes of a block are as they were written.
pub(crate) fn check_content(guard: &Guard<'_, Medium>, offset: u64, bytes: usize) {
    let found = guard.bytes(offset, bytes).expect("a block in the pool");
    let stamp = found.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    assert!(found == bytes_of(stamp, bytes), "the block at {offset:#x} is not as it was written");
}

/// Returns the first finding of `verify`.
pub(crate) fn verified(pool: &Shared) -> Result<(), Violation> {
    let finding = pool.verify_superblock_and_roots().into_iter().chain(pool.verify_memory()).next();
    finding.map_or(Ok(()), |finding| Err(format!("verify finds {finding}")))
}
