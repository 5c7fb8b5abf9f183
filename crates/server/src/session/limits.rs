//! How far a call of a session goes.

/// `process` stops between two commands once `output` has this many bytes.
pub const OUTPUT_HIGH_WATER: usize = 1 << 20;

/// Maximum number of commands that are parsed ahead.
pub const LOOKAHEAD: usize = 64;
