//! A client: one call at a time, to the node that it believes to be the owner.

use super::shared::{
    Answer, CALLS_MAX, Called, Frame, OBJECTS, Op, SERVING, SINGLE, SLOTS, World, serving_node, slot_of,
};
use crate::history::Call;
use std::time::Duration;
use terrace_fabric::sim::{Event, Host, Node};
use terrace_testkit::linearizability::Interval;

/// How long a call may take. Its node may still do it later.
const PATIENCE: Duration = Duration::from_millis(150);
/// The longest pause between two calls.
const PAUSE_US: u64 = 3000;

pub(super) struct Client {
    host: Host,
    world: World,
    nth: usize,
    /// Number of its calls; timers have twice the number of a call, or one more.
    calls: u64,
    call: Option<Running>,
    /// The owner of each slot, as far as is known.
    owners: [usize; SLOTS.len()],
}

struct Running {
    object: usize,
    op: Op,
    /// Its place in the object's history.
    place: usize,
}

/// A timer for the next call.
const NEXT: u64 = 0;

impl Client {
    pub(super) fn new(host: Host, world: World, nth: usize) -> Self {
        host.set_timer(Duration::from_millis(20), NEXT);
        Self { host, world, nth, calls: 0, call: None, owners: [nth % SERVING; SLOTS.len()] }
    }

    fn pause(&self) {
        self.host.set_timer(Duration::from_micros(self.host.random() % PAUSE_US), NEXT);
    }

    fn next(&mut self) {
        let Some((object, op)) = self.choose() else { return self.pause() };
        self.calls += 1;
        if self.host.random().is_multiple_of(8) {
            // It asks where the slots are.
            self.owners = self.world.get().map;
        }
        let called = self.world.tick();
        let call = match op {
            Op::Get => Call::Get(None),
            Op::Put(word) => Call::Set(word),
            Op::Add => Call::Add(None),
            Op::Remove => Call::Delete(None),
        };
        let interval = Interval { called, returned: None };
        let mut shared = self.world.get();
        let place = shared.histories[object].len();
        shared.histories[object].push(Called { interval, call });
        drop(shared);
        self.call = Some(Running { object, op, place });
        self.host.set_timer(PATIENCE, 2 * self.calls);
        self.send();
    }

    fn choose(&self) -> Option<(usize, Op)> {
        let shared = self.world.get();
        if shared.is_final {
            // One of them reads everything.
            let next = (0..OBJECTS).find(|object| !shared.is_read[*object]).filter(|_| self.nth == 0)?;
            return Some((next, Op::Get));
        }
        let random = self.host.random();
        let object = (random % OBJECTS as u64) as usize;
        if shared.histories[object].len() >= CALLS_MAX {
            return None;
        }
        let word = (self.nth as u64 + 1) << 40 | self.calls << 20;
        let op = match random >> 60 {
            0..6 => Op::Get,
            6..11 => Op::Put(word),
            _ if object >= SINGLE => Op::Get,
            11..14 => Op::Add,
            _ => Op::Remove,
        };
        Some((object, op))
    }

    fn send(&self) {
        let Some(Running { object, op, .. }) = self.call else { return };
        let owner = self.owners[slot_of(object)];
        Frame::Request { id: self.calls, object, op }.send(&self.host, serving_node(owner));
    }

    fn answered(&mut self, answer: Answer) {
        let Some(running) = &self.call else { return };
        let (object, op, place) = (running.object, running.op, running.place);
        if answer == Answer::Moved {
            let owner = &mut self.owners[slot_of(object)];
            *owner = (*owner + 1) % SERVING;
            let soon = Duration::from_micros(self.host.random() % 2000);
            return self.host.set_timer(soon, 2 * self.calls + 1);
        }
        self.call = None;
        if answer == Answer::Unknown {
            self.owners[slot_of(object)] = (self.host.random() % SERVING as u64) as usize;
        }
        let now = self.world.tick();
        self.note(object, op, place, answer, now);
        self.pause();
    }

    fn note(&self, object: usize, op: Op, place: usize, answer: Answer, now: u64) {
        let mut shared = self.world.get();
        let call = match (op, answer) {
            (_, Answer::Unknown) => {
                shared.unknown += 1;
                return;
            }
            (Op::Get, Answer::Words(one, other)) => {
                if one != other {
                    let what = format!("object {object} has {one:?} and {other:?}: a batch happened by half");
                    shared.wrong.get_or_insert(what);
                }
                Call::Get(one)
            }
            (Op::Put(word), _) => Call::Set(word),
            (Op::Add, Answer::Word(word)) => Call::Add(Some(word)),
            (Op::Remove, Answer::Word(was_there)) => Call::Delete(Some(was_there == 1)),
            (op, answer) => panic!("{answer:?} to {op:?}"),
        };
        shared.answered += 1;
        shared.is_read[object] |= shared.is_final && self.nth == 0;
        let called = &mut shared.histories[object][place];
        (called.call, called.interval.returned) = (call, Some(now));
    }
}

impl Node for Client {
    fn handle(&mut self, event: Event) {
        match event {
            Event::Timer(NEXT) => self.next(),
            Event::Timer(timer) if timer / 2 != self.calls => {}
            Event::Timer(timer) if timer.is_multiple_of(2) => self.answered(Answer::Unknown),
            Event::Timer(_) => self.send(),
            Event::Message { bytes, .. } => {
                if let Frame::Reply { id, answer } = Frame::read(&bytes)
                    && id == self.calls
                {
                    self.answered(answer);
                }
            }
            Event::Completed { .. } => {}
        }
    }
}
