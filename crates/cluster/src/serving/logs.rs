//! The logs of a session, and their group commit: one write of the fabric takes whatever all shards
//! have, while no other is under way.

use crate::clock::now;
use crate::entry::Entry;
use crate::log::{Grant, NoSegment, Piece, ShardLog};
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use terrace_engine::WriteError;
use terrace_fabric::RegionKey;

/// How long a write waits for room: for a segment, or until removals are merged.
pub(super) const ROOM_WAIT: Duration = Duration::from_secs(2);

/// How long puts wait on a full pool after a clear of this node: clears of the other nodes follow
/// within that time.
const CLEAR_WAIT: Duration = Duration::from_millis(500);

/// A write to one segment, and the segment's key.
pub(super) type Sent = (Piece, RegionKey);

/// The logs.
pub(super) struct Logs {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    shards: Vec<Shard>,
    /// Entries of all sessions of this process: the last one that was appended, and that arrived.
    appended: u64,
    durable: u64,
    is_flushing: bool,
    /// Segments that were granted.
    grants: u64,
    /// The memory node has no room for puts: its free bytes and all.
    full: Option<(u64, u64)>,
    /// Until when puts wait on a full pool, since this node was cleared.
    cleared_until: Duration,
    /// Why the session has ended, if it has.
    ended: Option<String>,
}

struct Shard {
    log: ShardLog,
    keys: HashMap<u64, RegionKey>,
    has_asked: bool,
    /// The last entry that only removes, and the last one that is merged.
    removal: u64,
    merged: u64,
}

/// An entry that was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Appended {
    /// Its number in its shard's log.
    pub(super) lsn: u64,
    /// Its number among all entries of this process.
    pub(super) ticket: u64,
}

/// An entry was not appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Its shard has no segment with room; so many were granted until now.
    NoRoom(u64),
    /// The pool has no room for puts: its free bytes and all.
    Full { free: u64, size: u64 },
    /// The session has ended, for this reason.
    Ended(String),
}

/// What became of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// Its entries have arrived.
    Durable,
    /// Its entries wait; write these, then call [`Logs::arrived`] or [`Logs::end`].
    Write(Vec<Sent>, u64),
}

