//! Redis's Lua scripts: a Lua 5.1 state with Redis's libraries and its sandbox, whose scripts call
//! the commands of a [`Host`].
//!
//! A [`Machine`] belongs to one thread and runs one script at a time. Nothing of a script outlives
//! its run: what it can reach of the state is read-only, and a state that was changed all the same
//! is given up. So a run can be repeated, which is how a host makes a script one transaction.
#![forbid(unsafe_code)]

mod bits;
mod calls;
mod cjson;
mod cmsgpack;
mod control;
mod fault;
mod host;
mod machine;
mod number;
mod pattern;
mod random;
mod redis;
mod resp;
mod sandbox;
mod script;
mod strings;
mod structs;

pub use control::{Limits, Stop, StopFlag};
pub use host::{CallError, Host};
pub use machine::{Ended, Machine, Run};
pub use script::{Script, flag};
