//! Tests of `waiting`.

use super::*;
use crate::tests::fixtures::exclusive_pool;
use terrace_medium::Dram;

#[test]
fn sleeping_lock_waiter_is_counted_until_it_acquires() {
    let pool = exclusive_pool::<Dram>();
    let lock = &pool.0.base().shared().collector;
    let held = pool.0.peers.acquire(lock);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| drop(pool.0.peers.acquire(lock)));
        while WAITING.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        drop(held);
        waits.join().unwrap();
    });
    // Other tests may wait meanwhile, but not for ever.
    while WAITING.load(Relaxed) > 0 {
        std::thread::yield_now();
    }
}
