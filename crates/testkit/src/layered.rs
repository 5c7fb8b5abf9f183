//! A single type for stacks of media.
//!
//! A store is compiled once for each type of medium, which takes long. If a medium's work per
//! access is slower than a call, it does not need a type of its own.

use crate::crash::memory::Memory;
use crate::observer::{CallObserver, Violation};
use crate::points;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use terrace_medium::{Access, MappedMedium, Mapping, Medium, Order};

/// Any medium with this [`Medium::VOLATILE_CACHE`]. Clones are handles to the same medium.
pub struct Layered<const VOLATILE: bool>(Arc<dyn Layers>);

impl<const VOLATILE: bool> Clone for Layered<VOLATILE> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<const VOLATILE: bool> Layered<VOLATILE> {
    /// Forwards all accesses to `medium`.
    pub fn over<M: CallObserver>(medium: Arc<M>) -> Self {
        const { assert!(M::VOLATILE_CACHE == VOLATILE, "both need write-backs, or neither") };
        Self(medium)
    }

    /// See [`CallObserver::mark_call`].
    pub fn mark_call(&self, mark: u64) {
        self.0.mark_call_all(mark);
    }

    /// See [`CallObserver::died`].
    pub fn died(&self, thread: usize) {
        self.0.died_all(thread);
    }

    /// See [`CallObserver::crash_observed`].
    pub fn crash_observed(&self, dead: usize) {
        self.0.crash_observed_all(dead);
    }

    /// See [`CallObserver::wrong`].
    pub fn wrong(&self) -> Option<Violation> {
        self.0.wrong_all()
    }
}

/// The object-safe part of [`Medium`].
trait Layers: Send + Sync {
    fn mapping_below(&self) -> &Mapping;
    fn write_back_all(&self, at: *const u8);
    fn fence_all(&self);
    fn ordered_all(&self, order: Order, site: &'static Location<'static>);
    fn before(&self, access: Access, at: *const u8);
    fn after(&self, access: Access, at: *const u8, site: &'static Location<'static>);
    fn persisted(&self, site: &'static Location<'static>);
    fn mark_call_all(&self, mark: u64);
    fn died_all(&self, thread: usize);
    fn crash_observed_all(&self, dead: usize);
    fn wrong_all(&self) -> Option<Violation>;
}

impl<M: CallObserver> Layers for M {
    fn mapping_below(&self) -> &Mapping {
        self.mapping()
    }
    fn write_back_all(&self, at: *const u8) {
        self.write_back(at);
    }
    fn fence_all(&self) {
        self.fence();
    }
    fn ordered_all(&self, order: Order, site: &'static Location<'static>) {
        self.ordered(order, site);
    }
    fn before(&self, access: Access, at: *const u8) {
        self.before_access(access, at);
    }
    fn after(&self, access: Access, at: *const u8, site: &'static Location<'static>) {
        self.accessed(access, at, site);
    }
    fn persisted(&self, site: &'static Location<'static>) {
        self.persisted_at(site);
    }
    fn mark_call_all(&self, mark: u64) {
        self.mark_call(mark);
    }
    fn died_all(&self, thread: usize) {
        self.died(thread);
    }
    fn crash_observed_all(&self, dead: usize) {
        self.crash_observed(dead);
    }
    fn wrong_all(&self) -> Option<Violation> {
        self.wrong()
    }
}

impl<const VOLATILE: bool> MappedMedium for Layered<VOLATILE> {
    fn new(mapping: Mapping) -> Self {
        Self::over(Arc::new(Memory::<VOLATILE>::new(mapping)))
    }
    fn mapping(&self) -> &Mapping {
        self.0.mapping_below()
    }
}

// SAFETY: base and length are those of a mapping that the lowest layer keeps.
unsafe impl<const VOLATILE: bool> Medium for Layered<VOLATILE> {
    const VOLATILE_CACHE: bool = VOLATILE;

    fn base(&self) -> NonNull<u8> {
        self.mapping().base()
    }
    fn len(&self) -> usize {
        self.mapping().len()
    }
    fn write_back(&self, at: *const u8) {
        self.0.write_back_all(at);
    }
    fn fence(&self) {
        self.0.fence_all();
    }
    fn point(&self, name: &'static str) -> &Self {
        points::give(name);
        self
    }
    fn ordered(&self, order: Order, site: &'static Location<'static>) {
        points::ordered(order);
        self.0.ordered_all(order, site);
    }
    fn before_access(&self, access: Access, at: *const u8) {
        points::accesses(access);
        self.0.before(access, at);
    }
    fn accessed(&self, access: Access, at: *const u8, site: &'static Location<'static>) {
        self.0.after(access, at, site);
    }
    fn persisted_at(&self, site: &'static Location<'static>) {
        points::begin();
        self.0.persisted(site);
    }
}
