//! What all pools of the lab have in common.

use std::sync::Arc;
use terrace_medium::MappedMedium;
use terrace_pool::{Geometry, Liveness, OpenError, Pool, PoolFull, PoolOptions, Problem};
use terrace_testkit::crash::{Op, Plan, Reply, Version};

/// How the pool of a run is made and opened: the same bytes every time.
pub(crate) fn options(plan: &Plan) -> PoolOptions {
    let options = PoolOptions::anonymous()
        .geometry(Geometry { thread_slots: thread_slots(plan), ..Geometry::tiny() })
        .hash_seed(hash_seed(plan.seed))
        .boot_id(1)
        .reproducible();
    if has_light_pins(plan) { options.as_if_light() } else { options }
}

/// Where threads meet, pins have no barrier in half of the runs, as where the kernel makes one for who moves the epoch on: what it hides is seen.
fn has_light_pins(plan: &Plan) -> bool {
    plan.threads > 1 && plan.seed >> 6 & 1 == 1
}

/// The pool of a run in memory that others share: made by the first of them.
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

/// One thread needs one seat; opening a pool looks at all of them. Several have as many as they want, or, in one run of eight, too few.
fn thread_slots(plan: &Plan) -> u32 {
    match plan.threads {
        1 => 2,
        _ if plan.seed.is_multiple_of(8) => 3,
        _ => 6,
    }
}

/// The seed of the hashes of keys in the run with this seed.
pub(crate) fn hash_seed(seed: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x7e44_ace0
}

/// Whether a pool could not be opened because a crash came before it was made.
pub(crate) fn is_unmade(plan: &Plan, error: &OpenError) -> bool {
    plan.creation && matches!(error.problem, Problem::Foreign | Problem::Damaged(_))
}

/// Another start of the machine than the one that the pool was made in.
pub(crate) const REBOOTED: u128 = 2;

/// After a crash of the machine, a pool of which nothing was synced must not be opened.
pub(crate) fn refused_after_reboot<M: MappedMedium>(medium: M, plan: &Plan) -> Result<(), String> {
    match options(plan).boot_id(REBOOTED).open_on(medium) {
        Ok(_) => Err("a pool of which nothing was synced is opened after the machine went down".into()),
        Err(OpenError { problem, .. }) => match problem {
            Problem::MachineWentDown | Problem::Foreign | Problem::Damaged(_) => Ok(()),
            other => Err(format!("the pool is refused for another reason: {other:?}")),
        },
    }
}

/// The first eight of these, or the same again: what a process does after a kill, if nothing else matters more.
pub(crate) fn twice_four(after: &[Op]) -> Vec<Op> {
    after.iter().cycle().take(8).cloned().collect()
}

/// Writes, and once more if the pool was full but could be relieved of something.
pub(crate) fn written<M: MappedMedium>(
    pool: &Pool<M>,
    write: impl Fn() -> Result<Option<Version>, PoolFull>,
) -> Reply {
    let mut outcome = write();
    if outcome.is_err() && pool.reclaim_blocking() {
        outcome = write();
    }
    outcome.map_or(Reply::Full, Reply::Found)
}

/// What is wrong with the head of a pool and with its memory.
pub(crate) fn findings<M: MappedMedium>(pool: &Pool<M>) -> Vec<String> {
    let findings = pool.verify_head().into_iter().chain(pool.verify_memory());
    findings.map(|finding| finding.to_string()).collect()
}
