//! A medium on which each access waits for its thread's turn.

use super::stage;
use crate::CallObserver;
use crate::crash::Violation;
use std::panic::Location;
use std::ptr::NonNull;
use terrace_medium::{Access, MappedMedium, Mapping, Medium, Order};

/// Before each access, write-back and fence, the thread waits until the
/// [`Scheduler`](super::Scheduler) that runs it gives it the turn. Threads outside a scheduler do
/// not wait.
pub struct Scheduled<M>(M);

impl<M: Medium> Scheduled<M> {
    /// Schedules the accesses to `below`.
    pub fn over(below: M) -> Self {
        Self(below)
    }

    /// The medium below.
    pub fn below(&self) -> &M {
        &self.0
    }

    fn offset(&self, at: *const u8) -> u64 {
        at.addr().wrapping_sub(self.0.base().addr().get()) as u64
    }
}

impl<M: CallObserver> CallObserver for Scheduled<M> {
    fn mark_call(&self, mark: u64) {
        self.0.mark_call(mark);
    }
    fn died(&self, thread: usize) {
        self.0.died(thread);
    }
    fn crash_observed(&self, dead: usize) {
        self.0.crash_observed(dead);
    }
    fn wrong(&self) -> Option<Violation> {
        self.0.wrong()
    }
}

impl<M: MappedMedium> MappedMedium for Scheduled<M> {
    fn new(mapping: Mapping) -> Self {
        Self(M::new(mapping))
    }
    fn mapping(&self) -> &Mapping {
        self.0.mapping()
    }
}

// SAFETY: base and length are those of the medium below, which promises the same.
unsafe impl<M: Medium> Medium for Scheduled<M> {
    const VOLATILE_CACHE: bool = M::VOLATILE_CACHE;

    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn write_back(&self, at: *const u8) {
        stage::step(None);
        self.0.write_back(at);
    }
    fn fence(&self) {
        stage::step(None);
        self.0.fence();
    }
    fn ordered(&self, order: Order, site: &'static Location<'static>) {
        stage::before_barrier(order);
        self.0.ordered(order, site);
        stage::ordered(order, site);
    }
    fn before_access(&self, access: Access, at: *const u8) {
        stage::step((access == Access::Load).then(|| self.offset(at)));
        self.0.before_access(access, at);
    }
    fn accessed(&self, access: Access, at: *const u8, site: &'static Location<'static>) {
        self.0.accessed(access, at, site);
        stage::accessed(access, self.offset(at), site);
    }
    fn persisted_at(&self, site: &'static Location<'static>) {
        self.0.persisted_at(site);
        stage::persisted(site);
    }
    fn prefetched(&self, at: *const u8) {
        self.0.prefetched(at);
    }
}
