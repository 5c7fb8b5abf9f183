//! Grants of segments: which shard gets the next one, and whether the pool has room to merge it.

use super::base::Base;
use super::ledger::AreaArbiter;
use super::readers::Need;
use super::segments::{Segment, Segments};
use super::session::{Lanes, Table};
use super::threads::AGAIN;
use crate::arbiter::Incarnation;
use crate::clock::now;
use crate::message::{Space, ToServing};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use terrace_fabric::{Access as Right, Endpoint};

/// Bytes that stay free in the pool beside the room for what is granted.
const ROOM: u64 = 16 << 20;
/// Bytes more that are to be free until a pool that was full takes puts again.
const AGAIN_ROOM: u64 = ROOM / 2;
/// How often nodes are told of the room in the pool.
const TELL_ROOM: Duration = Duration::from_secs(1);
/// How long nothing is granted once the file system had no room for a segment.
const NO_ROOM: Duration = Duration::from_secs(1);

/// Bytes of the pool that are kept free while so many segments are granted.
pub(crate) fn kept(granted: u64, segment_bytes: u64) -> u64 {
    2 * granted * segment_bytes + ROOM
}

/// Which segments are free, and whether the pool has room to merge a further one. Below stand the
/// pool and the log area. The sessions that get segments, and the arbiter that tells their nodes,
/// are the caller's.
pub(crate) struct Grants {
    base: Arc<Base>,
    segments: Segments,
    /// There is no room for segments until then.
    no_room_until: Duration,
    /// Whether nodes were told that the pool has no room for puts.
    is_full: bool,
    /// Whether a shard waits for a segment until memory is free that readers or merges have now.
    is_short: bool,
    room_seen: Duration,
    /// When nodes were told of the room in the pool.
    room_told: Duration,
    /// Segments that were granted since the start.
    turn: u64,
}

impl Grants {
    pub(crate) fn new(base: Arc<Base>, segments: Segments) -> Self {
        let (no_room_until, is_full, is_short, room_seen, room_told, turn) = Default::default();
        Self { base, segments, no_room_until, is_full, is_short, room_seen, room_told, turn }
    }

    /// Segments that are free.
    pub(crate) fn free(&self) -> u64 {
        self.segments.free()
    }

    /// How short memory is, as it was seen last.
    pub(crate) fn need(&self) -> Need {
        Need { is_short: self.is_short, is_full: self.is_full }
    }

    /// Gives shards the segments that they wait for, as far as there is room: first to the one that
    /// was granted none for longest.
    pub(crate) fn grant<E: Endpoint>(&mut self, table: &mut Table<E>, arbiter: &mut AreaArbiter) {
        while self.has_segment() {
            let Some((id, nth)) = table.next_waiting() else { return };
            if !self.has_room(table, arbiter) {
                return;
            }
            if let Err(why) = self.grant_one(table, arbiter, (id, nth)) {
                log::error!("could not grant a segment to session {id}: {why}");
                arbiter.fail(id, &format!("the memory node could not grant a segment: {why}"));
                if let Some(session) = table.get_mut(id) {
                    session.want_none();
                }
            }
        }
    }

    /// Whether there is a segment to grant.
    fn has_segment(&self) -> bool {
        now() >= self.no_room_until && self.segments.free() > 0
    }

    /// Whether the pool has room for a segment more, or is full: then it is for removals alone.
    fn has_room<E>(&mut self, table: &Table<E>, arbiter: &mut AreaArbiter) -> bool {
        if !self.is_short || now() >= self.room_seen + AGAIN {
            self.look_at_room(table, arbiter);
        }
        !self.is_short
    }

    /// Looks again whether the pool has room, if it had none and this was a while ago. Returns
    /// whether it has looked.
    pub(crate) fn look_again<E>(&mut self, table: &Table<E>, arbiter: &mut AreaArbiter) -> bool {
        let is_due = (self.is_full || self.is_short) && now() >= self.room_seen + AGAIN;
        if is_due {
            self.look_at_room(table, arbiter);
        }
        is_due
    }

