//! The lock word: `terrace_pool::Lock` (`pool/src/lock.rs`): `try_acquire_in`, `Locked::free`.

use crate::check::{breaks, holds};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use loom::thread;

#[derive(Clone, Copy)]
struct Orders {
    /// Of the compare-and-swap that takes it.
    take: Ordering,
    /// Of the store that frees it.
    free: Ordering,
}

const PRODUCT: Orders = Orders { take: Acquire, free: Release };

fn try_acquire(lock: &AtomicU64, orders: Orders) -> bool {
    lock.load(Relaxed) == 0 && lock.compare_exchange(0, 1, orders.take, Relaxed).is_ok()
}

/// Two threads add to a number that the lock protects; whoever gets the lock sees what the one before did.
fn model(orders: Orders) {
    let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let add = move |shared: &(AtomicU64, AtomicU64)| {
        let (lock, number) = shared;
        if try_acquire(lock, orders) {
            number.store(number.load(Relaxed) + 1, Relaxed);
            lock.store(0, orders.free);
            return 1;
        }
        0
    };
    let other = shared.clone();
    let handle = thread::spawn(move || add(&other));
    let done = add(&shared) + handle.join().expect("the thread of the model");
    assert_eq!(shared.1.load(Relaxed), done, "an addition was lost");
}

#[test]
fn the_next_holder_sees_what_the_last_one_did() {
    holds(PRODUCT, 3, model);
}

#[test]
fn weaker_orders_lose_additions() {
    breaks("taking it without Acquire", Orders { take: Relaxed, ..PRODUCT }, 3, model);
    breaks("freeing it without Release", Orders { free: Relaxed, ..PRODUCT }, 3, model);
}
