//! The memory node's decisions: which node owns a slot, whose lease holds, and which is fenced.
//!
//! A session ends in steps, each of which may be repeated after a crash of this node:
//! 1. *fencing* is durable;
//! 2. the endpoint is closed, and nothing of the node can arrive any more (revoking its regions
//!    would not do: a payload under way goes on);
//! 3. its logs are merged up to the last whole entry;
//! 4. its lease is over, by this node's clock, which began to count later than the serving node's;
//! 5. its slots are free, durably;
//! 6. nodes that wait for them get them.
//!
//! Steps 1 to 3 begin when the link is lost or the lease is over; 4 takes the rest of the lease
//! meanwhile.

use crate::message::{ToMemory, ToServing, WIRE};
use crate::slot::{SLOTS, SlotRange};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// A link of the control channel.
pub type Link = u64;
/// The number of a session.
pub type Incarnation = u64;

/// What the memory node keeps through its own death. Each call is durable when it returns.
pub trait Ledger {
    /// A number that was never returned before, of a session that is open now.
    fn begin_session(&mut self, node: &str) -> Incarnation;
    /// Notes that nothing may come from this session any more.
    fn fence(&mut self, session: Incarnation);
    /// Frees the slots of a session, and forgets it.
    fn end_session(&mut self, session: Incarnation);
    /// Sessions that were not ended, and whether they are fenced.
    fn sessions(&self) -> Vec<(Incarnation, String, bool)>;
    /// The owner of a slot.
    fn owner(&self, slot: u16) -> Option<Incarnation>;
    /// Gives slots to a session, or frees them.
    fn set_owner(&mut self, ranges: &[SlotRange], owner: Option<Incarnation>);
    /// The longest lease that a session may have which was not ended; zero if none was noted.
    fn lease(&self) -> Duration;
    /// Notes it.
    fn set_lease(&mut self, lease: Duration);
}

/// What the memory node has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a message.
    Send(Link, ToServing),
    /// Close a link.
    Drop(Link),
    /// Open endpoints for the session: logs for so many shards, and so many lanes. Then
    /// [`Arbiter::opened`].
    Open(Incarnation, u16, u16),
    /// Close the session's endpoint, if it is open. Then [`Arbiter::closed`].
    Close(Incarnation),
    /// Merge the session's logs to their ends. Then [`Arbiter::merged`].
    MergeAll(Incarnation),
    /// Merge the session's logs up to these entries, for the release with this number. Then
    /// [`Arbiter::merged_for`].
    MergeUpTo(Incarnation, Vec<u64>, u64),
    /// Note what the session has written and how far its reads are: the stamp of the renewal, the
    /// last entry of each shard, the pin. Then [`Arbiter::renewed`].
    Progress(Incarnation, u64, Vec<u64>, u64),
    /// Give a shard of the session a further segment, if it may have one.
    Grant(Incarnation, u16),
    /// Free what the session had: its logs and pins.
    Forget(Incarnation),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Opening,
    Serving,
    Closing,
    Sealing,
    /// Only its lease is left.
    Sealed,
}

#[derive(Debug)]
struct Session {
    node: String,
    link: Option<Link>,
    state: State,
    /// Until when the node may answer, at most, by this node's clock.
    lease_until: Duration,
    /// Slots that it waits for, and the epoch of the map that gives them to it.
    waits: BTreeMap<u16, u64>,
    releases: BTreeMap<u64, Vec<SlotRange>>,
}

/// How leases are given.
#[derive(Clone, Copy, Debug)]
pub struct Leases {
    /// How long a renewal is good for at the serving node, from when it was sent.
    pub time: Duration,
    /// How many millionths a clock may go too slowly, beside another one.
    pub drift_ppm: u32,
}

impl Leases {
    /// How long this node waits for the end of a lease that was renewed just now.
    fn waited(&self) -> Duration {
        self.time + self.time * (2 * self.drift_ppm) / 1_000_000
    }
}

