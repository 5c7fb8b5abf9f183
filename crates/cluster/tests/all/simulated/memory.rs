//! The memory node: the arbiter, segments that serving nodes write to, and a store that is a map.
//!
//! What the process keeps through its death is in [`Durable`]. A death comes between two events, so
//! a merge has two: one changes the store, one notes how far.

use super::shared::{Frame, LEASE, Mistake, SERVING, SLOTS, World, slot_of_key};
use crate::ledger::Kept;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use terrace_cluster::arbiter::{Arbiter, Effect, Incarnation, Leases, Ledger};
use terrace_cluster::entry::{Change, Entry};
use terrace_cluster::log::{Cursor, Taken};
use terrace_cluster::message::{Item, ToMemory, ToServing};
use terrace_fabric::sim::{Event, Host, Node, NodeId, SimEndpoint};
use terrace_fabric::{Access, Endpoint, Fabric, Memory as _, RegionKey, Words, load_bytes};

pub(super) const SEGMENT: usize = 768;
pub(super) const ENTRY_MAX: u64 = 512;
pub(super) const RESERVE: u64 = 96;
const SEGMENTS: usize = 40;
/// Segments that a shard is granted ahead, and those that it has unmerged, at most.
const AHEAD: u8 = 2;
const UNREAD_MAX: usize = 3;
const TICK: Duration = Duration::from_millis(2);
/// The longest time that a thread takes until it does something.
const SOON_US: u64 = 400;

/// How far apart the clocks may run, beside one another: see `run`.
pub(super) const DRIFT_PPM: u32 = 20_000;

struct Row {
    /// 0 if it is free.
    number: u64,
    session: Incarnation,
    shard: usize,
    order: u64,
    /// The first entry, or 0 if it is not known.
    first: u64,
    merged: u64,
    words: Arc<Words>,
}

/// What survives the process.
pub(super) struct Durable {
    ledger: Kept,
    store: BTreeMap<u8, Vec<u8>>,
    rows: Vec<Row>,
    next_number: u64,
}

impl Durable {
    pub(super) fn new() -> Rc<RefCell<Self>> {
        let row = |_| Row {
            number: 0,
            session: 0,
            shard: 0,
            order: 0,
            first: 0,
            merged: 0,
            words: Arc::new(Words::new(SEGMENT / 8)),
        };
        let (ledger, store) = Default::default();
        let rows = (0..SEGMENTS).map(row).collect();
        Rc::new(RefCell::new(Self { ledger, store, rows, next_number: 1 }))
    }

    fn row(&mut self, number: u64) -> &mut Row {
        self.rows.iter_mut().find(|row| row.number == number).expect("a segment")
    }

    fn log(&self, session: Incarnation, shard: usize) -> Log {
        let is_one = |row: &&Row| row.number != 0 && (row.session, row.shard) == (session, shard);
        let mut rows: Vec<&Row> = self.rows.iter().filter(is_one).collect();
        rows.sort_by_key(|row| row.order);
        let merged = rows.iter().map(|row| row.merged).max().unwrap_or(0);
        let first = rows.first().map_or(1, |row| row.first);
        let cursor = Cursor::new(first, rows.iter().map(|row| row.number));
        let order = rows.last().map_or(0, |row| row.order + 1);
        let merged_before = merged;
        Log { cursor, order, wanted: AHEAD, durable: merged, merged, merged_before, is_ended: false }
    }

    /// Makes the changes of an entry whose slots are the session's.
    fn apply(&mut self, entry: &Entry<'_>, session: Incarnation) {
        let Entry::Changes(changes) = entry else { panic!("{entry:?}") };
        for change in changes {
            let key = change.key()[0];
            if self.ledger.owner(SLOTS[slot_of_key(key)]) != Some(session) {
                continue;
            }
            match change {
                Change::Put { value, .. } => _ = self.store.insert(key, value.to_vec()),
                Change::Remove { .. } => _ = self.store.remove(&key),
            }
        }
    }
}

