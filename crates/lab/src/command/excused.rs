//! Mutants that do not count, and why: with some the program does what it promises, others take away what no accident of the lab's needs.

use terrace_testkit::crash::{Fault, Kind};

/// Mutants of one place that do not count.
struct Excused {
    /// The name of the place in the product.
    point: &'static str,
    kinds: &'static [Kind],
    because: &'static str,
}

const NOTES: &str = "not tried: a note of a lock is made durable for the death of a host that takes its cache along, and no participant of the lab's does; what it costs is counted in engine/tests/costs.rs";

const ALL: [Excused; 5] = [
    Excused {
        point: "slab.write-back-hint",
        kinds: &[Kind::NoWriteBack, Kind::LateWriteBack],
        because: "equivalent: a search begins where the hint says and goes on around to there again, so it finds the same whatever a crash leaves of the hint: \
                  only the time of the first search after it depends on that",
    },
    Excused {
        point: "reserve.write-back",
        kinds: &[Kind::LateWriteBack],
        because: "equivalent: the reserve is set aside when a pool is made, before all fences of its superblock but the first, \
                  so it is durable before the making returns; and a pool that has no reserve takes one at the next collection",
    },
    Excused { point: "intent.write-back", kinds: &[Kind::NoWriteBack, Kind::LateWriteBack], because: NOTES },
    Excused {
        point: "intent-set.write-back",
        kinds: &[Kind::NoWriteBack, Kind::LateWriteBack],
        because: NOTES,
    },
    Excused { point: "intent.fence", kinds: &[Kind::NoFence, Kind::LateFence], because: NOTES },
];

/// Why a mutant does not count; nothing if it does.
pub(super) fn why_excused(fault: Fault) -> Option<&'static str> {
    let is_it = |one: &&Excused| fault.point == Some(one.point) && one.kinds.contains(&fault.kind);
    ALL.iter().find(is_it).map(|one| one.because)
}
