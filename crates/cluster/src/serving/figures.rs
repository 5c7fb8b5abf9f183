//! What a serving node is at, in numbers: for INFO, the metrics and tests.

use super::node::Node;
use crate::owner::Slot;
use crate::slot::SLOTS;
use std::sync::atomic::Ordering::Relaxed;
use terrace_server::routing::Figure;

/// What a serving node has done, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Round trips to the memory by reads, and by writes to the logs.
    pub read_rounds: u64,
    /// See `read_rounds`.
    pub log_writes: u64,
    /// Keys that were looked up in the memory: neither unmerged writes nor the cache had them.
    pub look_ups: u64,
    /// Keys about which the memory node was asked, since one-sided reads could not decide.
    pub asked: u64,
    /// Keys with writes that the memory node has not merged, as far as is known here.
    pub unmerged: u64,
    /// Bytes of the cache.
    pub cache_bytes: u64,
}

impl Node {
    /// What this node has done.
    pub(super) fn figures(&self) -> Figures {
        let (counts, session) = (&self.counts, self.gate().session());
        Figures {
            read_rounds: counts.read_rounds.load(Relaxed),
            log_writes: counts.log_writes.load(Relaxed),
            look_ups: counts.look_ups.load(Relaxed),
            asked: counts.asked.load(Relaxed),
            unmerged: session.as_ref().map_or(0, |session| session.pending.len() as u64),
            cache_bytes: session.as_ref().map_or(0, |session| session.cache.bytes()),
        }
    }

    /// What this node is at, for operators.
    pub(super) fn told(&self) -> Vec<Figure> {
        let figures = self.figures();
        let count = |state: Slot| {
            (0..SLOTS).filter(|slot| self.gate().slots.word(*slot).state() == state).count() as u64
        };
        let (total, now) = (Figure::total, Figure::now);
        let lease_ms = self.gate().slots.lease_left(crate::clock::now()).as_millis() as u64;
        vec![
            now(
                "session",
                "Whether there is a session with the memory node",
                self.gate().session().is_some().into(),
            ),
            now("lease_left_milliseconds", "Until when answers may leave without another renewal", lease_ms),
            now("slots_served", "Slots that this node serves", count(Slot::Served)),
            now("slots_held", "Slots that are on their way to other nodes", count(Slot::Held)),
            total(
                "slot_arrivals",
                "Times that a slot has come to be served by this node",
                self.gate().slots.arrivals(),
            ),
            now("unmerged_keys", "Keys with writes that the memory node has not merged", figures.unmerged),
            now("cache_bytes", "Keys and values that are kept here to be read again", figures.cache_bytes),
            now(
                "room_bytes",
                "Bytes of the memory node's pool that keys may still take",
                self.space.get().room,
            ),
            total("lookups", "Keys that were looked up in the memory", figures.look_ups),
            total("read_round_trips", "Round trips of such look-ups", figures.read_rounds),
            total("log_writes", "Writes of log entries to the memory", figures.log_writes),
            total("asked_keys", "Keys about which the memory node was asked", figures.asked),
            total("sessions_lost", "Sessions that have ended before this node", self.gate().sessions.lost()),
        ]
    }
}
