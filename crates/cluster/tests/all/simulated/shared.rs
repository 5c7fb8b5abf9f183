//! What the nodes of a simulation agree on, and what the test sees of them.

use crate::history::Call;
use serde::{Deserialize, Serialize};
use std::cell::{RefCell, RefMut};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use terrace_cluster::message::{ToMemory, ToServing};
use terrace_fabric::sim::{Host, NodeId};
use terrace_testkit::linearizability::Interval;

pub(super) const SERVING: usize = 4;
pub(super) const CLIENTS: usize = 4;
/// Objects that clients use: some single keys, then pairs of keys that are written by batches.
pub(super) const OBJECTS: usize = 10;
pub(super) const SINGLE: usize = 6;
/// Most calls of an object, so that its history can be checked.
pub(super) const CALLS_MAX: usize = 110;
/// The slots of objects. No other slots are used.
pub(super) const SLOTS: [u16; 4] = [0, 5000, 9000, 14_000];
pub(super) const SHARDS: u16 = 2;
pub(super) const LEASE: Duration = Duration::from_millis(60);

/// The memory node.
pub(super) const MEMORY: NodeId = NodeId(0);

/// The place of a serving node among all nodes.
pub(super) fn serving_node(nth: usize) -> NodeId {
    NodeId(1 + nth)
}

/// A mistake in what drives the state machines, which the simulation has to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// A serving node answers without a look at its lease.
    NoLease,
    /// The lease counts from when the reply came.
    LeaseFromReply,
    /// A fence revokes the regions of a node, and leaves its endpoint open.
    RegionsRevokedOnly,
    /// Slots are granted before the logs of the owner before are merged.
    GrantedUnmerged,
    /// A write counts as arrived once it is posted.
    AnsweredBeforeArrival,
    /// A reader is answered though the value that it saw has not arrived.
    ReadBeforeArrival,
    /// Entries are told as merged once they have arrived.
    MergedToldEarly,
    /// Entries are noted as merged before they are in the index.
    MergedNotedEarly,
    /// Each change of a batch is an entry of its own.
    BatchInPieces,
    /// What is cached of a slot stays when the slot leaves.
    CacheKept,
    /// Unmerged writes are forgotten once they have arrived.
    OverlayDroppedEarly,
    /// A memory node that starts again takes all sessions for ended.
    FencingForgotten,
    /// A slot is released before the writes to it have arrived.
    ReleasedEarly,
}

/// What clients ask serving nodes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Op {
    Get,
    Put(u64),
    Add,
    Remove,
}

/// What they are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The words of the keys of an object. They are equal.
    Words(Option<u64>, Option<u64>),
    /// A number that was added to, or whether a key was there that was removed.
    Word(u64),
    Done,
    /// Nothing has happened: another node is to be asked.
    Moved,
    /// It has happened or not.
    Unknown,
}

/// All messages of a simulation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Frame {
    /// A link of the control channel begins or ends.
    Open(u64),
    Close(u64),
    ToMemory(u64, ToMemory),
    ToServing(u64, ToServing),
    Request {
        id: u64,
        object: usize,
        op: Op,
    },
    Reply {
        id: u64,
        answer: Answer,
    },
}

impl Frame {
    pub(super) fn send(&self, host: &Host, to: NodeId) {
        host.send(to, postcard::to_stdvec(self).expect("a frame"));
    }

    pub(super) fn read(bytes: &[u8]) -> Self {
        postcard::from_bytes(bytes).expect("a frame")
    }
}

/// The slot of an object.
pub(super) fn slot_of(object: usize) -> usize {
    object % SLOTS.len()
}

/// The keys of an object.
pub(super) fn keys_of(object: usize) -> &'static [u8] {
    static KEYS: [u8; 2 * OBJECTS] = {
        let (mut keys, mut nth) = ([0; 2 * OBJECTS], 0);
        while nth < keys.len() {
            (keys[nth], nth) = (nth as u8, nth + 1);
        }
        keys
    };
    &KEYS[2 * object..][..if object < SINGLE { 1 } else { 2 }]
}

/// The slot of a key.
pub(super) fn slot_of_key(key: u8) -> usize {
    slot_of(usize::from(key) / 2)
}

