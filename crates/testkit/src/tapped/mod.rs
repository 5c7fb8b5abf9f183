//! The medium of tests: one type, so that a store is compiled once for all that tests do to its
//! memory.
//!
//! A [`Tapped`] is memory with a tap: code that sees each access, in the order `mod` (the medium),
//! `count`, `jitter`, `point`.

mod count;
mod jitter;
mod point;

pub use count::{Counts, Touched};
pub use point::{Point, PointAction, points_of};

use crate::{Slow, points};
use count::Counter;
use std::cell::Cell;
use std::panic::Location;
use std::ptr::NonNull;
use terrace_medium::{Access, MappedMedium, Mapping, Medium, Order, Pmem, Shm};

/// A medium whose write-backs and fences are real, as those of [`Pmem`].
pub type TappedPmem = Tapped<true>;
/// A medium without write-backs and fences, as [`Shm`].
pub type TappedShm = Tapped<false>;

/// Memory with a tap: what a test does at each access.
///
/// A medium that a pool makes counts its accesses. One that is made within [`jittery`] or
/// [`stopping`] does that instead.
pub struct Tapped<const VOLATILE: bool> {
    below: Below,
    tap: Tap,
}

enum Below {
    Pmem(Pmem),
    Shm(Shm),
    Slow(Box<Slow<Pmem>>),
}

/// Calls a method of the medium below.
macro_rules! below {
    ($below:expr, $method:ident($($argument:expr),*)) => {
        match &$below {
            Below::Pmem(below) => below.$method($($argument),*),
            Below::Shm(below) => below.$method($($argument),*),
            Below::Slow(below) => below.$method($($argument),*),
        }
    };
}

enum Tap {
    Count(Counter),
    Jitter,
    Point,
}

/// The tap of the media that this thread makes next.
#[derive(Clone, Copy)]
enum Choice {
    Count,
    Jitter,
    Point,
}

thread_local! {
    static CHOICE: Cell<Choice> = const { Cell::new(Choice::Count) };
}

fn choose<R>(choice: Choice, make: impl FnOnce() -> R) -> R {
    let before = CHOICE.replace(choice);
    let made = make();
    CHOICE.set(before);
    made
}

/// The media that `make` makes in this thread let other threads run between accesses: races that
/// are rare on two cores happen often.
pub fn jittery<R>(make: impl FnOnce() -> R) -> R {
    choose(Choice::Jitter, make)
}

/// The media that `make` makes in this thread kill or stop this process at the [`Point`] that its
/// environment names, and count for [`points_of`].
pub fn stopping<R>(make: impl FnOnce() -> R) -> R {
    choose(Choice::Point, make)
}

impl Tapped<true> {
    /// Counts the accesses to a slow medium.
    pub fn over_slow(slow: Slow<Pmem>) -> Self {
        Self::over(Below::Slow(Box::new(slow)))
    }

    /// The slow medium below. Panics if there is none.
    pub fn slow(&self) -> &Slow<Pmem> {
        match &self.below {
            Below::Slow(slow) => slow,
            Below::Pmem(_) | Below::Shm(_) => panic!("the medium below is not slow"),
        }
    }
}

impl<const VOLATILE: bool> Tapped<VOLATILE> {
    fn over(below: Below) -> Self {
        let tap = match CHOICE.get() {
            Choice::Count => Tap::Count(Counter::new(below!(below, base()).addr().get())),
            Choice::Jitter => Tap::Jitter,
            Choice::Point => Tap::Point,
        };
        Self { below, tap }
    }

    fn counter(&self) -> &Counter {
        match &self.tap {
            Tap::Count(counter) => counter,
            Tap::Jitter | Tap::Point => panic!("this medium does not count"),
        }
    }

    /// The counts of all threads since the beginning or the last [`Tapped::reset`]. Panics, as the
    /// next three, if the medium does not count.
    pub fn counts(&self) -> Counts {
        self.counter().counts()
    }

    /// Resets all counts. No other thread may use the medium meanwhile.
    pub fn reset(&self) {
        self.counter().reset();
    }

    /// The counts of `work`, if no other thread uses the medium meanwhile. Lines read before count
    /// as not read.
    pub fn during<R>(&self, work: impl FnOnce() -> R) -> (Counts, R) {
        self.counter().during(work)
    }

    /// The lines that `work` touches on this thread, on any medium that counts. Slow.
    pub fn touched<R>(&self, work: impl FnOnce() -> R) -> (Touched, R) {
        count::touched(work)
    }
}

impl<const VOLATILE: bool> MappedMedium for Tapped<VOLATILE> {
    fn new(mapping: Mapping) -> Self {
        Self::over(if VOLATILE { Below::Pmem(Pmem::new(mapping)) } else { Below::Shm(Shm::new(mapping)) })
    }
    fn mapping(&self) -> &Mapping {
        below!(self.below, mapping())
    }
}

// SAFETY: base and length are those of the medium below, which promises the same.
unsafe impl<const VOLATILE: bool> Medium for Tapped<VOLATILE> {
    const VOLATILE_CACHE: bool = VOLATILE;

    fn base(&self) -> NonNull<u8> {
        below!(self.below, base())
    }
    fn len(&self) -> usize {
        below!(self.below, len())
    }
    fn has_grown(&self) -> bool {
        below!(self.below, has_grown())
    }
    fn write_back(&self, at: *const u8) {
        if let Tap::Count(counter) = &self.tap {
            counter.write_back(at);
        }
        below!(self.below, write_back(at));
    }
    fn fence(&self) {
        if let Tap::Count(counter) = &self.tap {
            counter.fence();
        }
        below!(self.below, fence());
    }
    fn point(&self, name: &'static str) -> &Self {
        if let Tap::Point = self.tap {
            points::give(name);
        }
        self
    }
    fn ordered(&self, order: Order, _: &'static Location<'static>) {
        if let Tap::Point = self.tap {
            points::ordered(order);
        }
    }
    fn before_access(&self, access: Access, at: *const u8) {
        match &self.tap {
            Tap::Count(_) => {}
            Tap::Jitter => jitter::wait(),
            Tap::Point => points::accesses(access),
        }
        below!(self.below, before_access(access, at));
    }
    fn accessed(&self, access: Access, at: *const u8, site: &'static Location<'static>) {
        if let Tap::Count(counter) = &self.tap {
            counter.accessed(access, at);
        }
        below!(self.below, accessed(access, at, site));
        let changes = !matches!(access, Access::Load | Access::RmwFailed | Access::Read(_));
        if let Tap::Point = self.tap
            && changes
        {
            point::reached(site);
        }
    }
    fn persisted_at(&self, site: &'static Location<'static>) {
        below!(self.below, persisted_at(site));
    }
    fn prefetched(&self, at: *const u8) {
        below!(self.below, prefetched(at));
    }
}
