//! A fixed piece of work, whose time shows whether the processor kept its speed.

use std::hint::black_box;
use std::time::Instant;

/// Nanoseconds for a chain of 10 million dependent shifts, exclusive ors and multiplications: the
/// best of three, so that an interrupt does not count.
pub fn fixed_loop_ns() -> f64 {
    (0..3).map(|_| once()).fold(f64::INFINITY, f64::min)
}

fn once() -> f64 {
    let start = Instant::now();
    let mut x = black_box(1u64);
    for _ in 0..10_000_000 {
        x = (x ^ x >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    black_box(x);
    start.elapsed().as_nanos() as f64
}
