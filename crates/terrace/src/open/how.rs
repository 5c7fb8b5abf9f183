//! What is asked for where a store may or may not exist.

/// Whether to create the store, to open it, or either.
#[derive(Clone, Copy)]
pub(crate) enum How {
    Create,
    Open,
    OpenOrCreate,
}