/// The arbiter.
pub struct Arbiter<L> {
    ledger: L,
    leases: Leases,
    sessions: BTreeMap<Incarnation, Session>,
    links: BTreeMap<Link, Incarnation>,
    /// The hosts that links come from, as far as they are known.
    hosts: BTreeMap<Link, IpAddr>,
    next_release: u64,
    /// The last session of before the start; 0 if there is none.
    last_restored: Incarnation,
    effects: Vec<Effect>,
}

impl<L: Ledger> Arbiter<L> {
    /// Begins, or goes on after a death of this node. Sessions of before are over: their endpoints
    /// died with the process. Their nodes may still answer until their leases are over, which may
    /// have been longer ones.
    pub fn new(ledger: L, leases: Leases, now: Duration) -> Self {
        let (sessions, links, hosts, effects) = Default::default();
        let (next_release, last_restored) = (0, 0);
        let mut arbiter =
            Self { ledger, leases, sessions, links, hosts, next_release, last_restored, effects };
        let longest = Leases { time: leases.time.max(arbiter.ledger.lease()), ..leases };
        for (session, node, is_fenced) in arbiter.ledger.sessions() {
            if !is_fenced {
                arbiter.ledger.fence(session);
            }
            let lease_until = now + longest.waited();
            assert!(session > 0, "session 0 stands for no owner");
            let (waits, releases) = Default::default();
            let restored = Session { node, link: None, state: State::Sealing, lease_until, waits, releases };
            arbiter.sessions.insert(session, restored);
            arbiter.last_restored = arbiter.last_restored.max(session);
            arbiter.effects.push(Effect::MergeAll(session));
        }
        // Before the first lease is given. If this node dies now, the next start waits as long.
        arbiter.ledger.set_lease(longest.time);
        arbiter.forget_longer_lease();
        arbiter
    }

    /// Once the sessions of before the start have ended, all leases are of this life.
    fn forget_longer_lease(&mut self) {
        if self.sessions.keys().all(|id| *id > self.last_restored) {
            self.ledger.set_lease(self.leases.time);
        }
    }

    /// What is to be done, in this order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The durable part.
    pub fn ledger(&self) -> &L {
        &self.ledger
    }

    /// The session of a link, while it serves.
    pub fn session_of(&self, link: Link) -> Option<Incarnation> {
        let id = *self.links.get(&link)?;
        debug_assert!(self.sessions[&id].link == Some(link), "a link and its session name each other");
        (self.sessions[&id].state == State::Serving).then_some(id)
    }

    /// The nodes with a session that serves.
    pub fn serving(&self) -> Vec<(Incarnation, &str)> {
        let serving = self.sessions.iter().filter(|(_, session)| session.state == State::Serving);
        serving.map(|(id, session)| (*id, session.node.as_str())).collect()
    }

    /// Sessions that serve, or will, and their nodes.
    pub fn live(&self) -> impl Iterator<Item = (Incarnation, &str)> {
        let is_live = |session: &Session| matches!(session.state, State::Opening | State::Serving);
        let live = self.sessions.iter().filter(move |(_, session)| is_live(session));
        live.map(|(id, session)| (*id, session.node.as_str()))
    }

    /// A link is there, from this host.
    pub fn came_from(&mut self, link: Link, host: IpAddr) {
        self.hosts.insert(link, host);
    }

    /// Another host that has a session of this node, whose lease holds. The node's id was copied,
    /// or the process that had the id is believed to be dead, and is not.
    fn rival(&self, link: Link, node: &str, last: Incarnation) -> Option<IpAddr> {
        let host = self.hosts.get(&link)?;
        let of_node = |(id, session): (&Incarnation, &Session)| {
            let other = self.hosts.get(&session.link.filter(|_| session.node == node && *id != last)?)?;
            (other != host).then_some(*other)
        };
        // A session without a link, or whose lease is over, has begun to end.
        self.sessions.iter().find_map(of_node)
    }

