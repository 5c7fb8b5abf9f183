//! Options and helpers for the pools of all targets.

use std::sync::Arc;
use terrace_index::ChangeError;
use terrace_medium::MappedMedium;
use terrace_pool::{Geometry, Liveness, OpenError, Pool, PoolOptions, Problem};
use terrace_testkit::crash::{Op, Plan, Reply, Version};

/// The options to create and open the pool of a run; reproducible to the byte.
pub(crate) fn options(plan: &Plan) -> PoolOptions {
    let options = PoolOptions::anonymous()
        .geometry(Geometry { thread_slots: thread_slots(plan), ..Geometry::tiny() })
        .hash_seed(hash_seed(plan.seed))
        .boot_id(1)
        .reproducible();
    if has_light_pins(plan) { options.as_if_light() } else { options }
}

/// Whether pins have no barrier: in half of the multi-threaded runs, as on a kernel where the
/// thread that advances the epoch issues the barrier. These runs detect faults that such a barrier
/// hides.
fn has_light_pins(plan: &Plan) -> bool {
    plan.threads > 1 && plan.seed >> 6 & 1 == 1
}

/// The pool of a run in shared memory; the first participant creates it.
pub(crate) fn shared<M: MappedMedium>(
    medium: M,
    plan: &Plan,
    liveness: Arc<dyn Liveness>,
    first: bool,
) -> Result<Pool<M>, String> {
    let options = options(plan);
    let opened =
        if first { options.create_shared_on(medium, liveness) } else { options.share_on(medium, liveness) };
    opened.map_err(|error| error.to_string())
}

/// Number of thread slots. One thread gets few, as opening a pool reads all of them. Several
/// threads get enough, or, in one run of eight, too few.
fn thread_slots(plan: &Plan) -> u32 {
    match plan.threads {
        1 => 2,
        _ if plan.seed.is_multiple_of(8) => 3,
        _ => 6,
    }
}

/// The hash seed of keys in the run with this seed.
pub(crate) fn hash_seed(seed: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x7e44_ace0
}

/// Whether a pool could not be opened because a crash preceded its creation.
pub(crate) fn is_unmade(plan: &Plan, error: &OpenError) -> bool {
    plan.creation && matches!(error.problem, Problem::NotAPool | Problem::Damaged(_))
}

/// Boot id of another boot than the one in which the pool was created.
pub(crate) const REBOOTED: u128 = 2;

/// Checks that a pool that was never synced is refused after a crash of the machine.
pub(crate) fn refused_after_reboot<M: MappedMedium>(medium: M, plan: &Plan) -> Result<(), String> {
    match options(plan).boot_id(REBOOTED).open_on(medium) {
        Ok(_) => Err("a pool that was never synced is opened after a crash of the machine".into()),
        Err(OpenError { problem, .. }) => match problem {
            Problem::MachineCrashed | Problem::NotAPool | Problem::Damaged(_) => Ok(()),
            other => Err(format!("the pool is refused for another reason: {other:?}")),
        },
    }
}

/// The first eight of these operations, repeated if there are fewer: what a process does after a
/// kill, unless a target needs something else.
pub(crate) fn first_eight(after: &[Op]) -> Vec<Op> {
    after.iter().cycle().take(8).cloned().collect()
}

/// Writes, and retries once if the pool was full but could reclaim something. What `write` has done
/// before it finds the pool full, it does not do again.
pub(crate) fn written<M: MappedMedium, E: Into<ChangeError>>(
    pool: &Pool<M>,
    write: impl Fn() -> Result<Option<Version>, E>,
) -> Reply {
    let outcome = write();
    let mut outcome = outcome.map_err(Into::into);
    if matches!(outcome, Err(ChangeError::Full(_))) && pool.reclaim_blocking() {
        outcome = write().map_err(Into::into);
    }
    match outcome {
        Ok(found) => Reply::Found(found),
        Err(ChangeError::Full(_)) => Reply::Full,
        Err(ChangeError::Damaged(_)) => Reply::Broken("a write meets damage"),
    }
}

/// The reply of several puts, each of which found room or did not.
pub(crate) fn reply_of_puts<E>(puts: &[Result<(), E>], is_full: impl Fn(&E) -> bool) -> Reply {
    let done =
        puts.iter().enumerate().filter(|(_, put)| put.is_ok()).fold(0, |bits, (nth, _)| bits | 1 << nth);
    match puts.iter().find_map(|put| put.as_ref().err().filter(|error| !is_full(error))) {
        Some(_) => Reply::Broken("a put of several is refused"),
        None if puts.iter().all(Result::is_ok) => Reply::Found(None),
        None if done == 0 => Reply::Full,
        None => Reply::Partly(done),
    }
}

/// The findings of a check of a pool's head and memory.
pub(crate) fn findings<M: MappedMedium>(pool: &Pool<M>) -> Vec<String> {
    let findings = pool.verify_superblock_and_roots().into_iter().chain(pool.verify_memory());
    findings.map(|finding| finding.to_string()).collect()
}
