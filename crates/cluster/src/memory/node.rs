//! What the threads of a memory node share: the arbiter, and what its effects do.

use super::area::Area;
use super::data::Data;
use super::ledger::{AreaLedger, NAME_MAX};
use super::links::{Peer, REQUESTS_MAX};
use super::logs::{Logs, Queue, Shard};
use super::merge::{self, Merged, Outcome};
use super::pins::{Pins, Taken};
use super::requests::{Request, Requests};
use super::segments::{Segment, Segments};
use super::{Options, Stats};
use crate::arbiter::{Arbiter, Effect, Incarnation, Link};
use crate::message::{Access, Space, ToMemory, ToServing, WIRE};
use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use terrace_engine::WriteError;
use terrace_fabric::{Access as Right, Endpoint, Error, Fabric, Memory, RegionKey};
use terrace_pool::Bytes;

/// Most shards and lanes of a session.
const PARTS_MAX: u16 = 64;
/// Segments of a shard at the begin of a session.
pub(crate) const AHEAD: u8 = 2;
/// Segments of a shard that are not read to their ends, at most: one that is written to, and two
/// full ones.
const UNREAD_MAX: usize = 3;
/// Bytes that stay free in the pool beside the room for what is granted.
const ROOM: u64 = 16 << 20;
/// Bytes more that are to be free until a pool that was full takes puts again.
const AGAIN_ROOM: u64 = ROOM / 2;
/// The part of the pool that may wait for readers of old pins.
const WAITING_SHARE: u64 = 8;
/// Time between two looks at the clock.
const TICK: Duration = Duration::from_millis(4);
/// Time until a merge that met a full pool, or a shard without a segment, tries again. While memory
/// is short, serving nodes tell as often what they have written and read.
const AGAIN: Duration = Duration::from_millis(20);

/// Bytes of the pool that are kept free while so many segments are granted.
pub(crate) fn kept(granted: u64, segment_bytes: u64) -> u64 {
    2 * granted * segment_bytes + ROOM
}

/// How often nodes are told of the room in the pool.
const TELL_ROOM: Duration = Duration::from_secs(1);

/// The time of the arbiter. It goes on while the machine sleeps.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.expect("a time since the boot"), nanos.expect("a part of a second"))
}

/// Sessions that serve, with their nodes.
pub(crate) type Serving = Vec<(Incarnation, String)>;

/// The endpoints of a session.
enum Lanes<E> {
    None,
    /// A thread opens them.
    Opening {
        /// The session has ended meanwhile.
        is_over: bool,
    },
    Open(Vec<E>),
}

struct Session<E> {
    logs: Arc<Logs>,
    lanes: Lanes<E>,
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
    fn new(logs: Arc<Logs>, lanes: Lanes<E>) -> Self {
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
}

/// What is changed under the lock.
pub(crate) struct Control<F: Fabric> {
    arbiter: Arbiter<AreaLedger>,
    links: HashMap<Link, Peer>,
    next_link: Link,
    sessions: BTreeMap<Incarnation, Session<F::Endpoint>>,
    segments: Segments,
    /// The sessions that were told to the callback.
    told: Serving,
    /// There is no room for segments until then.
    no_room_until: Duration,
    /// Whether nodes were told that the pool has no room for puts.
    is_full: bool,
    /// Whether a shard waits for a segment until memory is free that readers or merges have now.
    is_short: bool,
    room_seen: Duration,
    /// When nodes were told of the room in the pool.
    room_told: Duration,
    /// Segments that were granted since the start.
    turn: u64,
    pins_renewed: Duration,
    /// The oldest pin that a session relied on then.
    oldest_pin: Option<u64>,
    /// The last reason for which a session was refused.
    objected: String,
}

/// A memory node.
pub(crate) struct Node<F: Fabric> {
    fabric: F,
    options: Options,
    pub(crate) data: Data,
    pub(crate) area: Arc<Area>,
    control: Mutex<Control<F>>,
    pub(crate) queue: Queue,
    pub(crate) pins: Arc<Pins>,
    pub(crate) requests: Requests,
    merged: Merged,
    /// Unix-like time, in seconds, of the last complaint about a full pool.
    complained: AtomicU64,
    tell: Mutex<Option<mpsc::Sender<Serving>>>,
    /// Whether nodes are refused.
    is_ending: AtomicBool,
    is_stopping: AtomicBool,
    stops: Condvar,
    stop: Mutex<()>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<F> Node<F>
where
    F: Fabric<Endpoint: Send + 'static> + Send + Sync + 'static,
{
    pub(crate) fn new(
        (fabric, options): (F, Options),
        data: Data,
        (area, segments): (Arc<Area>, Segments),
        mut found: super::segments::Logs,
        tell: mpsc::Sender<Serving>,
    ) -> Self {
        let arbiter = Arbiter::new(AreaLedger(area.clone()), options.leases(), now());
        let mut sessions = BTreeMap::new();
        for id in arbiter.sessions() {
            let logs = Logs::found(id, found.remove(&id).unwrap_or_default());
            sessions.insert(id, Session::new(logs, Lanes::None));
        }
        let (links, told, no_room_until, objected) = Default::default();
        let (is_full, is_short, room_seen, room_told, turn, pins_renewed, oldest_pin) = Default::default();
        let control = Control {
            arbiter,
            links,
            next_link: 1,
            sessions,
            segments,
            told,
            no_room_until,
            is_full,
            is_short,
            room_seen,
            room_told,
            turn,
            pins_renewed,
            oldest_pin,
            objected,
        };
        Self {
            fabric,
            options,
            data,
            area,
            control: Mutex::new(control),
            queue: Queue::default(),
            pins: Pins::new(),
            requests: Requests::default(),
            merged: Merged::default(),
            complained: AtomicU64::new(0),
            tell: Mutex::new(Some(tell)),
            is_ending: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            stops: Condvar::new(),
            stop: Mutex::new(()),
            threads: Mutex::default(),
        }
    }

    fn control(&self) -> MutexGuard<'_, Control<F>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the node stops.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Acquire)
    }

