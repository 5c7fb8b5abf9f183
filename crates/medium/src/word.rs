//! An atomic 64-bit word: the only thing in a medium that threads share.

use crate::{Access, Medium, Order};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

/// A 64-bit word in a medium. Every access names the medium, so that none can bypass it.
///
/// The methods are those of [`AtomicU64`]; on production media they compile to exactly that.
#[repr(transparent)]
pub struct Word(AtomicU64);

/// A cache line of words: the shape that buckets and nodes are made of.
///
/// Indexes read and write a node through accessors over its lines. So they need neither `unsafe`
/// nor a derive of their own: `Line` and arrays of it are [`Persistent`](crate::Persistent).
#[repr(C, align(64))]
pub struct Line(pub [Word; 8]);

const _: () = assert!(size_of::<Line>() == crate::LINE && align_of::<Line>() == crate::LINE);

// SAFETY: eight words of 8 bytes fill the 64 bytes; no padding.
unsafe impl crate::Persistent for Line {}

impl Line {
    /// The words of consecutive lines, so that one index serves instead of two.
    #[inline(always)]
    pub fn words(lines: &[Line]) -> &[Word] {
        // SAFETY: a line is exactly its eight words, so the words of consecutive lines are
        // consecutive, too. They are borrowed as the lines are.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines) / size_of::<Word>()) }
    }

    /// A bit for each of the `COUNT` words from word `FIRST` on that equals `value`. Each word is
    /// loaded on its own, with Acquire, as [`Word::load`] does.
    ///
    /// Branchless, and as few instructions as the processor allows. Instructions that wait for a
    /// cache miss limit how many misses overlap (see `docs/lessons.md`).
    #[inline(always)]
    #[track_caller]
    pub fn equal<const FIRST: usize, const COUNT: usize>(&self, medium: &impl Medium, value: u64) -> u64 {
        const { assert!(FIRST + 4 <= 8 && COUNT <= 4, "four words of the line from FIRST on are read together") };
        let words = &self.0[FIRST..FIRST + COUNT];
        medium.ordered(Order::Load(Ordering::Acquire), Location::caller());
        words.iter().for_each(|word| medium.before_access(Access::Load, word.at()));
        // SAFETY: four words of this line (asserted above), which are atomics.
        let equal = unsafe { crate::compare::equal_words(self.0[FIRST].at(), COUNT, value) };
        words.iter().for_each(|word| medium.accessed(Access::Load, word.at(), Location::caller()));
        equal
    }

    /// A bit for each byte of the `WORDS` words (2 or 4) from word `FIRST` on that equals `byte`.
    /// Bit 0 is the first byte in memory, the lowest of its word. Later loads of this thread are
    /// ordered after these. Branchless, and as few instructions as the processor allows.
    #[inline(always)]
    #[track_caller]
    pub fn equal_bytes<const FIRST: usize, const WORDS: usize>(&self, medium: &impl Medium, byte: u8) -> u32 {
        const { assert!(FIRST + WORDS <= 8, "the words lie in the line") };
        let words = &self.0[FIRST..FIRST + WORDS];
        medium.ordered(Order::Load(Ordering::Acquire), Location::caller());
        words.iter().for_each(|word| medium.before_access(Access::Load, word.at()));
        // SAFETY: words of this line (asserted above), which are atomics.
        let equal = unsafe { crate::match_bytes::equal_bytes::<WORDS>(self.0[FIRST].at(), byte) };
        words.iter().for_each(|word| medium.accessed(Access::Load, word.at(), Location::caller()));
        equal
    }
}

impl Word {
    /// Loads the word.
    #[inline(always)]
    #[track_caller]
    pub fn load<M: Medium>(&self, medium: &M, order: Ordering) -> u64 {
        medium.ordered(Order::Load(order), Location::caller());
        medium.before_access(Access::Load, self.at());
        let value = self.0.load(order);
        medium.accessed(Access::Load, self.at(), Location::caller());
        value
    }

    /// Stores `value`. Durable only after a write-back and a fence.
    #[inline(always)]
    #[track_caller]
    pub fn store<M: Medium>(&self, medium: &M, value: u64, order: Ordering) {
        medium.ordered(Order::Store(order), Location::caller());
        medium.before_access(Access::Store, self.at());
        self.0.store(value, order);
        medium.accessed(Access::Store, self.at(), Location::caller());
    }

    /// Replaces `current` by `new` and returns `current`; if the word holds another value, returns
    /// that.
    #[inline(always)]
    #[track_caller]
    pub fn compare_exchange<M: Medium>(
        &self,
        medium: &M,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        medium.ordered(Order::Rmw(success), Location::caller());
        medium.before_access(Access::Rmw, self.at());
        let outcome = self.0.compare_exchange(current, new, success, failure);
        let access = if outcome.is_ok() { Access::Rmw } else { Access::RmwFailed };
        if outcome.is_err() {
            medium.ordered(Order::RmwFailed(failure), Location::caller());
        }
        medium.accessed(access, self.at(), Location::caller());
        outcome
    }