    /// A message has come.
    pub fn heard(&mut self, link: Link, message: ToMemory, now: Duration) {
        if let ToMemory::Hello { wire, node, shards, lanes, last } = message {
            return self.hello(link, wire, (node, last), (shards, lanes), now);
        }
        let Some(&id) = self.links.get(&link) else {
            let why = "this link has no session; say hello first".into();
            return self.effects.push(Effect::Send(link, ToServing::Fenced { why }));
        };
        if self.sessions[&id].state != State::Serving {
            return;
        }
        match message {
            ToMemory::Hello { .. } => unreachable!("answered above"),
            ToMemory::Renew { sent, pin, durable } => self.renew(id, sent, pin, durable, now),
            ToMemory::Acquire { epoch, ranges } => self.acquire(id, epoch, &ranges),
            ToMemory::Release { ranges, durable } => {
                let ranges = self.kept(id, &ranges);
                self.next_release += 1;
                let session = self.sessions.get_mut(&id).expect("found above");
                session.releases.insert(self.next_release, ranges);
                self.effects.push(Effect::MergeUpTo(id, durable, self.next_release));
            }
            ToMemory::Segment { shard } => self.effects.push(Effect::Grant(id, shard)),
            // Requests that change nothing are the driver's: see [`Arbiter::session_of`].
            ToMemory::Get { .. } | ToMemory::Scan { .. } | ToMemory::Count { .. } => {}
            ToMemory::Leave => {
                // It has promised to answer no more.
                self.sessions.get_mut(&id).expect("found above").lease_until = now;
                self.end(id, "the node has left");
            }
        }
    }

    /// `last`: the session from which the node says that it answers no more.
    fn hello(
        &mut self,
        link: Link,
        wire: u32,
        (node, last): (String, Incarnation),
        parts: (u16, u16),
        now: Duration,
    ) {
        if wire != WIRE || self.links.contains_key(&link) {
            let why = match wire {
                WIRE => "this link has a session already".into(),
                other => {
                    format!("the node {node} speaks version {other}, this memory node {WIRE}; update one")
                }
            };
            return self.refuse(link, why);
        }
        if let Some(rival) = self.rival(link, &node, last) {
            let why = format!(
                "another process, at {rival}, has a session with the id of this node, {node}: each node needs an id \
                 of its own. If this host's id file is a copy, remove it, or give another --node-id-file"
            );
            return self.refuse(link, why);
        }
        self.end_before(&node, last, now);
        let id = self.ledger.begin_session(&node);
        assert!(id > self.last_restored, "sessions that begin are later than those of before the start");
        let (waits, releases) = Default::default();
        let lease_until = now + self.leases.waited();
        assert!(lease_until >= now + self.leases.time, "a lease is waited for at least as long as it holds");
        let session = Session { node, link: Some(link), state: State::Opening, lease_until, waits, releases };
        let before = self.sessions.insert(id, session);
        assert!(before.is_none(), "the number of a session is used once");
        self.links.insert(link, id);
        self.effects.push(Effect::Open(id, parts.0, parts.1));
    }

    /// Gives a node no session, and ends its link.
    fn refuse(&mut self, link: Link, why: String) {
        self.effects.push(Effect::Send(link, ToServing::Fenced { why }));
        self.effects.push(Effect::Drop(link));
    }

    /// Ends the sessions that a node had before. It answers from `last` no more.
    fn end_before(&mut self, node: &str, last: Incarnation, now: Duration) {
        let of_node = |(id, session): (&Incarnation, &Session)| (session.node == node).then_some(*id);
        let before: Vec<Incarnation> = self.sessions.iter().filter_map(of_node).collect();
        for id in before {
            // Another process may have had the others, and may go on: their leases are waited for.
            if id == last {
                self.sessions.get_mut(&id).expect("listed just now").lease_until = now;
            }
            self.end(id, "the node has begun another session");
        }
    }

