//! The serving node as an engine, so that the server above it is the one of every store.

use super::key::{Copied, Key};
use super::node::Node;
use super::write::check_sizes;
use crate::lock::lock;
use crate::message::{Item, Page, ToMemory, ToServing};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use terrace_engine::{
    CURSOR_LIMIT, Change, Chore, Clock, CloseError, Commit, Count, Cursor, Durability, Durably, Engine,
    Entry, EntryCallback, Expected, PoolStats, Put, ReadError, Report, Rest, Salvage, Stats, Ticket, Token,
    Value, Version, WatchError, WatchHandle, Write, WriteError,
};

/// Keys that a step of a sweep looks at.
const SWEPT: u32 = 512;
/// Times that a snapshot is read without locks.
const TRIES: u32 = 3;

/// Most keys of a page that the serving node makes: those that were put since all was cleared.
const SINCE_CLEAR_MAX: u64 = 4096;

fn item(copied: &Copied, values: bool) -> Item {
    let value = if values { copied.value() } else { &[] };
    Item { key: copied.key().to_vec(), value: value.to_vec(), expires_at: copied.expires_at }
}

/// The engine of a serving node.
pub(super) struct Serving {
    pub(super) node: Arc<Node>,
    /// Where the sweep for expired entries goes on.
    swept: Mutex<u64>,
    expired: AtomicU64,
    /// The last count of keys, for when there is no answer.
    keys: AtomicU64,
    /// Damaged records that scans have left out.
    skipped: AtomicU64,
}

impl Serving {
    pub(super) fn new(node: Arc<Node>) -> Self {
        let (swept, expired, keys, skipped) = Default::default();
        Self { node, swept, expired, keys, skipped }
    }

    /// A page of keys of this node's slots.
    fn page(&self, cursor: u64, at_least: u32, values: bool) -> Result<Page, ReadError> {
        let session = self.node.gate().any_session()?;
        let unavailable = |error: WriteError| ReadError::Unavailable(error.to_string());
        // The memory node scans once it has merged everything, and a clear takes it a while.
        let keys = session.pending.keys_since_clear(&self.node.gate().served(), SINCE_CLEAR_MAX);
        session.settle(session.logs.ticket()).map_err(unavailable)?;
        if let Some(keys) = keys {
            self.node.gate().confirm_lease()?;
            let items = keys.iter().map(|copied| item(copied, values)).collect();
            return Ok(Page { items, next: 0, skipped: 0 });
        }
        let durable = session.logs.durable();
        let answer = session.ask(|id| ToMemory::Scan { id, cursor, at_least, values, durable });
        match answer.map_err(ReadError::Unavailable)? {
            ToServing::Scanned { page, .. } => page.map_err(ReadError::Unavailable),
            _ => Err(ReadError::Unavailable("the memory node gave the answer to another question".into())),
        }
    }

    fn count(&self) -> Result<u64, ReadError> {
        let session = self.node.gate().any_session()?;
        let unavailable = |error: WriteError| ReadError::Unavailable(error.to_string());
        session.settle(session.logs.ticket()).map_err(unavailable)?;
        // The memory node counts once it has merged everything, and a clear takes it a while.
        if let Some(keys) = session.pending.count_since_clear(&self.node.gate().served()) {
            self.node.gate().confirm_lease()?;
            return Ok(keys);
        }
        let durable = session.logs.durable();
        match session.ask(|id| ToMemory::Count { id, durable }).map_err(ReadError::Unavailable)? {
            ToServing::Counted { keys, .. } => keys.map_err(ReadError::Unavailable),
            _ => Err(ReadError::Unavailable("the memory node gave the answer to another question".into())),
        }
    }

