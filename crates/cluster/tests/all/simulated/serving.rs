//! A serving node: the owner's state machine, a log a shard, unmerged writes, a cache.

use super::memory::{ENTRY_MAX, RESERVE, name};
use super::shared::{
    Answer, Frame, MEMORY, Mistake, OBJECTS, Op, SHARDS, SLOTS, View, World, keys_of, slot_of, slot_of_key,
    value_of, word_of,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use terrace_cluster::entry::{Change, Entry};
use terrace_cluster::log::{Grant, ShardLog};
use terrace_cluster::message::{ToMemory, ToServing, Untold};
use terrace_cluster::owner::{Effect, Owner, Slot};
use terrace_cluster::slot::SlotRange;
use terrace_fabric::sim::{Event, Host, Node, NodeId, SimConnection};
use terrace_fabric::{Completion, Connection, Fabric, Operation, Place, Posted, RegionKey, Until};

const TICK: Duration = Duration::from_millis(3);
/// The longest time until the thread that hears the memory node does so.
const HEAR_US: u64 = 500;
/// The longest time until a node tries to reach the memory node again.
const RETRY_US: u64 = 20_000;
/// How long the memory node may take to answer a hello. Its machine may have died just then.
const WELCOME_WAIT: Duration = Duration::from_millis(100);
/// Keys in the cache.
const CACHED_MAX: usize = 8;
/// Most requests that wait for a slot.
const HELD_MAX: usize = 64;

/// What a client wants.
#[derive(Clone, Copy, Debug)]
struct Job {
    client: NodeId,
    id: u64,
    object: usize,
    op: Op,
}

/// A job that waits for what the memory has.
struct Asking {
    job: Job,
    /// The generation of its slot, and the last write of its object, when it began.
    generation: u32,
    stamp: u32,
    /// What each of its keys has, and the request about it.
    found: Vec<Option<Option<u64>>>,
    requests: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Unmerged {
    shard: usize,
    lsn: u64,
    word: Option<u64>,
}

struct Session {
    lane: SimConnection,
    logs: Vec<ShardLog>,
    keys: BTreeMap<u64, RegionKey>,
    /// Entries that were appended, that are given to the write under way, and that have arrived.
    appended: u64,
    flushing: u64,
    durable: u64,
    under_way: usize,
    unmerged: BTreeMap<u8, Unmerged>,
    /// Words with the generation of their slot.
    cache: BTreeMap<u8, (u32, u64)>,
    replies: VecDeque<(u64, Job, Answer)>,
    drains: Vec<(Vec<SlotRange>, u64)>,
    asking: Vec<Asking>,
    /// Jobs that wait for a segment.
    no_room: Vec<Job>,
}

pub(super) struct Serving {
    host: Host,
    world: World,
    nth: usize,
    owner: Owner,
    link: Option<u64>,
    links: u64,
    /// When the link began, or when there is to be one again.
    retry_at: Duration,
    session: Option<Session>,
    generations: [u32; SLOTS.len()],
    states: [Slot; SLOTS.len()],
    /// Number of writes of each object.
    stamps: [u32; OBJECTS],
    held: Vec<Job>,
    /// What the memory node has sent, and its thread has not heard.
    unheard: VecDeque<Frame>,
    next_request: u64,
}

/// Timers: of the clock, and of the thread that hears the memory node.
const CLOCK: u64 = 0;
const HEAR: u64 = 1;

impl Serving {
    pub(super) fn new(host: Host, world: World, nth: usize) -> Self {
        host.set_timer(TICK, CLOCK);
        let owner = Owner::new(name(nth), SHARDS, 2);
        let (link, session, held, unheard) = Default::default();
        Self {
            // No two lives have a link in common.
            links: host.random() >> 8 << 8,
            retry_at: host.now(),
            host,
            world,
            nth,
            owner,
            link,
            session,
            generations: [0; SLOTS.len()],
            states: [Slot::Away; SLOTS.len()],
            stamps: [0; OBJECTS],
            held,
            unheard,
            next_request: 0,
        }
    }

    fn tick(&mut self) {
        self.host.set_timer(TICK, CLOCK);
        if let Some(link) = self.link {
            let is_dead = self.world.get().dead_links.contains(&link);
            let is_late = self.session.is_none() && self.host.now() > self.retry_at + WELCOME_WAIT;
            if is_dead && self.host.random().is_multiple_of(4) || is_late {
                self.lost(link);
            }
        } else if self.host.now() >= self.retry_at {
            self.links += 1;
            self.link = Some(self.links);
            self.retry_at = self.host.now();
            self.world.get().links[self.nth] = self.links;
            Frame::Open(self.links).send(&self.host, MEMORY);
            self.owner.hello();
        }
        let shared = self.world.get();
        let (epoch, map, is_deaf) = (shared.epoch, shared.map, shared.is_deaf[self.nth]);
        drop(shared);
        // Some hear of a map late.
        if epoch > self.owner.epoch() && !is_deaf && self.host.random().is_multiple_of(3) {
            let mine = (0..SLOTS.len()).filter(|slot| map[*slot] == self.nth);
            let mine: Vec<SlotRange> =
                mine.map(|slot| SlotRange { first: SLOTS[slot], last: SLOTS[slot] }).collect();
            self.owner.map(epoch, &mine);
        }
        let durable = self.durable();
        self.owner.tick(self.host.now(), 0, durable);
    }

    fn durable(&self) -> Vec<u64> {
        self.session.iter().flat_map(|session| session.logs.iter().map(ShardLog::durable)).collect()
    }

    fn lost(&mut self, link: u64) {
        if self.link == Some(link) {
            self.link = None;
            self.owner.lost();
        }
    }

    /// Does what the owner wants, and what follows.
    fn settle(&mut self) {
        loop {
            let effects = self.owner.take_effects();
            self.mirror();
            if effects.is_empty() {
                break;
            }
            effects.into_iter().for_each(|effect| self.perform(effect));
        }
        self.flush();
        self.look_at_drains();
        self.look_at_held();
        let lease_until = match self.world.has(Mistake::NoLease) {
            // What it would answer is what matters, and not what it should.
            true => Duration::ZERO,
            false => self.owner.lease_until(),
        };
        self.world.get().writes[self.nth] =
            self.session.as_ref().is_some_and(|session| session.under_way > 0);
        let is_served = std::array::from_fn(|slot| self.states[slot] == Slot::Served);
        self.world.show(self.nth, View { host: self.host.clone(), lease_until, is_served });
    }

    /// Notes which slots have come or gone.
    fn mirror(&mut self) {
        for (slot, number) in SLOTS.into_iter().enumerate() {
            let state = self.owner.slot(number);
            if state != self.states[slot] {
                self.states[slot] = state;
                self.generations[slot] += 1;
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        if !matches!(effect, Effect::Progress { .. } | Effect::Send(ToMemory::Renew { .. })) {
            self.world.trace(|| format!("               node {}: {effect:?}", self.nth));
        }
        match effect {
            Effect::Send(message) => {
                if let Some(link) = self.link {
                    Frame::ToMemory(link, message).send(&self.host, MEMORY);
                }
            }
            Effect::Connect(address) => {
                let lane = self.host.connect(&address).expect("an address");
                self.session = Some(Session::new(lane));
            }
            Effect::Drain(ranges) => {
                if let Some(session) = &mut self.session {
                    session.drains.push((ranges, session.appended));
                }
            }
            Effect::Forget(ranges) => self.session.iter_mut().for_each(|session| session.forget(&ranges)),
            Effect::StartOver(_) => self.start_over(),
            Effect::Progress { merged, .. } => {
                if let Some(session) = &mut self.session {
                    session.unmerged.retain(|_, unmerged| unmerged.lsn > merged[unmerged.shard]);
                }
            }
            Effect::Segment { shard, number, bytes, key } => {
                let Some(session) = &mut self.session else { return };
                session.keys.insert(number, RegionKey::from_bytes(key));
                session.logs[usize::from(shard)].grant(Grant { number, bytes });
                let jobs = std::mem::take(&mut session.no_room);
                jobs.into_iter().for_each(|job| self.start(job));
            }
        }
    }

    fn start_over(&mut self) {
        if let Some(link) = self.link.take() {
            Frame::Close(link).send(&self.host, MEMORY);
        }
        self.retry_at = self.host.now() + Duration::from_micros(self.host.random() % RETRY_US);
        let Some(session) = self.session.take() else { return };
        // What was appended has arrived or not; the rest has not happened.
        session.replies.iter().for_each(|(_, job, _)| self.reply(job, Answer::Unknown));
        let jobs = session.asking.iter().map(|asking| &asking.job).chain(&session.no_room);
        jobs.for_each(|job| self.reply(job, Answer::Moved));
    }

    fn reply(&self, job: &Job, answer: Answer) {
        Frame::Reply { id: job.id, answer }.send(&self.host, job.client);
    }

    // Jobs.

    fn start(&mut self, job: Job) {
        let slot = slot_of(job.object);
        match self.states[slot] {
            Slot::Held if self.held.len() < HELD_MAX => self.held.push(job),
            Slot::Served if self.session.is_some() => self.execute(job),
            _ => self.reply(&job, Answer::Moved),
        }
    }

    fn look_at_held(&mut self) {
        let is_free = |job: &mut Job| self.states[slot_of(job.object)] != Slot::Held;
        let free: Vec<Job> = self.held.extract_if(.., is_free).collect();
        free.into_iter().for_each(|job| self.start(job));
    }

    fn execute(&mut self, job: Job) {
        let session = self.session.as_mut().expect("checked by the caller");
        if session.is_locked(job.object) && !matches!(job.op, Op::Get) {
            // Another writer has the lock. It is tried again when that one has ended.
            return self.held.push(job);
        }
        if matches!(job.op, Op::Put(_)) {
            return self.decide(job, &[]);
        }
        let generation = self.generations[slot_of(job.object)];
        let kept = self.world.has(Mistake::CacheKept);
        let near = |key: &u8| match session.unmerged.get(key) {
            Some(unmerged) => Some(unmerged.word),
            None => {
                let is_fresh = |cached: &&(u32, u64)| cached.0 == generation || kept;
                session.cache.get(key).filter(is_fresh).map(|(_, word)| Some(*word))
            }
        };
        let found: Vec<Option<Option<u64>>> = keys_of(job.object).iter().map(near).collect();
        if let Some(words) = found.iter().copied().collect::<Option<Vec<_>>>() {
            return self.decide(job, &words);
        }
        self.ask(job, generation, found);
    }

    /// Asks the memory node for the keys of an object that were not found here.
    fn ask(&mut self, job: Job, generation: u32, found: Vec<Option<Option<u64>>>) {
        let mut requests = Vec::new();
        for (key, found) in keys_of(job.object).iter().zip(&found) {
            self.next_request += 1;
            requests.push(self.next_request);
            if let (None, Some(link)) = (found, self.link) {
                let ask = ToMemory::Get { id: self.next_request, key: vec![*key] };
                Frame::ToMemory(link, ask).send(&self.host, MEMORY);
            }
        }
        let stamp = self.stamps[job.object];
        let session = self.session.as_mut().expect("a session");
        session.asking.push(Asking { job, generation, stamp, found, requests });
    }

    /// The memory node has answered.
    fn got(&mut self, id: u64, item: Result<Option<Vec<u8>>, Untold>) {
        let Some(session) = &mut self.session else { return };
        let Some(place) = session.asking.iter().position(|asking| asking.requests.contains(&id)) else {
            return;
        };
        let asking = &mut session.asking[place];
        let nth = asking.requests.iter().position(|request| *request == id).expect("found above");
        let Ok(item) = item else {
            let asking = session.asking.remove(place);
            return self.reply(&asking.job, Answer::Moved);
        };
        asking.found[nth] = Some(item.map(|value| word_of(&value)));
        let Some(words) = asking.found.iter().copied().collect::<Option<Vec<_>>>() else { return };
        let Asking { job, generation, stamp, .. } = session.asking.remove(place);
        if generation != self.generations[slot_of(job.object)] {
            return self.start(job);
        }
        if stamp == self.stamps[job.object] {
            for (key, word) in keys_of(job.object).iter().zip(&words) {
                word.iter().for_each(|word| session.keep(&self.host, *key, (generation, *word)));
            }
        } else if words.len() > 1 {
            // Of two moments.
            return self.execute(job);
        }
        self.decide(job, &words);
    }

    fn may_answer(&self) -> bool {
        self.owner.may_answer(self.host.now()) || self.world.has(Mistake::NoLease)
    }

    /// Answers a read, or writes what follows from what there is.
    fn decide(&mut self, job: Job, words: &[Option<u64>]) {
        if !self.may_answer() && !matches!(job.op, Op::Put(_)) {
            return self.reply(&job, Answer::Moved);
        }
        match job.op {
            Op::Get => {
                let answer = Answer::Words(words[0], *words.last().expect("a key"));
                if self.world.has(Mistake::ReadBeforeArrival) {
                    return self.reply(&job, answer);
                }
                let session = self.session.as_mut().expect("a session");
                session.replies.push_back((session.appended, job, answer));
            }
            Op::Put(word) => self.write(job, Some(word), Answer::Done),
            Op::Add => {
                let word = words[0].unwrap_or(0) + 1;
                self.write(job, Some(word), Answer::Word(word));
            }
            Op::Remove if words[0].is_none() => {
                let session = self.session.as_mut().expect("a session");
                session.replies.push_back((session.appended, job, Answer::Word(0)));
            }
            Op::Remove => self.write(job, None, Answer::Word(1)),
        }
    }

    fn write(&mut self, job: Job, word: Option<u64>, answer: Answer) {
        let shard = slot_of(job.object) % usize::from(SHARDS);
        let value = word.map(value_of);
        let keys: Vec<[u8; 1]> = keys_of(job.object).iter().map(|key| [*key]).collect();
        let change = |key| match &value {
            Some(value) => Change::Put { key, value, expires_at: None },
            None => Change::Remove { key },
        };
        let changes: Vec<Change<'_>> = keys.iter().map(|key| change(key)).collect();
        let session = self.session.as_mut().expect("a session");
        let in_pieces = self.world.has(Mistake::BatchInPieces);
        let entries: Vec<Entry<'_>> = match in_pieces {
            true => changes.iter().map(|change| Entry::Changes(vec![*change])).collect(),
            false => vec![Entry::Changes(changes)],
        };
        let log = &mut session.logs[shard];
        let spare = log.spare();
        let appended = entries.iter().try_fold(0, |_, entry| log.append(entry, word.is_none()));
        let is_short = log.spare() < spare;
        let Ok(lsn) = appended else {
            session.no_room.push(job);
            return self.ask_for_segment(shard);
        };
        self.keep(&job, Unmerged { shard, lsn, word });
        let session = self.session.as_mut().expect("a session");
        session.replies.push_back((session.appended, job, answer));
        if is_short {
            self.ask_for_segment(shard);
        }
    }

    /// Keeps what was written to an object.
    fn keep(&mut self, job: &Job, unmerged: Unmerged) {
        let session = self.session.as_mut().expect("a session");
        session.appended += 1;
        self.stamps[job.object] += 1;
        let generation = self.generations[slot_of(job.object)];
        for key in keys_of(job.object) {
            session.unmerged.insert(*key, unmerged);
            match unmerged.word {
                Some(word) => session.keep(&self.host, *key, (generation, word)),
                None => _ = session.cache.remove(key),
            }
        }
    }

    fn ask_for_segment(&self, shard: usize) {
        if let Some(link) = self.link {
            Frame::ToMemory(link, ToMemory::Segment { shard: shard as u16 }).send(&self.host, MEMORY);
        }
    }

    // The log.

    /// Writes what was appended, if no write is under way, and answers what has arrived.
    fn flush(&mut self) {
        let before_arrival = self.world.has(Mistake::AnsweredBeforeArrival);
        let Some(session) = &mut self.session else { return };
        if session.under_way == 0 && session.flushing < session.appended {
            let pieces: Vec<_> = session.logs.iter_mut().filter_map(ShardLog::take_write).flatten().collect();
            session.flushing = session.appended;
            session.under_way = pieces.len();
            let post = |(number, piece): (u64, terrace_cluster::log::Piece)| {
                let to = Place { region: session.keys[&piece.segment], offset: piece.offset };
                Posted {
                    number,
                    operation: Operation::Write { bytes: piece.bytes, to, until: Until::Arrived },
                }
            };
            let posted = (0..).zip(pieces).map(post).collect();
            session.lane.post(posted).expect("writes");
        }
        let answered = if before_arrival { session.flushing } else { session.durable };
        let mut ready = Vec::new();
        while session.replies.front().is_some_and(|(ticket, ..)| *ticket <= answered) {
            ready.extend(session.replies.pop_front());
        }
        ready.iter().for_each(|(_, job, answer)| self.reply(job, *answer));
    }

    fn completed(&mut self) {
        let dropped_early = self.world.has(Mistake::OverlayDroppedEarly);
        let Some(session) = &mut self.session else { return };
        let mut completions: Vec<Completion> = Vec::new();
        session.lane.poll(&mut completions);
        session.under_way -= completions.len();
        if completions.iter().any(|completion| completion.outcome.is_err()) {
            // The end of the link makes the memory node end the session, too.
            let link = self.link.take();
            link.into_iter().for_each(|link| Frame::Close(link).send(&self.host, MEMORY));
            return self.owner.lost();
        }
        if session.under_way == 0 {
            session.logs.iter_mut().for_each(ShardLog::arrived);
            session.durable = session.flushing;
            if dropped_early {
                session.unmerged.clear();
            }
        }
    }

    /// Lets slots go once their writes have arrived.
    fn look_at_drains(&mut self) {
        let early = self.world.has(Mistake::ReleasedEarly);
        let Some(session) = &mut self.session else { return };
        let durable = session.durable;
        let drains: Vec<_> =
            session.drains.extract_if(.., |(_, ticket)| early || *ticket <= durable).collect();
        if drains.is_empty() {
            return;
        }
        let durable = self.durable();
        drains.into_iter().for_each(|(ranges, _)| self.owner.drained(ranges, durable.clone()));
        let effects = self.owner.take_effects();
        effects.into_iter().for_each(|effect| self.perform(effect));
    }

    fn heard(&mut self, frame: Frame, from: NodeId) {
        match frame {
            Frame::Request { id, object, op } => self.start(Job { client: from, id, object, op }),
            Frame::Close(link) => self.lost(link),
            Frame::ToServing(link, message) if Some(link) == self.link => match message {
                ToServing::Got { id, found } => self.got(id, found.map(|item| item.map(|item| item.value))),
                ToServing::Renewed { pin, merged, .. } if self.world.has(Mistake::LeaseFromReply) => {
                    let sent = self.host.now().as_nanos() as u64;
                    self.owner.heard(ToServing::Renewed { sent, pin, merged });
                }
                message => self.owner.heard(message),
            },
            Frame::ToServing(..) => {}
            other => panic!("{other:?} at a serving node"),
        }
    }
}

impl Session {
    /// Drops what is not merged of these slots.
    fn forget(&mut self, ranges: &[SlotRange]) {
        let is_gone = |slot: u16| ranges.iter().any(|range| (range.first..=range.last).contains(&slot));
        self.unmerged.retain(|key, _| !is_gone(SLOTS[slot_of_key(*key)]));
    }

    /// Whether another writer of an object waits for what it has.
    fn is_locked(&self, object: usize) -> bool {
        self.asking.iter().any(|other| other.job.object == object && !matches!(other.job.op, Op::Get))
    }

    /// Puts a word into the cache, in the place of another one if there is no room.
    fn keep(&mut self, host: &Host, key: u8, cached: (u32, u64)) {
        if self.cache.len() >= CACHED_MAX && !self.cache.contains_key(&key) {
            let nth = host.random() as usize % self.cache.len();
            let gone = self.cache.keys().nth(nth).copied();
            gone.iter().for_each(|key| _ = self.cache.remove(key));
        }
        self.cache.insert(key, cached);
    }

    fn new(lane: SimConnection) -> Self {
        let logs = (0..SHARDS).map(|_| ShardLog::with_limits(0, ENTRY_MAX, RESERVE)).collect();
        let (keys, unmerged, cache, replies, drains, asking, no_room) = Default::default();
        let (appended, flushing, durable, under_way) = Default::default();
        Self {
            lane,
            logs,
            keys,
            appended,
            flushing,
            durable,
            under_way,
            unmerged,
            cache,
            replies,
            drains,
            asking,
            no_room,
        }
    }
}

impl Node for Serving {
    fn handle(&mut self, event: Event) {
        match event {
            Event::Timer(CLOCK) => self.tick(),
            Event::Timer(_) => {
                if let Some(frame) = self.unheard.pop_front() {
                    self.heard(frame, MEMORY);
                }
            }
            // Requests have other threads: they may be faster.
            Event::Message { from, bytes } if from == MEMORY => {
                self.unheard.push_back(Frame::read(&bytes));
                let soon = Duration::from_micros(self.host.random() % HEAR_US);
                self.host.set_timer(soon, HEAR);
            }
            Event::Message { from, bytes } => self.heard(Frame::read(&bytes), from),
            Event::Completed { connection } => {
                if self.session.as_ref().is_some_and(|session| session.lane.id() == connection) {
                    self.completed();
                }
            }
        }
        self.settle();
    }
}

/// Slots that are served, for the trace of a run.
pub(super) fn served(view: &View) -> BTreeSet<usize> {
    (0..SLOTS.len()).filter(|slot| view.is_served[*slot]).collect()
}
