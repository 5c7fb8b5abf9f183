//! What moves slots, lease and session: the owner's state machine, and what its effects do.

use super::gate::Gate;
use super::lanes::Means;
use super::session::Session;
use crate::clock::now;
use crate::link::Sender;
use crate::lock::lock;
use crate::log::Grant;
use crate::owner::{Effect, Owner, Slot};
use crate::slot::{SLOTS, SlotRange};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use terrace_engine::{Watches, WriteError};
use terrace_fabric::RegionKey;

/// How often the lease is renewed while the pool is full, and removals of this node are not merged:
/// each renewal tells what has arrived, and is told what is merged.
pub(super) const RENEW_WAIT: Duration = Duration::from_millis(20);

/// A node's side of ownership. Below stands the gate, which shows slots, lease and session to
/// reads and writes without a lock.
pub(super) struct Ownership {
    pub(super) gate: Gate,
    owner: Mutex<Owner>,
    means: Means,
    watches: Arc<Watches>,
    /// Takes ranges whose writes are to arrive before they leave.
    drains: mpsc::Sender<Vec<SlotRange>>,
    /// What was told last about the session.
    complaint: Mutex<String>,
}

impl Ownership {
    /// Of an owner that serves nothing yet.
    pub(super) fn new(
        owner: Owner,
        means: Means,
        watches: Arc<Watches>,
        drains: mpsc::Sender<Vec<SlotRange>>,
    ) -> Self {
        let (gate, owner, complaint) = (Gate::new(), Mutex::new(owner), Mutex::default());
        Self { gate, owner, means, watches, drains, complaint }
    }

    /// Fails if a slot is on its way to or from this node: what is done to all its slots would miss
    /// that one.
    pub(super) fn check_all_slots(&self) -> Result<(), WriteError> {
        lock(&self.owner).moving().map_or(Ok(()), |slot| Err(WriteError::NotOwner { slot }))
    }

    /// Tells the owner something, and does what follows. `link`: to the memory node.
    pub(super) fn tell<T>(&self, link: Option<&Sender>, tell: impl FnOnce(&mut Owner) -> T) -> T {
        let mut owner = lock(&self.owner);
        let told = tell(&mut owner);
        let effects = owner.take_effects();
        let number = owner.session().unwrap_or_default();
        self.mirror(&owner, &effects);
        // What takes its time is done without the lock, so that the lease is renewed meanwhile. It
        // follows from messages alone, and one thread hears all of them.
        let (slow, quick): (Vec<Effect>, Vec<Effect>) = effects
            .into_iter()
            .partition(|effect| matches!(effect, Effect::Connect(_) | Effect::Progress { .. }));
        // Done under the lock, so that effects of two threads keep their order. None of them waits.
        quick.into_iter().for_each(|effect| self.perform(effect, link));
        drop(owner);
        for effect in slow {
            match effect {
                Effect::Connect(access) => self.connect(&access, link, number),
                effect => self.perform(effect, link),
            }
        }
        told
    }

    /// Looks at the clock: renews the lease in time. `link`: to the memory node. Returns whether
    /// there is a session, also if its connections are not open yet.
    pub(super) fn tick(&self, link: &Sender) -> bool {
        let mut owner = lock(&self.owner);
        let (pin, durable) = match &*self.gate.sessions.load() {
            Some(session) => (session.oldest_pin(), session.logs.durable()),
            // Nothing is written or read before they are open.
            None => (0, vec![0; self.means.shards.into()]),
        };
        if self.gate.sessions.load().as_ref().is_some_and(|session| session.logs.makes_room()) {
            owner.hurry_after(now(), RENEW_WAIT);
        }
        owner.tick(now(), pin, durable);
        for effect in owner.take_effects() {
            self.perform(effect, Some(link));
        }
        owner.session().is_some()
    }

    /// Renews the lease soon: a write waits for what the memory node is told then.
    pub(super) fn hurry(&self) {
        lock(&self.owner).hurry();
    }

    /// Shows the owner's state to threads that look without its lock.
    fn mirror(&self, owner: &Owner, effects: &[Effect]) {
        if effects.iter().any(|effect| matches!(effect, Effect::StartOver(_))) {
            // First of all: no answer may leave.
            self.gate.slots.set_lease(Duration::ZERO);
        }
        let session = self.gate.sessions.load();
        for slot in 0..SLOTS {
            let state = owner.slot(slot);
            if state == Slot::Served && self.gate.slots.word(slot).state() == Slot::Away {
                session.iter().for_each(|session| session.pending.begin(slot));
            }
            self.gate.slots.set(slot, state);
        }
        self.gate.slots.set_lease(owner.lease_until());
    }

    fn perform(&self, effect: Effect, link: Option<&Sender>) {
        match effect {
            // A link that has ended is heard of by its receiver.
            Effect::Send(message) => _ = link.map(|link| link.send(&message)),
            Effect::Connect(_) => unreachable!("done by its caller"),
            // The thread that drains is never far behind: it gets each range once a handover.
            Effect::Drain(ranges) => _ = self.drains.send(ranges),
            Effect::Forget(ranges) => {
                if let Some(session) = &*self.gate.sessions.load() {
                    session
                        .pending
                        .forget(|slot| ranges.iter().any(|range| (range.first..=range.last).contains(&slot)));
                }
            }
            Effect::StartOver(why) => {
                self.gate.sessions.end(&why);
                self.watches.report_all();
            }
            Effect::Progress { pin, merged } => {
                if let Some(session) = &*self.gate.sessions.load() {
                    session.set_pin(pin);
                    session.pending.merged(&merged);
                    session.logs.merged(&merged);
                }
            }
            Effect::Segment { shard, number, bytes, key } => {
                if let Some(session) = &*self.gate.sessions.load() {
                    session.logs.grant(shard, Grant { number, bytes }, RegionKey::from_bytes(key));
                }
            }
        }
    }

    /// Connects to the memory, for the session with this number.
    fn connect(&self, access: &[u8], link: Option<&Sender>, number: u64) {
        let Some(link) = link else { return };
        let ticket = self.gate.sessions.ticket();
        match Session::connect(&self.means, (number, ticket), link.clone(), access) {
            Ok(session) => {
                lock(&self.complaint).clear();
                self.gate.sessions.begin(session);
            }
            Err(why) => {
                self.complain(format!("the memory node's memory cannot be reached: {why}"));
                link.close();
            }
        }
    }

    /// Tells what is wrong with the session, once.
    pub(super) fn complain(&self, why: String) {
        let mut complaint = lock(&self.complaint);
        if *complaint != why {
            log::error!("{why}");
            *complaint = why;
        }
    }
}
