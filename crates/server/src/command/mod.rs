//! The commands: a file for each, or for a family that differs by a unit or a sign, and a line for
//! each in [`table`].
//!
//! A file contains the command's entry, parses its arguments, applies it to a
//! [`Keyspace`](crate::keyspace::Keyspace) and encodes the reply. To add a command, write its file,
//! add its entry to the table, and describe its arguments in `syntax`.
//!
//! In reading order: `spec`, what a command is; `context`, what it may use; [`table`], all of
//! them; `get`, `set` and the others. `nested` is how EXEC and EVAL execute commands, `long` how
//! commands tell that they take long; `parse`, `bounds`, `expiry` and `walk` are what several
//! commands share.

mod context;
mod expiry;
mod foreign;
mod long;
mod nested;
mod parse;
mod spec;
pub mod table;

pub use crate::state::failure::{Failure, Outcome};
pub use context::Context;
pub(crate) use foreign::is_of_another_type;
pub(crate) use long::{MANY, has_many_clients, has_many_keys, has_many_keys_to_count, may_wait};
pub use nested::Nested;
pub(crate) use nested::ScriptRules;
pub use spec::{AsPut, Command, IsLong, KeySpec, Read, Run, category, flag, group};
pub(crate) use transaction::effects;

mod append;
mod asking;
mod auth;
mod bounds;
mod client;
mod cluster;
mod config;
mod copy;
mod dbsize;
mod del;
mod delifeq;
mod durability;
mod echo;
mod eval;
mod exists;
mod expire;
mod flush;
mod get;
mod getdel;
mod getex;
mod getrange;
mod getset;
mod hello;
mod help;
mod incr;
mod incrbyfloat;
mod info;
mod introspect;
mod keys;
mod memory;
mod mget;
mod move_;
mod mset;
mod object;
mod persist;
mod ping;
mod quit;
mod randomkey;
mod removals;
mod rename;
mod reset;
mod scan;
mod script;
mod select;
mod set;
mod setex;
mod setnx;
mod setrange;
mod shutdown;
mod strlen;
mod syntax;
mod time;
mod transaction;
mod ttl;
mod type_;
mod wait;
mod walk;
mod x_count;
mod x_del;
mod x_disk;
mod x_next;
mod x_range;