    /// Waits a moment, or until the node stops.
    pub(crate) fn sleep(&self) {
        self.sleep_for(AGAIN);
    }

    fn sleep_for(&self, time: Duration) {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_stopping() {
            drop(self.stops.wait_timeout(stop, time));
        }
    }

    /// Starts a thread that ends with the node. If it panics, the process ends: a start recovers
    /// what the thread may have left half done.
    pub(crate) fn spawn(&self, name: &'static str, work: impl FnOnce() + Send + 'static) -> bool {
        let work = move || {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                die(&format!("the thread {name} has panicked"));
            }
        };
        match Builder::new().name(name.into()).spawn(work) {
            Ok(thread) => {
                let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
                true
            }
            Err(error) => {
                log::error!("could not start the thread {name} of the memory node: {error}");
                false
            }
        }
    }

    /// Does something with the arbiter, and then what it wants.
    fn event(self: &Arc<Self>, act: impl FnOnce(&mut Control<F>)) {
        let mut control = self.control();
        act(&mut control);
        self.settle(&mut control);
    }

    fn settle(self: &Arc<Self>, control: &mut Control<F>) {
        loop {
            let effects = control.arbiter.take_effects();
            if effects.is_empty() {
                break;
            }
            effects.into_iter().for_each(|effect| self.perform(control, effect));
        }
        let serving = control.arbiter.serving();
        if !serving.iter().map(|(id, _)| id).eq(control.told.iter().map(|(id, _)| id)) {
            control.told = serving.into_iter().map(|(id, node)| (id, node.to_string())).collect();
            if let Some(tell) = &*self.tell.lock().unwrap_or_else(PoisonError::into_inner) {
                let _ = tell.send(control.told.clone());
            }
        }
    }

