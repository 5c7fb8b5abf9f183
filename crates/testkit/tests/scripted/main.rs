//! Orders of the allocator that no search comes by: threads are put where they have to stand for it ([`Cue`]), once with all orders and once with the one that is missing. What each order is for is in `docs/orders.md`.
//!
//! What is found is found by what the lab looks at in all its runs: races, blocks that are not as they were written, what `verify` finds, and memory that came back and is refused.

mod collections;
mod deaths;
mod lists;
mod pins;
mod slabs;

use std::sync::Arc;
use terrace_medium::{Offset, Word};
use terrace_pool::{Geometry, Guard, Pool, PoolOptions};
use terrace_testkit::Layered;
use terrace_testkit::crash::{Memory, Wrong};
use terrace_testkit::schedule::{
    Aim, Cue, Missing, Policy, Reach, Scheduled, Sight, Spot, Stage, Stop, Weak, Weakened, Weakening,
    Weakenings,
};

pub(crate) type Medium = Layered<false>;
pub(crate) type Shared = Pool<Medium>;

/// Bytes of the memory.
const BYTES: usize = 128 << 10;

/// What threads do, and when.
pub(crate) struct Scene {
    /// Of each thread.
    pub(crate) acts: Vec<Box<dyn FnOnce() + Send>>,
    pub(crate) cues: Vec<Cue>,
    /// Says what is wrong once all have come to an end.
    pub(crate) judge: Box<dyn FnOnce() -> Result<(), Wrong> + Send>,
}

/// How a pool is made: pins have no barrier of their own.
pub(crate) fn options() -> PoolOptions {
    let geometry = Geometry { seats: 6, ..Geometry::tiny() };
    PoolOptions::anonymous().geometry(geometry).hash_seed(1).boot_id(1).reproducible().as_if_light()
}

/// A thread goes on until somewhere, and sees all that there is.
pub(crate) fn to(thread: u8, until: Stop) -> Cue {
    Cue { thread, until, sees: Sight::New }
}

/// A thread goes on until somewhere, and sees everything as old as it may.
pub(crate) fn late(thread: u8, until: Stop) -> Cue {
    Cue { thread, until, sees: Sight::Old }
}

/// Once.
pub(crate) fn before(spot: Spot) -> Stop {
    Stop::Before(spot, 0)
}

pub(crate) fn behind(spot: Spot) -> Stop {
    Stop::Behind(spot, 0)
}

/// Plays a scene. What is wrong, and what it passes by that could be missing.
fn play(
    stage: &Stage,
    make: &dyn Fn(&Stage, Medium) -> Scene,
    missing: Missing,
) -> (Option<Wrong>, Weakenings) {
    let reach = Reach { old: u32::MAX, ..Reach::at(Aim::Cued, true) };
    let memory = Memory::<false>::zeroed(BYTES, BYTES).expect("memory for a scene");
    let weakened = Weakened::over(memory, missing, reach, u8::MAX);
    let passed = weakened.passed();
    let medium = Layered::over(Arc::new(Scheduled::over(weakened)));
    let scene = make(stage, medium.clone());
    let jobs = scene.acts.into_iter().map(|act| {
        let medium = medium.clone();
        let job: Box<dyn FnOnce() + Send> = Box::new(move || {
            medium.note(0);
            act();
            medium.note(1);
        });
        job
    });
    let ran = stage.run(jobs.collect(), &Policy::Cued(scene.cues), 1);
    let judged = || {
        let judged = stage.alone(scene.judge).and_then(|judged| judged);
        judged.err().map(|wrong| format!("afterwards, {wrong}"))
    };
    let wrong = ran.wrong.or_else(|| medium.wrong()).or_else(judged);
    (wrong, passed.weakenings())
}

/// Nothing is wrong with a scene; without the order at `spot`, this is.
pub(crate) fn misses(make: impl Fn(&Stage, Medium) -> Scene, spot: Spot, weak: Weak, expected: &str) {
    let stage = Stage::new();
    let (wrong, passed) = play(&stage, &make, Missing::None);
    assert_eq!(wrong, None, "with nothing missing");
    let is_meant = |it: &&Weakening| it.weak == weak && spot.is_at(it.site);
    let weakening = passed.iter().find(is_meant).unwrap_or_else(|| panic!("{spot:?} has no {weak:?} here"));
    let (wrong, _) = play(&stage, &make, Missing::One(*weakening));
    let wrong = wrong.unwrap_or_else(|| panic!("nobody misses {weak:?} at {}", weakening.place()));
    assert!(wrong.contains(expected), "{wrong}");
}

/// The word at an offset.
pub(crate) fn word(pool: &Shared, offset: u64) -> &Word {
    pool.region().at(Offset::new(offset))
}

/// Bytes of a block.
fn bytes_of(stamp: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64 / 8).flat_map(|at| stamp.wrapping_add(at << 32).to_le_bytes()).collect()
}

/// A new block of so many bytes, written, if there is room for it.
pub(crate) fn block(guard: &Guard<'_, Medium>, bytes: usize, stamp: u64) -> Option<u64> {
    let block = guard.alloc(bytes).ok()?;
    block.write(0, &bytes_of(stamp, bytes));
    // PERSIST: the block before whatever names it.
    Some(block.persist().into_offset())
}

/// All of a block is as it was written.
pub(crate) fn look_at(guard: &Guard<'_, Medium>, offset: u64, bytes: usize) {
    let found = guard.bytes(offset, bytes).expect("a block in the pool");
    let stamp = found.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
    assert!(found == bytes_of(stamp, bytes), "the block at {offset:#x} is not as it was written");
}

/// What `verify` finds.
pub(crate) fn verified(pool: &Shared) -> Result<(), Wrong> {
    let finding = pool.verify_head().into_iter().chain(pool.verify_memory()).next();
    finding.map_or(Ok(()), |finding| Err(format!("verify finds {finding}")))
}