    /// Removes what has expired of a page of keys.
    fn sweep(&self) -> Result<Rest, ReadError> {
        let mut cursor = lock(&self.swept);
        let Page { items, next, .. } = self.page(*cursor, SWEPT, false)?;
        *cursor = next;
        let now = self.node.settings.clock.now_ms();
        let expired = items.iter().filter(|item| item.expires_at.is_some_and(|at| at <= now));
        let mut removed = 0;
        for item in expired {
            let mut is_expired = false;
            // It may have been written meanwhile.
            let remove = &mut |entry: Option<Entry<'_>>| {
                is_expired = entry.is_none();
                if is_expired { Change::Remove } else { Change::Keep }
            };
            let done = self.node.writer().modify_one(&item.key, remove, Durably::Later);
            removed += u64::from(done.is_ok() && is_expired);
        }
        self.expired.fetch_add(removed, Relaxed);
        if removed > 0 {
            // Nobody waits for it, but the log must go on.
            let sessions = &self.node.gate().sessions;
            let _ = sessions.settle(sessions.ticket());
        }
        Ok(if next == 0 || removed == 0 { Rest::Idle } else { Rest::More })
    }

    pub(super) fn each_live(
        &self,
        items: Vec<Item>,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<(), ReadError> {
        let node = &self.node;
        for Item { key, value, expires_at } in items {
            let at = Key::new(&key);
            let is_here = node.gate().begin(at.slot).is_ok_and(|view| view.confirm_slots().is_ok());
            if is_here && !expires_at.is_some_and(|at| node.settings.clock.has_come(at)) {
                // No version of what is in the memory is known here: none that a commit expects.
                let token = Token::unwritten();
                each(&key, Entry { value: &value, expires_at, token });
            }
        }
        // Without a lease the page fails as a whole: to leave out its keys would pass them over.
        node.gate().confirm_lease()
    }
}