    fn perform(self: &Arc<Self>, control: &mut Control<F>, effect: Effect) {
        match effect {
            Effect::Send(link, message) => {
                if let Some(peer) = control.links.get(&link) {
                    peer.send(message);
                }
            }
            Effect::Drop(link) => {
                if let Some(peer) = control.links.remove(&link) {
                    peer.close();
                }
            }
            Effect::Open(id, shards, lanes) => self.open(control, id, shards, lanes),
            Effect::Close(id) => self.close(control, id),
            Effect::MergeAll(id) => {
                let Some(session) = control.sessions.get(&id) else { return };
                let logs = session.logs.clone();
                // ORDER: Release: what has arrived in the segments is all there will be.
                logs.to_the_end.store(true, Release);
                (0..logs.shards.len()).for_each(|nth| self.queue.add(&logs, nth));
                self.look_at(control, id);
            }
            Effect::MergeUpTo(id, durable, release) => {
                let Some(session) = control.sessions.get_mut(&id) else { return };
                session.releases.push((durable.clone(), release));
                self.arrived(&session.logs, &durable);
                self.look_at(control, id);
            }
            Effect::Progress(id, sent, durable, pin) => {
                let Some(session) = control.sessions.get_mut(&id) else { return };
                let newest = self.pins.newest();
                session.pin = session.pin.map(|before| before.max(pin.min(newest)));
                self.arrived(&session.logs, &durable);
                let merged = session.logs.merged();
                if control.is_full {
                    // Before it hears what is merged: it may have removed what has filled the pool.
                    self.look_at_room(control);
                }
                control.arbiter.renewed(id, sent, newest, merged);
            }
            Effect::Grant(id, shard) => {
                let Some(session) = control.sessions.get_mut(&id) else { return };
                if let Some(wanted) = session.wanted.get_mut(usize::from(shard)) {
                    // It asks again and again while it has none to spare.
                    *wanted = (*wanted).max(1);
                }
                self.grant(control);
            }
            Effect::Forget(id) => {
                let Some(session) = control.sessions.remove(&id) else { return };
                for segment in session.logs.segments().into_iter().chain(session.kept) {
                    control.segments.release(&self.area, segment);
                }
            }
        }
    }

    fn arrived(&self, logs: &Arc<Logs>, durable: &[u64]) {
        for (nth, (shard, entry)) in logs.shards.iter().zip(durable).enumerate() {
            if shard.arrived(*entry) {
                self.queue.add(logs, nth);
            }
        }
    }

    // Endpoints.

    fn open(self: &Arc<Self>, control: &mut Control<F>, id: Incarnation, shards: u16, lanes: u16) {
        let session = Session::new(Logs::new(id, shards), Lanes::Opening { is_over: false });
        control.sessions.insert(id, session);
        let node = self.clone();
        let is_started = self.spawn("terrace-open", move || {
            let opened = node.open_lanes(lanes);
            node.opened(id, opened);
        });
        if !is_started {
            control.sessions.get_mut(&id).expect("inserted just now").lanes = Lanes::None;
            control.arbiter.fail(id, "the memory node could not start a thread");
        }
    }

    fn open_lanes(&self, lanes: u16) -> Result<Opened<F::Endpoint>, String> {
        let failed = |error: Error| error.to_string();
        let pool: Arc<dyn Memory> = Arc::new(self.data.bytes());
        let len = 8 * pool.words().len();
        let (mut endpoints, mut keys) = (Vec::new(), Vec::new());
        for lane in 0..lanes {
            let mut endpoint = self.fabric.open().map_err(failed)?;
            // The first one is for the log.
            let key = match lane {
                0 => [0; 16],
                _ => endpoint.register(pool.clone(), 0..len, Right::Read).map_err(failed)?.to_bytes(),
            };
            keys.push(key);
            endpoints.push(endpoint);
        }
        let access = Access {
            provider: self.options.provider.clone(),
            lanes: endpoints.iter().map(|endpoint| endpoint.address().to_vec()).collect(),
            pool: keys,
            index: self.data.address()?,
        };
        Ok(Opened { endpoints, access: access.encode() })
    }

    fn opened(self: &Arc<Self>, id: Incarnation, opened: Result<Opened<F::Endpoint>, String>) {
        let mut control = self.control();
        let control = &mut *control;
        let session = control.sessions.get_mut(&id).expect("a session that opens is not forgotten");
        let is_over = matches!(session.lanes, Lanes::Opening { is_over: true });
        match opened {
            Err(why) => {
                session.lanes = Lanes::None;
                let why = format!("the memory node could not open endpoints: {why}");
                tell_objection(&mut control.objected, &why);
                control.arbiter.fail(id, &why);
                if is_over {
                    control.arbiter.closed(id);
                }
            }
            Ok(Opened { endpoints, access }) => {
                session.lanes = Lanes::Open(endpoints);
                control.objected.clear();
                match is_over {
                    true => self.close(control, id),
                    false => {
                        session.pin = Some(self.pins.newest());
                        control.arbiter.opened(id, access, now());
                        let space = self.space(control);
                        control.arbiter.granted_segment(id, ToServing::Space(space));
                        if control.is_full {
                            let full = self.fullness(true, self.data.room().0);
                            control.arbiter.granted_segment(id, full);
                        }
                    }
                }
            }
        }
        self.grant(control);
        self.settle(control);
    }

