//! What each session has: logs, endpoints, keys of its segments, a pin. Nothing is decided here.

use super::logs::{Logs, Shard};
use super::segments::Segment;
use crate::arbiter::Incarnation;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use terrace_fabric::{Endpoint, Error, RegionKey};

/// Segments of a shard at the begin of a session.
pub(crate) const AHEAD: u8 = 2;
/// Segments of a shard that are not read to their ends, at most: one that is written to, and two
/// full ones.
const UNREAD_MAX: usize = 3;

/// The endpoints of a session.
pub(crate) enum Lanes<E> {
    None,
    /// A thread opens them.
    Opening {
        /// The session has ended meanwhile.
        is_over: bool,
    },
    Open(Vec<E>),
}

/// What a session has. Below stand its logs, which the threads that merge share.
pub(crate) struct Session<E> {
    pub(crate) logs: Arc<Logs>,
    pub(crate) lanes: Lanes<E>,
    /// Segments that each shard waits for.
    wanted: Vec<u8>,
    /// The turn in which each shard was granted its last one.
    turns: Vec<u64>,
    /// Keys of the segments at lane 0, by their numbers.
    keys: HashMap<u64, RegionKey>,
    /// Entries that releases wait for.
    releases: Vec<(Vec<u64>, u64)>,
    /// The pin that its reads rely on, if it can read.
    pin: Option<u64>,
    /// Segments that are read to their ends, but that the node may still write to.
    kept: Vec<Segment>,
    /// Whether the arbiter was told that all is merged.
    is_merged: bool,
}

impl<E> Session<E> {
    pub(crate) fn new(logs: Arc<Logs>, lanes: Lanes<E>) -> Self {
        let (wanted, turns) = (vec![AHEAD; logs.shards.len()], vec![0; logs.shards.len()]);
        let (keys, releases, kept) = Default::default();
        Self { logs, lanes, wanted, turns, keys, releases, pin: None, kept, is_merged: false }
    }

    /// The shards that may have a further segment: the turns of their last ones, and their places.
    fn waiting(&self) -> impl Iterator<Item = (u64, usize)> {
        let is_open = matches!(self.lanes, Lanes::Open(_));
        // ORDER: Relaxed: a segment more or less is granted a moment later.
        let may = move |nth: &usize| {
            is_open && self.wanted[*nth] > 0 && self.logs.shards[*nth].unread.load(Relaxed) < UNREAD_MAX
        };
        (0..self.logs.shards.len()).filter(may).map(|nth| (self.turns[nth], nth))
    }

    /// Segments that it has for longer than the merges take that go on: none once it ends. Of a
    /// shard that waits for one, all but the last are full.
    fn lasting(&self) -> usize {
        // ORDER: Relaxed: as in `waiting`.
        let of = |(shard, wanted): (&Shard, &u8)| match (shard.unread.load(Relaxed), *wanted) {
            (unread, 0) => unread,
            (unread, _) => unread.min(1),
        };
        let has_ended = self.logs.to_the_end.load(Relaxed);
        if has_ended { 0 } else { self.logs.shards.iter().zip(&self.wanted).map(of).sum() }
    }

    /// A shard has none to spare. It asks again and again.
    pub(crate) fn want(&mut self, shard: u16) {
        if let Some(wanted) = self.wanted.get_mut(usize::from(shard)) {
            *wanted = (*wanted).max(1);
        }
    }

    /// It ends, and gets no further segment.
    pub(crate) fn want_none(&mut self) {
        self.wanted.fill(0);
    }

    /// A shard has got a segment with this key, in this turn.
    pub(crate) fn granted(&mut self, nth: usize, segment: u64, key: RegionKey, turn: u64) {
        assert!(self.wanted[nth] > 0, "a segment is granted to a shard that waits for one");
        assert!(turn > self.turns[nth], "turns only grow");
        let before = self.keys.insert(segment, key);
        assert!(before.is_none(), "the number of a segment is used once");
        self.wanted[nth] -= 1;
        self.turns[nth] = turn;
    }

    /// Its endpoints are open: it reads under the newest pin.
    pub(crate) fn begin_reads(&mut self, newest: u64) {
        self.pin = Some(newest);
    }

    /// Its reads rely on this pin from now on, as it says.
    pub(crate) fn renew_pin(&mut self, pin: u64, newest: u64) {
        self.pin = self.pin.map(|before| before.max(pin.min(newest)));
    }

    /// It reads nothing any more.
    pub(crate) fn end_reads(&mut self) {
        self.pin = None;
    }