struct Log {
    cursor: Cursor,
    order: u64,
    wanted: u8,
    durable: u64,
    merged: u64,
    merged_before: u64,
    is_ended: bool,
}

struct Session {
    logs: Vec<Log>,
    endpoint: Option<SimEndpoint>,
    keys: BTreeMap<u64, RegionKey>,
    releases: Vec<(Vec<u64>, u64)>,
    to_the_end: bool,
    is_merged: bool,
}

/// What threads do later.
enum Work {
    Tick,
    Open(Incarnation),
    Close(Incarnation),
    Merge(Incarnation, usize),
    Note(Incarnation, usize, u64),
    Get(u64, Incarnation, u64, u8),
}

pub(super) struct Memory {
    host: Host,
    world: World,
    durable: Rc<RefCell<Durable>>,
    arbiter: Arbiter<Kept>,
    sessions: BTreeMap<Incarnation, Session>,
    /// Links that are open, and their nodes.
    links: BTreeMap<u64, NodeId>,
    works: BTreeMap<u64, Work>,
    next_work: u64,
    /// Endpoints that should have been closed.
    left_open: Vec<SimEndpoint>,
}

impl Memory {
    pub(super) fn new(host: Host, world: World, durable: Rc<RefCell<Durable>>) -> Self {
        let leases = Leases { time: LEASE, drift_ppm: DRIFT_PPM };
        let mut ledger = durable.borrow().ledger.clone();
        if world.has(Mistake::FencingForgotten) {
            let sessions = ledger.sessions();
            sessions.into_iter().for_each(|(id, ..)| ledger.end_session(id));
        }
        world.get().boots += 1;
        let arbiter = Arbiter::new(ledger, leases, host.now());
        let (sessions, links, works, left_open) = Default::default();
        let mut memory =
            Self { host, world, durable, arbiter, sessions, links, works, next_work: 0, left_open };
        for id in memory.arbiter.sessions() {
            let logs =
                (0..usize::from(super::shared::SHARDS)).map(|shard| memory.durable.borrow().log(id, shard));
            let session = Session::new(logs.collect(), None);
            memory.sessions.insert(id, session);
        }
        memory.free_rows_of_none();
        memory.work_at(TICK, Work::Tick);
        memory.settle();
        memory
    }

    /// Frees segments of sessions that have ended.
    fn free_rows_of_none(&self) {
        for row in &mut self.durable.borrow_mut().rows {
            if !self.sessions.contains_key(&row.session) {
                row.number = 0;
            }
        }
    }

    fn work_at(&mut self, after: Duration, work: Work) {
        self.next_work += 1;
        self.works.insert(self.next_work, work);
        self.host.set_timer(after, self.next_work);
    }

    fn soon(&mut self, work: Work) {
        let after = Duration::from_micros(1 + self.host.random() % SOON_US);
        self.work_at(after, work);
    }

    /// Does what the arbiter wants.
    fn settle(&mut self) {
        let mut effects = self.arbiter.take_effects();
        if effects.is_empty() {
            return;
        }
        while !effects.is_empty() {
            effects.into_iter().for_each(|effect| self.perform(effect));
            effects = self.arbiter.take_effects();
        }
        let number = |name: &str| name.rsplit(' ').next().and_then(|nth| nth.parse().ok()).expect("a number");
        self.world.get().sessions = self.arbiter.serving().iter().map(|(_, name)| number(name)).collect();
    }

