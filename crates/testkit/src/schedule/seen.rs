//! What a thread has to see of what others did, by the C11 memory model.

use super::stage::THREADS_MAX;
use std::sync::Arc;

/// What a thread has to see: for each word that was stored to, the number of the value from which on it may load; and of each thread, how many of its accesses come before.
#[derive(Clone, Default)]
pub(super) struct View {
    words: Arc<Vec<u32>>,
    clocks: [u32; THREADS_MAX],
}

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        let [mine, theirs] = [self, other].map(|view| view.words.as_slice());
        let (short, long) = if mine.len() < theirs.len() { (mine, theirs) } else { (theirs, mine) };
        let is_same = || {
            let (same, rest) = long.split_at(short.len());
            same == short && rest.iter().all(|&of| of == 0)
        };
        self.clocks == other.clocks && (Arc::ptr_eq(&self.words, &other.words) || is_same())
    }
}

impl View {
    pub(super) fn of(&self, word: usize) -> u32 {
        self.words.get(word).copied().unwrap_or(0)
    }

    /// How many accesses of `thread` come before all that is seen like this.
    pub(super) fn of_thread(&self, thread: usize) -> u32 {
        self.clocks[thread]
    }

    /// `thread` itself comes to its access number `clock`.
    pub(super) fn tick(&mut self, thread: usize, clock: u32) {
        self.clocks[thread] = clock;
    }

    pub(super) fn raise(&mut self, word: usize, to: u32) {
        if self.of(word) < to {
            let view = Arc::make_mut(&mut self.words);
            view.resize(view.len().max(word + 1), 0);
            view[word] = to;
        }
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.clocks.iter_mut().zip(other.clocks).for_each(|(mine, theirs)| *mine = theirs.max(*mine));
        if Arc::ptr_eq(&self.words, &other.words) || other.words.is_empty() {
            return;
        }
        if self.words.is_empty() {
            return self.words.clone_from(&other.words);
        }
        let view = Arc::make_mut(&mut self.words);
        view.resize(view.len().max(other.words.len()), 0);
        view.iter_mut().zip(&*other.words).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
    }
}

/// What an access orders.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) struct Ordered {
    pub(super) acquires: bool,
    pub(super) releases: bool,
    pub(super) is_total: bool,
}

/// What a thread has to see.
#[derive(Clone, Default, PartialEq)]
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

    /// It has loaded a value that carries this.
    pub(super) fn load(&mut self, word: usize, value: u32, carried: &View, ordered: Ordered) {
        self.view.raise(word, value);
        if ordered.acquires { self.view.join(carried) } else { self.loaded.join(carried) }
    }

    /// What a value carries that it stores; in an exchange, also what that carried which was there before.
    pub(super) fn carried(&self, ordered: Ordered, before: Option<&View>) -> View {
        let mut carried = if ordered.releases { self.view.clone() } else { self.fenced.clone() };
        if let Some(before) = before {
            carried.join(before);
        }
        carried
    }
}