    fn close(self: &Arc<Self>, control: &mut Control<F>, id: Incarnation) {
        let Some(session) = control.sessions.get_mut(&id) else { return };
        match std::mem::replace(&mut session.lanes, Lanes::None) {
            Lanes::None => control.arbiter.closed(id),
            Lanes::Opening { .. } => session.lanes = Lanes::Opening { is_over: true },
            Lanes::Open(endpoints) => {
                let node = self.clone();
                let is_started = self.spawn("terrace-close", move || {
                    close_all(endpoints);
                    node.event(|control| control.closed(id));
                });
                if !is_started {
                    // Its endpoints were dropped with the thread that was not started, and whether
                    // they are closed is not known.
                    die("no thread could be started to fence a node off, which could still write");
                }
            }
        }
    }

    // Segments.

    /// Gives shards the segments that they wait for, as far as there is room: first to the one that
    /// was granted none for longest.
    fn grant(&self, control: &mut Control<F>) {
        while self.has_segment(control) {
            let Some((id, nth)) = control.next_waiting() else { return };
            if !self.has_room(control) {
                return;
            }
            if let Err(why) = self.grant_one(control, id, nth) {
                log::error!("could not grant a segment to session {id}: {why}");
                control.arbiter.fail(id, &format!("the memory node could not grant a segment: {why}"));
                // It ends, and gets none.
                control.sessions.iter_mut().filter(|(of, _)| **of == id).for_each(|(_, session)| {
                    session.wanted.fill(0);
                });
            }
        }
    }

    /// Whether there is a segment to grant.
    fn has_segment(&self, control: &Control<F>) -> bool {
        now() >= control.no_room_until && control.segments.free() > 0
    }

    /// Whether the pool has room for a segment more, or is full: then it is for removals alone.
    fn has_room(&self, control: &mut Control<F>) -> bool {
        if !control.is_short || now() >= control.room_seen + AGAIN {
            self.look_at_room(control);
        }
        !control.is_short
    }

    /// Looks whether the pool has room to merge what is granted and a segment more. If it has none,
    /// but will once readers and merges have ended, writers wait. If it will not, it is full: tells
    /// all nodes, also when it has room again. A segment that is granted after they were told is
    /// for removals alone.
    fn look_at_room(&self, control: &mut Control<F>) {
        control.room_seen = now();
        let (free, waiting) = self.data.room();
        let segment_bytes = self.area.segment_bytes;
        let granted = self.area.segments - control.segments.free();
        let wanted = self.wanted(control);
        let is_full = free + waiting < wanted;
        control.is_short =
            !is_full && free < kept(granted + 1, segment_bytes) && control.next_waiting().is_some();
        if is_full != control.is_full {
            control.is_full = is_full;
            match is_full {
                true => log::warn!(
                    "the pool is full: puts are refused; {free} bytes are free, and {wanted} are kept for what is \
                     in the logs"
                ),
                false => log::warn!("the pool has room again"),
            }
            control.arbiter.tell_all(&self.fullness(is_full, free));
        }
    }

    /// Bytes that are to be free for a segment more, once all that is full is merged, and some
    /// more while puts are refused: else the first one would be the last.
    fn wanted(&self, control: &Control<F>) -> u64 {
        let granted = self.area.segments - control.segments.free();
        let lasting = control.sessions.values().map(Session::lasting).sum::<usize>() as u64;
        kept(granted.min(lasting) + 1, self.area.segment_bytes) + if control.is_full { AGAIN_ROOM } else { 0 }
    }

    /// What the pool is used for.
    fn space(&self, control: &Control<F>) -> Space {
        let (free, waiting) = self.data.room();
        let room = (free + waiting).saturating_sub(self.wanted(control));
        Space { size: self.data.pool().size(), free, waiting, room }
    }

    /// Bytes that keys may still take.
    pub(crate) fn room(&self) -> u64 {
        self.space(&self.control()).room
    }

    fn fullness(&self, is_full: bool, free: u64) -> ToServing {
        match is_full {
            true => ToServing::Full { free, size: self.data.pool().size() },
            false => ToServing::Roomy,
        }
    }

