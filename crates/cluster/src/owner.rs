//! A serving node's side of ownership: its lease, and the slots that it serves.
//!
//! The lease counts from when its renewal was *sent*, by this node's clock. A reply leaves only if
//! the lease holds after its value was found: a node that was stopped meanwhile answers nothing.

use crate::message::{ToMemory, ToServing, WIRE};
use crate::slot::{SLOTS, SlotRange};
use std::time::Duration;

/// What a node does with requests for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// It answers them.
    Served,
    /// They wait: the slot is on its way to another node.
    Held,
    /// They belong to another node.
    Away,
}

/// What the node has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a message to the memory node.
    Send(ToMemory),
    /// Connect to the memory node as it says.
    Connect(Vec<u8>),
    /// Let the writes of these slots that have begun arrive. Then [`Owner::drained`].
    Drain(Vec<SlotRange>),
    /// Drop what is cached of these slots.
    Forget(Vec<SlotRange>),
    /// Drop everything that is cached, and the connection; then connect anew and [`Owner::hello`].
    StartOver(String),
    /// Note what is merged, and on which pin reads rely from now on.
    Progress {
        /// See [`ToServing::Renewed`].
        pin: u64,
        /// See [`ToServing::Renewed`].
        merged: Vec<u64>,
    },
    /// Use a further segment.
    Segment {
        /// See [`ToServing::Segment`].
        shard: u16,
        /// See [`ToServing::Segment`].
        number: u64,
        /// See [`ToServing::Segment`].
        bytes: u64,
        /// See [`ToServing::Segment`].
        key: [u8; 16],
    },
}

/// The state of a serving node.
pub struct Owner {
    node: String,
    shards: u16,
    lanes: u16,
    session: Option<u64>,
    /// The number of the last session, or 0.
    last_session: u64,
    lease: Duration,
    /// Until when this node may answer.
    lease_until: Duration,
    renewed_at: Duration,
    slots: Box<[Slot]>,
    /// The epoch of the map that is known, and whether it gives a slot to this node.
    epoch: u64,
    mine: Box<[bool]>,
    effects: Vec<Effect>,
}

impl Owner {
    /// A node that serves nothing yet.
    pub fn new(node: String, shards: u16, lanes: u16) -> Self {
        let slots = vec![Slot::Away; SLOTS.into()].into();
        let mine = vec![false; SLOTS.into()].into();
        let (lease, lease_until, renewed_at) = Default::default();
        let (session, last_session, epoch, effects) = (None, 0, 0, Vec::new());
        Self {
            node,
            shards,
            lanes,
            session,
            last_session,
            lease,
            lease_until,
            renewed_at,
            slots,
            epoch,
            mine,
            effects,
        }
    }

    /// What is to be done, in this order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// What the node does with requests for a slot.
    pub fn slot(&self, slot: u16) -> Slot {
        self.slots[usize::from(slot)]
    }

    /// Whether an answer may leave now, whose slot was served when its value was found.
    pub fn may_answer(&self, now: Duration) -> bool {
        self.session.is_some() && now < self.lease_until
    }

    /// A slot that is on its way: to another node, or to this one by the map that is known.
    pub fn moving(&self) -> Option<u16> {
        let moves = |slot: &u16| {
            let place = usize::from(*slot);
            let state = self.slots[place];
            state == Slot::Held || state == Slot::Away && self.mine[place]
        };
        (0..SLOTS).find(moves)
    }

    /// Until when this node may answer.
    pub fn lease_until(&self) -> Duration {
        self.lease_until
    }

    /// The number of the session, if there is one.
    pub fn session(&self) -> Option<u64> {
        self.session
    }

    /// The epoch of the map that is known.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A new link to the memory node is there.
    pub fn hello(&mut self) {
        let Self { shards, lanes, last_session: last, .. } = *self;
        let hello = ToMemory::Hello { wire: WIRE, node: self.node.clone(), shards, lanes, last };
        self.effects.push(Effect::Send(hello));
    }

    /// The link is lost.
    pub fn lost(&mut self) {
        self.start_over("the link to the memory node was lost".into());
    }

    fn start_over(&mut self, why: String) {
        self.session = None;
        self.lease_until = Duration::ZERO;
        self.slots.fill(Slot::Away);
        self.effects.push(Effect::StartOver(why));
    }

    /// Ends the session: the node answers no more.
    pub fn leave(&mut self) {
        if self.session.take().is_some() {
            self.lease_until = Duration::ZERO;
            self.slots.fill(Slot::Away);
            self.effects.push(Effect::Send(ToMemory::Leave));
        }
    }

