//! Schedules: threads that meet at every access of a medium, in an order that a seed chooses and repeats.
//!
//! Reading order: [`Stage`] (threads that take turns), [`Policy`] (who is next), [`Cue`] (or where each has to stand), [`Scheduled`] (the medium that asks), [`Scenario`] (what the threads do), [`Calls`]
//! (what they were answered, and whether one order of their calls explains it), [`Death`] (which of them dies where, while the others go on), [`run`] (all of it once), [`Crashes`] (and with a crash). `docs/testing.md` says what all this proves and what not.

mod calls;
mod causal;
mod crash;
mod crew;
pub mod cues;
mod death;
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
pub use crash::{Crash, Crashed, Crashes, LIMITS};
pub use cues::{Cue, Sight, Stop};
pub use death::{Asked, Death};
pub use finding::{Finding, Story, minimise};
pub use medium::Scheduled;
pub use model::{Weak, Weakening, Weakenings};
pub use policy::{Policy, Slice};
pub use reach::{Aim, Reach};
pub use run::{Run, rehearse, run};
pub use scenario::{Act, Manner, Scenario};
pub(crate) use stage::pause;
pub use stage::{Job, Last, Ran, Stage, THREADS_MAX, Turn, mark};
pub use weak::{Passed, Weakened};
