//! What tests of Terrace share: media that count and record, models, and one conformance suite a trait.
//!
//! - [`Counting`] counts write-backs, fences, bytes, lines and media blocks of any medium below it.
//! - [`Recording`] keeps an ordered trace of everything that changes any medium below it, for a lab to replay.
//! - [`Layered`] is one type for the media of the lab that are several upon each other.
//! - [`Slow`] delays any medium below it as a [`Profile`] says: Optane, CXL memory, phase-change memory.
//! - [`Jittery`] makes races on any medium below it happen often.
//! - [`linearizable`] judges a history of operations on one key.
//! - [`schedule`] runs threads in every order that chance and a seed come to, and judges what they were answered.
//! - [`crash`] crashes a store at every store and judges what each crash may leave.
//! - [`Company`] lets participants of one shared pool live in one process, and die.
//! - [`simfs`] is a file system in memory that loses what was not synced, and calls that fail.
//! - [`process`] kills and stops real processes, and judges what they leave by what they acknowledged.
//! - [`Reference`] is an ordered index that is right because it is simple.
//! - [`conformance`] holds the suites: one call runs all of them over an implementation.
#![allow(clippy::disallowed_methods, reason = "tests start threads and wait for them")]

mod company;
pub mod conformance;
mod counting;
pub mod crash;
mod jittery;
mod layered;
mod linearizability;
mod points;
pub mod process;
mod recording;
mod records;
mod reference;
pub mod schedule;
pub mod simfs;
mod slow;
mod threads;
mod trace;

pub use company::{Company, Member};
pub use counting::{Counting, Counts, Touched};
pub use jittery::Jittery;
pub use layered::{Layered, Noted};
pub use linearizability::{Call, Interval, Operation, final_states, linearizable};
pub use recording::Recording;
pub use records::{TestKeys, TestRecord};
pub use reference::Reference;
pub use slow::{Calibration, Comparison, Profile, Slow, Traffic};
pub use threads::elsewhere;
pub use trace::{Event, Piece, Role, Trace, What};
