//! Sessions of serving nodes: how they open, go on and close, and what nodes say on their links.

use super::admission::{Admission, Guest};
use super::base::Base;
use super::grants::Grants;
use super::lanes::{Opened, Opener, close_all};
use super::ledger::{AreaArbiter, AreaLedger};
use super::logs::Logs;
use super::merging::Merging;
use super::options::Options;
use super::peer::{Links, Peer, REQUESTS_MAX};
use super::pins::Pins;
use super::readers::Readers;
use super::requests::{Request, Requests};
use super::segments::{self, Segment, Segments};
use super::session::{Lanes, Session, Table};
use super::threads::{Threads, die};
use crate::arbiter::{Effect, Incarnation, Link};
use crate::clock::now;
use crate::lock::lock;
use crate::message::{ToMemory, ToServing, WIRE};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use terrace_fabric::Fabric;

/// Time between two looks at the clock.
const TICK: Duration = Duration::from_millis(4);

/// Sessions that serve, with their nodes.
pub(crate) type Serving = Vec<(Incarnation, String)>;

/// Called with the sessions that serve, and their nodes, whenever these change.
pub type OnSessions = Box<dyn FnMut(&[(Incarnation, String)]) + Send>;

/// What is changed under the lock: the arbiter, and what its decisions change. Below stand the
/// tables of links and sessions, grants, readers and admission, which do not know each other.
struct Control<F: Fabric> {
    arbiter: AreaArbiter,
    links: Links,
    table: Table<F::Endpoint>,
    grants: Grants,
    readers: Readers,
    admission: Admission,
    /// The sessions that the callback was told of.
    told: Serving,
    /// Where they are told.
    tell: Option<mpsc::Sender<Serving>>,
}

/// How many there are.
pub(crate) struct Counts {
    pub(crate) sessions: usize,
    pub(crate) serving: usize,
    pub(crate) segments_free: u64,
    pub(crate) segments_granted: u64,
    pub(crate) segments_unread: u64,
}

/// The sessions, and the arbiter under its lock. Nothing blocks under it but a registration of
/// memory. Below stand the threads, and what merges; links are above.
pub(crate) struct Sessions<F: Fabric> {
    base: Arc<Base>,
    merging: Arc<Merging>,
    threads: Arc<Threads>,
    opener: Opener<F>,
    requests: Requests,
    control: Mutex<Control<F>>,
}

/// What the sessions of a memory node are made of.
pub(crate) struct Parts<F> {
    pub(crate) base: Arc<Base>,
    pub(crate) merging: Arc<Merging>,
    pub(crate) threads: Arc<Threads>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) fabric: F,
    pub(crate) segments: Segments,
    /// The logs that were found.
    pub(crate) found: segments::Logs,
    /// Where the sessions that serve are told.
    pub(crate) tell: mpsc::Sender<Serving>,
}