    /// The endpoint of a session is open. `access` tells the node how to reach the memory.
    pub fn opened(&mut self, id: Incarnation, access: Vec<u8>, now: Duration) {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.state == State::Opening)
        else {
            return;
        };
        session.state = State::Serving;
        // As if it had been renewed, however long the endpoints took.
        session.lease_until = now + self.leases.waited();
        let lease = u64::try_from(self.leases.time.as_nanos()).expect("a lease of seconds");
        if let Some(link) = session.link {
            let welcome = ToServing::Welcome { incarnation: id, lease, access };
            self.effects.push(Effect::Send(link, welcome));
        }
    }

    fn renew(&mut self, id: Incarnation, sent: u64, pin: u64, durable: Vec<u64>, now: Duration) {
        let session = self.sessions.get_mut(&id).expect("checked by the caller");
        debug_assert!(session.state == State::Serving, "sessions that serve renew their leases");
        session.lease_until = now + self.leases.waited();
        self.effects.push(Effect::Progress(id, sent, durable, pin));
    }

    /// The answer to a renewal: the driver knows the pin and what is merged.
    pub fn renewed(&mut self, id: Incarnation, sent: u64, pin: u64, merged: Vec<u64>) {
        let link = self.sessions.get(&id).filter(|session| session.state == State::Serving);
        if let Some(link) = link.and_then(|session| session.link) {
            self.effects.push(Effect::Send(link, ToServing::Renewed { sent, pin, merged }));
        }
    }

    fn acquire(&mut self, id: Incarnation, epoch: u64, ranges: &[SlotRange]) {
        let mut mine = Vec::new();
        let mut wanted: BTreeMap<Incarnation, Vec<u16>> = BTreeMap::new();
        let slots = ranges.iter().flat_map(|range| range.slots());
        for slot in slots.filter(|slot| *slot < SLOTS) {
            match self.ledger.owner(slot) {
                Some(owner) if owner == id => mine.push(slot),
                owner => {
                    self.sessions.get_mut(&id).expect("checked by the caller").waits.insert(slot, epoch);
                    wanted.entry(owner.unwrap_or(0)).or_default().push(slot);
                }
            }
        }
        self.send(id, ToServing::Granted { epoch, ranges: SlotRange::of(mine) });
        wanted.remove(&0);
        for (owner, slots) in wanted {
            self.send(owner, ToServing::Wanted { epoch, ranges: SlotRange::of(slots) });
        }
        self.grant();
    }

    /// Gives free slots to the session that waits for them by the latest map.
    fn grant(&mut self) {
        let mut latest: BTreeMap<u16, (u64, Incarnation)> = BTreeMap::new();
        for (id, session) in &self.sessions {
            if session.state == State::Serving {
                for (slot, epoch) in &session.waits {
                    let now = latest.entry(*slot).or_insert((*epoch, *id));
                    *now = (*now).max((*epoch, *id));
                }
            }
        }
        let mut grants: BTreeMap<(Incarnation, u64), Vec<u16>> = BTreeMap::new();
        for (slot, (epoch, id)) in latest {
            if self.ledger.owner(slot).is_none() {
                grants.entry((id, epoch)).or_default().push(slot);
            }
        }
        for ((id, epoch), slots) in grants {
            let session = self.sessions.get_mut(&id).expect("listed above");
            slots.iter().for_each(|slot| _ = session.waits.remove(slot));
            assert!(session.state == State::Serving, "slots are granted to sessions that serve");
            let ranges = SlotRange::of(slots);
            self.ledger.set_owner(&ranges, Some(id));
            self.send(id, ToServing::Granted { epoch, ranges });
        }
    }

    /// Those of these slots that are the session's, and that it has not released already. Once such
    /// a release is done, another node may have them.
    fn kept(&self, id: Incarnation, ranges: &[SlotRange]) -> Vec<SlotRange> {
        let released = self.sessions[&id].releases.values().flatten();
        let released: BTreeSet<u16> = released.flat_map(|range| range.slots()).collect();
        let is_kept =
            |slot: &u16| *slot < SLOTS && self.ledger.owner(*slot) == Some(id) && !released.contains(slot);
        SlotRange::of(ranges.iter().flat_map(|range| range.slots()).filter(is_kept))
    }

    /// All that a release needs is merged.
    pub fn merged_for(&mut self, id: Incarnation, release: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let Some(ranges) = session.releases.remove(&release) else { return };
        debug_assert!(
            ranges.iter().flat_map(|range| range.slots()).all(|slot| self.ledger.owner(slot) == Some(id)),
            "a slot is its owner's until what was written to it is merged"
        );
        // Whatever the state: nothing of these slots comes any more, and the node does not answer.
        self.ledger.set_owner(&ranges, None);
        ranges.iter().flat_map(|range| range.slots()).for_each(|slot| _ = session.waits.remove(&slot));
        self.send(id, ToServing::Released { ranges });
        self.grant();
    }

    /// A session cannot go on, for this reason.
    pub fn fail(&mut self, id: Incarnation, why: &str) {
        if self.sessions.contains_key(&id) {
            self.end(id, why);
        }
    }

    /// A segment was granted, as this message says.
    pub fn granted_segment(&mut self, id: Incarnation, segment: ToServing) {
        self.send(id, segment);
    }

    /// Tells all nodes that are served.
    pub fn tell_all(&mut self, message: &ToServing) {
        let serving: Vec<Incarnation> = self.serving().into_iter().map(|(id, _)| id).collect();
        serving.into_iter().for_each(|id| self.send(id, message.clone()));
    }

    /// All sessions, also those that end.
    pub fn sessions(&self) -> Vec<Incarnation> {
        self.sessions.keys().copied().collect()
    }

    /// A link is lost.
    pub fn lost(&mut self, link: Link) {
        self.hosts.remove(&link);
        if let Some(id) = self.links.remove(&link) {
            self.sessions.get_mut(&id).expect("links are of sessions").link = None;
            self.end(id, "the link to the node was lost");
        }
    }

    /// Looks at the clock. Called often, and after [`Arbiter::merged`].
    pub fn tick(&mut self, now: Duration) {
        let over: Vec<Incarnation> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.state != State::Opening && now >= session.lease_until)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            self.end(id, "its lease is over");
            if self.sessions[&id].state == State::Sealed {
                assert!(self.sessions[&id].link.is_none(), "a fenced node is told nothing more");
                self.ledger.end_session(id);
                self.sessions.remove(&id);
                self.effects.push(Effect::Forget(id));
                self.forget_longer_lease();
                self.grant();
            }
        }
    }

    /// Begins to end a session.
    fn end(&mut self, id: Incarnation, why: &str) {
        let session = self.sessions.get_mut(&id).expect("a session");
        if !matches!(session.state, State::Opening | State::Serving) {
            return;
        }
        self.ledger.fence(id);
        session.state = State::Closing;
        session.waits.clear();
        if let Some(link) = session.link.take() {
            let of_link = self.links.remove(&link);
            debug_assert!(of_link == Some(id), "a link and its session name each other");
            self.effects.push(Effect::Send(link, ToServing::Fenced { why: why.into() }));
            self.effects.push(Effect::Drop(link));
        }
        self.effects.push(Effect::Close(id));
    }

    /// The endpoint of a session is closed.
    pub fn closed(&mut self, id: Incarnation) {
        if let Some(session) = self.sessions.get_mut(&id).filter(|session| session.state == State::Closing) {
            session.state = State::Sealing;
            self.effects.push(Effect::MergeAll(id));
        }
    }

    /// The logs of a session are merged to their ends.
    pub fn merged(&mut self, id: Incarnation, now: Duration) {
        if let Some(session) = self.sessions.get_mut(&id).filter(|session| session.state == State::Sealing) {
            session.state = State::Sealed;
            self.tick(now);
        }
    }

    fn send(&mut self, id: Incarnation, message: ToServing) {
        if let Some(link) = self.sessions.get(&id).and_then(|session| session.link) {
            self.effects.push(Effect::Send(link, message));
        }
    }
}
