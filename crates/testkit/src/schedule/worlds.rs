//! Two variants of a state: with all orderings in place, and in the run, where one may be weakened.

/// A value with all orderings in place, and its value in the run if that differs.
///
/// The two are nearly always equal, so the second one is stored only while they differ.
#[derive(Clone, Default)]
pub(super) struct Variants<T> {
    pub(super) with_all: T,
    in_run: Option<T>,
}

impl<T: Clone + PartialEq> Variants<T> {
    /// The same value in both.
    pub(super) fn both(with_all: T) -> Self {
        Self { with_all, in_run: None }
    }

    /// The value in the run.
    pub(super) fn in_run(&self) -> &T {
        self.in_run.as_ref().unwrap_or(&self.with_all)
    }

    /// The value in the run, for modification; call [`Variants::normalise`] afterwards.
    pub(super) fn in_run_mut(&mut self) -> &mut T {
        let with_all = &self.with_all;
        self.in_run.get_or_insert_with(|| with_all.clone())
    }

    /// Applies the same change to both.
    pub(super) fn each(&mut self, mut change: impl FnMut(&mut T)) {
        self.in_run.iter_mut().for_each(&mut change);
        change(&mut self.with_all);
    }

    /// Whether the two differ.
    pub(super) fn differs(&self) -> bool {
        self.in_run.is_some()
    }

    /// Drops the second value if it equals the first one.
    pub(super) fn normalise(&mut self) {
        if self.in_run.as_ref() == Some(&self.with_all) {
            self.in_run = None;
        }
    }
}