    /// A release waits until these entries of each shard are merged.
    pub(crate) fn release_behind(&mut self, durable: Vec<u64>, release: u64) {
        self.releases.push((durable, release));
    }

    /// The releases that wait for nothing more.
    pub(crate) fn take_released(&mut self) -> Vec<u64> {
        let logs = &self.logs;
        let done = self.releases.extract_if(.., |(durable, _)| logs.have_merged(durable));
        done.map(|(_, release)| release).collect()
    }

    /// Whether its logs are merged to their ends, and this was not told before.
    pub(crate) fn has_just_merged_all(&mut self) -> bool {
        // ORDER: Acquire: as `Merging::finish` stores it.
        let is_merged = self.logs.to_the_end.load(Acquire) && self.logs.are_ended();
        is_merged && !std::mem::replace(&mut self.is_merged, true)
    }

    /// Whether the arbiter was told that all is merged.
    pub(crate) fn is_merged(&self) -> bool {
        self.is_merged
    }

    /// All segments that it has, once it is over.
    pub(crate) fn into_segments(self) -> impl Iterator<Item = Segment> {
        assert!(!matches!(self.lanes, Lanes::Open(_)), "segments outlive the endpoints that reach them");
        self.logs.segments().into_iter().chain(self.kept)
    }
}

impl<E: Endpoint> Session<E> {
    /// Takes a segment from its node. Returns whether it is free now; if not, or if this fails, it
    /// stays with the session.
    fn revoke(&mut self, segment: Segment) -> Result<bool, Error> {
        let (Some(key), Lanes::Open(lanes)) = (self.keys.remove(&segment.number), &mut self.lanes) else {
            // Its endpoints are closed, or about to be: then the segment is kept until they are.
            self.kept.push(segment);
            return Ok(false);
        };
        lanes[0].revoke(key).inspect_err(|_| self.kept.push(segment)).map(|()| true)
    }
}

/// All sessions that are not forgotten.
pub(crate) struct Table<E>(BTreeMap<Incarnation, Session<E>>);

impl<E> Table<E> {
    pub(crate) fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// A session begins.
    pub(crate) fn add(&mut self, id: Incarnation, session: Session<E>) {
        let before = self.0.insert(id, session);
        assert!(before.is_none(), "the number of a session is used once");
    }

    pub(crate) fn get(&self, id: Incarnation) -> Option<&Session<E>> {
        self.0.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: Incarnation) -> Option<&mut Session<E>> {
        self.0.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: Incarnation) -> Option<Session<E>> {
        self.0.remove(&id)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The shard that gets the next segment: of all that wait for one, it was granted none for
    /// longest.
    pub(crate) fn next_waiting(&self) -> Option<(Incarnation, usize)> {
        let waiting = self.0.iter().flat_map(|(id, session)| session.waiting().map(move |at| (at, *id)));
        waiting.min().map(|((_, nth), id)| (id, nth))
    }

    /// Segments that sessions have for longer than the merges take that go on.
    pub(crate) fn lasting(&self) -> u64 {
        self.0.values().map(Session::lasting).sum::<usize>() as u64
    }

    /// Segments that are not read to their ends.
    pub(crate) fn unread(&self) -> u64 {
        let of = |session: &Session<E>| -> usize {
            session.logs.shards.iter().map(|shard| shard.unread.load(Relaxed)).sum()
        };
        self.0.values().map(of).sum::<usize>() as u64
    }

    /// The oldest pin that a session relies on.
    pub(crate) fn oldest_pin(&self) -> Option<u64> {
        self.0.values().filter_map(|session| session.pin).min()
    }

    /// The sessions that rely on this pin.
    pub(crate) fn relying_on(&self, pin: Option<u64>) -> Vec<Incarnation> {
        let relies = |(id, session): (&Incarnation, &Session<E>)| {
            (session.pin.is_some() && session.pin == pin).then_some(*id)
        };
        self.0.iter().filter_map(relies).collect()
    }

    /// What is merged of each session: the last entry of each shard.
    pub(crate) fn merged(&self) -> Vec<(Incarnation, Vec<u64>)> {
        self.0.iter().map(|(id, session)| (*id, session.logs.merged())).collect()
    }
}

impl<E: Endpoint> Table<E> {
    /// Takes a segment from a node: see [`Session::revoke`]. Of a session that is forgotten, it was
    /// freed with the others.
    pub(crate) fn revoke(&mut self, id: Incarnation, segment: Segment) -> Result<bool, Error> {
        self.0.get_mut(&id).map_or(Ok(true), |session| session.revoke(segment))
    }
}
