//! Mutants that are not counted, with reasons: some are equivalent, others matter only in failures
//! that the lab does not simulate.

use terrace_testkit::crash::{Fault, Kind};

/// Mutants of one place that are not counted.
struct Exemption {
    /// The name of the place in the product.
    point: &'static str,
    kinds: &'static [Kind],
    because: &'static str,
}

const LOCK_INTENTS: &str = "not tested: a lock intent is durable for the crash of a host that loses its cache, which no participant of the lab does; engine/tests/all/costs.rs counts its cost";

const ALL: [Exemption; 5] = [
    Exemption {
        point: "slab.write-back-hint",
        kinds: &[Kind::NoWriteBack, Kind::LateWriteBack],
        because: "equivalent: a search begins at the hint and wraps around, so it finds the same for any hint that a crash leaves: \
                  only the time of the first search depends on it",
    },
    Exemption {
        point: "reserve.write-back",
        kinds: &[Kind::LateWriteBack],
        because: "equivalent: the reserve is allocated when a pool is created, before all fences of its superblock but the first, \
                  so it is durable before the creation returns; and a pool without a reserve takes one at the next collection",
    },
    Exemption {
        point: "intent.write-back",
        kinds: &[Kind::NoWriteBack, Kind::LateWriteBack],
        because: LOCK_INTENTS,
    },
    Exemption {
        point: "intent-set.write-back",
        kinds: &[Kind::NoWriteBack, Kind::LateWriteBack],
        because: LOCK_INTENTS,
    },
    Exemption { point: "intent.fence", kinds: &[Kind::NoFence, Kind::LateFence], because: LOCK_INTENTS },
];

/// Why a mutant is not counted; `None` if it is.
pub(super) fn exemption_reason(fault: Fault) -> Option<&'static str> {
    let applies = |one: &&Exemption| fault.point == Some(one.point) && one.kinds.contains(&fault.kind);
    ALL.iter().find(applies).map(|one| one.because)
}
