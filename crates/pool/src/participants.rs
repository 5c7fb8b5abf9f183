//! Who has the pool open.

/// Whom a lock word names: a participant in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Slot in the participant table, below 4096.
    pub participant: u16,
    /// How often the slot has been taken, modulo 2^18.
    pub incarnation: u32,
    /// The pool's generation: locks of another one are free.
    pub generation: u32,
}
