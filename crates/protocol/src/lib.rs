//! The Redis protocol without I/O: bytes to commands ([`Parser`]), replies to bytes ([`Reply`]),
//! and Redis's rules for numbers, patterns and passwords.
//!
//! Everything works on slices of the caller. In the steady state a parser allocates nothing for a
//! command. It takes memory only for bytes that have arrived, never for announced ones.
#![forbid(unsafe_code)]

mod args;
mod big;
mod error;
mod extended;
mod glob;
mod inline;
mod integer;
mod limits;
mod parser;
mod reply;
mod secret;
mod slot;

pub use args::{Args, ArgsIter, Queue};
pub use error::ProtocolError;
pub use extended::Extended;
pub use glob::{Glob, TooManySteps};
pub use integer::{parse_i64, parse_u64};
pub use limits::Limits;
pub use parser::Parser;
pub use reply::Reply;
pub use secret::same_secret;
pub use slot::{SLOTS, slot};