    /// Stores `value` and returns the previous value.
    #[inline(always)]
    #[track_caller]
    pub fn swap<M: Medium>(&self, medium: &M, value: u64, order: Ordering) -> u64 {
        self.rmw(medium, order, Location::caller(), |word| word.swap(value, order))
    }

    /// Adds `value`, wrapping, and returns the previous value.
    #[inline(always)]
    #[track_caller]
    pub fn fetch_add<M: Medium>(&self, medium: &M, value: u64, order: Ordering) -> u64 {
        self.rmw(medium, order, Location::caller(), |word| word.fetch_add(value, order))
    }

    /// Subtracts `value`, wrapping, and returns the previous value.
    #[inline(always)]
    #[track_caller]
    pub fn fetch_sub<M: Medium>(&self, medium: &M, value: u64, order: Ordering) -> u64 {
        self.rmw(medium, order, Location::caller(), |word| word.fetch_sub(value, order))
    }

    /// Sets the bits of `value` and returns the previous value.
    #[inline(always)]
    #[track_caller]
    pub fn fetch_or<M: Medium>(&self, medium: &M, value: u64, order: Ordering) -> u64 {
        self.rmw(medium, order, Location::caller(), |word| word.fetch_or(value, order))
    }

    /// Keeps only the bits of `value` and returns the previous value.
    #[inline(always)]
    #[track_caller]
    pub fn fetch_and<M: Medium>(&self, medium: &M, value: u64, order: Ordering) -> u64 {
        self.rmw(medium, order, Location::caller(), |word| word.fetch_and(value, order))
    }

    /// Raises the word to `value` if it is lower, and returns the previous value.
    #[inline(always)]
    #[track_caller]
    pub fn fetch_max<M: Medium>(&self, medium: &M, value: u64, order: Ordering) -> u64 {
        self.rmw(medium, order, Location::caller(), |word| word.fetch_max(value, order))
    }

    /// The word's address, for write-backs.
    #[inline(always)]
    pub fn at(&self) -> *const u8 {
        (&raw const self.0).cast()
    }

    #[inline(always)]
    fn rmw<M: Medium>(
        &self,
        medium: &M,
        order: Ordering,
        site: &'static Location<'static>,
        operation: impl FnOnce(&AtomicU64) -> u64,
    ) -> u64 {
        medium.ordered(Order::Rmw(order), site);
        medium.before_access(Access::Rmw, self.at());
        let before = operation(&self.0);
        medium.accessed(Access::Rmw, self.at(), site);
        before
    }
}

#[cfg(test)]
mod tests {
    use crate::{Dram, Line, MappedMedium, Mapping, Offset, Region};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn word_behaves_as_an_atomic() {
        let region = Region::new(Dram::new(Mapping::anonymous(4096, 0).unwrap()));
        let (medium, line) = (region.medium(), region.at::<Line>(Offset::new(64)));
        let word = &line.0[3];
        word.store(medium, 12, Relaxed);
        assert_eq!((word.swap(medium, 5, Relaxed), word.fetch_add(medium, 2, Relaxed)), (12, 5));
        assert_eq!((word.fetch_sub(medium, 3, Relaxed), word.fetch_or(medium, 3, Relaxed)), (7, 4));
        assert_eq!((word.fetch_and(medium, 6, Relaxed), word.fetch_max(medium, 9, Relaxed)), (7, 6));
        assert_eq!((word.fetch_max(medium, 8, Relaxed), word.load(medium, Relaxed)), (9, 9));
        assert_eq!(word.compare_exchange(medium, 8, 1, Relaxed, Relaxed), Err(9));
        assert_eq!(word.compare_exchange(medium, 9, 1, Relaxed, Relaxed), Ok(9));
        // Bytes 8 to 39 of the line, those of four words.
        line.0[1].store(medium, u64::from_le_bytes(*b"abcaaaaa"), Relaxed);
        line.0[4].store(medium, u64::from_le_bytes(*b"bbbbbbba"), Relaxed);
        word.store(medium, 1, Relaxed);
        assert_eq!(line.equal_bytes::<1, 4>(medium, b'a'), 1 << 31 | 0b1111_1001);
        assert_eq!(line.equal_bytes::<1, 2>(medium, b'b'), 0b10);
        let words = Line::words(region.at::<[Line; 2]>(Offset::new(0)));
        assert_eq!(words.len(), 16);
        assert!(std::ptr::eq(&words[8 + 3], word) && words[11].load(medium, Relaxed) == 1);
    }
}
