//! What tests of Terrace share: media that count and record, models, and one conformance suite a trait.
//!
//! - [`Counting`] counts write-backs, fences, bytes, lines and media blocks of any medium below it.
//! - [`Recording`] keeps an ordered trace of everything that changes any medium below it, for a lab to replay.
#![allow(clippy::disallowed_methods, reason = "tests start threads and wait for them")]

mod counting;
mod recording;
mod threads;
mod trace;

pub use counting::{Counting, Counts, Touched};
pub use recording::Recording;
pub use trace::{Event, Piece, Trace, What};