    fn perform(&mut self, effect: Effect) {
        if !matches!(effect, Effect::Progress(..) | Effect::Send(_, ToServing::Renewed { .. })) {
            self.world.trace(|| format!("               memory: {effect:?}"));
        }
        match effect {
            Effect::Send(link, message) => {
                if let Some(node) = self.links.get(&link) {
                    Frame::ToServing(link, message).send(&self.host, *node);
                }
            }
            Effect::Drop(link) => {
                if let Some(node) = self.links.remove(&link) {
                    Frame::Close(link).send(&self.host, node);
                }
            }
            Effect::Open(id, shards, _) => self.open(id, shards),
            Effect::Close(id) => self.soon(Work::Close(id)),
            Effect::MergeAll(id) => self.merge_all(id),
            Effect::MergeUpTo(id, durable, release) => {
                let Some(session) = self.sessions.get_mut(&id) else { return };
                session.releases.push((durable.clone(), release));
                self.arrived(id, &durable);
                self.look_at(id);
            }
            Effect::Progress(id, sent, durable, pin) => self.progress(id, sent, &durable, pin),
            Effect::Grant(id, shard) => {
                let Some(session) = self.sessions.get_mut(&id) else { return };
                let log = &mut session.logs[usize::from(shard)];
                log.wanted = (log.wanted + 1).min(AHEAD);
                self.grant(id);
            }
            Effect::Forget(id) => {
                self.sessions.remove(&id);
                self.free_rows_of_none();
            }
        }
    }

    fn open(&mut self, id: Incarnation, shards: u16) {
        let logs = (0..usize::from(shards)).map(|shard| self.durable.borrow().log(id, shard));
        let session = Session::new(logs.collect(), None);
        self.sessions.insert(id, session);
        self.soon(Work::Open(id));
    }

    fn progress(&mut self, id: Incarnation, sent: u64, durable: &[u64], pin: u64) {
        self.arrived(id, durable);
        let Some(session) = self.sessions.get(&id) else { return };
        let told_early = self.world.has(Mistake::MergedToldEarly);
        let told = |log: &Log| if told_early { log.durable } else { log.merged };
        let merged = session.logs.iter().map(told).collect();
        self.arbiter.renewed(id, sent, pin + 1, merged);
    }

