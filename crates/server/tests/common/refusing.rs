//! An engine that refuses keys as one does whose slots have left.

use std::sync::{Arc, Condvar, Mutex};

use terrace::Store;
use terrace_direct::Settings;
use terrace_engine::{
    Change, Chore, Clock, CloseError, Commit, Count, Cursor, Durability, Durably, Engine, Entry,
    EntryCallback, Expected, ManualClock, Put, ReadError, Report, Rest, Salvage, Stats, Ticket, Token, Value,
    Version, WatchError, WatchHandle, Write, WriteError,
};
use terrace_index::CacheBounds;
use terrace_pool::Pool;

/// An engine over a pool in memory, until it is told to refuse.
pub(crate) struct Refusing {
    inner: Arc<dyn Engine>,
    why: Mutex<Option<ReadError>>,
    once: Mutex<Option<ReadError>>,
    gate: Mutex<Gate>,
    changed: Condvar,
}

/// The key whose writers wait while the gate is closed.
pub(crate) const GATE: &[u8] = b"gate";

#[derive(Default)]
struct Gate {
    is_closed: bool,
    waiting: usize,
}

impl Refusing {
    pub(crate) fn new(clock: Arc<ManualClock>) -> Arc<Refusing> {
        let settings = Settings {
            expected_keys: 100,
            index_cache: CacheBounds::default(),
            index_dram: Some(0),
            verify_reads: true,
            read_only: false,
            durability: Durability::Process,
            clock: clock as Arc<dyn Clock>,
        };
        let pool = Pool::anonymous(16 << 20).unwrap();
        let inner = terrace_direct::open_shm("clht", pool, settings).unwrap();
        let (why, once, gate, changed) = Default::default();
        Arc::new(Refusing { inner, why, once, gate, changed })
    }

    pub(crate) fn store(self: &Arc<Refusing>) -> Store {
        Store::over(Arc::clone(self) as Arc<dyn Engine>).unwrap()
    }

    /// Refuses all operations on keys from now on, or none.
    pub(crate) fn refuse(&self, why: Option<ReadError>) {
        *self.why.lock().unwrap() = why;
    }

    /// Refuses the next operation on a key alone.
    pub(crate) fn refuse_once(&self, why: ReadError) {
        *self.once.lock().unwrap() = Some(why);
    }

    /// Makes writers of [`GATE`] wait from now on, or no more.
    pub(crate) fn close_gate(&self, is_closed: bool) {
        self.gate.lock().unwrap().is_closed = is_closed;
        self.changed.notify_all();
    }

    /// Waits until so many writers wait at the gate.
    pub(crate) fn wait_for_writers(&self, count: usize) {
        drop(self.changed.wait_while(self.gate.lock().unwrap(), |gate| gate.waiting < count).unwrap());
    }

    fn pass_gate(&self) {
        let mut gate = self.gate.lock().unwrap();
        gate.waiting += 1;
        self.changed.notify_all();
        let mut gate = self.changed.wait_while(gate, |gate| gate.is_closed).unwrap();
        gate.waiting -= 1;
    }

    fn admit(&self) -> Result<(), ReadError> {
        self.once.lock().unwrap().take().map_or(Ok(()), Err)?;
        self.why.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

impl Engine for Refusing {
    fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        self.admit()?;
        self.inner.get(key)
    }

    fn get_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        match self.admit() {
            Ok(()) => self.inner.get_many(keys, each),
            Err(error) => (0..keys.len()).for_each(|nth| each(nth, Err(error.clone()))),
        }
    }

    fn snapshot_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        match self.admit() {
            Ok(()) => self.inner.snapshot_many(keys, each),
            Err(error) => (0..keys.len()).for_each(|nth| each(nth, Err(error.clone()))),
        }
    }

    fn token(&self, key: &[u8]) -> Result<Option<Token>, ReadError> {
        self.admit()?;
        self.inner.token(key)
    }

    fn version(&self, key: &[u8]) -> Result<Version, ReadError> {
        self.admit()?;
        self.inner.version(key)
    }

    fn put(&self, put: Put<'_>, how: Durably) -> Result<(), WriteError> {
        self.admit()?;
        if put.key == GATE {
            self.pass_gate();
        }
        self.inner.put(put, how)
    }

    fn put_many(&self, puts: &[Put<'_>], how: Durably) -> Vec<Result<(), WriteError>> {
        match self.admit() {
            Ok(()) => self.inner.put_many(puts, how),
            Err(error) => puts.iter().map(|_| Err(error.clone().into())).collect(),
        }
    }

    fn delete(&self, key: &[u8], how: Durably) -> Result<(), WriteError> {
        self.admit()?;
        self.inner.delete(key, how)
    }

    fn remove(&self, key: &[u8], how: Durably) -> Result<bool, WriteError> {
        self.admit()?;
        self.inner.remove(key, how)
    }

    fn remove_all(&self, keys: &[&[u8]], how: Durably) -> Result<u64, WriteError> {
        self.admit()?;
        self.inner.remove_all(keys, how)
    }

    fn modify(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
        how: Durably,
    ) -> Result<(), WriteError> {
        self.admit()?;
        self.inner.modify(key, change, how)
    }

    fn commit(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
        how: Durably,
    ) -> Result<Commit, WriteError> {
        self.admit()?;
        self.inner.commit(writes, expected, how)
    }

    fn clear(&self, how: Durably) -> Result<(), WriteError> {
        self.inner.clear(how)
    }

    fn ticket(&self) -> Ticket {
        self.inner.ticket()
    }

    fn settle(&self, ticket: Ticket) -> Result<(), WriteError> {
        self.inner.settle(ticket)
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn scan(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError> {
        self.inner.scan(cursor, at_least, each)
    }

    fn random_key(&self) -> Result<Option<Vec<u8>>, ReadError> {
        self.inner.random_key()
    }

    fn len(&self) -> Count {
        self.inner.len()
    }

    fn chores(&self) -> &[Chore] {
        &[]
    }

    fn step(&self, _: Chore, _: &dyn Fn() -> bool) -> Rest {
        Rest::Idle
    }

    fn watch(&self, prefix: &[u8]) -> Result<Box<dyn WatchHandle>, WatchError> {
        self.inner.watch(prefix)
    }

    fn check_put(&self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        self.inner.check_put(key, value)
    }

    fn now_ms(&self) -> u64 {
        self.inner.now_ms()
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        self.inner.check(progress)
    }

    fn check_records(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        self.inner.check_records(progress)
    }

    fn keeps_entries(&self) -> bool {
        self.inner.keeps_entries()
    }

    fn salvage(&self, each: &mut Salvage<'_>) {
        self.inner.salvage(each);
    }

    fn stop(&self, why: String) {
        self.inner.stop(why);
    }

    fn close(self: Arc<Self>) -> Result<(), CloseError> {
        Arc::clone(&self.inner).close()
    }
}
