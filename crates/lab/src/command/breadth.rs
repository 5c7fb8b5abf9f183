//! Options for how a search divides its states among histories.

use clap::Args;
use terrace_testkit::crash::Limits;

/// A new history after some two hundred states: most faults depend on the history more than on its
/// state.
const WIDE: Limits = Limits {
    exhaustive: [8, 0, 0],
    samples: [4, 0, 0],
    events_one_in: [64, 16],
    nested_one_in: [0; 3],
    revived_one_in: 0,
    again_one_in: Limits::RECHECK_ONE_IN,
};

/// Fewer states per point, but more crashed recoveries and more kills.
const DEEP: Limits = Limits {
    exhaustive: [32, 8, 4],
    samples: [16, 4, 2],
    events_one_in: [8, 16],
    nested_one_in: [8192, 512, 0],
    revived_one_in: 2048,
    again_one_in: Limits::RECHECK_ONE_IN,
};

/// The options of `crash` and `replay`.
#[derive(Args, Clone, Copy)]
pub(super) struct Breadth {
    /// Check all states of a point with up to this many states, and sample the others; a smaller
    /// number leaves more states for other histories.
    #[arg(long, default_value_t = Limits::default().exhaustive[0], conflicts_with = "wide")]
    exhaustive: u64,
    /// Check a few states at a few points of each history, so some hundred times as many histories;
    /// no crashes of recoveries, and no kills before a power failure.
    #[arg(long)]
    wide: bool,
    /// Check some states at some points of each history, with four to sixteen times as many crashed
    /// recoveries for each state.
    #[arg(long, conflicts_with_all = ["wide", "exhaustive"])]
    deep: bool,
}

impl Breadth {
    /// The limits of the search. The default number of states gives the default limits, as a replay
    /// must use the limits of its search.
    pub(super) fn limits(self) -> Limits {
        match self {
            Self { wide: true, .. } => return WIDE,
            Self { deep: true, .. } => return DEEP,
            _ => {}
        }
        let mut limits = Limits::default();
        limits.exhaustive[0] = self.exhaustive;
        limits.samples[0] = (self.exhaustive / 64).max(16);
        limits
    }
}

/// The flags with which `replay` repeats a finding of a search with these limits.
pub(super) fn replay_flags(limits: Limits) -> String {
    match limits.exhaustive[0] {
        _ if limits.events_one_in == WIDE.events_one_in => " --wide".to_string(),
        _ if limits.events_one_in == DEEP.events_one_in => " --deep".to_string(),
        default if default == Limits::default().exhaustive[0] => String::new(),
        other => format!(" --exhaustive {other}"),
    }
}
