//! Watches of keys by their prefixes, within this process.

use crate::engine::WatchHandle;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of a prefix that count.
const PREFIX_MAX: usize = 40;

/// All watches of a store.
#[derive(Default)]
pub struct Watches {
    /// How many there are: a write looks no further if there is none.
    count: AtomicUsize,
    watched: Mutex<Vec<Watched>>,
}

struct Watched {
    prefix: Box<[u8]>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    has_changed: Mutex<bool>,
    changed: Condvar,
}

impl State {
    fn has_changed(&self) -> MutexGuard<'_, bool> {
        self.has_changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watch; from [`Watches::add`].
pub struct Watch {
    watches: Arc<Watches>,
    state: Arc<State>,
}

impl Watches {
    fn watched(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a watch of the keys that begin with `prefix`.
    pub fn add(self: &Arc<Self>, prefix: &[u8]) -> Watch {
        let state = Arc::<State>::default();
        let prefix = prefix[..prefix.len().min(PREFIX_MAX)].into();
        let mut watched = self.watched();
        watched.push(Watched { prefix, state: Arc::clone(&state) });
        self.count.store(watched.len(), Relaxed);
        Watch { watches: Arc::clone(self), state }
    }

    /// Reports changes of keys. Called under the writer's lock, after the changes are visible: a
    /// watch that is added later reads them.
    pub fn report<'k>(&self, keys: impl Iterator<Item = &'k [u8]> + Clone) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        for watched in &*self.watched() {
            if keys.clone().any(|key| key.starts_with(&watched.prefix)) {
                *watched.state.has_changed() = true;
                watched.state.changed.notify_all();
            }
        }
    }

    /// Reports that every key may have changed.
    pub fn report_all(&self) {
        for watched in &*self.watched() {
            *watched.state.has_changed() = true;
            watched.state.changed.notify_all();
        }
    }
}

impl WatchHandle for Watch {
    fn has_changed(&mut self) -> bool {
        std::mem::take(&mut self.state.has_changed())
    }

    fn wait(&mut self, time: Duration) -> bool {
        let waited =
            self.state.changed.wait_timeout_while(self.state.has_changed(), time, |changed| !*changed);
        std::mem::take(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.watches.watched();
        watched.retain(|watched| !Arc::ptr_eq(&watched.state, &self.state));
        self.watches.count.store(watched.len(), Relaxed);
    }
}