    fn merge_all(&mut self, id: Incarnation) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.to_the_end = true;
        (0..session.logs.len()).for_each(|shard| self.soon(Work::Merge(id, shard)));
        if self.world.has(Mistake::GrantedUnmerged) {
            self.arbiter.merged(id, self.host.now());
        }
    }

    fn arrived(&mut self, id: Incarnation, durable: &[u64]) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let mut more = Vec::new();
        for (shard, (log, entry)) in session.logs.iter_mut().zip(durable).enumerate() {
            if log.durable < *entry {
                log.durable = *entry;
                more.push(shard);
            }
        }
        more.into_iter().for_each(|shard| self.soon(Work::Merge(id, shard)));
    }

    fn grant(&mut self, id: Incarnation) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(endpoint) = &mut session.endpoint else { return };
        let mut durable = self.durable.borrow_mut();
        let Durable { rows, next_number, .. } = &mut *durable;
        for (shard, log) in session.logs.iter_mut().enumerate() {
            while log.wanted > 0 && log.cursor.segments() < UNREAD_MAX {
                let Some(row) = rows.iter_mut().find(|row| row.number == 0) else { return };
                let words = Arc::clone(&row.words);
                *row = Row {
                    number: *next_number,
                    session: id,
                    shard,
                    order: log.order,
                    first: u64::from(log.order == 0),
                    merged: 0,
                    words: Arc::clone(&words),
                };
                let key = endpoint.register(words, 0..SEGMENT, Access::Write).expect("a region");
                session.keys.insert(*next_number, key);
                log.cursor.grant(*next_number);
                (log.order, log.wanted) = (log.order + 1, log.wanted - 1);
                let granted = ToServing::Segment {
                    shard: shard as u16,
                    number: *next_number,
                    bytes: SEGMENT as u64,
                    key: key.to_bytes(),
                };
                *next_number += 1;
                self.arbiter.granted_segment(id, granted);
            }
        }
    }

    fn do_work(&mut self, work: Work) {
        match work {
            Work::Tick => self.tick(),
            Work::Open(id) => {
                let endpoint = self.host.open().expect("an endpoint");
                let address = endpoint.address().to_vec();
                self.sessions.get_mut(&id).expect("a session that opens").endpoint = Some(endpoint);
                self.arbiter.opened(id, address, self.host.now());
                if !self.arbiter.serving().iter().any(|(serving, _)| *serving == id) {
                    // It has ended meanwhile.
                    self.close(id);
                }
                self.grant(id);
            }
            Work::Close(id) => self.close(id),
            Work::Merge(id, shard) => self.merge(id, shard),
            Work::Note(id, shard, merged) => self.note(id, shard, merged),
            Work::Get(link, id, request, key) => self.get(link, id, request, key),
        }
    }

    fn close(&mut self, id: Incarnation) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if let Some(mut endpoint) = session.endpoint.take()
            && self.world.has(Mistake::RegionsRevokedOnly)
        {
            std::mem::take(&mut session.keys)
                .into_values()
                .for_each(|key| endpoint.revoke(key).expect("a region"));
            self.left_open.push(endpoint);
        }
        self.arbiter.closed(id);
    }

    fn tick(&mut self) {
        let mut ended = Vec::new();
        for link in self.links.keys().copied() {
            // Some ends of links are heard of late, or by the silence alone.
            if self.world.get().dead_links.contains(&link) && self.host.random().is_multiple_of(8) {
                ended.push(link);
            }
        }
        for link in ended {
            self.links.remove(&link);
            self.arbiter.lost(link);
        }
        self.arbiter.tick(self.host.now());
        let ids: Vec<Incarnation> = self.sessions.keys().copied().collect();
        ids.into_iter().for_each(|id| self.grant(id));
        self.work_at(TICK, Work::Tick);
    }

    /// Merges some entries of a shard's log.
    fn merge(&mut self, id: Incarnation, shard: usize) {
        let most = 1 + self.host.random() % 3;
        let noted_early = self.world.has(Mistake::MergedNotedEarly);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let mut durable = self.durable.borrow_mut();
        let merge = |_| session.merge_one(&mut durable, (id, shard), noted_early);
        let step = (0..most).map(merge).find(|step| *step != Step::Merged);
        drop(durable);
        let log = &mut session.logs[shard];
        let is_end = step == Some(Step::End);
        log.is_ended |= is_end && session.to_the_end;
        let last = log.cursor.last();
        let goes_on = (last < log.durable || session.to_the_end) && !log.is_ended;
        if is_end && !session.to_the_end {
            self.world.trace(|| format!("{:?} told {}", log.cursor, log.durable));
            self.world.fail(format!("the log of session {id} lacks an entry that was told as durable"));
        }
        self.world.get().merges = true;
        self.soon(Work::Note(id, shard, last));
        if goes_on {
            self.soon(Work::Merge(id, shard));
        }
    }

    /// Notes that the entries up to this one are in the index.
    fn note(&mut self, id: Incarnation, shard: usize, merged: u64) {
        self.world.get().merges = false;
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let log = &mut session.logs[shard];
        log.merged = log.merged.max(merged);
        if let Some((number, _)) = log.cursor.place() {
            let mut durable = self.durable.borrow_mut();
            let row = durable.row(number);
            row.merged = row.merged.max(log.merged);
        }
        self.look_at(id);
        self.grant(id);
    }

    /// Tells the arbiter what is merged.
    fn look_at(&mut self, id: Incarnation) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let logs = &session.logs;
        let is_merged = |entries: &[u64]| logs.iter().zip(entries).all(|(log, entry)| log.merged >= *entry);
        let (done, left) = std::mem::take(&mut session.releases)
            .into_iter()
            .partition::<Vec<_>, _>(|(durable, _)| is_merged(durable));
        session.releases = left;
        done.into_iter().for_each(|(_, release)| self.arbiter.merged_for(id, release));
        let is_noted = |log: &Log| log.is_ended && log.merged >= log.cursor.last();
        if session.to_the_end && !session.is_merged && session.logs.iter().all(is_noted) {
            session.is_merged = true;
            self.arbiter.merged(id, self.host.now());
        }
    }

    fn get(&mut self, link: u64, id: Incarnation, request: u64, key: u8) {
        let Some(node) = self.links.get(&link) else { return };
        let durable = self.durable.borrow();
        let found = match durable.ledger.owner(SLOTS[slot_of_key(key)]) == Some(id) {
            true => {
                let item = |value: &Vec<u8>| Item { key: vec![key], value: value.clone(), expires_at: None };
                Ok(durable.store.get(&key).map(item))
            }
            false => Err("the slot is not the node's".into()),
        };
        Frame::ToServing(link, ToServing::Got { id: request, found }).send(&self.host, *node);
    }

    fn heard(&mut self, from: NodeId, frame: Frame) {
        match frame {
            Frame::Open(link) => _ = self.links.insert(link, from),
            Frame::Close(link) => {
                self.links.remove(&link);
                self.arbiter.lost(link);
            }
            Frame::ToMemory(link, message) => match (self.links.get(&link), message) {
                // It is of an earlier life, or was closed.
                (None, _) => Frame::Close(link).send(&self.host, from),
                (Some(_), ToMemory::Get { id, key }) => match self.arbiter.session_of(link) {
                    Some(session) => self.soon(Work::Get(link, session, id, key[0])),
                    None => {
                        let found = Err("this link has no session".into());
                        Frame::ToServing(link, ToServing::Got { id, found }).send(&self.host, from);
                    }
                },
                (Some(_), message) => self.arbiter.heard(link, message, self.host.now()),
            },
            other => panic!("{other:?} at the memory node"),
        }
    }
}

