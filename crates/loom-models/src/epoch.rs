//! Pins and the epoch: `pool/src/epoch.rs` (`announce`, `withdraw`, `try_advance`) and `pool/src/barrier.rs`.
//!
//! The barrier of the product is asymmetric: a pin keeps only the compiler in order, and the kernel puts a full barrier into every thread when the epoch moves on. A
//! barrier in each pin, as in the model, is what that comes to.
//!
//! That a pin ends with Release and is looked at with Acquire keeps its last reads before the next use of the block. Loom cannot show it: a load there never returns what is
//! stored later in the order that it tries.

use crate::check::{breaks, holds};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;

#[derive(Clone, Copy)]
struct Orders {
    /// Whether a pin has its barrier.
    light: bool,
    /// Whether the epoch moves on behind one.
    heavy: bool,
    /// Epochs that a retired block waits.
    grace: u64,
    /// Whether it waits from the epoch on that is found when it is retired, and not from the one that the thread announced.
    late: bool,
}

const PRODUCT: Orders = Orders { light: true, heavy: true, grace: 3, late: true };

const FIRST: u64 = 4;
const SOUND: u64 = 1;
const REUSED: u64 = 2;

struct Pool {
    epoch: AtomicU64,
    /// By the reader, and by who retires.
    announced: [AtomicU64; 2],
    /// 1 while the block can be reached.
    link: AtomicU64,
    block: AtomicU64,
}

impl Pool {
    fn new() -> Self {
        Self {
            epoch: AtomicU64::new(FIRST),
            announced: [AtomicU64::new(0), AtomicU64::new(0)],
            link: AtomicU64::new(1),
            block: AtomicU64::new(SOUND),
        }
    }

    /// Pins, and reads the block if it can be reached.
    fn read(&self, orders: Orders) {
        let epoch = self.epoch.load(Acquire);
        self.announced[0].store(epoch, Relaxed);
        if orders.light {
            fence(SeqCst);
        }
        if self.link.load(Acquire) == 1 {
            assert_eq!(self.block.load(Relaxed), SOUND, "a block was used again under its reader");
        }
        self.announced[0].store(0, Release);
    }

    fn is_held_up(&self, epoch: u64) -> bool {
        let is_behind = |announced: &AtomicU64| {
            let announced = announced.load(Acquire);
            announced != 0 && announced != epoch
        };
        self.announced.iter().any(is_behind)
    }

    fn try_advance(&self, orders: Orders) -> u64 {
        let epoch = self.epoch.load(Relaxed);
        if orders.heavy {
            fence(SeqCst);
        }
        if self.is_held_up(epoch) {
            return epoch;
        }
        match self.epoch.compare_exchange(epoch, epoch + 1, Release, Relaxed) {
            Ok(_) => epoch + 1,
            Err(now) => now,
        }
    }
}

/// One thread reads a block under a pin; the other unlinks it, retires it and uses it again once its epoch is past.
fn model(orders: Orders) {
    let pool = Arc::new(Pool::new());
    let reader = {
        let pool = pool.clone();
        thread::spawn(move || pool.read(orders))
    };
    // Retired in the epoch that the writer found when it pinned.
    let retired = pool.epoch.load(Acquire);
    pool.link.store(0, Release);
    let mut now = retired;
    for _ in 0..orders.grace {
        now = pool.try_advance(orders);
    }
    if now >= retired + orders.grace {
        pool.block.store(REUSED, Relaxed);
    }
    reader.join().expect("the thread of the model");
}

/// A thread looks at the epoch, and is on its way into its pin while the other moves the epoch on, pins and reads a block. Then it unlinks that, retires it and leaves.
fn model_of_a_slow_pin(orders: Orders) {
    let pool = Arc::new(Pool::new());
    let reader = {
        let pool = pool.clone();
        thread::spawn(move || {
            for _ in 0..orders.grace {
                pool.try_advance(orders);
            }
            pool.read(orders);
        })
    };
    let found = pool.epoch.load(Acquire);
    pool.announced[1].store(found, Relaxed);
    fence(SeqCst);
    pool.link.store(0, Release);
    let retired = if orders.late { pool.epoch.load(Acquire) } else { found };
    pool.announced[1].store(0, Release);
    let now = pool.try_advance(orders);
    if now >= retired + orders.grace {
        pool.block.store(REUSED, Relaxed);
    }
    reader.join().expect("the thread of the model");
}

#[test]
fn no_block_is_used_again_under_its_reader() {
    holds(PRODUCT, 3, model);
    holds(PRODUCT, 3, model_of_a_slow_pin);
}

#[test]
fn a_block_waits_from_the_epoch_on_in_which_it_is_retired() {
    breaks("the epoch of the pin", Orders { late: false, ..PRODUCT }, 3, model_of_a_slow_pin);
}

#[test]
fn every_barrier_is_needed() {
    breaks("a pin without its barrier", Orders { light: false, ..PRODUCT }, 3, model);
    breaks("an advance without its barrier", Orders { heavy: false, ..PRODUCT }, 3, model);
}

#[test]
fn one_epoch_is_too_short_a_grace() {
    breaks("a grace of one epoch", Orders { grace: 1, ..PRODUCT }, 3, model);
}
