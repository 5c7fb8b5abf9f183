//! The store.

mod iter;
mod watch;

pub use iter::{Iter, Keys};
pub use watch::Watch;

use crate::background::{Background, is_another_stopped};
use crate::batch::later;
use crate::{
    Batch, ByteSize, Change, CloseError, Cursor, Entry, Eviction, GrowError, Holder, IncrementError, KeyUse,
    OpenError, Options, Put, ReadError, Report, Salvaged, Stats, Token, Transaction, Value, Version,
    WriteError,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use terrace_engine::{Commit, Durably, Engine, EntryCallback, Evicting, Pooled, Write, WriteKind};
use terrace_pool::{Backoff, Forked};

/// A key-value store in a pool.
///
/// Clones are handles of the same store; it is closed when the last one is dropped. All operations
/// may be called from any thread. Each happens at one instant, and when it has returned, it
/// survives what the store's [`Durability`](crate::Durability) says. An expired entry is absent for
/// all of them.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
    /// How durable a write of this handle is when it returns.
    how: Durably,
}

/// A reference to a [`Store`] that does not keep it open.
#[derive(Clone)]
pub struct WeakStore {
    inner: Weak<Inner>,
    how: Durably,
}

impl WeakStore {
    /// The store, if it is open.
    pub fn upgrade(&self) -> Option<Store> {
        Some(Store { inner: self.inner.upgrade()?, how: self.how })
    }
}

impl std::fmt::Debug for WeakStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakStore")
    }
}

struct Inner {
    // Dropped before `engine`, so that no thread runs when the pool is closed.
    background: Background,
    engine: Arc<dyn Engine>,
    path: Option<PathBuf>,
    salvaged: Option<Salvaged>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("path", &self.inner.path)
            .field("records", &self.len())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Options for creating or opening a store.
    pub fn options() -> Options {
        Options::new()
    }

    /// A store over an engine that the caller has made, such as one without a pool of its own.
    /// Starts threads for the background work that the engine has.
    pub fn over(engine: Arc<dyn Engine>) -> Result<Self, OpenError> {
        Options::new().start_threads(engine, None)
    }

    pub(crate) fn start(
        engine: Arc<dyn Engine>,
        background: Background,
        path: Option<PathBuf>,
        salvaged: Option<Salvaged>,
    ) -> Self {
        let inner = Arc::new(Inner { background, engine, path, salvaged });
        Self { inner, how: Durably::Store }
    }

