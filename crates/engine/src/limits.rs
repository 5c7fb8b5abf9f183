//! The limits of every store.

/// Longest key in bytes.
pub const KEY_MAX: usize = 64 << 10;
/// Longest value in bytes.
pub const VALUE_MAX: usize = 512 << 20;