impl Engine for Serving {
    fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        self.node.reader().read(key)
    }

    fn get_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        give(self.node.reader().read_many(keys), each);
    }

    fn snapshot_many(&self, keys: &[&[u8]], each: &mut EntryCallback<'_>) {
        if keys.len() < 2 {
            return self.get_many(keys, each);
        }
        let versions = |node: &Node| -> Vec<u64> {
            let stamp = |key: &&[u8]| {
                let key = Key::new(key);
                node.gate().slots.stamp(key.hash, node.gate().slots.word(key.slot))
            };
            keys.iter().map(stamp).collect()
        };
        for _ in 0..TRIES {
            let before = versions(&self.node);
            let found = self.node.reader().read_many(keys);
            if before == versions(&self.node) {
                return give(found, each);
            }
        }
        // Writers are faster: they wait for once.
        let found = match self.node.gate().any_session() {
            Ok(session) => {
                let hashes: Vec<u64> = keys.iter().map(|key| Key::new(key).hash).collect();
                let _locks = session.pending.lock(&hashes);
                self.node.reader().read_many(keys)
            }
            Err(error) => keys.iter().map(|_| Err(error.clone())).collect(),
        };
        give(found, each);
    }

    fn token(&self, key: &[u8]) -> Result<Option<Token>, ReadError> {
        Ok(self.node.reader().read_version(key)?.token())
    }

    fn version(&self, key: &[u8]) -> Result<Version, ReadError> {
        self.node.reader().read_version(key)
    }

    fn put(&self, put: Put<'_>, how: Durably) -> Result<(), WriteError> {
        self.node.writer().put_one(put, how)
    }

    fn put_many(&self, puts: &[Put<'_>], how: Durably) -> Vec<Result<(), WriteError>> {
        let mut results: Vec<Result<(), WriteError>> = Vec::with_capacity(puts.len());
        let since = self.node.gate().sessions.ticket();
        for put in puts {
            let done = match results.last() {
                // The caller repeats it, and those behind it: in their order.
                Some(Err(left @ WriteError::NotOwner { .. })) => Err(left.clone()),
                _ => self.node.writer().put_one(*put, Durably::Later),
            };
            results.push(done);
        }
        if how != Durably::Later
            && let Err(error) = self.node.gate().sessions.settle_since(since)
        {
            results.iter_mut().filter(|done| done.is_ok()).for_each(|done| *done = Err(error.clone()));
        }
        results
    }

    fn delete(&self, key: &[u8], how: Durably) -> Result<(), WriteError> {
        self.node.writer().delete_one(key, how)
    }

    fn remove(&self, key: &[u8], how: Durably) -> Result<bool, WriteError> {
        Ok(self.node.writer().remove_keys(&[key], how)? > 0)
    }

    fn remove_all(&self, keys: &[&[u8]], how: Durably) -> Result<u64, WriteError> {
        self.node.writer().remove_keys(keys, how)
    }

    fn modify(
        &self,
        key: &[u8],
        change: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
        how: Durably,
    ) -> Result<(), WriteError> {
        self.node.writer().modify_one(key, change, how)
    }

    fn commit(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
        how: Durably,
    ) -> Result<Commit, WriteError> {
        self.node.writer().commit_all(writes, expected, how)
    }

    fn clear(&self, how: Durably) -> Result<(), WriteError> {
        self.node.writer().clear_all(how)
    }

    fn ticket(&self) -> Ticket {
        Ticket(self.node.gate().sessions.ticket())
    }

    fn settle(&self, ticket: Ticket) -> Result<(), WriteError> {
        self.node.gate().sessions.settle(ticket.0)
    }

    fn settle_since(&self, since: Ticket) -> Result<(), WriteError> {
        self.node.gate().sessions.settle_since(since.0)
    }

    fn durability(&self) -> Durability {
        Durability::Process
    }

    fn scan(
        &self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>),
    ) -> Result<Cursor, ReadError> {
        if cursor.is_end() {
            return Ok(Cursor::END);
        }
        let from = cursor.number().ok_or(ReadError::InvalidCursor)?;
        let at_least = u32::try_from(at_least).unwrap_or(u32::MAX);
        let Page { items, next, skipped } = self.page(from, at_least, true)?;
        self.skipped.fetch_add(skipped, Relaxed);
        self.each_live(items, each)?;
        match next {
            0 => Ok(Cursor::END),
            next => Cursor::from_number(next).ok_or(ReadError::InvalidCursor),
        }
    }

    #[allow(clippy::disallowed_methods, reason = "a random place; nothing depends on which")]
    fn random_key(&self) -> Result<Option<Vec<u8>>, ReadError> {
        let draw = getrandom::u64().map_err(|error| ReadError::Unavailable(error.to_string()))?;
        let mut cursor = draw % CURSOR_LIMIT;
        // From there to the end, then from the begin on.
        for _ in 0..2 {
            loop {
                let Page { items, next, .. } = self.page(cursor, 16, false)?;
                let mut keys = Vec::new();
                self.each_live(items, &mut |key, _| keys.push(key.to_vec()))?;
                if !keys.is_empty() {
                    let nth = (draw >> 32) as usize % keys.len();
                    return Ok(Some(keys.swap_remove(nth)));
                }
                cursor = next;
                if next == 0 {
                    break;
                }
            }
        }
        Ok(None)
    }

    fn len(&self) -> Count {
        self.count_keys().unwrap_or_else(|_| Count::About(self.keys.load(Relaxed)))
    }

    fn count_keys(&self) -> Result<Count, ReadError> {
        let keys = self.count()?;
        self.keys.store(keys, Relaxed);
        Ok(Count::Exact(keys))
    }

    fn chores(&self) -> &[Chore] {
        &[Chore::Sweep]
    }

    fn step(&self, chore: Chore, _: &dyn Fn() -> bool) -> Rest {
        match chore {
            // Without a session it is tried again later.
            Chore::Sweep => self.sweep().unwrap_or(Rest::Idle),
            _ => Rest::Idle,
        }
    }

    fn watch(&self, prefix: &[u8]) -> Result<Box<dyn WatchHandle>, WatchError> {
        Ok(Box::new(self.node.watches.add(prefix)))
    }

    fn check_put(&self, key: &[u8], value: &[u8]) -> Result<(), WriteError> {
        check_sizes(key, value.len())
    }

    fn now_ms(&self) -> u64 {
        self.node.settings.clock.now_ms()
    }

    fn stats(&self) -> Stats {
        let mut stats = Stats::new(self.len().get(), 0, 0);
        let space = self.node.space.get();
        if space.size > 0 {
            let mut pool = PoolStats::default();
            (pool.size_bytes, pool.reserved_bytes) = (space.size, space.size);
            (pool.free_bytes, pool.waiting_bytes) = (space.free, space.waiting);
            stats.pool = Some(pool);
        }
        stats.expired = self.expired.load(Relaxed);
        stats.damaged_records_skipped = self.skipped.load(Relaxed);
        stats
    }

    fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Report {
        self.check_records(progress)
    }

    /// The records are checked where they are: `terrace check` on the memory node's pool.
    fn check_records(&self, _: &mut dyn FnMut(u64, u64)) -> Report {
        Report { concurrent: true, ..Report::default() }
    }

    fn keeps_entries(&self) -> bool {
        false
    }

    fn salvage(&self, _: &mut Salvage<'_>) {}

    fn stop(&self, why: String) {
        self.node.gate().stop_writes(why);
    }

    fn close(self: Arc<Self>) -> Result<(), CloseError> {
        let sessions = &self.node.gate().sessions;
        let settled = sessions.settle(sessions.ticket());
        settled.map_err(|error| CloseError::Failed(Box::new(error)))
    }
}

fn give(found: Vec<Result<Option<Value<'static>>, ReadError>>, each: &mut EntryCallback<'_>) {
    for (nth, found) in found.into_iter().enumerate() {
        match found {
            Ok(value) => each(nth, Ok(value.as_ref().map(Value::entry))),
            Err(error) => each(nth, Err(error)),
        }
    }
}