impl Logs {
    /// Logs of so many shards, whose first entry has the ticket behind `ticket`.
    pub(super) fn new(shards: u16, ticket: u64) -> Self {
        let (removal, merged) = (0, 0);
        let shard =
            || Shard { log: ShardLog::new(0), keys: HashMap::new(), has_asked: false, removal, merged };
        let shards = (0..shards).map(|_| shard()).collect();
        let state = State {
            shards,
            appended: ticket,
            durable: ticket,
            is_flushing: false,
            grants: 0,
            full: None,
            cleared_until: Duration::ZERO,
            ended: None,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a segment to a shard.
    pub(super) fn grant(&self, shard: u16, segment: Grant, key: RegionKey) {
        let mut state = self.state();
        state.grants += 1;
        if let Some(shard) = state.shards.get_mut(usize::from(shard)) {
            shard.keys.insert(segment.number, key);
            shard.log.grant(segment);
            shard.has_asked = false;
        }
        self.changed.notify_all();
    }

    /// Notes whether the memory node has room for puts: its free bytes and all if not.
    pub(super) fn set_full(&self, full: Option<(u64, u64)>) {
        self.state().full = full;
        self.changed.notify_all();
    }

    /// Whether a shard has no segment behind the current one, and has not asked for one since the
    /// last was granted.
    pub(super) fn is_short(&self, shard: u16) -> bool {
        let shard = &mut self.state().shards[usize::from(shard)];
        shard.log.spare() == 0 && !std::mem::replace(&mut shard.has_asked, true)
    }

    /// The shards that have no segment behind the current one.
    pub(super) fn short(&self) -> Vec<u16> {
        let state = self.state();
        let short = state.shards.iter().zip(0..).filter(|(shard, _)| shard.log.spare() == 0);
        short.map(|(_, nth)| nth).collect()
    }

    /// Appends an entry. If there is no room, the caller waits by [`Logs::wait_for_room`], without
    /// the locks that readers need, and tries again.
    pub(super) fn append(
        &self,
        shard: u16,
        entry: &Entry<'_>,
        is_removal: bool,
    ) -> Result<Appended, Refused> {
        let mut state = self.state();
        if let Some(why) = &state.ended {
            return Err(Refused::Ended(why.clone()));
        }
        if let Some((free, size)) = state.full.filter(|_| !is_removal) {
            return Err(Refused::Full { free, size });
        }
        let State { shards, grants, .. } = &mut *state;
        let shard = &mut shards[usize::from(shard)];
        let lsn = shard.log.append(entry, is_removal).map_err(|NoSegment| Refused::NoRoom(*grants))?;
        if is_removal {
            shard.removal = lsn;
        }
        assert!(state.appended >= state.durable, "what has arrived was appended");
        state.appended += 1;
        Ok(Appended { lsn, ticket: state.appended })
    }

    /// Waits for a segment until then, since an entry had no room: see [`Refused::NoRoom`].
    pub(super) fn wait_for_room(&self, seen: u64, until: Duration) -> Result<(), WriteError> {
        let waits = |state: &mut State| state.ended.is_none() && state.full.is_none() && state.grants == seen;
        let left = until.saturating_sub(now());
        let waited = self.changed.wait_timeout_while(self.state(), left, waits);
        let (_state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            let why = "the memory node gives no room in the log: it merges too slowly, is stopped, or its memory \
                       waits for readers";
            return Err(WriteError::Unavailable(why.into()));
        }
        Ok(())
    }

    /// The last removal of each shard, if one of them is not merged: what it removes may make room.
    pub(super) fn removals(&self) -> Option<Vec<u64>> {
        let state = self.state();
        let is_merging = state.shards.iter().any(|shard| shard.removal > shard.merged);
        (is_merging || now() < state.cleared_until)
            .then(|| state.shards.iter().map(|shard| shard.removal).collect())
    }

    /// Waits until these removals are merged. Returns whether the pool has room then; `None` after
    /// so much time.
    pub(super) fn wait_for_removals(&self, removals: &[u64], time: Duration) -> Option<bool> {
        let is_merged = |state: &State| {
            state.shards.iter().zip(removals).all(|(shard, removal)| shard.merged >= *removal)
        };
        let waits = |state: &mut State| {
            let is_over = is_merged(state) && now() >= state.cleared_until;
            state.ended.is_none() && state.full.is_some() && !is_over
        };
        let waited = self.changed.wait_timeout_while(self.state(), time, waits);
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        (!timeout.timed_out()).then(|| state.full.is_none() || state.ended.is_some())
    }

    /// All slots of this node were cleared.
    pub(super) fn cleared(&self) {
        self.state().cleared_until = now() + CLEAR_WAIT;
    }

    /// Whether the pool is full, and this node has removed what may make room.
    pub(super) fn makes_room(&self) -> bool {
        let is_full = self.state().full.is_some();
        is_full && self.removals().is_some()
    }

    /// The memory node has merged the entries of each shard up to these.
    pub(super) fn merged(&self, merged: &[u64]) {
        let mut state = self.state();
        state.shards.iter_mut().zip(merged).for_each(|(shard, lsn)| shard.merged = shard.merged.max(*lsn));
        if state.full.is_some() {
            self.changed.notify_all();
        }
    }

    /// The last ticket.
    pub(super) fn ticket(&self) -> u64 {
        self.state().appended
    }

    /// The last entry of each shard that has arrived.
    pub(super) fn durable(&self) -> Vec<u64> {
        self.state().shards.iter().map(|shard| shard.log.durable()).collect()
    }

    /// Waits until the entries up to `ticket` have arrived, or are for the caller to write.
    pub(super) fn settle(&self, ticket: u64) -> Result<Settled, WriteError> {
        let mut state = self.state();
        loop {
            if state.durable >= ticket {
                return Ok(Settled::Durable);
            }
            if let Some(why) = &state.ended {
                return Err(unknown(why));
            }
            if !state.is_flushing {
                state.is_flushing = true;
                let State { shards, appended, .. } = &mut *state;
                let writes = shards.iter_mut().flat_map(Shard::take_write).collect();
                return Ok(Settled::Write(writes, *appended));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The write that [`Logs::settle`] gave out has arrived: all up to this ticket.
    pub(super) fn arrived(&self, ticket: u64) {
        let mut state = self.state();
        assert!((state.durable..=state.appended).contains(&ticket), "writes arrive in their order");
        state.shards.iter_mut().for_each(|shard| shard.log.arrived());
        state.durable = ticket;
        state.is_flushing = false;
        self.changed.notify_all();
    }

    /// Why the session has ended, if this node has ended it.
    pub(super) fn ended(&self) -> Option<String> {
        self.state().ended.clone()
    }

    /// The session has ended. Returns the last tickets that are durable and that were given out.
    pub(super) fn end(&self, why: &str) -> (u64, u64) {
        let mut state = self.state();
        state.ended.get_or_insert_with(|| why.to_owned());
        state.is_flushing = false;
        self.changed.notify_all();
        (state.durable, state.appended)
    }
}

impl Shard {
    fn take_write(&mut self) -> Vec<Sent> {
        let pieces = self.log.take_write().unwrap_or_default();
        let sent: Vec<Sent> =
            pieces.into_iter().map(|piece| (self.keys[&piece.segment], piece)).map(swap).collect();
        debug_assert!(
            sent.is_sorted_by_key(|(piece, _)| piece.segment),
            "segments of a log are numbered in their order"
        );
        // The last one is the current segment.
        if let Some((last, _)) = sent.last() {
            let last = last.segment;
            self.keys.retain(|number, _| *number >= last);
        }
        sent
    }
}

fn swap((key, piece): (RegionKey, Piece)) -> Sent {
    (piece, key)
}

/// The error of a write that may or may not be done.
pub(super) fn unknown(why: &str) -> WriteError {
    WriteError::Unknown(why.into())
}
