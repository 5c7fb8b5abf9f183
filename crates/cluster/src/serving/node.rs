//! The state of a serving node that its threads share.

use super::session::{Counts, Parts, Session};
use super::slots::{Slots, Word};
use crate::link::Sender;
use crate::message::Space;
use crate::owner::{Effect, Owner, Slot};
use crate::slot::{SLOTS, SlotRange};
use arc_swap::{ArcSwapOption, Guard};
use std::sync::atomic::{Ordering::Acquire, fence};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use terrace_engine::{Clock, ReadError, Watches, WriteError};
use terrace_fabric::Ports;

/// Settings of a serving node.
#[derive(Clone)]
pub struct Settings {
    /// Its name: 40 hexadecimal digits, the same through all restarts.
    pub id: String,
    /// Logs that it writes, 1 to 64. Each is merged by one thread at a time.
    pub shards: u16,
    /// Connections to the memory: one for the logs, the others for as many reads at one time.
    pub lanes: u16,
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// The address of this host in the fabric's network.
    pub host: String,
    /// Ports that the connections listen on, which each do; any that are free, if there are none.
    pub fabric_ports: Option<Ports>,
    /// Decides what has expired.
    pub clock: Arc<dyn Clock>,
}

/// The node.
pub(super) struct Node {
    pub(super) settings: Settings,
    pub(super) slots: Slots,
    pub(super) watches: Arc<Watches>,
    pub(super) counts: Arc<Counts>,
    owner: Mutex<Owner>,
    session: ArcSwapOption<Session>,
    /// What became of earlier sessions. Its lock is held when a session ends.
    earlier: Mutex<Earlier>,
    stopped: OnceLock<String>,
    /// What was told last about the session.
    complaint: Mutex<String>,
    drains: mpsc::Sender<Vec<SlotRange>>,
    /// What the memory node has told of its pool.
    space: Mutex<Space>,
    on_size: OnceLock<OnSize>,
}

/// Is told the size of the memory node's pool.
pub type OnSize = Box<dyn Fn(u64) + Send + Sync>;

/// Earlier sessions.
#[derive(Default)]
struct Earlier {
    /// The last ticket: it is no write's.
    ticket: u64,
    /// Tickets of entries of which nobody knows whether they arrived: from behind the first up to
    /// the second.
    lost: Vec<(u64, u64)>,
    /// How many there were.
    count: u64,
}

impl Earlier {
    /// A session has ended: its last tickets that are durable and that were given out.
    fn add(&mut self, (durable, last): (u64, u64)) {
        // One more, so that a ticket tells whether a session has ended since it was given out.
        self.ticket = last + 1;
        self.count += 1;
        if durable < last {
            self.lost.push((durable, last));
        }
    }
}

/// How often the lease is renewed while the pool is full, and removals of this node are not merged:
/// each renewal tells what has arrived, and is told what is merged.
pub(super) const RENEW_WAIT: Duration = Duration::from_millis(20);

/// What a read or a write begins with: the session, and the slots of its keys as they are then.
pub(super) struct View<'n> {
    session: Guard<Option<Arc<Session>>>,
    node: &'n Node,
    pub(super) slot: u16,
    word: Word,
    /// Further slots.
    more: Vec<(u16, Word)>,
}

/// The time since this machine was started, also of its sleep.
pub(super) fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

const NO_SESSION: &str = "it has no session with the memory node";
const NO_LEASE: &str = "its lease from the memory node is over";

impl Node {
    pub(super) fn new(settings: Settings, drains: mpsc::Sender<Vec<SlotRange>>) -> Self {
        let owner = Owner::new(settings.id.clone(), settings.shards, settings.lanes);
        Self {
            settings,
            slots: Slots::new(),
            watches: Arc::default(),
            counts: Arc::default(),
            owner: Mutex::new(owner),
            session: ArcSwapOption::empty(),
            earlier: Mutex::default(),
            stopped: OnceLock::new(),
            complaint: Mutex::default(),
            drains,
            space: Mutex::default(),
            on_size: OnceLock::new(),
        }
    }

    pub(super) fn session(&self) -> Option<Arc<Session>> {
        self.session.load_full()
    }