impl<F> Sessions<F>
where
    F: Fabric<Endpoint: Send + 'static> + Send + Sync + 'static,
{
    /// The sessions that were found: they have no endpoints, and their logs are to be merged.
    pub(crate) fn new(parts: Parts<F>, options: &Options) -> Self {
        let Parts { base, merging, threads, pins, fabric, segments, mut found, tell } = parts;
        let arbiter = AreaArbiter::new(AreaLedger(base.area.clone()), options.leases(), now());
        let mut table = Table::new();
        for id in arbiter.sessions() {
            let logs = Logs::found(id, found.remove(&id).unwrap_or_default());
            table.add(id, Session::new(logs, Lanes::None));
        }
        assert!(found.is_empty(), "each log that was found is of a session");
        let control = Control {
            arbiter,
            links: Links::default(),
            table,
            grants: Grants::new(base.clone(), segments),
            readers: Readers::new(pins, options.lease),
            admission: Admission::new(base.clone(), options.pool.clone()),
            told: Serving::new(),
            tell: Some(tell),
        };
        let opener = Opener { fabric, provider: options.provider.clone(), base: base.clone() };
        Self { base, merging, threads, opener, requests: Requests::default(), control: Mutex::new(control) }
    }

    /// The threads of the memory node.
    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Requests that wait for an answer.
    pub(crate) fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Does something with the arbiter, and then what it wants.
    fn event(self: &Arc<Self>, act: impl FnOnce(&mut Control<F>)) {
        let mut control = lock(&self.control);
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
        control.tell_serving();
    }

    fn perform(self: &Arc<Self>, control: &mut Control<F>, effect: Effect) {
        match effect {
            Effect::Send(link, message) => control.links.send(link, message),
            Effect::Drop(link) => control.links.close(link),
            Effect::Open(id, shards, lanes) => self.open(control, id, shards, lanes),
            Effect::Close(id) => self.close(control, id),
            Effect::MergeAll(id) => {
                let Some(session) = control.table.get(id) else { return };
                self.merging.finish(&session.logs);
                control.look_at(id);
            }
            Effect::MergeUpTo(id, durable, release) => {
                let Some(session) = control.table.get_mut(id) else { return };
                session.release_behind(durable.clone(), release);
                self.merging.arrived(&session.logs, &durable);
                control.look_at(id);
            }
            Effect::Progress(id, sent, durable, pin) => self.progress(control, id, sent, (&durable, pin)),
            Effect::Grant(id, shard) => {
                let Some(session) = control.table.get_mut(id) else { return };
                session.want(shard);
                control.grant();
            }
            Effect::Forget(id) => control.forget(id),
        }
    }

    /// A session has told what it has written, and on which pin its reads rely.
    fn progress(&self, control: &mut Control<F>, id: Incarnation, sent: u64, (durable, pin): (&[u64], u64)) {
        let Some(session) = control.table.get_mut(id) else { return };
        let newest = control.readers.newest();
        session.renew_pin(pin, newest);
        self.merging.arrived(&session.logs, durable);
        let merged = session.logs.merged();
        if control.grants.need().is_full {
            // Before it hears what is merged: it may have removed what has filled the pool.
            control.grants.look_at_room(&control.table, &mut control.arbiter);
        }
        control.arbiter.renewed(id, sent, newest, merged);
    }

    // Endpoints.

    fn open(self: &Arc<Self>, control: &mut Control<F>, id: Incarnation, shards: u16, lanes: u16) {
        assert!(shards > 0 && lanes > 0, "a session that was admitted has a log and a lane");
        let session = Session::new(Logs::new(id, shards), Lanes::Opening { is_over: false });
        control.table.add(id, session);
        let this = self.clone();
        let is_started = self.threads.spawn("terrace-open", move || {
            let opened = this.opener.open(lanes);
            this.opened(id, opened);
        });
        if !is_started {
            control.table.get_mut(id).expect("added just now").lanes = Lanes::None;
            control.arbiter.fail(id, "the memory node could not start a thread");
        }
    }

    /// The endpoints of a session are open, or cannot be opened.
    fn opened(self: &Arc<Self>, id: Incarnation, opened: Result<Opened<F::Endpoint>, String>) {
        self.event(|control| {
            let session = control.table.get_mut(id).expect("a session that opens is not forgotten");
            let Lanes::Opening { is_over } = session.lanes else {
                unreachable!("the endpoints of a session are opened once");
            };
            match opened {
                Err(why) => {
                    session.lanes = Lanes::None;
                    control.cannot_open(id, &why, is_over);
                }
                Ok(Opened { endpoints, access }) => {
                    session.lanes = Lanes::Open(endpoints);
                    control.admission.agree();
                    match is_over {
                        true => self.close(control, id),
                        false => control.begin(id, access),
                    }
                }
            }
            control.grant();
        });
    }

    fn close(self: &Arc<Self>, control: &mut Control<F>, id: Incarnation) {
        let Some(session) = control.table.get_mut(id) else { return };
        match std::mem::replace(&mut session.lanes, Lanes::None) {
            Lanes::None => control.arbiter.closed(id),
            Lanes::Opening { .. } => session.lanes = Lanes::Opening { is_over: true },
            Lanes::Open(endpoints) => {
                let this = self.clone();
                let is_started = self.threads.spawn("terrace-close", move || {
                    close_all(endpoints);
                    this.event(|control| control.closed(id));
                });
                if !is_started {
                    // Its endpoints were dropped with the thread that was not started, and whether
                    // they are closed is not known.
                    die("no thread could be started to fence a node off, which could still write");
                }
            }
        }
    }

    // Merges.

    /// A step has merged a part of these logs, and read these segments to their ends.
    pub(crate) fn merged(self: &Arc<Self>, logs: &Logs, freed: &[Segment]) {
        self.requests.progressed();
        self.event(|control| control.merged(logs, freed));
    }

    /// Bytes that keys may still take.
    pub(crate) fn room(&self) -> u64 {
        let control = lock(&self.control);
        control.grants.space(&control.table).room
    }

    // Links.

    /// How many links there are.
    pub(crate) fn links(&self) -> usize {
        lock(&self.control).links.len()
    }

    /// A link is there; `None` if the node stops.
    pub(crate) fn connected(&self, peer: Peer) -> Option<Link> {
        let mut control = lock(&self.control);
        if self.threads.is_stopping() {
            return None;
        }
        let host = peer.host;
        let link = control.links.add(peer);
        host.iter().for_each(|host| control.arbiter.came_from(link, *host));
        Some(link)
    }

    /// A message has come.
    pub(crate) fn heard(self: &Arc<Self>, link: Link, message: ToMemory) {
        self.event(|control| match message {
            ToMemory::Get { .. } | ToMemory::Scan { .. } | ToMemory::Count { .. } => {
                self.request(control, link, message);
            }
            ToMemory::Hello { wire: WIRE, ref node, shards, lanes, last } => {
                let guest = Guest { node, last, shards, lanes };
                match control.admission.objection(&guest, &control.arbiter, &control.table) {
                    None => control.arbiter.heard(link, message, now()),
                    Some(why) => control.refuse(link, why),
                }
            }
            message => control.arbiter.heard(link, message, now()),
        });
    }

    fn request(&self, control: &Control<F>, link: Link, what: ToMemory) {
        let Some(peer) = control.links.get(link).cloned() else { return };
        let session = control.arbiter.session_of(link).and_then(|id| control.table.get(id));
        peer.requests.fetch_add(1, Relaxed);
        let why = match session {
            Some(_) if peer.requests.load(Relaxed) > REQUESTS_MAX => "too many requests wait for an answer",
            None => "this link has no session; say hello first",
            Some(session) => {
                let logs = session.logs.clone();
                if let ToMemory::Scan { durable, .. } | ToMemory::Count { durable, .. } = &what {
                    self.merging.arrived(&logs, durable);
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
        lock(&self.control).admission.has_said(why)
    }

    /// A link has ended.
    pub(crate) fn lost(self: &Arc<Self>, link: Link) {
        self.event(|control| {
            control.links.remove(link);
            control.arbiter.lost(link);
        });
    }

    // Time.

    /// The work of the thread that looks at the clock.
    pub(crate) fn tick(self: &Arc<Self>) {
        let pool = self.base.data.pool();
        while !self.threads.is_stopping() {
            let mut is_short = false;
            self.event(|control| {
                control.arbiter.tick(now());
                control.renew_pins(&self.base);
                if control.grants.look_again(&control.table, &mut control.arbiter)
                    && control.grants.need().is_short
                {
                    control.hurry();
                }
                is_short = control.grants.need().is_short;
                control.grant();
                control.grants.tell_room(&control.table, &mut control.arbiter);
            });
            if is_short {
                pool.reclaim_nonblocking();
            }
            self.threads.sleep_for(TICK);
        }
    }

    // The end.

    /// Begins to stop: ends all sessions. Returns how many are not merged after `patience`.
    pub(crate) fn end(self: &Arc<Self>, patience: Duration) -> usize {
        let late = now() + patience;
        let mut ids = Vec::new();
        self.event(|control| {
            control.admission.end();
            ids = control.arbiter.sessions();
            ids.iter().for_each(|id| control.arbiter.fail(*id, "the memory node stops"));
        });
        loop {
            let control = lock(&self.control);
            ids.retain(|id| control.table.get(*id).is_some_and(|session| !session.is_merged()));
            drop(control);
            if ids.is_empty() || now() >= late {
                return ids.len();
            }
            self.threads.sleep_for(TICK);
        }
    }

    /// Ends all links, and the threads that answer requests. The callback hears no more.
    pub(crate) fn end_links(&self) {
        self.requests.end();
        let mut control = lock(&self.control);
        control.links.close_all();
        control.tell.take();
    }

    /// How many there are.
    pub(crate) fn counts(&self) -> Counts {
        let control = lock(&self.control);
        Counts {
            sessions: control.table.len(),
            serving: control.told.len(),
            segments_free: control.grants.free(),
            segments_granted: control.grants.granted(),
            segments_unread: control.table.unread(),
        }
    }
}

impl<F: Fabric> Control<F> {
    /// Tells the sessions that serve, if they are others than before.
    fn tell_serving(&mut self) {
        let serving = self.arbiter.serving();
        if serving.iter().map(|(id, _)| id).eq(self.told.iter().map(|(id, _)| id)) {
            return;
        }
        self.told = serving.into_iter().map(|(id, node)| (id, node.to_string())).collect();
        if let Some(tell) = &self.tell {
            let _ = tell.send(self.told.clone());
        }
    }

    fn grant(&mut self) {
        self.grants.grant(&mut self.table, &mut self.arbiter);
    }

    /// The endpoints of a session are open, and it serves.
    fn begin(&mut self, id: Incarnation, access: Vec<u8>) {
        let session = self.table.get_mut(id).expect("a session that opens is not forgotten");
        session.begin_reads(self.readers.newest());
        self.arbiter.opened(id, access, now());
        self.grants.tell_one(&self.table, &mut self.arbiter, id);
    }

    /// The endpoints of a session cannot be opened. `is_over`: it has ended meanwhile.
    fn cannot_open(&mut self, id: Incarnation, why: &str, is_over: bool) {
        let why = format!("the memory node could not open endpoints: {why}");
        self.admission.object(&why);
        self.arbiter.fail(id, &why);
        if is_over {
            self.arbiter.closed(id);
        }
    }

    /// Nothing of the session can arrive any more, and it reads nothing.
    fn closed(&mut self, id: Incarnation) {
        if let Some(session) = self.table.get_mut(id) {
            session.end_reads();
        }
        self.arbiter.closed(id);
    }

    /// Gives a node no session, and ends its link.
    fn refuse(&mut self, link: Link, why: String) {
        self.admission.object(&why);
        self.links.send(link, ToServing::Fenced { why });
        self.links.close(link);
    }

    fn merged(&mut self, logs: &Logs, freed: &[Segment]) {
        let id = logs.session;
        for segment in freed {
            match self.table.revoke(id, *segment) {
                Ok(true) => self.grants.release(*segment),
                // With the others of the session: by then another session might have it.
                Ok(false) => {}
                Err(error) => {
                    log::error!("could not revoke a segment of session {id}: {error}");
                    self.arbiter.fail(id, "the memory node could not revoke a segment");
                }
            }
        }
        if logs.is_broken.swap(false, Relaxed) {
            log::error!("the log of session {id} lacks an entry that its node has told as durable");
            self.arbiter.fail(id, "the log lacks an entry that was told as durable");
        }
        self.look_at(id);
        if !freed.is_empty() {
            self.grant();
        }
    }

    /// Tells the arbiter what is merged.
    fn look_at(&mut self, id: Incarnation) {
        let Some(session) = self.table.get_mut(id) else { return };
        let released = session.take_released();
        released.into_iter().for_each(|release| self.arbiter.merged_for(id, release));
        if session.has_just_merged_all() {
            self.arbiter.merged(id, now());
        }
    }

    /// A session is over: frees what it had.
    fn forget(&mut self, id: Incarnation) {
        let Some(session) = self.table.remove(id) else { return };
        session.into_segments().for_each(|segment| self.grants.release(segment));
    }

    /// Asks all sessions to renew at once: what they have written is merged then, and what was
    /// replaced is free once none relies on an earlier pin.
    fn hurry(&mut self) {
        let newest = self.readers.newest();
        for (id, merged) in self.table.merged() {
            self.arbiter.renewed(id, 0, newest, merged);
        }
    }

    /// Renews pins, and ends the sessions that hold back too much by the oldest one.
    fn renew_pins(&mut self, base: &Base) {
        let oldest = self.table.oldest_pin();
        if self.readers.renew(base.data.pool(), oldest, self.grants.need()) {
            for id in self.table.relying_on(oldest) {
                self.arbiter.fail(id, "its reads hold back too much memory: it is slow to confirm them");
            }
        }
    }
}
