//! Tests: whatever dies, stops or is cut off, a slot has one owner that writes, and one that
//! answers.
//!
//! A memory node and some serving nodes run their state machines over links with delays, with
//! clocks that are apart and drift. After each step, all nodes are asked whether they would answer
//! for a slot now, also those that are stopped: they may go on at any time.

use crate::ledger::Kept;
use crate::random::Random;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;
use terrace_cluster::arbiter::{Arbiter, Effect as Deed, Incarnation, Leases, Ledger};
use terrace_cluster::message::{ToMemory, ToServing, WIRE};
use terrace_cluster::owner::{Effect, Owner, Slot};
use terrace_cluster::slot::{SLOTS, SlotRange};

const NODES: usize = 4;
/// Slots move in pieces of so many.
const PIECE: u16 = 2048;
const LEASE: Duration = Duration::from_millis(300);

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

struct Serving {
    owner: Owner,
    life: u64,
    alive: bool,
    stopped: bool,
    link: u64,
    /// What its clock shows at time 0, and by how many millionths it goes too fast.
    offset: Duration,
    drift: i64,
    /// What has come while it was stopped.
    inbox: Vec<Then>,
}

struct World {
    random: Random,
    now: Duration,
    queue: BinaryHeap<Reverse<(Duration, u64, Then)>>,
    queued: u64,
    kept: Kept,
    arbiter: Arbiter<Kept>,
    /// Lives of the memory node.
    life: u64,
    open: BTreeSet<Incarnation>,
    nodes: Vec<Serving>,
    links: u64,
    /// When the last message of a link arrives, so that they stay in order: to the memory node, and
    /// from it.
    last: BTreeMap<(u64, bool), Duration>,
    dead_links: BTreeSet<u64>,
    epoch: u64,
    map: Vec<usize>,
    answers: u64,
    /// Whether all messages arrive soon.
    is_calm: bool,
}

