//! Damage of a record in the memory, as the memory node tells it.

/// What is wrong with a record. A message has it as a text, and errors need one that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// The record itself.
    Record,
    /// Its value, which lies elsewhere.
    Value,
    /// The bucket that leads to it.
    Pointer,
    /// What a later release may tell.
    Other,
}

impl Damage {
    pub(super) const ALL: [Self; 4] = [Self::Record, Self::Value, Self::Pointer, Self::Other];

    /// The damage that a memory node tells by this text.
    pub(super) fn of(text: &str) -> Self {
        Self::ALL.into_iter().find(|damage| damage.text() == text).unwrap_or(Self::Other)
    }

    /// As the engine of a memory node says it.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Record => "a record does not match its checksum",
            Self::Value => "a value does not match its checksum",
            Self::Pointer => "the index points to no valid record",
            Self::Other => "a record that may be the key's is unsound",
        }
    }
}
