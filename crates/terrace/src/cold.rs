//! Operations on a thread that must not wait for a slower tier, such as one that serves many
//! connections.
//!
//! With [`Engine::Tiered`](crate::Engine::Tiered), an operation may have to read a record that is
//! not in DRAM. Within [`ColdReads::run`] it fails instead, and has had no effect: see
//! [`ReadError::is_put_off`](crate::ReadError::is_put_off). The caller makes the reads with a
//! [`Ring`], or in another way, and runs it again. Operations of other engines run as ever.

pub use terrace_disk::cold::{ColdRead, ColdReads, FilePlace, is_stuck, waiting};
pub use terrace_medium::files::{AlignedBytes, Done, Ring, StoredFile};