fn leases() -> Leases {
    Leases { time: LEASE, drift_ppm: 200 }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let kept = Kept::default();
        let node = |nth: usize, random: &mut Random| Serving {
            owner: Owner::new(format!("node {nth}"), 1, 2),
            life: 0,
            alive: true,
            stopped: false,
            link: 0,
            offset: random.micros(0..10_000_000_000),
            drift: random.below(401) as i64 - 200,
            inbox: Vec::new(),
        };
        let nodes = (0..NODES).map(|nth| node(nth, &mut random)).collect();
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
        let serving = &mut self.nodes[node];
        if serving.stopped {
            serving.inbox.push(then);
            return;
        }
        if !serving.alive {
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
    fn would_answer(&self, node: usize, slot: u16) -> bool {
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

    fn fault(&mut self) {
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

    fn go_on(&mut self, node: usize) {
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

    fn restart(&mut self, node: usize) {
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

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.queue.peek().is_some_and(|Reverse((at, ..))| *at <= end) {
            self.step();
        }
        self.now = end;
    }
}

fn run(seed: u64, faults: u32) -> u64 {
    let mut world = World::new(seed);
    for _ in 0..faults {
        let time = world.random.micros(1_000..200_000);
        world.run_for(time);
        world.fault();
    }
    // No more faults: the map comes true.
    world.is_calm = true;
    for node in 0..NODES {
        if world.nodes[node].stopped {
            world.go_on(node);
        }
        if !world.nodes[node].alive {
            world.restart(node);
        }
    }
    world.run_for(Duration::from_secs(8));
    for piece in 0..SLOTS / PIECE {
        let node = world.map[usize::from(piece)];
        let slot = piece * PIECE;
        let Serving { owner, link, .. } = &world.nodes[node];
        assert!(
            world.would_answer(node, slot),
            "seed {seed}: node {node} does not serve slot {slot} in the end: {:?}, session {:?}, link {link}, epoch {} of {}, owner {:?}, sessions {:?}",
            owner.slot(slot),
            owner.session(),
            owner.epoch(),
            world.epoch,
            world.kept.owner(slot),
            world.kept.sessions()
        );
    }
    world.answers
}

#[test]
fn slot_has_one_owner_whatever_fails() {
    let answers: u64 = (0..200).map(|seed| run(seed, 60)).sum();
    assert!(answers > 1_000_000, "nodes answered {answers} times only");
}

/// Two processes with one name, one after the other. Tells when the second has the slots of the
/// first, which is not known to be dead if `last` is 0.
fn second_owns_after(last: Incarnation) -> Duration {
    let kept = Kept::default();
    let mut arbiter = Arbiter::new(kept.clone(), leases(), Duration::ZERO);
    let slots = vec![SlotRange::new(0, 9).unwrap()];
    let hello = |last| ToMemory::Hello { wire: WIRE, node: "one".into(), shards: 1, lanes: 2, last };
    for (link, last) in [(1, 0), (2, last)] {
        arbiter.heard(link, hello(last), Duration::ZERO);
        arbiter.opened(link, Vec::new(), Duration::ZERO);
        arbiter.heard(link, ToMemory::Acquire { epoch: 1, ranges: slots.clone() }, Duration::ZERO);
    }
    arbiter.closed(1);
    arbiter.merged(1, Duration::ZERO);
    let owns = |now: &Duration| {
        arbiter.tick(*now);
        kept.owner(0) == Some(2)
    };
    (0..1000).map(Duration::from_millis).find(owns).expect("a second is enough")
}

#[test]
fn process_with_the_name_of_another_waits_for_its_lease() {
    assert!(second_owns_after(0) >= LEASE);
    // The same process says that it answers from its session no more.
    assert_eq!(second_owns_after(1), Duration::ZERO);
}

/// A memory node is started again with a shorter lease, and dies at once. The node with the slots
/// may answer until its own, longer lease is over.
#[test]
fn shorter_lease_waits_for_the_longer_one_of_before() {
    let kept = Kept::default();
    let short = Leases { time: LEASE / 10, ..leases() };
    let begin = |leases, now, link: u64, session: u64, node: &str| {
        let mut arbiter = Arbiter::new(kept.clone(), leases, now);
        let hello = ToMemory::Hello { wire: WIRE, node: node.into(), shards: 1, lanes: 2, last: 0 };
        arbiter.heard(link, hello, now);
        arbiter.opened(session, Vec::new(), now);
        let slots = vec![SlotRange::new(0, 9).unwrap()];
        arbiter.heard(link, ToMemory::Acquire { epoch: link, ranges: slots }, now);
        arbiter
    };
    begin(leases(), Duration::ZERO, 1, 1, "one");
    assert_eq!(kept.owner(0), Some(1));
    begin(short, Duration::ZERO, 2, 2, "two");
    let mut arbiter = begin(short, Duration::ZERO, 3, 3, "three");
    (1..=2).for_each(|session| arbiter.merged(session, Duration::ZERO));
    let owns = |now: &Duration| {
        let renew = ToMemory::Renew { sent: 0, pin: 0, durable: vec![0] };
        arbiter.heard(3, renew, *now);
        arbiter.tick(*now);
        kept.owner(0) == Some(3)
    };
    let after = (0..1000).map(Duration::from_millis).find(owns);
    assert!(after.expect("a second is enough") >= LEASE, "{after:?}");
    assert_eq!(kept.lease(), short.time, "the next start need not wait as long");
}

/// A copy of a node's id does not take the session of a node that lives; a restart does.
#[test]
fn id_of_a_node_that_lives_is_refused_elsewhere() {
    let kept = Kept::default();
    let mut arbiter = Arbiter::new(kept.clone(), leases(), Duration::ZERO);
    let now = Duration::ZERO;
    let hello = |arbiter: &mut Arbiter<Kept>, link, host: [u8; 4], last, now| {
        arbiter.came_from(link, host.into());
        arbiter.take_effects();
        arbiter.heard(
            link,
            ToMemory::Hello { wire: WIRE, node: "one".into(), shards: 1, lanes: 2, last },
            now,
        );
        let effects = arbiter.take_effects();
        let refusal = effects.iter().find_map(|effect| match effect {
            Deed::Send(to, ToServing::Fenced { why }) if *to == link => Some(why.clone()),
            _ => None,
        });
        assert_eq!(refusal.is_some(), effects.contains(&Deed::Drop(link)), "{effects:?}");
        refusal
    };
    let (here, there) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    assert_eq!(hello(&mut arbiter, 1, here, 0, now), None);
    let why = hello(&mut arbiter, 2, there, 0, now).expect("it is refused");
    assert!(why.contains("10.0.0.1") && why.contains("--node-id-file"), "{why}");
    arbiter.opened(1, Vec::new(), now);
    assert!(hello(&mut arbiter, 3, there, 0, now).is_some());
    assert_eq!(arbiter.serving().len(), 1);
    // The process was started again at its host, or has moved and says so.
    assert_eq!(hello(&mut arbiter, 4, here, 0, now), None);
    arbiter.opened(2, Vec::new(), now);
    assert_eq!(hello(&mut arbiter, 5, there, 2, now), None);
    arbiter.opened(3, Vec::new(), now);
    // Its lease is over: another host may have the id.
    arbiter.tick(now + 2 * LEASE);
    assert_eq!(hello(&mut arbiter, 6, here, 0, now + 2 * LEASE), None);
}

/// A node says twice that it gives a slot back. Meanwhile the slot is another one's.
#[test]
fn release_that_comes_twice_frees_a_slot_once() {
    let kept = Kept::default();
    let (mut arbiter, now) = (Arbiter::new(kept.clone(), leases(), Duration::ZERO), Duration::ZERO);
    let slots = vec![SlotRange::new(0, 9).unwrap()];
    for (link, node) in [(1, "one"), (2, "other")] {
        let hello = ToMemory::Hello { wire: WIRE, node: node.into(), shards: 1, lanes: 2, last: 0 };
        arbiter.heard(link, hello, now);
        arbiter.opened(link, Vec::new(), now);
        arbiter.heard(link, ToMemory::Acquire { epoch: link, ranges: slots.clone() }, now);
    }
    assert_eq!(kept.owner(0), Some(1));
    for _ in 0..2 {
        arbiter.heard(1, ToMemory::Release { ranges: slots.clone(), durable: vec![0] }, now);
    }
    arbiter.merged_for(1, 1);
    assert_eq!(kept.owner(0), Some(2));
    arbiter.merged_for(1, 2);
    assert_eq!(kept.owner(0), Some(2));
}

/// The grant was sent before the memory node heard that the slot is given back.
#[test]
fn grant_of_a_slot_that_is_held_changes_nothing() {
    let mut owner = Owner::new("one".into(), 1, 2);
    let slots = vec![SlotRange::new(3, 4).unwrap()];
    let granted = |epoch| ToServing::Granted { epoch, ranges: vec![SlotRange { first: 3, last: 4 }] };
    owner.map(1, &slots);
    owner.heard(ToServing::Welcome { incarnation: 1, lease: 1, access: Vec::new() });
    owner.heard(granted(1));
    owner.map(2, &[]);
    owner.drained(slots.clone(), vec![0]);
    owner.map(3, &slots);
    owner.take_effects();
    owner.heard(granted(1));
    assert_eq!((owner.slot(3), owner.moving()), (Slot::Held, Some(3)));
    owner.heard(ToServing::Released { ranges: slots.clone() });
    assert_eq!(owner.slot(3), Slot::Away);
    assert!(owner.take_effects().contains(&Effect::Send(ToMemory::Acquire { epoch: 3, ranges: slots })));
}

#[test]
fn node_renews_at_once_when_memory_is_short() {
    let mut owner = Owner::new("one".into(), 1, 2);
    let (second, ms) = (1_000_000_000_u64, Duration::from_millis(1));
    let short = || ToServing::Renewed { sent: 0, pin: 1, merged: vec![0] };
    owner.heard(ToServing::Welcome { incarnation: 1, lease: 2 * second, access: Vec::new() });
    // It gives no lease.
    owner.heard(short());
    assert_eq!(owner.lease_until(), Duration::ZERO);
    let renews = |owner: &mut Owner, at: Duration| {
        owner.take_effects();
        owner.tick(at, 0, vec![0]);
        matches!(owner.take_effects()[..], [Effect::Send(ToMemory::Renew { .. })])
    };
    let now = Duration::from_secs(1);
    assert!(renews(&mut owner, now));
    owner.heard(ToServing::Renewed { sent: second, pin: 1, merged: vec![0] });
    assert_eq!(owner.lease_until(), 3 * now);
    assert!(!renews(&mut owner, now + ms));
    owner.heard(short());
    assert!(renews(&mut owner, now + 2 * ms) && !renews(&mut owner, now + 3 * ms));
    assert_eq!(owner.lease_until(), 3 * now);
}