    /// A reference that does not keep the store open.
    pub fn downgrade(&self) -> WeakStore {
        WeakStore { inner: Arc::downgrade(&self.inner), how: self.how }
    }

    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.inner.engine
    }

    /// How durable a write of this handle is when it returns.
    pub(crate) fn how(&self) -> Durably {
        self.how
    }

    /// Another handle of this store, whose writes return once they are visible; [`Store::settle`]
    /// makes them durable, together with others. In a pool, they are durable at once.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// let later = store.deferring();
    /// later.put("a", "1")?;
    /// later.put("b", "2")?;
    /// store.settle(store.ticket())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn deferring(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), how: Durably::Later }
    }

    /// The operations of a store in a pool.
    fn pooled(&self) -> Option<&dyn Pooled> {
        self.inner.engine.pooled()
    }

    /// The pool's file; `None` for anonymous memory.
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// The result of the salvage, if the store was opened with [`Options::salvage`].
    pub fn salvaged(&self) -> Option<&Salvaged> {
        self.inner.salvaged.as_ref()
    }

    /// The entry of `key`, without a copy.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put(b"name", b"Ada")?;
    /// assert_eq!(store.get(b"name")?.unwrap(), b"Ada");
    /// assert!(store.get(b"age")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The record does not match its checksum.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>, ReadError> {
        let key = key.as_ref();
        self.inner.engine.get(key)
    }

    /// Reads the entries of `keys`; their cache misses overlap, so this is much faster than single
    /// reads. Calls `each` once per key, in order, with its position. A write may happen between
    /// two of the reads; [`Store::snapshot_many`] excludes that.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put(b"a", b"1")?;
    /// let mut found = Vec::new();
    /// store.get_many(&[b"a", b"b"], &mut |nth, entry| {
    ///     found.push((nth, entry.unwrap().map(|entry| entry.value.to_vec())));
    /// });
    /// assert_eq!(found, [(0, Some(b"1".to_vec())), (1, None)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        self.inner.engine.get_many(keys, each);
    }

    /// Reads the entries of `keys`, all as they were at one instant. Calls `each` once per key, in
    /// order.
    pub fn snapshot_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        self.inner.engine.snapshot_many(keys, each);
    }

    /// Whether `key` is present.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool, ReadError> {
        let key = key.as_ref();
        Ok(self.token(key)?.is_some())
    }

    /// The version of `key`'s entry, to detect later changes; `None` if it is absent.
    pub fn token(&self, key: impl AsRef<[u8]>) -> Result<Option<Token>, ReadError> {
        let key = key.as_ref();
        self.inner.engine.token(key)
    }

    /// The present state of `key`, for [`Store::transaction_if`] to detect later changes. An absent
    /// key that was added and removed again has changed, too. Rarely, an absent key counts as
    /// changed because another key was removed meanwhile. A version is valid for this store while
    /// it is open.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// let before = store.version(b"lock")?;
    /// assert!(store.version(b"lock")?.meets(&before));
    /// store.put(b"lock", b"mine")?;
    /// store.remove(b"lock")?;
    /// assert!(!store.version(b"lock")?.meets(&before));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn version(&self, key: impl AsRef<[u8]>) -> Result<Version, ReadError> {
        let key = key.as_ref();
        self.inner.engine.version(key)
    }

    /// Gives `key` this value, without expiry.
    ///
    /// # Errors
    /// The key or the value is too long, the pool is full, or the store cannot be written. The key
    /// is unchanged.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), WriteError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.inner.engine.put(Put { key, value, expires_at: None }, self.how)
    }

    /// Gives `key` this value, which expires `after` this time.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put_expiring(b"session", b"42", std::time::Duration::from_secs(60))?;
    /// assert!(store.get(b"session")?.unwrap().expires_at().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_expiring(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        after: Duration,
    ) -> Result<(), WriteError> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.inner.engine.put(Put { key, value, expires_at: Some(later(self.now_ms(), after)) }, self.how)
    }

    /// Makes several puts, each atomic by itself; they share the cost of making them durable.
    /// Returns a result for each, in order.
    ///
    /// ```
    /// use terrace::{Put, Store};
    ///
    /// let store = Store::options().anonymous().create()?;
    /// let put = |key, value| Put { key, value, expires_at: None };
    /// assert_eq!(store.put_many(&[put(b"a", b"1"), put(b"b", b"2")]), [Ok(()), Ok(())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_many(&self, puts: &[Put<'_>]) -> Vec<Result<(), WriteError>> {
        self.inner.engine.put_many(puts, self.how)
    }

    /// Removes `key` and returns whether it was present. Takes no memory, so it also works when the
    /// pool is full.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<bool, WriteError> {
        let key = key.as_ref();
        self.inner.engine.remove(key, self.how)
    }

    /// Removes `keys` at one instant, for every reader and through a crash, and returns how many
    /// were present. Unlike [`Store::remove`] it takes memory while it runs: in a full pool, remove
    /// them one by one.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put(b"a", b"1")?;
    /// assert_eq!(store.remove_all(&[b"a", b"b"])?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_all(&self, keys: &[&[u8]]) -> Result<u64, WriteError> {
        self.inner.engine.remove_all(keys, self.how)
    }

    /// Makes all of `puts` at one instant, for every reader and through a crash, or none of them.
    /// If several puts have the same key, the last one counts.
    ///
    /// # Errors
    /// As [`Store::put`]; nothing has changed.
    pub fn put_all(&self, puts: &[Put<'_>]) -> Result<(), WriteError> {
        self.inner.engine.commit(&writes(puts), &[], self.how).map(drop)
    }

    /// As [`Store::put_all`], but only if all of the keys are absent. Returns whether it wrote.
    ///
    /// ```
    /// use terrace::{Put, Store};
    ///
    /// let store = Store::options().anonymous().create()?;
    /// let put = |key, value| Put { key, value, expires_at: None };
    /// assert!(store.put_all_new(&[put(b"a", b"1"), put(b"b", b"2")])?);
    /// assert!(!store.put_all_new(&[put(b"b", b"3"), put(b"c", b"4")])?);
    /// assert_eq!(store.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_all_new(&self, puts: &[Put<'_>]) -> Result<bool, WriteError> {
        let absent: Vec<_> = puts.iter().map(|put| (put.key, Version::from(None))).collect();
        Ok(self.inner.engine.commit(&writes(puts), &absent, self.how)? == Commit::Done)
    }

    /// Changes `key`'s entry to what `change` returns for the present one (`None` if absent).
    /// Returns the second value that `change` returned. No lock is held: if another writer was
    /// faster, `change` runs again, and its last answer counts.
    ///
    /// ```
    /// use terrace::{Change, Store};
    ///
    /// let store = Store::options().anonymous().create()?;
    /// let length = store.modify(b"log", |entry| {
    ///     let mut value = entry.map_or(Vec::new(), |entry| entry.value.to_vec());
    ///     value.extend(b"line\n");
    ///     let length = value.len();
    ///     (Change::Put { value, expires_at: None }, length)
    /// })?;
    /// assert_eq!(length, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn modify<R>(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<Entry<'_>>) -> (Change, R),
    ) -> Result<R, WriteError> {
        let key = key.as_ref();
        let mut last = None;
        let mut step = |entry: Option<Entry<'_>>| {
            let (change, result) = change(entry);
            last = Some(result);
            change
        };
        self.inner.engine.modify(key, &mut step, self.how)?;
        Ok(last.expect("the engine has called `change`"))
    }

    /// Appends to the value of `key`, or creates it, unless it would have more than `longest`
    /// bytes. Returns how long it then is.
    pub fn append(
        &self,
        key: impl AsRef<[u8]>,
        tail: impl AsRef<[u8]>,
        longest: usize,
    ) -> Result<Option<usize>, WriteError> {
        self.modify(key, |entry| crate::transaction::appended(entry, tail.as_ref(), longest))
    }

    /// Makes `key` expire `after` this time. Returns whether it was present.
    pub fn expire(&self, key: impl AsRef<[u8]>, after: Duration) -> Result<bool, WriteError> {
        let key = key.as_ref();
        let at = Some(later(self.now_ms(), after));
        self.modify(key, |entry| (Change::Expire(at), entry.is_some()))
    }

    /// Gives `key` the value `new` if it has the value `expected` (`None`: if it is absent).
    /// Returns whether it did. The entry's expiry stays.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// assert!(store.compare_and_swap(b"leader", None, b"me")?);
    /// assert!(!store.compare_and_swap(b"leader", Some(b"you"), b"me")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: impl AsRef<[u8]>,
    ) -> Result<bool, WriteError> {
        let (key, new) = (key.as_ref(), new.as_ref());
        self.modify(key, |entry| match entry {
            entry if entry.map(|entry| entry.value) != expected => (Change::Keep, false),
            entry => {
                let expires_at = entry.and_then(|entry| entry.expires_at);
                (Change::Put { value: new.to_vec(), expires_at }, true)
            }
        })
    }

    /// Adds `by` to the decimal integer at `key` (0 if it is absent) and returns the sum. The
    /// entry's expiry stays.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// assert_eq!(store.increment(b"hits", 2)?, 2);
    /// assert_eq!(store.increment(b"hits", -3)?, -1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64, IncrementError> {
        let key = key.as_ref();
        self.modify(key, |entry| {
            let Some(old) = entry.map_or(Some(0), |entry| integer(entry.value)) else {
                return (Change::Keep, Err(IncrementError::NotAnInteger));
            };
            let Some(sum) = old.checked_add(by) else {
                return (Change::Keep, Err(IncrementError::Overflow));
            };
            let expires_at = entry.and_then(|entry| entry.expires_at);
            (Change::Put { value: sum.to_string().into_bytes(), expires_at }, Ok(sum))
        })?
    }

    /// A batch, to collect writes that happen all at one instant or not at all.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// Runs `body`, then makes all its writes at one instant, for every reader and through a crash.
    /// At that instant everything that it read is unchanged, absent keys too: transactions are
    /// serializable. If something that it read has changed, it runs again.
    ///
    /// If `body` returns an error, or has called [`Transaction::abort`], none of its writes
    /// happens. It still runs again if its reads were not all true at one instant, so an error
    /// never comes from a mixture of two states of the store.
    ///
    /// ```
    /// use std::error::Error;
    ///
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put(b"from", b"10")?;
    /// let take = |amount: u32| {
    ///     store.transaction(|transaction| -> Result<u32, Box<dyn Error>> {
    ///         transaction.put(b"to", amount.to_string().as_bytes())?;
    ///         let has: u32 = match transaction.get(b"from")? {
    ///             Some(value) => std::str::from_utf8(&value)?.parse()?,
    ///             None => 0,
    ///         };
    ///         let left = has.checked_sub(amount).ok_or("there is too little")?;
    ///         transaction.put(b"from", left.to_string().as_bytes())?;
    ///         Ok(left)
    ///     })
    /// };
    /// // An error rolls back what the closure has written before it.
    /// assert_eq!(take(11).unwrap_err().to_string(), "there is too little");
    /// assert!(!store.contains(b"to")?);
    /// assert_eq!(take(4)?, 6);
    /// assert_eq!(store.get(b"from")?.unwrap(), b"6");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The error of `body`, or the reason why the store could not be written. Nothing has changed.
    pub fn transaction<R, E: From<WriteError>>(
        &self,
        body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        Ok(self.transaction_if(&[], body)?.expect("a transaction that watches no key runs until it commits"))
    }

    /// As [`Store::transaction`], but returns `None` and does nothing if one of the `watched` keys
    /// has changed since its [`Store::version`] was read.
    ///
    /// ```
    /// use terrace::{Store, Transaction, WriteError};
    ///
    /// let store = Store::options().anonymous().create()?;
    /// let watched = [(b"lock".to_vec(), store.version(b"lock")?)];
    /// let take = |transaction: &mut Transaction<'_>| transaction.put(b"lock", b"mine");
    /// assert_eq!(store.transaction_if(&watched, take), Ok(Some(())));
    /// assert_eq!(store.transaction_if(&watched, take), Ok(None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Store::transaction`]. In that case, the watched keys have not changed either.
    pub fn transaction_if<R, E: From<WriteError>>(
        &self,
        watched: &[(Vec<u8>, Version)],
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<Option<R>, E> {
        for (key, version) in watched {
            if !self.version(key).map_err(WriteError::from)?.meets(version) {
                return Ok(None);
            }
        }
        let mut backoff = Backoff::new();
        loop {
            let mut transaction = Transaction::new(&**self.engine(), self.how);
            let result = body(&mut transaction);
            match transaction.end(watched, result.is_err()) {
                Ok(Commit::Done) => {
                    transaction.give_uses();
                    return result.map(Some);
                }
                Ok(Commit::Changed(nth)) if nth < watched.len() => return Ok(None),
                Ok(Commit::Changed(_)) => _ = backoff.spin(),
                Err(error) => return Err(result.err().unwrap_or_else(|| error.into())),
            }
        }
    }

    /// Visits entries from `cursor` on, at least about `at_least` of them, and returns where to
    /// continue.
    ///
    /// A full scan, from the start to the end, visits every key that is present throughout, also
    /// while the store grows. It may or may not visit a key that is added, removed or changed
    /// meanwhile, and rarely visits a key twice. A cursor stays valid after the store was closed
    /// and opened again; a cursor of a store with another sort of index is
    /// [`ReadError::InvalidCursor`].
    ///
    /// A damaged record does not stop a scan: it fails with [`ReadError::Skipped`] at its end,
    /// which holds the number of skipped records and the cursor to continue with.
    ///
    /// ```
    /// let store = terrace::Store::options().anonymous().create()?;
    /// store.put(b"a", b"1")?;
    /// let (mut cursor, mut keys) = (terrace::Cursor::START, Vec::new());
    /// while !cursor.is_end() {
    ///     cursor = store.scan(&cursor, 100, &mut |key, _| keys.push(key.to_vec()))?;
    /// }
    /// assert_eq!(keys, [b"a"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError> {
        self.inner.engine.scan(cursor, at_least, each)
    }

    /// A random key; `None` if the store is empty.
    pub fn random_key(&self) -> Result<Option<Vec<u8>>, ReadError> {
        self.inner.engine.random_key()
    }

    /// Removes every key that is present now. A key written meanwhile may stay or go.
    pub fn clear(&self) -> Result<(), WriteError> {
        self.inner.engine.clear(self.how)
    }

    /// Number of keys, including those that have expired but were not removed yet.
    pub fn len(&self) -> u64 {
        self.count().get()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes expired entries and returns how many. Reads at most `budget` entries, fewer if few
    /// expire. Call it repeatedly unless [`Options::expiry_thread`] does so.
    pub fn sweep_expired(&self, budget: usize) -> u64 {
        self.pooled().map_or(0, |pool| pool.sweep_expired(budget))
    }

    /// Moves a bounded number of entries together where much memory between them is unused. Returns
    /// whether that has freed memory. Call it repeatedly unless [`Options::expiry_thread`] does so.
    /// A write that finds the pool full does as much of this as it needs.
    pub fn compact(&self) -> bool {
        self.pooled().is_some_and(|pool| pool.compact())
    }

    /// Moves every entry, even where nothing is gained. For tests.
    #[doc(hidden)]
    pub fn move_all(&self) {
        self.pooled().into_iter().for_each(|pool| pool.move_all());
    }

    /// Grows the pool to `size` bytes while it is in use, and returns its new size. No data moves.
    pub fn grow(&self, size: ByteSize) -> Result<ByteSize, GrowError> {
        let pool = self.pooled().ok_or(GrowError::NoPool)?;
        Ok(pool.grow(size.as_bytes()).map(ByteSize::bytes)?)
    }

    /// Statistics of the store. In a child of the process that has opened it, all are 0.
    pub fn stats(&self) -> Stats {
        match self.inner.background.check_process() {
            Ok(()) => self.inner.engine.stats(),
            Err(Forked) => Stats::new(0, 0, 0),
        }
    }

    /// How much of the pool lies on huge pages, as the kernel reports it. Reads a file of the
    /// kernel, so do not call it every second.
    pub fn huge_pages(&self) -> std::io::Result<crate::HugePages> {
        self.pooled().ok_or(std::io::ErrorKind::Unsupported)?.huge_pages()
    }

    /// Moves used memory to huge pages now, where the kernel can. Takes some seconds per GiB. With
    /// [`Options::huge_pages`], this happens in the background.
    pub fn collapse_huge_pages(&self) {
        let Some(pool) = self.pooled() else { return };
        let mut from = Some(0);
        while let Some(at) = from {
            from = pool.collapse_step(at);
        }
    }

    /// Checks everything in the store against its checksums and invariants. No other thread may
    /// write meanwhile. Waits for the store's own threads, and pauses them.
    ///
    /// In a child of the process that has opened the store, nothing is checked, and the one finding
    /// says so. If other processes have the store open, or this thread holds an entry of it, only
    /// the records are checked, while others work; the report says so. Calls `progress` with the
    /// number of records checked and of all records.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        let inner = &*self.inner;
        if let Err(forked) = inner.background.check_process() {
            return Report::in_child(forked);
        }
        // The concurrent check needs no pause, and a thread of the store may be waiting for a
        // stopped process.
        if inner.engine.keeps_entries() || !self.other_processes().is_empty() {
            return inner.engine.check_records(progress);
        }
        let _paused = inner.background.pause();
        inner.engine.check(progress)
    }

    /// Makes the store a cache, from now on: how it makes room for new keys, and the memory that it
    /// may use. Each process that shares a pool has its own setting.
    ///
    /// ```
    /// use terrace::{ByteSize, Eviction, First, Policy, Store};
    ///
    /// let store = Store::options().anonymous().size(ByteSize::mib(1)).create()?;
    /// let policy = Some(Policy { only_volatile: false, first: First::LeastRecent });
    /// store.set_eviction(&Eviction { policy, ..Eviction::default() })?;
    /// for n in 0..100_000u32 {
    ///     store.put(n.to_le_bytes(), b"a value")?;
    /// }
    /// assert!(store.evicted() > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The store does not lie in a pool, or cannot be written.
    pub fn set_eviction(&self, eviction: &Eviction) -> Result<(), WriteError> {
        const REFUSED: &str =
            "only a store in a pool of its own evicts; this one has no limit of memory to set";
        match self.inner.engine.evicting() {
            Some(evicting) => evicting.set_eviction(eviction),
            None => Err(WriteError::OverLimit(REFUSED.into())),
        }
    }

    /// Whether [`Store::set_eviction`] is possible.
    pub fn can_evict(&self) -> bool {
        self.inner.engine.evicting().is_some()
    }

    /// When or how often a key was used, as far as the policy of eviction needs that. Does not
    /// count as a use. `None` if the key is absent.
    pub fn key_use(&self, key: impl AsRef<[u8]>) -> Result<Option<KeyUse>, ReadError> {
        let key = key.as_ref();
        match self.inner.engine.evicting() {
            Some(evicting) => evicting.key_use(key),
            None => Ok(self.token(key)?.map(|_| KeyUse { idle_ms: None, frequency: None })),
        }
    }

    /// Does `read`; what it reads does not count as used.
    pub fn unrecorded<R>(&self, read: impl FnOnce() -> R) -> R {
        self.within(|evicting, read| evicting.unrecorded(read), read)
    }

    /// Does `write` also where the store is above [`Eviction::limit_bytes`]: for a change of an
    /// expiry, a new name, and all else that takes no memory for long.
    pub fn unlimited<R>(&self, write: impl FnOnce() -> R) -> R {
        self.within(|evicting, write| evicting.unlimited(write), write)
    }

    /// Does `act` within a call of the engine, if that can evict.
    fn within<R>(&self, call: impl FnOnce(&dyn Evicting, &mut dyn FnMut()), act: impl FnOnce() -> R) -> R {
        let Some(evicting) = self.inner.engine.evicting() else { return act() };
        let (mut act, mut done) = (Some(act), None);
        call(evicting, &mut || done = act.take().map(|act| act()));
        done.expect("the engine has called back")
    }

    /// Keys that this process has evicted.
    pub fn evicted(&self) -> u64 {
        self.inner.engine.evicting().map_or(0, |evicting| evicting.evicted())
    }

    /// Bytes that count for [`Eviction::limit_bytes`], if the store can evict.
    pub fn used_bytes(&self) -> Option<u64> {
        self.inner.engine.evicting().map(|evicting| evicting.used_bytes())
    }

    /// The other processes that share the store now: see [`Options::shared`].
    pub fn other_processes(&self) -> Vec<Holder> {
        self.pooled().map_or_else(Vec::new, |pool| pool.other_processes())
    }

    /// Posts `text` for processes that have not opened the store, and replaces an earlier notice;
    /// [`notices`](crate::notices) reads it. A server posts its addresses. The notice is valid
    /// while this process has the store open. Returns whether there was room: for
    /// [`NOTICE_MAX`](crate::NOTICE_MAX) bytes, and for the first 14 processes that share a store.
    pub fn post_notice(&self, text: &str) -> bool {
        let engine = &self.inner.engine;
        match engine.on_disk() {
            Some(disk) => text.len() <= crate::NOTICE_MAX && disk.post_notice(text),
            None => self.pooled().is_some_and(|pool| pool.post_notice(text)),
        }
    }

    /// What the opening has found damaged or lost, a sentence each: large values of a store over
    /// two tiers that cannot be read.
    pub fn warnings(&self) -> &[String] {
        self.inner.engine.warnings()
    }

    /// Recovers now what dead processes of a shared store held, including their memory. Returns the
    /// number of dead processes.
    ///
    /// A thread of the store does so ten times a second, so this is rarely needed. While this
    /// thread holds an entry, or another process is stopped and may hold one, the memory is left to
    /// that thread.
    pub fn recover_dead(&self) -> u32 {
        let Some(pool) = self.pooled() else { return 0 };
        if self.inner.engine.keeps_entries() {
            return pool.recover_dead();
        }
        // A recovery that the store's own thread has begun is complete when this returns.
        let _paused = self.inner.background.pause();
        let dead = pool.recover_dead();
        if pool.needs_collection() {
            pool.collect(&|| is_another_stopped(&*self.inner.engine));
        }
        dead
    }

    /// Recovers what dead processes held, and then counts the memory that the store can reach and
    /// that its pool has allocated. No other process may work meanwhile. For tests.
    #[doc(hidden)]
    pub fn memory(&self) -> terrace_engine::Memory {
        self.recover_dead();
        let _paused = self.inner.background.pause();
        self.pooled().expect("a store in a pool").memory()
    }

    /// Waits until the background collection after an unclean stop is complete.
    pub fn wait_until_collected(&self) {
        self.inner.background.wait_until_collected();
    }

    /// The time that decides what has expired, in unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.inner.engine.now_ms()
    }

    /// Closes the store. Returns whether everything reached its file; dropping the last handle does
    /// the same without a result.
    ///
    /// # Errors
    /// Another handle exists; it closes the store when it is dropped. Or, in a shared store, a
    /// thread of the store has waited for two seconds for another process, which is stopped: the
    /// error names that process, and the store is closed when the thread ends. Or this process is a
    /// child of the one that has opened the store: only that one can close it.
    pub fn close(self) -> Result<(), CloseError> {
        if let Err(forked) = self.inner.background.check_process() {
            return Err(CloseError::Failed(Box::new(forked)));
        }
        let mut inner = Arc::into_inner(self.inner).ok_or(CloseError::StillOpen)?;
        if let Some(holder) = inner.background.end() {
            return Err(CloseError::BlockedBy(holder));
        }
        drop(inner.background);
        Ok(inner.engine.close()?)
    }
}

fn writes<'a>(puts: &[Put<'a>]) -> Vec<Write<'a>> {
    let what = |put: &Put<'a>| WriteKind::Put { value: put.value, expires_at: put.expires_at };
    puts.iter().map(|put| Write { key: put.key, what: what(put) }).collect()
}

/// Parses a decimal integer, in the canonical form only.
fn integer(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
