//! A medium that lets other threads run between accesses, so that races that are rare on two cores
//! happen often.

use crate::threads;
use std::cell::Cell;
use std::panic::Location;
use std::ptr::NonNull;
use terrace_medium::{Access, MappedMedium, Mapping, Medium};

thread_local! {
    static RANDOM: Cell<u64> = Cell::new(threads::identity().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
}

/// Spins for a random time before one access in 32 of the medium below, and yields before one in
/// 512.
pub struct Jittery<M>(M);

fn wait() {
    let random = RANDOM.try_with(|random| {
        // Xorshift (G. Marsaglia, 2003).
        let mut x = random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        random.set(x);
        x
    });
    let Ok(random) = random else { return };
    if random & 0x1ff == 0 {
        std::thread::yield_now();
    } else if random & 0x1f == 0 {
        (0..random >> 32 & 0xff).for_each(|_| std::hint::spin_loop());
    }
}

impl<M: MappedMedium> MappedMedium for Jittery<M> {
    fn new(mapping: Mapping) -> Self {
        Self(M::new(mapping))
    }
    fn mapping(&self) -> &Mapping {
        self.0.mapping()
    }
}

// SAFETY: base and length are those of the medium below, which promises the same.
unsafe impl<M: Medium> Medium for Jittery<M> {
    const VOLATILE_CACHE: bool = M::VOLATILE_CACHE;

    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn write_back(&self, at: *const u8) {
        self.0.write_back(at);
    }
    fn fence(&self) {
        self.0.fence();
    }
    fn before_access(&self, access: Access, at: *const u8) {
        wait();
        self.0.before_access(access, at);
    }
    fn accessed(&self, access: Access, at: *const u8, site: &'static Location<'static>) {
        self.0.accessed(access, at, site);
    }
    fn persisted_at(&self, site: &'static Location<'static>) {
        self.0.persisted_at(site);
    }
    fn prefetched(&self, at: *const u8) {
        self.0.prefetched(at);
    }
}
