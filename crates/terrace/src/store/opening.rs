//! What the opening of a store has found.

use super::{Inner, Store};
use crate::Salvaged;

impl Store {
    /// What the opening has found damaged or lost.
    pub fn opening(&self) -> Opening<'_> {
        Opening { inner: &self.inner }
    }
}

/// What the opening of a store has found damaged or lost; from [`Store::opening`].
///
/// ```
/// let store = terrace::Store::options().anonymous().create()?;
/// assert!(store.opening().warnings().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Opening<'s> {
    inner: &'s Inner,
}

impl<'s> Opening<'s> {
    /// The result of the salvage, if the store was opened with
    /// [`Options::salvage`](crate::Options::salvage).
    pub fn salvaged(&self) -> Option<&'s Salvaged> {
        self.inner.salvaged.as_ref()
    }

    /// What is damaged or lost, a sentence each: large values of a store over two tiers that cannot
    /// be read.
    pub fn warnings(&self) -> &'s [String] {
        self.inner.engine.warnings()
    }

    /// The end of the log of a store in a directory that the opening has found torn, and dropped,
    /// in one sentence. `None` unless sound records lie in it: a crash of the machine may leave
    /// such, and so may damage.
    pub fn torn_tail(&self) -> Option<String> {
        let tail = self.inner.engine.on_disk()?.torn_tail().filter(|tail| tail.records > 0)?;
        Some(tail.to_string())
    }
}

impl std::fmt::Debug for Opening<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opening")
    }
}