    fn grant_one(&self, control: &mut Control<F>, id: Incarnation, nth: usize) -> Result<(), String> {
        let session = control.sessions.get_mut(&id).expect("found by the caller");
        let shard = &session.logs.shards[nth];
        let order = shard.order.load(Relaxed);
        let (name, place) = (u16::try_from(nth).expect("few shards"), u32::try_from(order));
        let place = (name, place.map_err(|_| "the log is too long; connect anew")?);
        let taken = control.segments.take(&self.area, id, place, u64::from(order == 0));
        let segment = match taken {
            Ok(Some(segment)) => segment,
            Ok(None) => return Ok(()),
            Err(error) => {
                log::warn!("there is no room for a segment of the log area: {error}");
                control.no_room_until = now() + Duration::from_secs(1);
                return Ok(());
            }
        };
        shard.grant(segment);
        let Lanes::Open(lanes) = &mut session.lanes else { return Ok(()) };
        let body = self.area.body(segment.row);
        let key =
            lanes[0].register(self.area.clone(), body, Right::Write).map_err(|error| error.to_string())?;
        session.keys.insert(segment.number, key);
        session.wanted[nth] -= 1;
        control.turn += 1;
        session.turns[nth] = control.turn;
        let (bytes, key) = (self.area.segment_bytes, key.to_bytes());
        control
            .arbiter
            .granted_segment(id, ToServing::Segment { shard: name, number: segment.number, bytes, key });
        Ok(())
    }

    // Merges.

    /// The work of a thread that merges.
    pub(crate) fn merge(self: &Arc<Self>) {
        while let Some((logs, nth)) = self.queue.next() {
            let (outcome, freed) = merge::step(&self.data, &self.area, &logs, nth, &self.merged);
            if let Outcome::Stalled(error) = &outcome {
                self.complain(&logs, error);
                self.data.make_room();
                self.sleep();
            }
            self.queue.done(&logs, nth, !matches!(outcome, Outcome::Idle));
            self.requests.progressed();
            self.event(|control| self.merged(control, &logs, &freed));
        }
    }

    fn complain(&self, logs: &Logs, error: &WriteError) {
        let second = now().as_secs();
        if self.complained.swap(second, Relaxed) != second {
            log::warn!("the log of session {} waits to be merged: {error}", logs.session);
        }
    }

    fn merged(self: &Arc<Self>, control: &mut Control<F>, logs: &Logs, freed: &[Segment]) {
        let id = logs.session;
        for segment in freed {
            match control.revoke(id, *segment) {
                Ok(true) => control.segments.release(&self.area, *segment),
                // With the others of the session: by then another session might have it.
                Ok(false) => {}
                Err(error) => {
                    log::error!("could not revoke a segment of session {id}: {error}");
                    control.arbiter.fail(id, "the memory node could not revoke a segment");
                }
            }
        }
        if logs.is_broken.swap(false, Relaxed) {
            log::error!("the log of session {id} lacks an entry that its node has told as durable");
            control.arbiter.fail(id, "the log lacks an entry that was told as durable");
        }
        self.look_at(control, id);
        if !freed.is_empty() {
            self.grant(control);
        }
    }

    /// Tells the arbiter what is merged.
    fn look_at(&self, control: &mut Control<F>, id: Incarnation) {
        let Some(session) = control.sessions.get_mut(&id) else { return };
        let logs = session.logs.clone();
        let done: Vec<u64> = session
            .releases
            .extract_if(.., |(durable, _)| logs.have_merged(durable))
            .map(|(_, release)| release)
            .collect();
        done.into_iter().for_each(|release| control.arbiter.merged_for(id, release));
        let session = control.sessions.get_mut(&id).expect("found above");
        // ORDER: Acquire: as `MergeAll` stores it.
        if logs.to_the_end.load(Acquire) && logs.are_ended() && !session.is_merged {
            session.is_merged = true;
            control.arbiter.merged(id, now());
        }
    }

    // Links.

    /// How many links there are.
    pub(crate) fn links(&self) -> usize {
        self.control().links.len()
    }

    /// A link is there; `None` if the node stops.
    pub(crate) fn connected(&self, peer: Peer) -> Option<Link> {
        let mut control = self.control();
        if self.is_stopping() {
            return None;
        }
        let link = control.next_link;
        control.next_link += 1;
        peer.host.iter().for_each(|host| control.arbiter.came_from(link, *host));
        control.links.insert(link, peer);
        Some(link)
    }