    /// Begins an operation on a key of this slot.
    pub(super) fn begin(&self, slot: u16) -> Result<View<'_>, ReadError> {
        // The word first: if the session is a later one, the word has changed.
        let word = self.slots.word(slot);
        let session = self.session.load();
        if session.is_none() {
            return Err(ReadError::NotOwner { slot });
        }
        match word.state() {
            Slot::Served => Ok(View { session, node: self, slot, word, more: Vec::new() }),
            Slot::Held | Slot::Away => Err(ReadError::NotOwner { slot }),
        }
    }

    /// Begins an operation on keys of these slots, of which there is one at least.
    pub(super) fn begin_all(&self, slots: impl IntoIterator<Item = u16>) -> Result<View<'_>, ReadError> {
        let mut slots = slots.into_iter();
        let mut view = self.begin(slots.next().expect("a slot"))?;
        for slot in slots {
            if slot != view.slot && view.more.iter().all(|(known, _)| *known != slot) {
                let word = self.slots.word(slot);
                if word.state() != Slot::Served {
                    return Err(ReadError::NotOwner { slot });
                }
                view.more.push((slot, word));
            }
        }
        Ok(view)
    }

    /// Whether what was found before now may be answered, as far as the lease tells.
    pub(super) fn confirm_lease(&self) -> Result<(), ReadError> {
        match self.slots.may_answer(now()) {
            true => Ok(()),
            false => Err(ReadError::Unavailable(NO_LEASE.into())),
        }
    }

    /// The session, for operations on all slots.
    pub(super) fn any_session(&self) -> Result<Arc<Session>, ReadError> {
        self.session().ok_or_else(|| ReadError::Unavailable(NO_SESSION.into()))
    }

    /// Slots that this node serves now.
    pub(super) fn served(&self) -> Vec<u16> {
        (0..SLOTS).filter(|slot| self.slots.word(*slot).state() == Slot::Served).collect()
    }

    /// Fails if a slot is on its way to or from this node: what is done to all its slots would miss
    /// that one.
    pub(super) fn check_all_slots(&self) -> Result<(), WriteError> {
        lock(&self.owner).moving().map_or(Ok(()), |slot| Err(WriteError::NotOwner { slot }))
    }

    pub(super) fn check_writable(&self) -> Result<(), WriteError> {
        self.stopped.get().map_or(Ok(()), |why| Err(WriteError::Stopped(why.clone())))
    }

    pub(super) fn stop_writes(&self, why: String) {
        let _ = self.stopped.set(why);
    }

    /// The last ticket that was given out.
    pub(super) fn ticket(&self) -> u64 {
        let earlier = lock(&self.earlier);
        self.session.load().as_ref().map_or(earlier.ticket, |session| session.logs.ticket())
    }

    /// How many sessions have ended.
    pub(super) fn sessions_lost(&self) -> u64 {
        lock(&self.earlier).count
    }

    /// Waits until the entries up to this ticket have arrived.
    pub(super) fn settle(&self, ticket: u64) -> Result<(), WriteError> {
        // Without a session, the ticket is of one that has ended, and its entries had arrived.
        let session = self.session_unless(|from, to| from < ticket && ticket <= to)?;
        session.map_or(Ok(()), |session| session.settle(ticket))
    }

    /// Waits until all entries have arrived, unless one was lost after `since` was given out.
    pub(super) fn settle_since(&self, since: u64) -> Result<(), WriteError> {
        let session = self.session_unless(|_, to| since <= to)?;
        session.map_or(Ok(()), |session| session.settle(session.logs.ticket()))
    }

    /// The session, unless entries of these tickets matter that an earlier one has lost.
    fn session_unless(&self, matter: impl Fn(u64, u64) -> bool) -> Result<Option<Arc<Session>>, WriteError> {
        let earlier = lock(&self.earlier);
        match earlier.lost.iter().any(|(from, to)| matter(*from, *to)) {
            true => Err(super::logs::unknown("the session with the memory node has ended")),
            false => Ok(self.session()),
        }
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
        let (pin, durable) = match &*self.session.load() {
            Some(session) => (session.oldest_pin(), session.logs.durable()),
            // Nothing is written or read before they are open.
            None => (0, vec![0; self.settings.shards.into()]),
        };
        if self.session.load().as_ref().is_some_and(|session| session.logs.makes_room()) {
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
            self.slots.set_lease(Duration::ZERO);
        }
        let session = self.session.load();
        for slot in 0..SLOTS {
            let state = owner.slot(slot);
            if state == Slot::Served && self.slots.word(slot).state() == Slot::Away {
                session.iter().for_each(|session| session.pending.begin(slot));
            }
            self.slots.set(slot, state);
        }
        self.slots.set_lease(owner.lease_until());
    }

    fn perform(&self, effect: Effect, link: Option<&Sender>) {
        match effect {
            // A link that has ended is heard of by its receiver.
            Effect::Send(message) => _ = link.map(|link| link.send(&message)),
            Effect::Connect(_) => unreachable!("done by its caller"),
            // The thread that drains is never far behind: it gets each range once a handover.
            Effect::Drain(ranges) => _ = self.drains.send(ranges),
            Effect::Forget(ranges) => {
                if let Some(session) = &*self.session.load() {
                    session
                        .pending
                        .forget(|slot| ranges.iter().any(|range| (range.first..=range.last).contains(&slot)));
                }
            }
            Effect::StartOver(why) => self.start_over(&why),
            Effect::Progress { pin, merged } => {
                if let Some(session) = &*self.session.load() {
                    session.set_pin(pin);
                    session.pending.merged(&merged);
                    session.logs.merged(&merged);
                }
            }
            Effect::Segment { shard, number, bytes, key } => {
                if let Some(session) = &*self.session.load() {
                    let segment = crate::log::Grant { number, bytes };
                    session.logs.grant(shard, segment, terrace_fabric::RegionKey::from_bytes(key));
                }
            }
        }
    }

    /// Connects to the memory, for the session with this number.
    fn connect(&self, access: &[u8], link: Option<&Sender>, number: u64) {
        let Some(link) = link else { return };
        let parts = Parts {
            number,
            shards: self.settings.shards,
            cache_bytes: self.settings.cache_bytes,
            ticket: self.ticket(),
            link: link.clone(),
            counts: Arc::clone(&self.counts),
            host: self.settings.host.clone(),
            fabric_ports: self.settings.fabric_ports,
        };
        match Session::connect(parts, access) {
            Ok(session) => {
                lock(&self.complaint).clear();
                self.session.store(Some(Arc::new(session)));
            }
            Err(why) => {
                self.complain(format!("the memory node's memory cannot be reached: {why}"));
                link.close();
            }
        }
    }

    /// Calls back with the size of the memory node's pool, each time that it is told.
    pub(super) fn on_size(&self, listener: OnSize) {
        let _ = self.on_size.set(listener);
    }

    /// The memory node has told of its pool.
    pub(super) fn set_space(&self, space: Space) {
        *lock(&self.space) = space;
        self.on_size.get().iter().for_each(|listener| listener(space.size));
    }

    /// What the memory node has told last of its pool: zeros if it has not.
    pub(super) fn space(&self) -> Space {
        *lock(&self.space)
    }

    /// Tells what is wrong with the session, once.
    pub(super) fn complain(&self, why: String) {
        let mut complaint = lock(&self.complaint);
        if *complaint != why {
            log::error!("{why}");
            *complaint = why;
        }
    }

    fn start_over(&self, why: &str) {
        // Under the lock: a writer that finds no session finds what was lost.
        let mut earlier = lock(&self.earlier);
        if let Some(session) = self.session.swap(None) {
            earlier.add(session.fail(why));
        }
        drop(earlier);
        self.watches.report_all();
    }
}