/// A value for a word; some are longer.
pub(super) fn value_of(word: u64) -> Vec<u8> {
    let mut value = word.to_le_bytes().to_vec();
    value.resize(8 + (word % 7 * 17) as usize, word as u8);
    value
}

pub(super) fn word_of(value: &[u8]) -> u64 {
    let word = u64::from_le_bytes(*value.first_chunk().expect("a value of this test"));
    assert_eq!(value, value_of(word), "a value of two moments");
    word
}

/// What a serving node would do for a client now.
pub(super) struct View {
    pub(super) host: Host,
    pub(super) lease_until: Duration,
    pub(super) is_served: [bool; SLOTS.len()],
}

/// A call, and when it was made.
pub(super) struct Called {
    pub(super) interval: Interval,
    pub(super) call: Call,
}

/// What all see, nodes only a part of it.
pub(super) struct Shared {
    pub(super) mistake: Option<Mistake>,
    /// The map, and its epoch.
    pub(super) epoch: u64,
    pub(super) map: [usize; SLOTS.len()],
    /// Links that the death of a process has ended. Either side hears of it later.
    pub(super) dead_links: BTreeSet<u64>,
    /// The link of each serving node; whether it writes to its log now; and whether it hears of no
    /// map.
    pub(super) links: [u64; SERVING],
    pub(super) writes: [bool; SERVING],
    pub(super) is_deaf: [bool; SERVING],
    /// Whether the memory node merges something now.
    pub(super) merges: bool,
    pub(super) views: [Option<View>; SERVING],
    /// The nodes with a session, as the memory node has told last.
    pub(super) sessions: BTreeSet<usize>,
    /// Lives of the memory node.
    pub(super) boots: u64,
    pub(super) histories: [Vec<Called>; OBJECTS],
    ticks: u64,
    /// Whether clients only read what there is.
    pub(super) is_final: bool,
    pub(super) is_read: [bool; OBJECTS],
    /// What is wrong.
    pub(super) wrong: Option<String>,
    pub(super) trace: Option<Vec<String>>,
    pub(super) answered: u64,
    pub(super) unknown: u64,
}

#[derive(Clone)]
pub(super) struct World(Rc<RefCell<Shared>>);

impl World {
    pub(super) fn new(mistake: Option<Mistake>, is_traced: bool) -> Self {
        let (dead_links, views, sessions, histories) = Default::default();
        Self(Rc::new(RefCell::new(Shared {
            mistake,
            epoch: 0,
            map: [0; SLOTS.len()],
            dead_links,
            links: [0; SERVING],
            writes: [false; SERVING],
            is_deaf: [false; SERVING],
            merges: false,
            views,
            sessions,
            boots: 0,
            histories,
            ticks: 0,
            is_final: false,
            is_read: [false; OBJECTS],
            wrong: None,
            trace: is_traced.then(Vec::new),
            answered: 0,
            unknown: 0,
        })))
    }

    pub(super) fn get(&self) -> RefMut<'_, Shared> {
        self.0.borrow_mut()
    }

    pub(super) fn has(&self, mistake: Mistake) -> bool {
        self.get().mistake == Some(mistake)
    }

    /// The next instant of the clock by which calls are ordered.
    pub(super) fn tick(&self) -> u64 {
        let mut shared = self.get();
        shared.ticks += 1;
        shared.ticks
    }

    /// Notes that something is wrong.
    pub(super) fn fail(&self, what: String) {
        self.get().wrong.get_or_insert(what);
    }

    /// Notes what happens, if somebody wants to read it.
    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.get().trace {
            trace.push(what());
        }
    }

    /// Looks whether a serving node and another one would answer for one slot.
    pub(super) fn show(&self, nth: usize, view: View) {
        let mut shared = self.get();
        let answers = |view: &View, slot: usize| view.is_served[slot] && view.host.now() < view.lease_until;
        for slot in 0..SLOTS.len() {
            let is_other = |other: &usize| {
                *other != nth && shared.views[*other].as_ref().is_some_and(|view| answers(view, slot))
            };
            if answers(&view, slot)
                && let Some(other) = (0..SERVING).find(is_other)
            {
                let what = format!("nodes {other} and {nth} answer for slot {slot}");
                shared.wrong.get_or_insert(what);
            }
        }
        shared.views[nth] = Some(view);
    }
}