    /// A message has come.
    pub(crate) fn heard(self: &Arc<Self>, link: Link, message: ToMemory) {
        self.event(|control| match message {
            ToMemory::Get { .. } | ToMemory::Scan { .. } | ToMemory::Count { .. } => {
                self.request(control, link, message);
            }
            ToMemory::Hello { wire: WIRE, ref node, shards, lanes, last } => {
                match self.objection(control, (node, last), shards, lanes) {
                    None => control.arbiter.heard(link, message, now()),
                    Some(why) => {
                        tell_objection(&mut control.objected, &why);
                        if let Some(peer) = control.links.remove(&link) {
                            peer.send(ToServing::Fenced { why });
                            peer.close();
                        }
                    }
                }
            }
            message => control.arbiter.heard(link, message, now()),
        });
    }

    /// Why a node cannot have a session.
    fn objection(
        &self,
        control: &Control<F>,
        (node, last): (&str, Incarnation),
        shards: u16,
        lanes: u16,
    ) -> Option<String> {
        let parts = 1..=PARTS_MAX;
        if node.is_empty() || node.len() > NAME_MAX {
            return Some(format!("a node's name has 1 to {NAME_MAX} bytes, this one {}", node.len()));
        }
        if !parts.contains(&shards) || !parts.contains(&lanes) {
            return Some(format!(
                "a node has 1 to {PARTS_MAX} shards and lanes, this one {shards} and {lanes}"
            ));
        }
        if !control.arbiter.ledger().has_begun(last) {
            return Some(format!(
                "the node {node} has had session {last}, which is of a later time than the pool {}: the pool is an \
                 older copy, or a new one, and lacks what was written since. Start the memory node on the pool of \
                 then. If this one shall be used nevertheless, start the serving node again",
                self.options.pool.display()
            ));
        }
        if let Some(why) = self.lacks_room(control, node, shards.into()) {
            return Some(why);
        }
        let no_room = self.is_ending.load(Acquire) || !control.arbiter.ledger().has_room();
        no_room.then(|| "the memory node has no room for a session now; try again".into())
    }

    /// Why the logs of a node have no place: with those of the others, they would leave no room in
    /// the pool for keys, and all nodes would refuse puts.
    fn lacks_room(&self, control: &Control<F>, node: &str, shards: u64) -> Option<String> {
        let others = control.arbiter.live().filter(|(_, other)| *other != node);
        let others = others.filter_map(|(id, _)| control.sessions.get(&id));
        let others: u64 = others.map(|session| session.logs.shards.len() as u64).sum();
        let size = self.data.pool().size();
        let needed = |shards: u64| kept(u64::from(AHEAD) * shards + 1, self.area.segment_bytes);
        let (all, without) = (needed(others + shards), if others > 0 { needed(others) } else { 0 });
        (all > size - size / 10).then(|| {
            format!(
                "the pool {} has no room for the {shards} logs of the node {node}: of its {}, {} would be kept free for \
                 the logs of all nodes, now {}, and a tenth is for keys at least. Stop another node first, start the \
                 nodes with fewer --shards, or give the pool {} or more, by --size of the memory node",
                self.options.pool.display(),
                Bytes(size),
                Bytes(all),
                Bytes(without),
                Bytes(all + all / 4)
            )
        })
    }

    fn request(&self, control: &Control<F>, link: Link, what: ToMemory) {
        let Some(peer) = control.links.get(&link).cloned() else { return };
        let session = control.arbiter.session_of(link).and_then(|id| control.sessions.get(&id));
        peer.requests.fetch_add(1, Relaxed);
        let why = match session {
            Some(_) if peer.requests.load(Relaxed) > REQUESTS_MAX => "too many requests wait for an answer",
            None => "this link has no session; say hello first",
            Some(session) => {
                let logs = session.logs.clone();
                if let ToMemory::Scan { durable, .. } | ToMemory::Count { durable, .. } = &what {
                    self.arrived(&logs, durable);
                }
                let answer = Box::new(move |answer| peer.send(answer));
                return self.requests.add(Request { logs, what, came: now(), answer });
            }
        };
        peer.send(match what {
            ToMemory::Scan { id, .. } => ToServing::Scanned { id, page: Err(why.into()) },
            ToMemory::Count { id, .. } => ToServing::Counted { id, keys: Err(why.into()) },
            ToMemory::Get { id, .. } => ToServing::Got { id, found: Err(why.into()) },
            _ => return,
        });
    }

    /// Whether this is why the last session was refused, which was said.
    pub(crate) fn is_told(&self, why: &str) -> bool {
        self.control().objected == why
    }

