//! The settings of one table of functions.

/// What to do with numbers that JSON lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invalid {
    Refuse,
    Keep,
    /// Write null.
    Null,
}

/// The settings of one table of functions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) encode_depth: usize,
    pub(super) decode_depth: usize,
    pub(super) precision: usize,
    pub(super) encode_invalid: Invalid,
    pub(super) decode_invalid: Invalid,
    pub(super) keep_buffer: bool,
    /// A sparse array becomes an object; otherwise it is an error.
    pub(super) sparse_converts: bool,
    /// An array is sparse if its largest key is more than this times its length. 0: never.
    pub(super) sparse_ratio: usize,
    /// No array is sparse whose largest key is at most this.
    pub(super) sparse_safe: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            encode_depth: 1000,
            decode_depth: 1000,
            precision: 14,
            encode_invalid: Invalid::Refuse,
            decode_invalid: Invalid::Keep,
            keep_buffer: true,
            sparse_converts: false,
            sparse_ratio: 2,
            sparse_safe: 10,
        }
    }
}
