//! A memory node and some serving nodes run their state machines over links with delays, with
//! clocks that are apart and drift. After each step, all nodes are asked whether they would answer
//! for a slot now, also those that are stopped: they may go on at any time.

use crate::ledger::Kept;
use crate::random::Random;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;
use terrace_cluster::arbiter::{Arbiter, Effect as Deed, Incarnation, Leases, Ledger};
use terrace_cluster::message::{ToMemory, ToServing};
use terrace_cluster::owner::{Effect, Owner, Slot};
use terrace_cluster::slot::{SLOTS, SlotRange};

pub(super) const NODES: usize = 4;
/// Slots move in pieces of so many.
pub(super) const PIECE: u16 = 2048;
pub(super) const LEASE: Duration = Duration::from_millis(300);

/// What happens later. Those of a node are for one life of it, those of the memory node as well.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Then {
    ToMemory {
        link: u64,
        bytes: Vec<u8>,
    },
    ToServing {
        node: usize,
        link: u64,
        bytes: Vec<u8>,
    },
    /// The end of a link, at either side.
    LostAtMemory {
        link: u64,
    },
    LostAtNode {
        node: usize,
        link: u64,
    },
    Opened(u64, Incarnation),
    Closed(u64, Incarnation),
    Merged(u64, Incarnation),
    MergedFor(u64, Incarnation, u64),
    Drained {
        node: usize,
        life: u64,
        ranges: Vec<SlotRange>,
    },
    Reconnect {
        node: usize,
        life: u64,
    },
    Map {
        node: usize,
        epoch: u64,
        mine: Vec<SlotRange>,
    },
    TickOfMemory(u64),
    TickOfNode {
        node: usize,
        life: u64,
    },
}

pub(super) struct Serving {
    pub(super) owner: Owner,
    life: u64,
    pub(super) alive: bool,
    pub(super) stopped: bool,
    pub(super) link: u64,
    /// What its clock shows at time 0, and by how many millionths it goes too fast.
    offset: Duration,
    drift: i64,
    /// What has come while it was stopped.
    inbox: Vec<Then>,
}

impl Serving {
    fn new(nth: usize, random: &mut Random) -> Self {
        Self {
            owner: Owner::new(format!("node {nth}"), 1, 2),
            life: 0,
            alive: true,
            stopped: false,
            link: 0,
            offset: random.micros(0..10_000_000_000),
            drift: random.below(401) as i64 - 200,
            inbox: Vec::new(),
        }
    }

    /// Whether it takes what comes now. It keeps what comes while it is stopped.
    fn takes(&mut self, then: &Then) -> bool {
        if self.stopped {
            self.inbox.push(then.clone());
        }
        self.alive && !self.stopped
    }
}

/// The memory node and the serving nodes, with their links and clocks.
pub(super) struct World {
    pub(super) random: Random,
    now: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64, Then)>>,
    queued: u64,
    pub(super) kept: Kept,
    arbiter: Arbiter<Kept>,
    /// Lives of the memory node.
    life: u64,
    open: BTreeSet<Incarnation>,
    pub(super) nodes: Vec<Serving>,
    links: u64,
    /// When the last message of a link arrives, so that they stay in order: to the memory node, and
    /// from it.
    last: BTreeMap<(u64, bool), Duration>,
    dead_links: BTreeSet<u64>,
    pub(super) epoch: u64,
    pub(super) map: Vec<usize>,
    pub(super) answers: u64,
    /// Whether all messages arrive soon.
    pub(super) is_calm: bool,
}