    /// A link has ended.
    pub(crate) fn lost(self: &Arc<Self>, link: Link) {
        self.event(|control| {
            control.links.remove(&link);
            control.arbiter.lost(link);
        });
    }

    // Time.

    /// The work of the thread that looks at the clock.
    pub(crate) fn tick(self: &Arc<Self>) {
        while !self.is_stopping() {
            let mut is_short = false;
            self.event(|control| {
                control.arbiter.tick(now());
                self.renew_pins(control);
                if (control.is_full || control.is_short) && now() >= control.room_seen + AGAIN {
                    self.look_at_room(control);
                    if control.is_short {
                        self.hurry(control);
                    }
                }
                is_short = control.is_short;
                self.grant(control);
                if now() >= control.room_told + TELL_ROOM {
                    control.room_told = now();
                    let space = self.space(control);
                    control.arbiter.tell_all(&ToServing::Space(space));
                }
            });
            if is_short {
                self.data.pool().reclaim_nonblocking();
            }
            self.sleep_for(TICK);
        }
    }

    /// Asks all sessions to renew at once: what they have written is merged then, and what was
    /// replaced is free once none relies on an earlier pin.
    fn hurry(&self, control: &mut Control<F>) {
        let newest = self.pins.newest();
        let merged = |(id, session): (&Incarnation, &Session<F::Endpoint>)| (*id, session.logs.merged());
        for (id, merged) in control.sessions.iter().map(merged).collect::<Vec<_>>() {
            control.arbiter.renewed(id, 0, newest, merged);
        }
    }

    fn renew_pins(&self, control: &mut Control<F>) {
        let oldest = control.sessions.values().filter_map(|session| session.pin).min();
        let pause = if control.is_short { AGAIN } else { self.options.lease / 6 };
        if oldest != control.oldest_pin || now() >= control.pins_renewed + pause {
            (control.pins_renewed, control.oldest_pin) = (now(), oldest);
            self.pins.renew(oldest);
            // Otherwise a later pin is on its way, and what is retired now waits for that one.
            if let Some(taken) = self.pins.oldest_of_all() {
                self.bound_waiting(control, oldest, taken);
            }
        }
    }

    /// Ends the sessions that rely on the oldest pin, if too much memory waits for it.
    fn bound_waiting(&self, control: &mut Control<F>, oldest: Option<u64>, taken: Taken) {
        let pool = self.data.pool();
        // What was retired before it may be in limbo as well, but does not wait for it.
        let waiting = pool.waiting_bytes().min(pool.retired_bytes().wrapping_sub(taken.retired));
        let age = now().saturating_sub(taken.at);
        if !holds_too_much((waiting, pool.size()), (age, self.options.lease), control.is_full) {
            return;
        }
        let relies = |(id, session): (&Incarnation, &Session<F::Endpoint>)| {
            (session.pin.is_some() && session.pin == oldest).then_some(*id)
        };
        for id in control.sessions.iter().filter_map(relies).collect::<Vec<_>>() {
            control.arbiter.fail(id, "its reads hold back too much memory: it is slow to confirm them");
        }
    }

    // The end.

    /// Begins to stop: ends all sessions. Returns how many are not merged after `patience`.
    pub(crate) fn end_sessions(self: &Arc<Self>, patience: Duration) -> usize {
        let late = now() + patience;
        let mut ids = Vec::new();
        self.event(|control| {
            self.is_ending.store(true, Release);
            ids = control.arbiter.sessions();
            ids.iter().for_each(|id| control.arbiter.fail(*id, "the memory node stops"));
        });
        loop {
            let control = self.control();
            ids.retain(|id| control.sessions.get(id).is_some_and(|session| !session.is_merged));
            drop(control);
            if ids.is_empty() || now() >= late {
                return ids.len();
            }
            self.sleep_for(TICK);
        }
    }

