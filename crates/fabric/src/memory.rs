//! Memory that peers may read and write.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Memory for regions. It is a slice of atomic words, since peers store to it at any time. The
/// fabric keeps the memory as long as a peer may reach it.
pub trait Memory: Send + Sync + 'static {
    /// The words; always the same ones.
    fn words(&self) -> &[AtomicU64];
}

/// Memory on the heap.
pub struct Words(Box<[AtomicU64]>);

impl Words {
    /// `count` words of 0.
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Memory for Words {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// Copies bytes out of words. Each word is loaded at once.
///
/// # Panics
/// If the words end before.
pub fn load_bytes(words: &[AtomicU64], mut at: usize, into: &mut [u8]) {
    let mut rest = into;
    while !rest.is_empty() {
        let part = within_word(at, rest.len());
        let (begin, end) = rest.split_at_mut(part.len());
        at += begin.len();
        begin.copy_from_slice(&words[(at - 1) / 8].load(Relaxed).to_ne_bytes()[part]);
        rest = end;
    }
}

/// Copies bytes into words. Each word is stored at once; the other bytes of the first and the last
/// one keep what other threads store to them.
///
/// # Panics
/// If the words end before.
pub fn store_bytes(words: &[AtomicU64], mut at: usize, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let part = within_word(at, rest.len());
        let (begin, end) = rest.split_at(part.len());
        at += begin.len();
        store_part(&words[(at - 1) / 8], part, begin);
        rest = end;
    }
}

/// Which bytes of its word the byte at `at` and those behind it are.
fn within_word(at: usize, len: usize) -> Range<usize> {
    at % 8..(at % 8 + len).min(8)
}

fn store_part(word: &AtomicU64, part: Range<usize>, bytes: &[u8]) {
    if let Ok(whole) = bytes.try_into() {
        return word.store(u64::from_ne_bytes(whole), Relaxed);
    }
    let merged = |old: u64| {
        let mut new = old.to_ne_bytes();
        new[part.clone()].copy_from_slice(bytes);
        Some(u64::from_ne_bytes(new))
    };
    let _ = word.fetch_update(Relaxed, Relaxed, merged);
}
