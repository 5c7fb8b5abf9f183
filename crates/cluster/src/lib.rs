//! Many machines serve one memory, and any of them may die (DINOMO; SHIFT's rules for death).
//!
//! ```text
//!   serving node   Owner: lease, slots     ShardLog: entries ── one-sided write ──▶ segments
//!        │                                                                             │ Cursor
//!        └── control channel: ToMemory / ToServing ── Arbiter: leases, fences, grants  ▼
//!   memory node                                                               engine over P-CLHT
//! ```
//! The state machines have no I/O, threads or clocks: they are told what happens and when, and
//! answer with effects. [`memory`] runs those of the memory node.
//!
//! **The rule that all serves.** A slot has at most one owner that writes, and at most one that
//! answers. The memory node decides which: its table of owners is durable, and it grants a slot
//! only after the owner before has released it, or was fenced *and* its lease is over. The map in
//! etcd only says which node should be the owner.
#![forbid(unsafe_code)]

pub mod arbiter;
mod clock;
pub mod directory;
pub mod entry;
pub mod link;
mod lock;
pub mod log;
pub mod manager;
pub mod map;
pub mod memory;
pub mod message;
pub mod owner;
#[cfg(feature = "libfabric")]
pub mod serving;
pub mod slot;
#[cfg(test)]
mod tests;