/// What became of the next entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Merged,
    /// It has not arrived, as far as is known.
    Idle,
    /// No whole entry is there.
    End,
}

impl Session {
    /// Merges the next entry of a shard's log.
    fn merge_one(
        &mut self,
        durable: &mut Durable,
        (id, shard): (Incarnation, usize),
        noted_early: bool,
    ) -> Step {
        let log = &mut self.logs[shard];
        if !self.to_the_end && log.cursor.last() >= log.durable {
            return Step::Idle;
        }
        let Some((number, offset)) = log.cursor.place() else { return Step::End };
        let mut bytes = [0; SEGMENT];
        load_bytes(durable.row(number).words.words(), 0, &mut bytes);
        let before = log.cursor.clone();
        match log.cursor.take(&bytes[offset..]) {
            None => return Step::End,
            Some(Taken::End(number)) => self.go_on(durable, shard, number),
            Some(Taken::Entry(entry, _)) if before.last() >= log.merged_before => {
                if noted_early {
                    durable.row(number).merged = log.durable;
                }
                durable.apply(&entry, id);
            }
            Some(Taken::Entry(..)) => {}
        }
        Step::Merged
    }

    /// A shard's log goes on behind the segment with this number.
    fn go_on(&mut self, durable: &mut Durable, shard: usize, number: u64) {
        let log = &self.logs[shard];
        let last = log.cursor.last();
        let Some((next, _)) = log.cursor.place() else { return };
        let row = durable.row(next);
        (row.first, row.merged) = (last + 1, last.max(log.merged_before));
        let is_writable = self.endpoint.is_some();
        if let (Some(key), Some(endpoint)) = (self.keys.remove(&number), &mut self.endpoint) {
            endpoint.revoke(key).expect("a region");
        }
        // Else it is kept until the session is forgotten.
        if is_writable {
            durable.row(number).number = 0;
        }
    }

    fn new(logs: Vec<Log>, endpoint: Option<SimEndpoint>) -> Self {
        let (keys, releases) = Default::default();
        Self { logs, endpoint, keys, releases, to_the_end: false, is_merged: false }
    }
}

impl Node for Memory {
    fn handle(&mut self, event: Event) {
        match event {
            Event::Timer(number) => {
                if let Some(work) = self.works.remove(&number) {
                    self.do_work(work);
                }
            }
            Event::Message { from, bytes } => self.heard(from, Frame::read(&bytes)),
            Event::Completed { .. } => {}
        }
        self.settle();
    }
}

/// The name of a serving node; the memory node reads its number.
pub(super) fn name(nth: usize) -> String {
    assert!(nth < SERVING);
    format!("node {nth}")
}
