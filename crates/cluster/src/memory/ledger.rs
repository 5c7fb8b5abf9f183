//! The ledger in the log area: sessions, and the owner of each slot.

use super::area::Area;
use super::error::MemoryError;
use super::format::{COUNTERS, LEASE, OWNERS, SESSION_BYTES, SESSIONS, SESSIONS_MAX};
use crate::arbiter::{Arbiter, Incarnation, Ledger};
use crate::slot::{SLOTS, SlotRange};
use std::sync::Arc;
use std::time::Duration;

/// Longest name of a node in bytes.
pub(crate) const NAME_MAX: usize = 72;
/// Bytes of a name in a word.
const PIECE: usize = 6;
const OPEN: u64 = 1;
const FENCED: u64 = 2;

/// The ledger of an open log area. It has one writer.
#[derive(Clone)]
pub(crate) struct AreaLedger(pub(crate) Arc<Area>);

/// The arbiter of a memory node.
pub(crate) type AreaArbiter = Arbiter<AreaLedger>;

/// Where the parts of a session's row are.
fn row(nth: u64) -> u64 {
    SESSIONS + nth * SESSION_BYTES
}
fn state(row: u64) -> u64 {
    row + 8
}
fn name_len(row: u64) -> u64 {
    row + 16
}
fn name(row: u64) -> impl Iterator<Item = u64> {
    (row + 24..row + SESSION_BYTES).step_by(8)
}

/// The owner of a slot: a session, or 0.
pub(crate) fn owner(area: &Area, slot: u16) -> Incarnation {
    area.number(OWNERS + 8 * u64::from(slot))
}

impl AreaLedger {
    /// Checks all that the ledger has.
    pub(crate) fn check(&self) -> Result<(), MemoryError> {
        let Self(area) = self;
        (COUNTERS..SESSIONS + SESSIONS_MAX * SESSION_BYTES)
            .step_by(8)
            .try_for_each(|at| area.checked(at).map(drop))?;
        let next = area.number(COUNTERS);
        for row in self.rows().filter(|row| area.number(*row) != 0) {
            let (is_known, len) =
                (matches!(area.number(state(row)), OPEN | FENCED), area.number(name_len(row)));
            if !is_known || len > NAME_MAX as u64 || area.number(row) >= next {
                return Err(area.damaged(row, "it describes no session"));
            }
        }
        let known: Vec<Incarnation> = self.sessions().into_iter().map(|(id, ..)| id).collect();
        for slot in 0..SLOTS {
            let owner = owner(area, slot);
            if owner != 0 && !known.contains(&owner) {
                return Err(area.damaged(OWNERS + 8 * u64::from(slot), "the owner of a slot is no session"));
            }
        }
        Ok(())
    }

    fn rows(&self) -> impl Iterator<Item = u64> {
        (0..SESSIONS_MAX).map(row)
    }

    /// Whether a session with this number was ever begun; also for 0.
    pub(crate) fn has_begun(&self, session: Incarnation) -> bool {
        session < self.0.number(COUNTERS)
    }

    /// Whether there is room for a session more.
    pub(crate) fn has_room(&self) -> bool {
        self.find(0).is_some()
    }

    fn find(&self, session: Incarnation) -> Option<u64> {
        self.rows().find(|row| self.0.number(*row) == session)
    }

    fn name(&self, row: u64) -> String {
        let words = name(row).map(|at| self.0.number(at).to_le_bytes());
        let mut bytes: Vec<u8> = words.flat_map(|word| word.into_iter().take(PIECE)).collect();
        bytes.truncate(self.0.number(name_len(row)) as usize);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Ledger for AreaLedger {
    fn begin_session(&mut self, node: &str) -> Incarnation {
        let (area, row) = (&self.0, self.find(0).expect("the driver looks for room before"));
        assert!((1..=NAME_MAX).contains(&node.len()), "the driver looks at the name before");
        let session = area.number(COUNTERS);
        assert!(session > 0, "session 0 stands for no owner");
        area.set(COUNTERS, session + 1);
        area.set(name_len(row), node.len() as u64);
        let mut pieces = node.as_bytes().chunks(PIECE);
        for at in name(row) {
            let mut word = [0; 8];
            if let Some(piece) = pieces.next() {
                word[..piece.len()].copy_from_slice(piece);
            }
            area.set(at, u64::from_le_bytes(word));
        }
        area.set(state(row), OPEN);
        // From here on there is a session.
        area.set(row, session);
        session
    }

    fn fence(&mut self, session: Incarnation) {
        if let Some(row) = self.find(session) {
            self.0.set(state(row), FENCED);
        }
    }

    fn end_session(&mut self, session: Incarnation) {
        for slot in (0..SLOTS).filter(|slot| owner(&self.0, *slot) == session) {
            self.0.set(OWNERS + 8 * u64::from(slot), 0);
        }
        if let Some(row) = self.find(session) {
            self.0.set(row, 0);
        }
    }

    fn sessions(&self) -> Vec<(Incarnation, String, bool)> {
        let used = self.rows().filter(|row| self.0.number(*row) != 0);
        let session = |row| (self.0.number(row), self.name(row), self.0.number(state(row)) == FENCED);
        used.map(session).collect()
    }

    fn owner(&self, slot: u16) -> Option<Incarnation> {
        Some(owner(&self.0, slot)).filter(|owner| *owner != 0)
    }

    fn set_owner(&mut self, ranges: &[SlotRange], owner: Option<Incarnation>) {
        debug_assert!(
            owner.is_none_or(|owner| self.find(owner).is_some()),
            "the owner of a slot is a session"
        );
        let slots = ranges.iter().flat_map(|range| range.slots());
        for slot in slots.filter(|slot| *slot < SLOTS) {
            self.0.set(OWNERS + 8 * u64::from(slot), owner.unwrap_or(0));
        }
    }

    fn lease(&self) -> Duration {
        Duration::from_nanos(self.0.number(LEASE))
    }

    fn set_lease(&mut self, lease: Duration) {
        if lease != self.lease() {
            self.0.set(LEASE, u64::try_from(lease.as_nanos()).expect("a lease of a minute at most"));
        }
    }
}
