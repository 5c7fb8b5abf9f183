//! Which holders of locks and slots are alive: what the participant table and the liveness say.

use crate::base::Base;
use crate::error::Holder;
use crate::sharing::liveness::Liveness;
use crate::sharing::participants;
use crate::sync::lock::holder_of_word;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;

impl<M: MappedMedium> Base<M> {
    /// The other participants that are alive, with their numbers.
    pub(crate) fn other_live_participants(&self) -> Vec<(u32, Holder)> {
        let own = u32::from(self.owner.participant);
        let Some(liveness) = &self.liveness else { return Vec::new() };
        participants::live_participants(&self.region, &self.layout, &**liveness, Some(own))
    }

    /// Whether one of the other participants is stopped, as far as this process can tell.
    #[cold]
    pub(crate) fn has_stopped_participant(&self) -> bool {
        self.other_live_participants().iter().any(|(_, holder)| holder.stopped)
    }

    /// Whether another participant is alive. The caller has entered the gate, so none joins or
    /// leaves.
    pub(crate) fn has_other_participants(&self) -> bool {
        let mut others = (0..self.layout.geometry.participants)
            .filter(|&index| index != u32::from(self.owner.participant));
        self.liveness.as_ref().is_some_and(|liveness| others.any(|index| liveness.is_alive(index)))
    }

    /// Whether the participant that a held lock word names is dead.
    #[cold]
    pub(crate) fn is_holder_dead(&self, word: u64) -> bool {
        let (participant, incarnation) = holder_of_word(word);
        self.is_dead(participant, incarnation)
    }

    /// Whether there is a dead participant that has not been recovered yet.
    #[cold]
    pub(crate) fn has_dead_participant(&self) -> bool {
        let holder = |index| participants::holder_of(&self.region, &self.layout, index);
        let is_dead = |index| holder(index).is_some_and(|incarnation| self.is_dead(index, incarnation));
        self.is_shared() && (0..self.layout.geometry.participants).any(is_dead)
    }

    pub(crate) fn is_dead(&self, participant: u32, incarnation: u32) -> bool {
        let Some(liveness) = &self.liveness else { return false };
        if !self.has_participant(participant) {
            return true;
        }
        if (participant, incarnation) == (u32::from(self.owner.participant), self.owner.incarnation) {
            return false;
        }
        // Check liveness first: a process claims its liveness before it takes the entry. So an
        // entry that changes hands now is not mistaken for dead.
        let is_alive = participant == u32::from(self.owner.participant)
            || liveness.is_alive(participant) && !self.is_exiting(&**liveness, participant, incarnation);
        !is_alive || participants::holder_of(&self.region, &self.layout, participant) != Some(incarnation)
    }

    /// Whether a participant that still has its liveness will store nothing any more. Once true it
    /// stays true: later the kernel may not be able to tell for a while, and a recovery must not
    /// stop halfway.
    fn is_exiting(&self, liveness: &dyn Liveness, participant: u32, incarnation: u32) -> bool {
        let (region, layout) = (&self.region, &self.layout);
        let found = &self.exiting[participant as usize];
        let key = || participants::incarnation_key(region, layout, participant, incarnation);
        if found.load(Relaxed) == key() {
            return true;
        }
        let is_exiting = liveness.is_exiting(participant, participants::pid_of(region, layout, participant));
        if is_exiting {
            found.store(key(), Relaxed);
        }
        is_exiting
    }

    /// Whether the table has an entry `index`. A damaged lock may name another one.
    pub(crate) fn has_participant(&self, index: u32) -> bool {
        index < self.layout.geometry.participants
    }
}
