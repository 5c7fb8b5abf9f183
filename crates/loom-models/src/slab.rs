//! Who lists a slab that gets a free block while its owner leaves it as full: `pool/src/slabs.rs` (`leave`, `free_block`, `list_if_full`).
//!
//! The product's accesses here are sequentially consistent; see the crate's head for the fences.

use crate::check::{breaks, holds};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use loom::sync::atomic::{AtomicU64, fence};
use loom::thread;

const OWNED: u64 = 0;
const FULL: u64 = 1;
const LISTED: u64 = 2;

#[derive(Clone, Copy)]
struct Orders {
    /// Whether the owner's look at the bitmap stays behind its store of the state.
    leave: bool,
    /// Whether the freer's look at the state stays behind its change of the bitmap.
    free: bool,
    /// Whether listing is a compare-and-swap.
    swaps: bool,
}

const PRODUCT: Orders = Orders { leave: true, free: true, swaps: true };

struct Slab {
    state: AtomicU64,
    taken: AtomicU64,
    pushed: AtomicU64,
}

impl Slab {
    fn list_if_full(&self, orders: Orders) {
        let mine = if orders.swaps {
            self.state.compare_exchange(FULL, LISTED, Acquire, Relaxed).is_ok()
        } else {
            let is_full = self.state.load(Acquire) == FULL;
            self.state.store(LISTED, SeqCst);
            is_full
        };
        if mine {
            self.pushed.fetch_add(1, Relaxed);
        }
    }

    fn leave(&self, orders: Orders) {
        self.state.swap(FULL, AcqRel);
        if orders.leave {
            fence(SeqCst);
        }
        if self.taken.load(Acquire) != 0b11 {
            self.list_if_full(orders);
        }
    }

    fn free(&self, bit: u64, orders: Orders) {
        self.taken.fetch_and(!bit, AcqRel);
        if orders.free {
            fence(SeqCst);
        }
        if self.state.load(Acquire) == FULL {
            self.list_if_full(orders);
        }
    }
}

/// The owner leaves a slab whose two blocks are taken, and two threads free them: the slab is listed, once.
fn model(orders: Orders) {
    let new = AtomicU64::new;
    let slab = Arc::new(Slab { state: new(OWNED), taken: new(0b11), pushed: new(0) });
    let free = |bit| {
        let slab = slab.clone();
        thread::spawn(move || slab.free(bit, orders))
    };
    let freers = [free(0b01), free(0b10)];
    slab.leave(orders);
    freers.into_iter().for_each(|freer| freer.join().expect("a thread of the model"));
    assert_eq!((slab.state.load(Acquire), slab.pushed.load(Acquire)), (LISTED, 1), "state and pushes");
}

#[test]
fn a_slab_with_a_free_block_is_listed_once() {
    holds(PRODUCT, 3, model);
}

#[test]
fn both_sides_look_after_they_stored() {
    breaks("the owner's look is not ordered", Orders { leave: false, ..PRODUCT }, 3, model);
    breaks("the freer's look is not ordered", Orders { free: false, ..PRODUCT }, 3, model);
    breaks("listed without a compare-and-swap", Orders { swaps: false, ..PRODUCT }, 3, model);
}
