//! What tests of Terrace share: media that count and record, models, and one conformance suite a trait.
//!
//! - [`Counting`] counts write-backs, fences, bytes, lines and media blocks of any medium below it.
//! - [`Recording`] keeps an ordered trace of everything that changes any medium below it, for a lab to replay.
//! - [`Jittery`] makes races on any medium below it happen often.
//! - [`linearizable`] judges a history of operations on one key.
//! - [`conformance`] holds the suites: one call runs all of them over an implementation.
#![allow(clippy::disallowed_methods, reason = "tests start threads and wait for them")]

pub mod conformance;
mod counting;
mod jittery;
mod linearizability;
mod recording;
mod records;
mod threads;
mod trace;

pub use counting::{Counting, Counts, Touched};
pub use jittery::Jittery;
pub use linearizability::{Call, Operation, linearizable};
pub use recording::Recording;
pub use records::{TestKeys, TestRecord};
pub use trace::{Event, Piece, Trace, What};
