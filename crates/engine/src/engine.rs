//! What a store can do.

use crate::{
    Change, Cursor, Entry, Memory, Put, ReadError, Report, Stats, Token, Value, Version, WriteError,
};
use std::sync::Arc;
use std::time::Duration;
use terrace_medium::HugePages;
use terrace_pool::{CloseError, Finding, GrowError, Holder, WatchError};

/// Called with the position of a key and what it holds.
pub type Each<'f> = dyn FnMut(usize, Result<Option<Entry<'_>>, ReadError>) + 'f;

/// Called with a key and its entry, or with what is wrong with a record.
pub type Salvage<'f> = dyn FnMut(Result<(&[u8], Entry<'_>), Finding>) + 'f;

/// What a commit does to one key.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// Gives it a new entry.
    Put {
        /// The value.
        value: &'a [u8],
        /// Unix milliseconds at which it expires, if it does.
        expires_at: Option<u64>,
    },
    /// Leaves the value and changes when it expires. The commit expects the version whose value this is.
    Expire(Option<u64>),
    /// Removes it.
    Remove,
}

/// A write of a commit.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The key. Each at most once in a commit.
    pub key: &'a [u8],
    /// What becomes of it.
    pub what: What<'a>,
}

/// A key that a commit expects in this version, or absent.
pub type Expected<'a> = (&'a [u8], Version);

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// All of it happened.
    Done,
    /// None of it: the expectation at this position does not hold.
    Changed(usize),
}

/// Tells of changes to keys that begin with a prefix.
pub trait Watching: Send {
    /// Whether something has changed since the last call of this or of `wait`.
    fn has_changed(&mut self) -> bool;
    /// Waits until something has, for `time` at most. Whether it has.
    fn wait(&mut self, time: Duration) -> bool;
}

/// A store of byte keys and byte values.
///
/// All operations may be called from any number of threads. Each is linearizable, and durable in the pool's sense when it returns, unless it says
/// otherwise. An entry that has expired is not there for any of them. No reader waits for a writer.
pub trait Engine: Send + Sync {
    /// The entry of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError>;

