//! How a search divides its states among histories.

use clap::Args;
use terrace_testkit::crash::Limits;

/// Most mistakes take a certain history more than a certain state of it: so a new one is begun after some two hundred states.
const WIDE: Limits = Limits {
    exhaustive: [8, 0, 0],
    samples: [4, 0, 0],
    events_one_in: [64, 16],
    nested_one_in: [0; 3],
    revived_one_in: 0,
    again_one_in: Limits::AGAIN_ONE_IN,
};

/// Fewer states of each point, and more of what only recoveries that crash come by, or what comes after a kill.
const DEEP: Limits = Limits {
    exhaustive: [32, 8, 4],
    samples: [16, 4, 2],
    events_one_in: [8, 16],
    nested_one_in: [8192, 512, 0],
    revived_one_in: 2048,
    again_one_in: Limits::AGAIN_ONE_IN,
};

/// What `crash` and `replay` are told of it.
#[derive(Args, Clone, Copy)]
pub(super) struct Breadth {
    /// States of one point of a history that are all judged; where there are more, they are sampled. Fewer leave more for other histories.
    #[arg(long, default_value_t = Limits::default().exhaustive[0], conflicts_with = "wide")]
    exhaustive: u64,
    /// A few states at a few points of each history, and so some hundred times as many histories; no crashes of recoveries, nor kills before a loss of power.
    #[arg(long)]
    wide: bool,
    /// Some states at some points of each history, and four to sixteen times as many crashes of recoveries for each of them.
    #[arg(long, conflicts_with_all = ["wide", "exhaustive"])]
    deep: bool,
}

impl Breadth {
    /// How far the search goes. The usual number of states gives the usual limits, or a replay would not be one.
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

/// What else is to be told to a command that repeats a finding of a search with these limits.
pub(super) fn again(limits: Limits) -> String {
    match limits.exhaustive[0] {
        _ if limits.events_one_in == WIDE.events_one_in => " --wide".to_string(),
        _ if limits.events_one_in == DEEP.events_one_in => " --deep".to_string(),
        usual if usual == Limits::default().exhaustive[0] => String::new(),
        other => format!(" --exhaustive {other}"),
    }
}
