//! Schedule testing: threads that interleave at every access to a medium, in an order that a seed
//! determines and repeats.
//!
//! Reading order: [`Scheduler`] (runs one thread at a time), [`Policy`] (the choice of the next
//! thread), [`Breakpoint`] (where a thread of a script stops), [`Scheduled`] (the medium that
//! yields to the scheduler), [`Scenario`] (the operations of the threads), [`Calls`] (their
//! answers, and whether one order of the calls explains them), [`ThreadCrash`] (a thread that
//! crashes while others continue), [`run`] (one run), [`CrashSettings`] (the settings of a run with
//! power failures). `docs/testing.md` explains what these tests prove and what they do not.

mod calls;
mod causal;
mod crash;
mod crew;
pub mod cues;
mod death;
mod drawn;
mod finding;
mod heirs;
mod medium;
mod model;
mod policy;
mod races;
mod reach;
mod run;
mod scenario;
mod seen;
mod spin;
mod stage;
mod tail;
mod tides;
mod weak;
mod worlds;

pub use calls::{Answer, Call, Calls, Contents, Outcomes};
pub use crash::{Crash, CrashOutcome, CrashSettings, LIMITS};
pub use cues::{Breakpoint, Stop, Visibility};
pub use death::{CrashSite, ThreadCrash};
pub use finding::{Finding, FindingReport, minimise};
pub use medium::Scheduled;
pub use model::{Weak, Weakening, Weakenings};
pub use policy::{Policy, Slice};
pub use reach::{Aim, Reach};
pub use run::{Run, run, run_unchecked};
pub use scenario::{CallOrdering, Scenario, ThreadOp};
pub(crate) use stage::pause;
pub use stage::{Job, Last, RunResult, Scheduler, THREADS_MAX, Turn, mark};
pub use weak::{UsedOrderings, Weakened};
