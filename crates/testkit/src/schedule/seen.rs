//! What a thread has to see of the stores of others, by the C11 memory model.

use std::sync::Arc;

/// What a thread has to see: for each word that was stored to, the number of the value from which on it may load.
#[derive(Clone, Default)]
pub(super) struct View(Arc<Vec<u32>>);

impl View {
    pub(super) fn of(&self, word: usize) -> u32 {
        self.0.get(word).copied().unwrap_or(0)
    }

    pub(super) fn raise(&mut self, word: usize, to: u32) {
        if self.of(word) < to {
            let view = Arc::make_mut(&mut self.0);
            view.resize(view.len().max(word + 1), 0);
            view[word] = to;
        }
    }

    pub(super) fn join(&mut self, other: &Self) {
        if Arc::ptr_eq(&self.0, &other.0) || other.0.is_empty() {
            return;
        }
        if self.0.is_empty() {
            return self.clone_from(other);
        }
        let view = Arc::make_mut(&mut self.0);
        view.resize(view.len().max(other.0.len()), 0);
        view.iter_mut().zip(&*other.0).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
    }
}

/// What a thread has to see.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) view: View,
    /// What it has loaded without acquiring carries this: a barrier acquires it.
    pub(super) loaded: View,
    /// What it had to see at its last barrier: what it stores afterwards carries this.
    pub(super) fenced: View,
}

impl Seen {
    /// All loads and stores before are ordered against those behind, but for the stores before against the loads behind.
    pub(super) fn fence(&mut self) {
        self.view.join(&self.loaded);
        self.fenced = self.view.clone();
    }

    pub(super) fn barrier(&mut self, common: &mut View) {
        self.view.join(common);
        self.fence();
        common.join(&self.view);
    }
}