    /// Ends all threads and links.
    pub(crate) fn end_threads(&self) {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_stopping.store(true, Release);
        drop(stop);
        self.stops.notify_all();
        self.queue.end();
        self.pins.end();
        self.requests.end();
        self.control().links.drain().for_each(|(_, peer)| peer.close());
        self.tell.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Waits for the threads.
    pub(crate) fn join(&self) {
        loop {
            let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
            if threads.is_empty() {
                return;
            }
            for thread in threads {
                // None ends by a panic.
                let _ = thread.join();
            }
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let control = self.control();
        let unmerged = |session: &Session<F::Endpoint>| -> usize {
            session.logs.shards.iter().map(|shard| shard.unread.load(Relaxed)).sum()
        };
        let (requests, requests_waiting) = self.requests.figures();
        Stats {
            sessions: control.sessions.len(),
            serving: control.told.len(),
            segments_free: control.segments.free(),
            segments_granted: self.area.segments - control.segments.free(),
            segments_unmerged: control.sessions.values().map(unmerged).sum::<usize>() as u64,
            merged_entries: self.merged.entries.load(Relaxed),
            merged_bytes: self.merged.bytes.load(Relaxed),
            refused_changes: self.data.refused.load(Relaxed),
            pins: self.pins.held(),
            newest_pin: self.pins.newest(),
            requests,
            requests_waiting,
            is_resizing: self.data.engine.stats().index.is_some_and(|index| index.resizing),
        }
    }

    pub(crate) fn pool_path(&self) -> PathBuf {
        self.options.pool.clone()
    }

    /// The data and the log area, once all threads have ended.
    pub(crate) fn into_parts(self) -> (Data, Arc<Area>) {
        (self.data, self.area)
    }
}

/// Whether the sessions that rely on a pin of this age are to end, which holds back so many bytes
/// of the pool's. A node that stops for a part of its lease falls behind, and is healthy.
fn holds_too_much((waiting, size): (u64, u64), (age, lease): (Duration, Duration), is_full: bool) -> bool {
    waiting > size / WAITING_SHARE && age > if is_full { lease / 2 } else { lease }
}

/// Says why a session is refused, unless that was said last: its node asks again and again.
fn tell_objection(last: &mut String, why: &str) {
    if last != why {
        log::error!("a session is refused: {why}");
        why.clone_into(last);
    }
}

/// The endpoints of a session, and what its node has to know.
struct Opened<E> {
    endpoints: Vec<E>,
    access: Vec<u8>,
}

impl<F: Fabric> Control<F> {
    /// The shard that gets the next segment: of all that wait for one, it was granted none for
    /// longest.
    fn next_waiting(&self) -> Option<(Incarnation, usize)> {
        let waiting =
            self.sessions.iter().flat_map(|(id, session)| session.waiting().map(move |at| (at, *id)));
        waiting.min().map(|((_, nth), id)| (id, nth))
    }

    /// Takes a segment from a node. Returns whether it is free now; if not, or if this fails, it
    /// stays with the session.
    fn revoke(&mut self, id: Incarnation, segment: Segment) -> Result<bool, Error> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(true) };
        let (Some(key), Lanes::Open(lanes)) = (session.keys.remove(&segment.number), &mut session.lanes)
        else {
            // Its endpoints are closed, or about to be: then the segment is kept until they are.
            session.kept.push(segment);
            return Ok(false);
        };
        lanes[0].revoke(key).inspect_err(|_| session.kept.push(segment)).map(|()| true)
    }

    /// Nothing of the session can arrive any more, and it reads nothing.
    fn closed(&mut self, id: Incarnation) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.pin = None;
        }
        self.arbiter.closed(id);
    }
}

/// Closes endpoints. When it returns, nothing of their peer can arrive.
fn close_all<E: Endpoint>(endpoints: Vec<E>) {
    for endpoint in endpoints {
        if let Err(error) = endpoint.close() {
            die(&format!("the endpoint of a node, which could still write, could not be closed ({error})"));
        }
    }
}

/// Ends the process at once.
#[allow(clippy::print_stderr, reason = "the last words of a process; its log may not be on")]
fn die(why: &str) -> ! {
    let why = format!("the memory node ends, since {why}; start it again");
    log::error!("{why}");
    eprintln!("{why}");
    // At once: a library may have a handler for the signal of an abort.
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_that_stopped_for_half_a_lease_keeps_its_session() {
        let (lease, pool) = (Duration::from_secs(1), 800);
        let is_over =
            |waiting, age: u32, is_full| holds_too_much((waiting, pool), (lease * age / 8, lease), is_full);
        assert!(!is_over(700, 5, false));
        assert!(is_over(101, 9, false));
        // It holds back little of what waits, whatever its age.
        assert!(!is_over(100, 9, true));
        // Others lack the memory.
        assert!(is_over(101, 5, true));
        assert!(!is_over(101, 3, true));
    }
}
