//! Reads of a bucket of `u64` keys without its lock: `index/src/hash/clht/pairs.rs` (`find`, `publish`, `clear`) and `bucket.rs`.

use crate::check::{breaks, holds};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use loom::thread;

#[derive(Clone, Copy)]
struct Orders {
    /// Of the reader's load of the word.
    read_word: Ordering,
    /// Of the reader's first load of the link.
    read_link: Ordering,
    /// Of the stores of key and word.
    write_pair: Ordering,
    /// Of the stores of the link.
    write_link: Ordering,
    /// What a publication adds to the link's version.
    step: u64,
    /// Whether the reader looks at the link a second time.
    looks_again: bool,
}

const PRODUCT: Orders = Orders {
    read_word: Acquire,
    read_link: Acquire,
    write_pair: Release,
    write_link: Release,
    step: 2,
    looks_again: true,
};

/// One pair. The link: the valid bit, and above it the version.
struct Bucket {
    link: AtomicU64,
    key: AtomicU64,
    word: AtomicU64,
}

impl Bucket {
    fn publish(&self, key: u64, word: u64, orders: Orders) {
        self.word.store(word, orders.write_pair);
        self.key.store(key, orders.write_pair);
        let link = self.link.load(Acquire);
        self.link.store((link | 1) + orders.step, orders.write_link);
    }

    fn clear(&self, orders: Orders) {
        let link = self.link.load(Acquire);
        self.link.store(link & !1, orders.write_link);
    }

    /// The product tries again; one try shows all there is to see.
    fn find(&self, key: u64, orders: Orders) -> Option<u64> {
        let before = self.link.load(orders.read_link);
        if before & 1 == 0 || self.key.load(Acquire) != key {
            return None;
        }
        let word = self.word.load(orders.read_word);
        (!orders.looks_again || before == self.link.load(Relaxed)).then_some(word)
    }
}

/// A key goes, another takes its pair, and the first comes back with another word; a reader of the first must never get the other's word.
fn model(orders: Orders) {
    let bucket =
        Arc::new(Bucket { link: AtomicU64::new(0), key: AtomicU64::new(0), word: AtomicU64::new(0) });
    bucket.publish(7, 70, orders);
    let reader = {
        let bucket = bucket.clone();
        thread::spawn(move || {
            let found = bucket.find(7, orders);
            assert!(matches!(found, None | Some(70) | Some(71)), "key 7 was read to have {found:?}");
        })
    };
    bucket.clear(orders);
    bucket.publish(8, 80, orders);
    bucket.clear(orders);
    bucket.publish(7, 71, orders);
    reader.join().expect("the thread of the model");
}

/// What a link publishes is there: a reader that finds the key of a pair that was never used finds its word.
fn fresh(orders: Orders) {
    let bucket =
        Arc::new(Bucket { link: AtomicU64::new(0), key: AtomicU64::new(7), word: AtomicU64::new(0) });
    let reader = {
        let bucket = bucket.clone();
        thread::spawn(move || {
            let found = bucket.find(7, orders);
            assert!(matches!(found, None | Some(70)), "key 7 was read to have {found:?}");
        })
    };
    bucket.publish(7, 70, orders);
    reader.join().expect("the thread of the model");
}

#[test]
fn a_reader_gets_the_word_of_its_key() {
    holds(PRODUCT, 3, model);
    holds(PRODUCT, 3, fresh);
}

#[test]
fn weaker_orders_mix_pairs() {
    breaks("the word without Acquire", Orders { read_word: Relaxed, ..PRODUCT }, 3, model);
    breaks("key and word without Release", Orders { write_pair: Relaxed, ..PRODUCT }, 3, model);
    breaks("no second look", Orders { looks_again: false, ..PRODUCT }, 3, model);
    breaks("no version", Orders { step: 0, ..PRODUCT }, 3, model);
    breaks(
        "the link without Release",
        Orders { write_link: Relaxed, write_pair: Relaxed, ..PRODUCT },
        3,
        fresh,
    );
}
