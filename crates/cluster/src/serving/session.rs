//! A session with the memory node: connections, logs, unmerged writes, caches, pins. With the
//! session all of it goes.

use super::cache::Cache;
use super::lanes::{Counts, Lanes, Means};
use super::logs::{Logs, Sent, Settled, unknown};
use super::pending::Pending;
use crate::link::Sender;
use crate::lock::lock;
use crate::message::{Access, Item, ToMemory, ToServing, Untold};
use arc_swap::ArcSwapOption;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace_engine::WriteError;
use terrace_index::hash::remote::{Address, Remote};

/// A pin that reads rely on, and the index's root as it was under it.
pub(super) struct Pin {
    number: u64,
    pub(super) remote: Mutex<Remote>,
}

/// A session. Below stand its logs, unmerged writes, cache and lanes.
pub(super) struct Session {
    pub(super) number: u64,
    pub(super) shards: u16,
    pub(super) logs: Logs,
    pub(super) pending: Pending,
    pub(super) cache: Cache,
    address: Address,
    /// Bytes that a record may have.
    pub(super) guess: AtomicUsize,
    pub(super) counts: Arc<Counts>,
    link: Sender,
    lanes: Lanes,
    pin: ArcSwapOption<Pin>,
    /// Pins that reads may still rely on, the oldest first.
    retiring: Mutex<Vec<Arc<Pin>>>,
    requests: Mutex<HashMap<u64, SyncSender<ToServing>>>,
    next_request: AtomicU64,
    /// How long an operation or a request may take.
    patience: Duration,
}

impl Session {
    /// Connects to the memory, for the session with this number. `ticket` is the last one of
    /// earlier sessions.
    pub(super) fn connect(
        means: &Means,
        (number, ticket): (u64, u64),
        link: Sender,
        access: &[u8],
    ) -> Result<Self, String> {
        let Means { shards, cache_bytes, patience, .. } = *means;
        let Some(access) = Access::decode(access) else {
            return Err("the memory node describes its memory in another way; update one of both".into());
        };
        let lanes = Lanes::connect(means, &access)?;
        let [root, seed, start, end] = access.index;
        Ok(Self {
            number,
            shards,
            logs: Logs::new(shards, ticket),
            pending: Pending::new(shards),
            cache: Cache::new(cache_bytes),
            address: Address { root, seed, start, end },
            guess: AtomicUsize::new(256),
            counts: Arc::clone(&means.counts),
            link,
            lanes,
            pin: ArcSwapOption::empty(),
            retiring: Mutex::default(),
            requests: Mutex::default(),
            next_request: AtomicU64::new(1),
            patience,
        })
    }

    /// Ends the session. The control thread will hear of it from the link.
    pub(super) fn fail(&self, why: &str) -> (u64, u64) {
        let tickets = self.logs.end(why);
        self.link.close();
        lock(&self.requests).clear();
        tickets
    }

    /// Reads ranges of the pool, all in one round trip. Returns their bytes.
    pub(super) fn read(&self, ranges: &[(u64, usize)]) -> Result<Vec<Vec<u8>>, String> {
        self.counts.read_rounds.fetch_add(1, Relaxed);
        let bytes = self.lanes.read(ranges, self.patience);
        bytes.inspect_err(|why| _ = self.fail(&format!("the memory cannot be read: {why}")))
    }

    fn write(&self, writes: Vec<Sent>) -> Result<(), String> {
        self.counts.log_writes.fetch_add(1, Relaxed);
        let written = self.lanes.write(writes, self.patience);
        written.inspect_err(|why| _ = self.fail(&format!("the log cannot be written: {why}")))
    }

    /// Waits until the entries up to `ticket` have arrived; writes them if no other thread does.
    pub(super) fn settle(&self, ticket: u64) -> Result<(), WriteError> {
        loop {
            match self.logs.settle(ticket)? {
                Settled::Durable => return Ok(()),
                Settled::Write(writes, upto) => {
                    self.write(writes).map_err(|why| unknown(&why))?;
                    self.logs.arrived(upto);
                }
            }
        }
    }

    /// The pin that a read relies on while it has this.
    pub(super) fn pinned(&self) -> Option<Arc<Pin>> {
        self.pin.load_full()
    }

    /// Reads that begin from now on rely on this pin.
    pub(super) fn set_pin(&self, number: u64) {
        if self.pin.load().as_ref().is_some_and(|pin| pin.number >= number) {
            return;
        }
        let new = Pin { number, remote: Mutex::new(Remote::new(self.address)) };
        let mut retiring = lock(&self.retiring);
        retiring.extend(self.pin.swap(Some(Arc::new(new))));
        debug_assert!(retiring.is_sorted_by_key(|pin| pin.number), "pins retire in their order");
    }

    /// The oldest pin that a read may rely on.
    pub(super) fn oldest_pin(&self) -> u64 {
        let mut retiring = lock(&self.retiring);
        while retiring.first().is_some_and(|pin| Arc::strong_count(pin) == 1) {
            retiring.remove(0);
        }
        match retiring.first() {
            Some(pin) => pin.number,
            None => self.pin.load().as_ref().map_or(0, |pin| pin.number),
        }
    }

    /// Asks the memory node for a segment.
    pub(super) fn ask_for_segment(&self, shard: u16) {
        self.send(&ToMemory::Segment { shard });
    }

    /// Sends a message; if the link has ended, the control thread knows.
    pub(super) fn send(&self, message: &ToMemory) {
        let _ = self.link.send(message);
    }

    /// Sends a request and waits for the answer.
    pub(super) fn ask(&self, request: impl FnOnce(u64) -> ToMemory) -> Result<ToServing, String> {
        let id = self.next_request.fetch_add(1, Relaxed);
        let (sender, receiver): (_, Receiver<ToServing>) = sync_channel(1);
        lock(&self.requests).insert(id, sender);
        let sent = self.link.send(&request(id));
        let answer = match sent {
            Ok(()) => {
                receiver.recv_timeout(self.patience).map_err(|_| "the memory node does not answer".to_owned())
            }
            Err(error) => Err(error.to_string()),
        };
        lock(&self.requests).remove(&id);
        answer
    }

    /// An answer has come.
    pub(super) fn answered(&self, id: u64, answer: ToServing) {
        if let Some(waiting) = lock(&self.requests).remove(&id) {
            // The thread may have given up.
            let _ = waiting.try_send(answer);
        }
    }

    /// Asks the memory node for the entry of a key.
    pub(super) fn ask_for(&self, key: &[u8]) -> Result<Option<Item>, Untold> {
        self.counts.asked.fetch_add(1, Relaxed);
        match self.ask(|id| ToMemory::Get { id, key: key.to_vec() })? {
            ToServing::Got { found, .. } => found,
            _ => Err("the memory node gave the answer to another question".into()),
        }
    }
}