impl View<'_> {
    pub(super) fn session(&self) -> &Arc<Session> {
        self.session.as_ref().expect("a view is made with a session")
    }

    /// One of its slots as it was.
    pub(super) fn word(&self, slot: u16) -> Word {
        let more = self.more.iter().find(|(known, _)| *known == slot);
        more.map_or(self.word, |(_, word)| *word)
    }

    /// A slot that has left, if one has.
    fn left(&self) -> Option<u16> {
        // ORDER: all that was read is older than the words that are looked at again.
        fence(Acquire);
        let has_left = |(slot, word): (u16, Word)| (self.node.slots.word(slot) != word).then_some(slot);
        has_left((self.slot, self.word)).or_else(|| self.more.iter().copied().find_map(has_left))
    }

    /// Whether what was found may be answered: the slots were this node's all the time.
    pub(super) fn confirm(&self) -> Result<(), ReadError> {
        self.confirm_slots()?;
        self.node.confirm_lease()
    }

    /// The first half of [`View::confirm`]; [`Node::confirm_lease`] is the other one.
    pub(super) fn confirm_slots(&self) -> Result<(), ReadError> {
        self.left().map_or(Ok(()), |slot| Err(ReadError::NotOwner { slot }))
    }

    /// Whether a write may still be appended. The caller has the locks of the keys' stripes.
    pub(super) fn confirm_write(&self) -> Result<(), WriteError> {
        self.node.check_writable()?;
        self.left().map_or(Ok(()), |slot| Err(WriteError::NotOwner { slot }))
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
