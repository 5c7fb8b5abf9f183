//! A tap that lets other threads run between accesses, so that races that are rare on two cores
//! happen often.

use crate::threads;
use std::cell::Cell;

thread_local! {
    static RANDOM: Cell<u64> = Cell::new(threads::identity().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
}

/// Spins for a random time once in 32 calls, and yields once in 512.
pub(super) fn wait() {
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
