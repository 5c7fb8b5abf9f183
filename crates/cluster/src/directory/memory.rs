//! A directory in memory, for tests and the simulator. It can be cut off, and its leases can end.

use super::{
    Change, Claim, Directory, DirectoryError, Entries, Kept, OnChange, Revision, State, Watch, Written,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What etcd is to [`super::etcd::EtcdDirectory`]. Clones share it.
#[derive(Clone, Default)]
pub struct Service(Arc<Shared>);

#[derive(Default)]
struct Shared {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    revision: Revision,
    entries: BTreeMap<String, Entry>,
    is_away: bool,
    clients: u64,
    /// What each client keeps.
    kept: BTreeMap<(u64, String), String>,
}

struct Entry {
    value: String,
    revision: Revision,
    /// The client whose lease it has.
    holder: Option<u64>,
}

impl Inner {
    fn put(&mut self, key: &str, value: &str, holder: Option<u64>) {
        let entry = Entry { value: value.into(), revision: self.revision, holder };
        self.entries.insert(key.into(), entry);
    }

    fn revision_of(&self, key: &str) -> Revision {
        self.entries.get(key).map_or(0, |entry| entry.revision)
    }

    fn texts(&self) -> Entries {
        let written = |entry: &Entry| Written {
            text: entry.value.clone(),
            revision: entry.revision,
            is_kept: entry.holder.is_some(),
        };
        self.entries.iter().map(|(key, entry)| (key.clone(), written(entry))).collect()
    }

    /// Writes what clients keep and the directory has not.
    fn write_kept(&mut self) {
        if self.is_away {
            return;
        }
        for ((holder, key), value) in self.kept.clone() {
            let has = |entry: &Entry| entry.value == value && entry.holder == Some(holder);
            if !self.entries.get(&key).is_some_and(has) {
                self.revision += 1;
                self.put(&key, &value, Some(holder));
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory, unless it is away.
    fn reach(&self) -> Result<MutexGuard<'_, Inner>, DirectoryError> {
        let inner = self.lock();
        if inner.is_away {
            let (endpoints, why) = ("memory".into(), "it is cut off".into());
            return Err(DirectoryError::Away { endpoints, why });
        }
        Ok(inner)
    }

    fn keep(&self, holder: u64, key: &str, value: Option<String>) {
        let place = (holder, key.to_owned());
        let Some(value) = value else {
            self.lock().kept.remove(&place);
            return self.remove(key, |entry| entry.holder == Some(holder));
        };
        let mut inner = self.lock();
        inner.kept.insert(place, value);
        inner.write_kept();
        self.changed.notify_all();
    }

    /// Removes a key if its entry is that one.
    fn remove(&self, key: &str, is_it: impl Fn(&Entry) -> bool) {
        let mut inner = self.lock();
        if inner.entries.get(key).is_some_and(is_it) {
            inner.entries.remove(key);
            inner.revision += 1;
            self.changed.notify_all();
        }
    }
}

impl Service {
    /// Another process that uses it.
    pub fn connect(&self) -> MemoryDirectory {
        let mut inner = self.0.lock();
        inner.clients += 1;
        MemoryDirectory { shared: Arc::clone(&self.0), client: inner.clients }
    }

    /// Cuts it off, or makes it answer again.
    pub fn set_away(&self, is_away: bool) {
        let mut inner = self.0.lock();
        inner.is_away = is_away;
        inner.write_kept();
        self.0.changed.notify_all();
    }

    /// Ends all leases.
    pub fn end_leases(&self) {
        let mut inner = self.0.lock();
        inner.revision += 1;
        inner.entries.retain(|_, entry| entry.holder.is_none());
        inner.write_kept();
        self.0.changed.notify_all();
    }
}

/// A process's directory in memory.
pub struct MemoryDirectory {
    shared: Arc<Shared>,
    client: u64,
}

impl Drop for MemoryDirectory {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.revision += 1;
        inner.kept.retain(|(holder, _), _| *holder != self.client);
        inner.entries.retain(|_, entry| entry.holder != Some(self.client));
        self.shared.changed.notify_all();
    }
}

impl Directory for MemoryDirectory {
    fn read(&self) -> Result<State, DirectoryError> {
        let inner = self.shared.reach()?;
        Ok(State::read(inner.revision, &inner.texts()))
    }

    fn change(
        &self,
        conditions: &[(&str, Revision)],
        changes: &[Change],
    ) -> Result<Option<Revision>, DirectoryError> {
        let mut inner = self.shared.reach()?;
        if conditions.iter().any(|(key, revision)| inner.revision_of(key) != *revision) {
            return Ok(None);
        }
        inner.revision += 1;
        for change in changes {
            match change {
                Change::Put(key, value) => inner.put(key, value, None),
                Change::Delete(key) => _ = inner.entries.remove(key),
            }
        }
        let revision = inner.revision;
        inner.write_kept();
        self.shared.changed.notify_all();
        Ok(Some(revision))
    }

    fn keep(&self, key: &str, value: String) -> Kept {
        let (shared, client, key) = (Arc::clone(&self.shared), self.client, key.to_owned());
        let kept = Kept(Box::new(move |value| shared.keep(client, &key, value)));
        kept.set(value);
        kept
    }

    fn claim(&self, key: &str, value: &str, over: Revision) -> Result<Option<Claim>, DirectoryError> {
        let mut inner = self.shared.reach()?;
        if inner.revision_of(key) != over {
            return Ok(None);
        }
        inner.revision += 1;
        inner.put(key, value, Some(self.client));
        self.shared.changed.notify_all();
        let (shared, key, revision) = (Arc::clone(&self.shared), key.to_owned(), inner.revision);
        let drop = move |_| shared.remove(&key, |entry| entry.revision == revision);
        Ok(Some(Claim { revision, _kept: Kept(Box::new(drop)) }))
    }

    fn watch(&self, mut on_change: OnChange) -> Watch {
        let shared = Arc::clone(&self.shared);
        let is_over = Arc::new(Mutex::new(false));
        let ends = Arc::clone(&is_over);
        let run = move || {
            let mut seen: Option<Entries> = None;
            let mut inner = shared.lock();
            while !*ends.lock().unwrap_or_else(PoisonError::into_inner) {
                let texts = inner.texts();
                if inner.is_away || seen.as_ref() == Some(&texts) {
                    inner = shared.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                let state = State::read(inner.revision, &texts);
                seen = Some(texts);
                drop(inner);
                on_change(state);
                inner = shared.lock();
            }
        };
        let thread = thread::Builder::new().name("directory".into()).spawn(run).expect("a thread");
        let shared = Arc::clone(&self.shared);
        Watch(Some(Box::new(move || {
            {
                // Under the lock: the thread looks at the flag, and waits, under it.
                let _inner = shared.lock();
                *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
                shared.changed.notify_all();
            }
            if thread.thread().id() != thread::current().id() {
                // A panic of the callback was told already.
                let _ = thread.join();
            }
        })))
    }
}
