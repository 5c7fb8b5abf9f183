//! A fixed piece of work, to tell whether the processor kept its speed.

use std::hint::black_box;
use std::time::Instant;

/// How long a chain of 20 million dependent multiplications and additions takes, in nanoseconds: the best of three, so that an
/// interrupt does not count.
pub fn fixed_loop_ns() -> f64 {
    (0..3).map(|_| once()).fold(f64::INFINITY, f64::min)
}

fn once() -> f64 {
    let start = Instant::now();
    let mut x = black_box(1u64);
    for i in 0..20_000_000u64 {
        x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i);
    }
    black_box(x);
    start.elapsed().as_nanos() as f64
}
