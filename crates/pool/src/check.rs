//! What a check of a pool reports.

/// Something in a pool that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where, in bytes from the start of the pool.
    pub offset: u64,
    /// What lies there.
    pub what: &'static str,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub found: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { offset, what, expected, found } = self;
        write!(f, "{offset:#x}: {what}: expected {expected}, found {found}")
    }
}