    /// Looks whether the pool has room to merge what is granted and a segment more. If it has none,
    /// but will once readers and merges have ended, writers wait. If it will not, it is full: tells
    /// all nodes, also when it has room again. A segment that is granted after they were told is
    /// for removals alone.
    pub(crate) fn look_at_room<E>(&mut self, table: &Table<E>, arbiter: &mut AreaArbiter) {
        self.room_seen = now();
        let (free, waiting) = self.base.data.room();
        let segment_bytes = self.base.area.segment_bytes;
        let granted = self.granted();
        let wanted = self.wanted(table);
        let is_full = free + waiting < wanted;
        self.is_short = !is_full && free < kept(granted + 1, segment_bytes) && table.next_waiting().is_some();
        if is_full != self.is_full {
            self.is_full = is_full;
            match is_full {
                true => log::warn!(
                    "the pool is full: puts are refused; {free} bytes are free, and {wanted} are kept for what is \
                     in the logs"
                ),
                false => log::warn!("the pool has room again"),
            }
            arbiter.tell_all(&self.fullness(free));
        }
    }

    /// Segments that sessions have.
    pub(crate) fn granted(&self) -> u64 {
        assert!(self.segments.free() <= self.base.area.segments, "no more segments are free than there are");
        self.base.area.segments - self.segments.free()
    }

    /// Bytes that are to be free for a segment more, once all that is full is merged, and some
    /// more while puts are refused: else the first one would be the last.
    fn wanted<E>(&self, table: &Table<E>) -> u64 {
        let lasting = self.granted().min(table.lasting());
        kept(lasting + 1, self.base.area.segment_bytes) + if self.is_full { AGAIN_ROOM } else { 0 }
    }

    /// What the pool is used for.
    pub(crate) fn space<E>(&self, table: &Table<E>) -> Space {
        let (free, waiting) = self.base.data.room();
        let room = (free + waiting).saturating_sub(self.wanted(table));
        Space { size: self.base.data.pool().size(), free, waiting, room }
    }

    /// Tells all nodes now and then what the pool is used for.
    pub(crate) fn tell_room<E>(&mut self, table: &Table<E>, arbiter: &mut AreaArbiter) {
        if now() >= self.room_told + TELL_ROOM {
            self.room_told = now();
            arbiter.tell_all(&ToServing::Space(self.space(table)));
        }
    }

    /// Tells a session that begins of the room in the pool.
    pub(crate) fn tell_one<E>(&self, table: &Table<E>, arbiter: &mut AreaArbiter, id: Incarnation) {
        arbiter.granted_segment(id, ToServing::Space(self.space(table)));
        if self.is_full {
            arbiter.granted_segment(id, self.fullness(self.base.data.room().0));
        }
    }

    /// Whether puts are refused, as nodes are told.
    fn fullness(&self, free: u64) -> ToServing {
        match self.is_full {
            true => ToServing::Full { free, size: self.base.data.pool().size() },
            false => ToServing::Roomy,
        }
    }

    /// Grants a segment to a shard, if there is one.
    fn grant_one<E: Endpoint>(
        &mut self,
        table: &mut Table<E>,
        arbiter: &mut AreaArbiter,
        (id, nth): (Incarnation, usize),
    ) -> Result<(), String> {
        let session = table.get_mut(id).expect("found by the caller");
        let shard = &session.logs.shards[nth];
        let order = shard.order.load(Relaxed);
        let (name, place) = (u16::try_from(nth).expect("few shards"), u32::try_from(order));
        let place = (name, place.map_err(|_| "the log is too long; connect anew")?);
        let area = &self.base.area;
        let segment = match self.segments.take(area, id, place, u64::from(order == 0)) {
            Ok(Some(segment)) => segment,
            Ok(None) => return Ok(()),
            Err(error) => {
                log::warn!("there is no room for a segment of the log area: {error}");
                self.no_room_until = now() + NO_ROOM;
                return Ok(());
            }
        };
        shard.grant(segment);
        let Lanes::Open(lanes) = &mut session.lanes else { return Ok(()) };
        let body = area.body(segment.row);
        let key = lanes[0].register(area.clone(), body, Right::Write).map_err(|error| error.to_string())?;
        self.turn += 1;
        session.granted(nth, segment.number, key, self.turn);
        let (number, bytes, key) = (segment.number, area.segment_bytes, key.to_bytes());
        arbiter.granted_segment(id, ToServing::Segment { shard: name, number, bytes, key });
        Ok(())
    }

    /// Frees a segment: nothing can arrive in it any more.
    pub(crate) fn release(&mut self, segment: Segment) {
        self.segments.release(&self.base.area, segment);
    }
}