    /// A message has come.
    pub fn heard(&mut self, message: ToServing) {
        match message {
            ToServing::Welcome { incarnation, lease, access } => {
                self.begin(incarnation, Duration::from_nanos(lease), access);
            }
            // Sent before the memory node heard that this one has left: others may have its slots.
            ToServing::Renewed { .. } | ToServing::Granted { .. } if self.session.is_none() => {}
            ToServing::Renewed { sent, pin, merged } => {
                self.renewed(sent);
                self.effects.push(Effect::Progress { pin, merged });
            }
            ToServing::Granted { epoch, ranges } => self.granted(epoch, &ranges),
            ToServing::Wanted { epoch, ranges } if epoch > self.epoch => {
                // The map that says so is on its way.
                let _ = ranges;
            }
            ToServing::Wanted { .. } => self.give_back(),
            ToServing::Released { ranges } => {
                slots_of(&ranges).for_each(|slot| self.slots[slot] = Slot::Away);
                self.effects.push(Effect::Forget(ranges));
                self.acquire();
            }
            ToServing::Segment { shard, number, bytes, key } => {
                self.effects.push(Effect::Segment { shard, number, bytes, key });
            }
            // Answers to requests are the driver's.
            ToServing::Got { .. }
            | ToServing::Scanned { .. }
            | ToServing::Counted { .. }
            | ToServing::Full { .. }
            | ToServing::Roomy
            | ToServing::Space(_) => {}
            ToServing::Fenced { why } => self.start_over(why),
        }
    }

    /// There is a session.
    fn begin(&mut self, session: u64, lease: Duration, access: Vec<u8>) {
        self.session = Some(session);
        self.last_session = session;
        self.lease = lease;
        self.renewed_at = Duration::ZERO;
        self.effects.push(Effect::Connect(access));
        self.acquire();
    }

    /// The lease holds longer, from when its renewal was sent; 0: a further renewal is wanted.
    fn renewed(&mut self, sent: u64) {
        if sent == 0 {
            return self.hurry();
        }
        let until = Duration::from_nanos(sent) + self.lease;
        self.lease_until = self.lease_until.max(until);
    }

    /// These slots are this node's, as it has asked by the map of this epoch.
    fn granted(&mut self, epoch: u64, ranges: &[SlotRange]) {
        // A slot that is held stays so: this was sent before the memory node has heard that the
        // slot is given back.
        slots_of(ranges).for_each(|slot| {
            if self.slots[slot] == Slot::Away {
                self.slots[slot] = Slot::Served;
            }
        });
        // The map has changed since it was asked for.
        if epoch < self.epoch {
            self.give_back();
        }
    }

    /// The map of this epoch gives these slots to this node.
    pub fn map(&mut self, epoch: u64, mine: &[SlotRange]) {
        if epoch <= self.epoch {
            return;
        }
        self.epoch = epoch;
        self.mine.fill(false);
        slots_of(mine).for_each(|slot| self.mine[slot] = true);
        self.give_back();
        self.acquire();
    }

    /// Asks for the slots that the map gives to this node.
    fn acquire(&mut self) {
        if self.session.is_none() || self.epoch == 0 {
            return;
        }
        let missing = self.slots_that(|state, mine| mine && state == Slot::Away);
        if !missing.is_empty() {
            self.effects.push(Effect::Send(ToMemory::Acquire { epoch: self.epoch, ranges: missing }));
        }
    }

    /// Holds the slots that the map gives to other nodes.
    fn give_back(&mut self) {
        let others = self.slots_that(|state, mine| !mine && state == Slot::Served);
        if !others.is_empty() {
            slots_of(&others).for_each(|slot| self.slots[slot] = Slot::Held);
            self.effects.push(Effect::Drain(others));
        }
    }

    /// No write to these slots is under way any more. `durable`: the last entry of each shard.
    pub fn drained(&mut self, ranges: Vec<SlotRange>, durable: Vec<u64>) {
        debug_assert!(!ranges.is_empty(), "what drains are slots");
        let is_held = slots_of(&ranges).all(|slot| self.slots[slot] == Slot::Held);
        if self.session.is_some() && is_held {
            self.effects.push(Effect::Send(ToMemory::Release { ranges, durable }));
        }
    }

    /// Renews at the next look at the clock: the memory node hears what was written and read.
    pub fn hurry(&mut self) {
        self.renewed_at = Duration::ZERO;
    }

    /// As [`Owner::hurry`], if the last renewal is so long ago.
    pub fn hurry_after(&mut self, now: Duration, pause: Duration) {
        if now >= self.renewed_at + pause {
            self.hurry();
        }
    }

    fn slots_that(&self, is_one: impl Fn(Slot, bool) -> bool) -> Vec<SlotRange> {
        let places = (0..SLOTS).filter(|slot| {
            let place = usize::from(*slot);
            is_one(self.slots[place], self.mine[place])
        });
        SlotRange::of(places)
    }

    /// Looks at the clock: renews the lease in time, six times before it is over. `pin` and
    /// `durable` are as in [`ToMemory::Renew`].
    pub fn tick(&mut self, now: Duration, pin: u64, durable: Vec<u64>) {
        if self.session.is_some() && (self.renewed_at.is_zero() || now >= self.renewed_at + self.lease / 6) {
            self.renewed_at = now;
            let sent = u64::try_from(now.as_nanos()).expect("a clock of less than 500 years");
            self.effects.push(Effect::Send(ToMemory::Renew { sent, pin, durable }));
        }
    }
}

fn slots_of(ranges: &[SlotRange]) -> impl Iterator<Item = usize> {
    ranges.iter().flat_map(|range| range.slots()).map(usize::from)
}
