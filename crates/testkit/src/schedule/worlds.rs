//! Two variants of a state: with all orderings in place, and in the run, where one may be weakened.

/// A value with all orderings in place, and its value in the run if that differs.
///
/// The two are nearly always equal, so the second one is stored only while they differ.
#[derive(Clone, Default)]
pub(super) struct Worlds<T> {
    pub(super) would_be: T,
    is: Option<T>,
}

impl<T: Clone + PartialEq> Worlds<T> {
    /// The same value in both.
    pub(super) fn both(would_be: T) -> Self {
        Self { would_be, is: None }
    }

    /// The value in the run.
    pub(super) fn is(&self) -> &T {
        self.is.as_ref().unwrap_or(&self.would_be)
    }

    /// The value in the run, for modification; call [`Variants::settle`] afterwards.
    pub(super) fn is_mut(&mut self) -> &mut T {
        let would_be = &self.would_be;
        self.is.get_or_insert_with(|| would_be.clone())
    }

    /// Applies the same change to both.
    pub(super) fn each(&mut self, mut change: impl FnMut(&mut T)) {
        self.is.iter_mut().for_each(&mut change);
        change(&mut self.would_be);
    }

    /// Whether the two differ.
    pub(super) fn differs(&self) -> bool {
        self.is.is_some()
    }

    /// Drops the second value if it equals the first one.
    pub(super) fn settle(&mut self) {
        if self.is.as_ref() == Some(&self.would_be) {
            self.is = None;
        }
    }
}
