//! Where each operation begins, and is confirmed before it answers: slots, lease, session.

use super::session::Session;
use super::sessions::Sessions;
use super::slots::{Slots, Word};
use crate::clock::now;
use crate::owner::Slot;
use crate::slot::SLOTS;
use arc_swap::Guard;
use std::sync::atomic::{Ordering::Acquire, fence};
use std::sync::{Arc, OnceLock};
use terrace_engine::{ReadError, WriteError};

/// What decides whether an operation may begin, and whether what it found may be answered. Below
/// stand the slots and the sessions. `ownership` is above, and moves both.
pub(super) struct Gate {
    pub(super) slots: Slots,
    pub(super) sessions: Sessions,
    /// Why no write begins any more, if so.
    stopped: OnceLock<String>,
}

/// What a read or a write begins with: the session, and the slots of its keys as they are then.
pub(super) struct View<'n> {
    session: Guard<Option<Arc<Session>>>,
    gate: &'n Gate,
    pub(super) slot: u16,
    word: Word,
    /// Further slots.
    more: Vec<(u16, Word)>,
}

const NO_SESSION: &str = "it has no session with the memory node";
const NO_LEASE: &str = "its lease from the memory node is over";

impl Gate {
    /// No slot is served yet, and there is no session.
    pub(super) fn new() -> Self {
        Self { slots: Slots::new(), sessions: Sessions::default(), stopped: OnceLock::new() }
    }

    /// The session, if there is one.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        self.sessions.current()
    }

    /// Begins an operation on a key of this slot.
    pub(super) fn begin(&self, slot: u16) -> Result<View<'_>, ReadError> {
        // The word first: if the session is a later one, the word has changed.
        let word = self.slots.word(slot);
        let session = self.sessions.load();
        if session.is_none() {
            return Err(ReadError::NotOwner { slot });
        }
        match word.state() {
            Slot::Served => Ok(View { session, gate: self, slot, word, more: Vec::new() }),
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

    pub(super) fn check_writable(&self) -> Result<(), WriteError> {
        self.stopped.get().map_or(Ok(()), |why| Err(WriteError::Stopped(why.clone())))
    }

    pub(super) fn stop_writes(&self, why: String) {
        let _ = self.stopped.set(why);
    }
}

impl View<'_> {
    pub(super) fn session(&self) -> &Arc<Session> {
        self.session.as_ref().expect("a view is made with a session")
    }

    /// One of its slots as it was.
    pub(super) fn word(&self, slot: u16) -> Word {
        let more = self.more.iter().find(|(known, _)| *known == slot);
        debug_assert!(slot == self.slot || more.is_some(), "a view has the slots of its keys");
        more.map_or(self.word, |(_, word)| *word)
    }

    /// A slot that has left, if one has.
    fn left(&self) -> Option<u16> {
        // ORDER: all that was read is older than the words that are looked at again.
        fence(Acquire);
        let has_left = |(slot, word): (u16, Word)| (self.gate.slots.word(slot) != word).then_some(slot);
        has_left((self.slot, self.word)).or_else(|| self.more.iter().copied().find_map(has_left))
    }

    /// Whether what was found may be answered: the slots were this node's all the time.
    pub(super) fn confirm(&self) -> Result<(), ReadError> {
        self.confirm_slots()?;
        self.gate.confirm_lease()
    }

    /// The first half of [`View::confirm`]; [`Gate::confirm_lease`] is the other one.
    pub(super) fn confirm_slots(&self) -> Result<(), ReadError> {
        self.left().map_or(Ok(()), |slot| Err(ReadError::NotOwner { slot }))
    }

    /// Whether a write may still be appended. The caller has the locks of the keys' stripes.
    pub(super) fn confirm_write(&self) -> Result<(), WriteError> {
        self.gate.check_writable()?;
        self.left().map_or(Ok(()), |slot| Err(WriteError::NotOwner { slot }))
    }
}