    /// The entries of `keys`, their memory fetched together. Each is read by itself: a write may fall between two of them.
    fn get_many(&self, keys: &[&[u8]], each: &mut Each<'_>);

    /// The entries of `keys`, all as they were at one instant.
    fn snapshot_many(&self, keys: &[&[u8]], each: &mut Each<'_>);

    /// The version of `key`; `None` if it is absent.
    fn token(&self, key: &[u8]) -> Result<Option<Token>, ReadError>;

    /// How `key` stands now.
    fn version(&self, key: &[u8]) -> Result<Version, ReadError>;

    /// Gives a key a new entry.
    fn put(&self, put: Put<'_>) -> Result<(), WriteError>;

    /// Puts one after the other, each by itself, that share their fences.
    fn put_many(&self, puts: &[Put<'_>]) -> Vec<Result<(), WriteError>>;

    /// Removes a key and says whether it was there. Takes no memory.
    fn remove(&self, key: &[u8]) -> Result<bool, WriteError>;

    /// Removes `keys` at one instant, to every reader and through a crash, and says how many were there. Takes memory: fails where the pool is full.
    fn remove_all(&self, keys: &[&[u8]]) -> Result<u64, WriteError>;

    /// Changes a key's entry as `change` says when it sees it. `change` runs again if someone else was faster; only its last answer counts.
    fn modify(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
    ) -> Result<(), WriteError>;

    /// Does all writes at one instant, to every reader and through a crash, if all expectations hold at that instant; or nothing.
    fn commit(&self, writes: &[Write<'_>], expected: &[Expected<'_>]) -> Result<Commit, WriteError>;

    /// Visits entries from `cursor` on (0: the beginning), at least about `at_least` of them, and returns where to go on, 0 at the end.
    /// A whole scan visits every key that is there throughout; one that comes, goes or changes meanwhile perhaps, and rarely one twice.
    /// Fails with [`ReadError::InvalidCursor`] at [`CURSOR_LIMIT`](crate::CURSOR_LIMIT) and above.
    ///
    /// A damaged record does not stop a scan. The scan visits the other records and then fails with
    /// [`ReadError::Skipped`], which holds the cursor to continue with.
    fn scan(
        &self,
        cursor: Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError>;

    /// Any key.
    fn random_key(&self) -> Result<Option<Vec<u8>>, ReadError>;

    /// Removes every key that is there now. Keys that are written meanwhile may stay or go.
    fn clear(&self) -> Result<(), WriteError>;

    /// Keys, those that have expired but were not swept yet among them.
    fn len(&self) -> u64;

    /// Whether there is no key.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Looks for expired entries and removes them: at `budget` records at most, fewer when few expire. Returns how many it removed. Called
    /// again and again, it goes through the whole store.
    fn sweep_expired(&self, budget: usize) -> u64;

    /// Does a bounded piece of background work on the index and says whether there is more; gives memory back that index and records have left.
    fn maintain(&self) -> bool;

    /// Moves a bounded number of records together where much memory lies idle between them, so that
    /// it serves every size. Says whether that has given memory back, and a call right now may
    /// again. Costs next to nothing where there is nothing to be gained.
    fn compact(&self) -> bool;

    /// Moves every record that can be moved, though nothing is gained. For tests.
    #[doc(hidden)]
    fn move_all(&self);

    /// In a store that several processes share: takes over what those have left that died, so that nobody waits for them; returns how many there were. Called
    /// again and again.
    fn look_after_others(&self) -> u32;

    /// The other processes that share the store now.
    fn others(&self) -> Vec<Holder>;

    /// Posts a notice for processes that have not opened the store; whether there is room for it.
    fn post_notice(&self, text: &str) -> bool;

    /// Kills one of those that stands still, if it still does. Whether it did.
    fn end_stopped(&self, holder: &Holder) -> std::io::Result<bool>;

    /// Whether, of the processes that share the store, this is the one that sweeps it.
    fn is_to_sweep(&self) -> bool;

    /// Whether a crash has left memory to nobody.
    fn needs_collection(&self) -> bool;

    /// Takes back the memory that a crash left to nobody, while the store is in use. Asks now and then whether it `is_to_stop`, and while it waits for
    /// somebody who holds memory up; if so, it leaves all as it is, for the next one to begin again.
    fn collect(&self, is_to_stop: &dyn Fn() -> bool);

    /// Asks for huge pages from `from` on, a piece at a time; returns where to go on, or `None` at the end.
    fn collapse_step(&self, from: u64) -> Option<u64>;

    /// A watch of the keys that begin with `prefix`, of which 40 bytes count. It keeps the pool open.
    fn watch(&self, prefix: &[u8]) -> Result<Box<dyn Watching>, WatchError>;

    /// How much of the pool lies on huge pages, as the kernel says.
    fn huge_pages(&self) -> std::io::Result<HugePages>;

    /// Makes the pool `bytes` long and returns its size.
    fn grow(&self, bytes: u64) -> Result<u64, GrowError>;

    /// Whether this key and this value can be written at all.
    fn check_put(&self, key: &[u8], value: &[u8]) -> Result<(), WriteError>;

    /// The time that decides what has expired, in unix milliseconds.
    fn now_ms(&self) -> u64;

    /// Numbers about the store.
    fn stats(&self) -> Stats;

    /// Reads everything and compares it with what it should be, while nobody writes. `progress` is told the records done and those there are.
    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Report;

    /// What of that can be told while others write: every record.
    fn check_records(&self, progress: &mut dyn FnMut(u64, u64)) -> Report;

    /// Whether this thread keeps entries: a collection would wait for it.
    fn keeps_entries(&self) -> bool;

    /// Shows every entry that its checksums prove, and what is wrong where they do not. Entries that have expired are left out.
    fn salvage(&self, each: &mut Salvage<'_>);

    /// What the store can reach, and what its pool has given for it. While nobody is at work, and after a collection. For tests.
    #[doc(hidden)]
    fn memory(&self) -> Memory;

    /// From now on every write fails with [`WriteError::Stopped`] and this reason.
    fn stop(&self, why: String);

    /// Closes the pool in order.
    fn close(self: Arc<Self>) -> Result<(), CloseError>;
}
