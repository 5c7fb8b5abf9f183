//! What a thread must see of other threads' stores under the C11 memory model.

use super::stage::THREADS_MAX;
use std::sync::Arc;

/// What a thread must see: for each word, the number of the oldest value that it may load; for each
/// thread, how many of its accesses happened before.
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

    /// The number of accesses of `thread` that happened before everything with this view.
    pub(super) fn of_thread(&self, thread: usize) -> u32 {
        self.clocks[thread]
    }

    /// Counts access number `clock` of `thread` itself.
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

/// The effect of an access.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) struct Ordered {
    pub(super) acquires: bool,
    pub(super) releases: bool,
    pub(super) is_total: bool,
}

/// What a thread must see.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Seen {
    pub(super) view: View,
    /// The views carried by values that it loaded without acquiring; a barrier acquires them.
    pub(super) loaded: View,
    /// Its view at its last barrier, which its later stores carry.
    pub(super) fenced: View,
}

impl Seen {
    /// Orders all earlier loads and stores before all later ones, except earlier stores with later
    /// loads.
    pub(super) fn fence(&mut self) {
        self.view.join(&self.loaded);
        self.fenced = self.view.clone();
    }

    pub(super) fn barrier(&mut self, common: &mut View) {
        self.view.join(common);
        self.fence();
        common.join(&self.view);
    }

    /// Applies a load of a value that carries this.
    pub(super) fn load(&mut self, word: usize, value: u32, carried: &View, ordered: Ordered) {
        self.view.raise(word, value);
        if ordered.acquires { self.view.join(carried) } else { self.loaded.join(carried) }
    }

    /// The view that its stored value carries; for a read-modify-write, including what the replaced
    /// value carried.
    pub(super) fn carried(&self, ordered: Ordered, before: Option<&View>) -> View {
        let mut carried = if ordered.releases { self.view.clone() } else { self.fenced.clone() };
        if let Some(before) = before {
            carried.join(before);
        }
        carried
    }
}
