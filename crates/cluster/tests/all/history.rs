//! Calls of clients, as a checker of histories sees them.

/// What a client did to a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Get(Option<u64>),
    Set(u64),
    /// An increment and the word that it returned, if it did.
    Add(Option<u64>),
    Delete(Option<bool>),
}

impl Call {
    /// The state after it, if it can have had its answer in `state`.
    pub(crate) fn apply(self, state: Option<u64>) -> Option<Option<u64>> {
        match self {
            Self::Get(found) => (found == state).then_some(state),
            Self::Set(word) => Some(Some(word)),
            Self::Add(answer) => {
                let next = state.unwrap_or(0) + 1;
                answer.is_none_or(|answer| answer == next).then_some(Some(next))
            }
            Self::Delete(answer) => answer.is_none_or(|there| there == state.is_some()).then_some(None),
        }
    }
}