pub(super) fn leases() -> Leases {
    Leases { time: LEASE, drift_ppm: 200 }
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let kept = Kept::default();
        let nodes = (0..NODES).map(|nth| Serving::new(nth, &mut random)).collect();
        let arbiter = Arbiter::new(kept.clone(), leases(), Duration::ZERO);
        let mut world = Self {
            random,
            now: Duration::ZERO,
            queue: BinaryHeap::new(),
            queued: 0,
            kept,
            arbiter,
            life: 0,
            open: BTreeSet::new(),
            nodes,
            links: 0,
            last: BTreeMap::new(),
            dead_links: BTreeSet::new(),
            epoch: 0,
            map: Vec::new(),
            answers: 0,
            is_calm: false,
        };
        world.after(Duration::from_millis(1), Then::TickOfMemory(0));
        for node in 0..NODES {
            world.start(node);
        }
        world.new_map();
        world
    }

    fn after(&mut self, delay: Duration, then: Then) {
        self.queued += 1;
        self.queue.push(Reverse((self.now + delay, self.queued, then)));
    }

    fn soon(&mut self, then: Then) {
        let delay = self.random.micros(1..3_000);
        self.after(delay, then);
    }

    fn clock(&self, node: usize) -> Duration {
        let Serving { offset, drift, .. } = &self.nodes[node];
        let micros = self.now.as_micros() as i64;
        *offset + Duration::from_micros((micros + micros * drift / 1_000_000) as u64)
    }

    fn start(&mut self, node: usize) {
        let life = self.nodes[node].life;
        self.soon(Then::Reconnect { node, life });
        self.soon(Then::TickOfNode { node, life });
    }

    /// Sends over a link: in order, unless it is dead.
    fn send(&mut self, link: u64, to_memory: bool, then: Then) {
        if self.dead_links.contains(&link) {
            return;
        }
        let delay = match self.random.below(50) {
            0 if !self.is_calm => self.random.micros(1_000..400_000),
            _ => self.random.micros(50..2_000),
        };
        let earliest = self.last.get(&(link, to_memory)).copied().unwrap_or_default();
        let at = (self.now + delay).max(earliest);
        self.last.insert((link, to_memory), at);
        self.after(at - self.now, then);
    }

    /// A link ends. Either side hears of it at its own time, or only by its silence.
    fn cut(&mut self, link: u64) {
        if link == 0 || !self.dead_links.insert(link) {
            return;
        }
        let late = |random: &mut Random| match random.below(4) {
            0 => Duration::from_secs(2),
            _ => random.micros(100..100_000),
        };
        let (one, other) = (late(&mut self.random), late(&mut self.random));
        self.after(one, Then::LostAtMemory { link });
        let node = (0..NODES).find(|node| self.nodes[*node].link == link);
        node.into_iter().for_each(|node| self.after(other, Then::LostAtNode { node, link }));
    }

    fn new_map(&mut self) {
        self.epoch += 1;
        let pieces = SLOTS / PIECE;
        self.map = (0..pieces).map(|_| self.random.below(NODES as u64) as usize).collect();
        for node in 0..NODES {
            let mine = (0..pieces).filter(|piece| self.map[usize::from(*piece)] == node);
            let mine = mine.map(|piece| SlotRange { first: piece * PIECE, last: (piece + 1) * PIECE - 1 });
            let (mine, epoch) = (mine.collect(), self.epoch);
            let delay = self.random.micros(100..150_000);
            self.after(delay, Then::Map { node, epoch, mine });
        }
    }

    fn step(&mut self) {
        let Reverse((at, _, then)) = self.queue.pop().expect("nodes have timers");
        self.now = self.now.max(at);
        self.happen(then);
        self.do_deeds();
        (0..NODES).for_each(|node| self.do_effects(node));
        self.check();
    }

    fn happen(&mut self, then: Then) {
        let (now, life) = (self.now, self.life);
        match then {
            Then::ToMemory { link, bytes } if !self.dead_links.contains(&link) => {
                let message: ToMemory = postcard::from_bytes(&bytes).expect("a message");
                self.arbiter.heard(link, message, now);
            }
            Then::LostAtMemory { link } => self.arbiter.lost(link),
            Then::Opened(of, id) if of == life => {
                self.open.insert(id);
                self.arbiter.opened(id, Vec::new(), now);
            }
            Then::Closed(of, id) if of == life => {
                self.open.remove(&id);
                self.arbiter.closed(id);
            }
            Then::Merged(of, id) if of == life => self.arbiter.merged(id, now),
            Then::MergedFor(of, id, release) if of == life => self.arbiter.merged_for(id, release),
            Then::TickOfMemory(of) if of == life => {
                self.arbiter.tick(now);
                self.after(Duration::from_millis(5), Then::TickOfMemory(life));
            }
            then => self.happen_at_node(then),
        }
    }

    fn happen_at_node(&mut self, then: Then) {
        let (Then::ToServing { node, .. }
        | Then::LostAtNode { node, .. }
        | Then::Drained { node, .. }
        | Then::Reconnect { node, .. }
        | Then::Map { node, .. }
        | Then::TickOfNode { node, .. }) = then
        else {
            return;
        };
        if !self.nodes[node].takes(&then) {
            return;
        }
        let clock = self.clock(node);
        let serving = &mut self.nodes[node];
        match then {
            Then::ToServing { link, bytes, .. } if link == serving.link => {
                let message: ToServing = postcard::from_bytes(&bytes).expect("a message");
                serving.owner.heard(message);
            }
            Then::LostAtNode { link, .. } if link == serving.link => serving.owner.lost(),
            Then::Drained { life, ranges, .. } if life == serving.life => {
                serving.owner.drained(ranges, vec![0]);
            }
            Then::Reconnect { life, .. } if life == serving.life && serving.link == 0 => {
                self.links += 1;
                serving.link = self.links;
                serving.owner.hello();
            }
            Then::Map { epoch, mine, .. } => serving.owner.map(epoch, &mine),
            Then::TickOfNode { life, .. } if life == serving.life => {
                serving.owner.tick(clock, 0, vec![0]);
                self.after(Duration::from_millis(7), Then::TickOfNode { node, life });
            }
            _ => {}
        }
    }

    fn do_deeds(&mut self) {
        for deed in self.arbiter.take_effects() {
            let life = self.life;
            match deed {
                Deed::Send(link, message) => {
                    let bytes = postcard::to_allocvec(&message).expect("a message");
                    if let Some(node) = (0..NODES).find(|node| self.nodes[*node].link == link) {
                        self.send(link, false, Then::ToServing { node, link, bytes });
                    }
                }
                Deed::Drop(link) => {
                    if let Some(node) = (0..NODES).find(|node| self.nodes[*node].link == link) {
                        self.send(link, false, Then::LostAtNode { node, link });
                    }
                }
                Deed::Open(id, ..) => self.soon(Then::Opened(life, id)),
                Deed::Close(id) => self.soon(Then::Closed(life, id)),
                Deed::MergeAll(id) => self.soon(Then::Merged(life, id)),
                Deed::MergeUpTo(id, _, release) => self.soon(Then::MergedFor(life, id, release)),
                Deed::Progress(id, sent, durable, pin) => self.arbiter.renewed(id, sent, pin, durable),
                Deed::Grant(..) | Deed::Forget(_) => {}
            }
        }
        for deed in self.arbiter.take_effects() {
            let Deed::Send(link, message) = deed else { panic!("an answer to a renewal") };
            let bytes = postcard::to_allocvec(&message).expect("a message");
            if let Some(node) = (0..NODES).find(|node| self.nodes[*node].link == link) {
                self.send(link, false, Then::ToServing { node, link, bytes });
            }
        }
    }

    fn do_effects(&mut self, node: usize) {
        for effect in self.nodes[node].owner.take_effects() {
            let life = self.nodes[node].life;
            match effect {
                Effect::Send(message) => {
                    let (link, bytes) = (self.nodes[node].link, postcard::to_allocvec(&message));
                    self.send(link, true, Then::ToMemory { link, bytes: bytes.expect("a message") });
                }
                Effect::Drain(ranges) => self.soon(Then::Drained { node, life, ranges }),
                Effect::StartOver(_) => {
                    let link = std::mem::take(&mut self.nodes[node].link);
                    self.cut(link);
                    self.soon(Then::Reconnect { node, life });
                }
                Effect::Connect(_) | Effect::Forget(_) | Effect::Progress { .. } | Effect::Segment { .. } => {
                }
            }
        }
    }

    /// Whether a node would answer for a slot now, if it ran.
    pub(super) fn would_answer(&self, node: usize, slot: u16) -> bool {
        let serving = &self.nodes[node];
        let is_served = serving.owner.slot(slot) == Slot::Served;
        serving.alive && is_served && serving.owner.may_answer(self.clock(node))
    }

    fn check(&mut self) {
        for slot in (0..SLOTS).step_by(PIECE.into()) {
            let answering: Vec<usize> = (0..NODES).filter(|node| self.would_answer(*node, slot)).collect();
            assert!(answering.len() <= 1, "at {:?}, nodes {answering:?} answer for slot {slot}", self.now);
            self.answers += answering.len() as u64;
            for serving in self.nodes.iter().filter(|serving| serving.alive) {
                let session = serving.owner.session();
                let writes = serving.owner.slot(slot) == Slot::Served;
                if writes && session.is_some_and(|session| self.open.contains(&session)) {
                    assert_eq!(self.kept.owner(slot), session, "at {:?}, slot {slot}", self.now);
                }
            }
        }
    }

    pub(super) fn fault(&mut self) {
        let node = self.random.below(NODES as u64) as usize;
        let Serving { alive, stopped, link, .. } = self.nodes[node];
        match self.random.below(12) {
            0..2 if alive && !stopped => self.nodes[node].stopped = true,
            2..5 if stopped => self.go_on(node),
            5 if alive => self.kill(node),
            6..8 if !alive => self.restart(node),
            8 if alive => self.cut(link),
            9 => self.restart_memory(),
            10..12 => self.new_map(),
            _ => {}
        }
    }

    pub(super) fn go_on(&mut self, node: usize) {
        self.nodes[node].stopped = false;
        for then in std::mem::take(&mut self.nodes[node].inbox) {
            self.after(Duration::ZERO, then);
        }
    }

    fn kill(&mut self, node: usize) {
        let link = self.nodes[node].link;
        self.cut(link);
        let serving = &mut self.nodes[node];
        (serving.alive, serving.stopped, serving.link) = (false, false, 0);
        serving.life += 1;
        serving.inbox.retain(|then| matches!(then, Then::Map { .. }));
    }

    pub(super) fn restart(&mut self, node: usize) {
        let serving = &mut self.nodes[node];
        serving.alive = true;
        serving.owner = Owner::new(format!("node {node}"), 1, 2);
        let (map, epoch, pieces) = (self.map.clone(), self.epoch, SLOTS / PIECE);
        let mine = (0..pieces).filter(|piece| map[usize::from(*piece)] == node);
        let mine = mine.map(|piece| SlotRange { first: piece * PIECE, last: (piece + 1) * PIECE - 1 });
        let mine = mine.collect();
        self.soon(Then::Map { node, epoch, mine });
        self.start(node);
    }

    fn restart_memory(&mut self) {
        (0..NODES).for_each(|node| self.cut(self.nodes[node].link));
        self.life += 1;
        self.open.clear();
        self.arbiter = Arbiter::new(self.kept.clone(), leases(), self.now);
        self.after(Duration::from_millis(1), Then::TickOfMemory(self.life));
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.queue.peek().is_some_and(|Reverse((at, ..))| *at <= end) {
            self.step();
        }
        self.now = end;
    }
}
