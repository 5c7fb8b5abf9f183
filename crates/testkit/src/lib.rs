//! Test support for Terrace: media that count and record, models, and the explorers of crashes and
//! schedules. The conformance suites are a crate of their own above this one.
//!
//! - [`Tapped`] is the medium of tests: it counts write-backs, fences, bytes, lines and blocks,
//!   makes races more likely ([`jittery`]), or kills its process at a chosen line ([`stopping`]).
//! - [`Recording`] records an ordered trace of all changes to any medium below it, for replay.
//! - [`Layered`] is a single type for stacks of media.
//! - [`Slow`] delays any medium below it according to a [`Profile`]: Optane, CXL memory,
//!   phase-change memory.
//! - [`torn_read`] reads a pool's bytes as a reader elsewhere does, and [`Tearing`] tears words.
//! - [`linearizable`] checks a history of operations on one key.
//! - [`schedule`] runs threads in many interleavings, each from a seed, and checks their answers.
//! - [`crash`] crashes a store after each of its stores and checks every state that a crash may
//!   leave.
//! - [`ProcessGroup`] lets participants of one shared pool live in one process, and crash.
//! - [`simfs`] is an in-memory file system that loses unsynced data and injects failing calls.
//! - [`process`] kills and stops real processes, and checks what they leave against what they
//!   acknowledged.
//! - [`times`] and [`stride`] say how many runs a test does by day and at night.
//! - [`free_ports`] finds ports for servers that die and start again.
//! - [`Reference`] is a simple, evidently correct ordered index, with faults if a test wants some.
#![allow(clippy::disallowed_methods, reason = "tests start threads and wait for them")]

mod company;
pub mod crash;
mod layered;
pub mod linearizability;
mod observer;
mod points;
mod ports;
pub mod process;
mod recording;
mod records;
mod reference;
pub mod schedule;
pub mod simfs;
mod slow;
mod tapped;
mod thorough;
mod threads;
mod torn;
mod trace;

pub use company::{GroupLiveness, ProcessGroup};
pub use layered::Layered;
pub use linearizability::{Call, Interval, Operation, final_states, linearizable};
pub use observer::CallObserver;
pub use ports::free_ports;
pub use recording::Recording;
pub use records::{KeySort, TestKey, TestKeys, TestRecord};
pub use reference::Reference;
pub use slow::{Calibration, Comparison, Profile, Slow, Traffic};
pub use tapped::{Counts, Tapped, TappedPmem, TappedShm, Touched, jittery, stopping};
pub use thorough::{TIMES, stride, times};
pub use threads::in_other_thread;
pub use torn::{Tearing, torn_read};
pub use trace::{Event, Piece, Role, Trace, What};
