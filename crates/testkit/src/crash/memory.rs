//! The memory on which recoveries run: many thousands a second, each on another image.
//!
//! An image is written once. A run ([`Memory::begin`] to [`Memory::end`]) records the words that it
//! reads before it writes them, since only those can affect it. It also saves each line before its
//! first store to it, so that ending the run restores the image without copying the rest.
//!
//! One thread at a time uses a memory, or several that a scheduler runs in turn. All fields are
//! atomic, without ordering: threads that violate this get wrong records, never undefined
//! behaviour.

mod rest;

pub(super) use rest::Reads;

use crate::observer::CallObserver;
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use terrace_medium::{Access, LINE, MapError, MappedMedium, Mapping, Medium};

/// Words per line.
pub(crate) const WORDS: usize = LINE / 8;
/// The content of a line.
pub(crate) type Words = [u64; WORDS];

/// Flag: the crash leaves a choice for the content of the line.
const UNDECIDED: u8 = 1;
/// Flag: recovery resets the line whatever its content, so it is not part of the state.
const SCRATCH: u8 = 2;
/// Flag: the line was stored to in this run, and its old content is saved.
const KEPT: u8 = 4;

/// Accesses after which a run is assumed never to end.
const STEPS_MAX: u64 = 4_000_000;

/// The panic message of a run that does not end.
pub(crate) const ENDLESS: &str = "it does not terminate";

struct Arena {
    mapping: Mapping,
    /// Words read or written in this run, and all words of scratch lines.
    seen: Bits,
    /// Words of scratch lines: the value of `seen` when a run begins.
    scratch: Bits,
    /// One byte of flags per line.
    flags: Box<[AtomicU8]>,
    /// Words read before they were written, in any run since [`Memory::forget_reads`].
    ever_read: Bits,
    /// One bit per word of an undecided line: read before it was written, in this run.
    undecided_words: Box<[AtomicU8]>,
    /// Undecided lines, in the order in which this run first read them.
    undecided_reads: Stack,
    /// Lines with [`KEPT`], and below their old contents.
    kept: Stack,
    old: Box<[[AtomicU64; WORDS]]>,
    fingerprint: AtomicU64,
    steps: AtomicU64,
    /// A hash of the whole content between runs.
    held: AtomicU64,
    /// The rest of a run, whose reads are recorded separately.
    rest: rest::Rest,
}

impl Arena {
    /// Clears everything except the content.
    fn clear(&self) {
        [&self.seen, &self.scratch, &self.ever_read].into_iter().for_each(Bits::clear);
        self.flags.iter().chain(&self.undecided_words).for_each(|byte| byte.store(0, Relaxed));
        [&self.undecided_reads, &self.kept].into_iter().for_each(|stack| stack.len.store(0, Relaxed));
    }
}

/// Line numbers, each at most once.
struct Stack {
    lines: Box<[AtomicU32]>,
    len: AtomicU32,
}

impl Stack {
    fn new(lines: usize) -> Self {
        Self { lines: array(lines), len: AtomicU32::new(0) }
    }
    fn push(&self, line: usize) {
        let len = self.len.load(Relaxed);
        if let Some(place) = self.lines.get(len as usize) {
            place.store(line as u32, Relaxed);
            self.len.store(len + 1, Relaxed);
        }
    }
    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let len = self.len.load(Relaxed) as usize;
        self.lines[..len.min(self.lines.len())].iter().map(|line| line.load(Relaxed) as usize)
    }
}

/// One bit per word.
struct Bits(Box<[AtomicU64]>);

impl Bits {
    fn new(lines: usize) -> Self {
        Self(array(lines.div_ceil(64 / WORDS)))
    }
    #[inline(always)]
    fn has(&self, word: usize) -> bool {
        self.0.get(word / 64).is_none_or(|bits| bits.load(Relaxed) >> (word % 64) & 1 != 0)
    }
    #[inline(always)]
    fn set(&self, word: usize) {
        if let Some(bits) = self.0.get(word / 64) {
            bits.store(bits.load(Relaxed) | 1 << (word % 64), Relaxed);
        }
    }
    /// The bits of a line.
    fn of_line(&self, line: usize) -> u8 {
        (self.0[line * WORDS / 64].load(Relaxed) >> (line * WORDS % 64)) as u8
    }
    fn set_line(&self, line: usize) {
        (line * WORDS..(line + 1) * WORDS).for_each(|word| self.set(word));
    }
    fn clear(&self) {
        self.0.iter().for_each(|bits| bits.store(0, Relaxed));
    }
    fn copy_from(&self, other: &Self) {
        copy(&self.0, &other.0);
    }
}

/// Copies the second words over the first.
#[inline(always)]
fn copy(to: &[AtomicU64], from: &[AtomicU64]) {
    to.iter().zip(from).for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
}

fn array<T: Default>(len: usize) -> Box<[T]> {
    (0..len).map(|_| T::default()).collect()
}

/// Memory for recoveries. `VOLATILE` is the [`Medium::VOLATILE_CACHE`] of the code that runs on it.
/// Clones are handles to the same memory.
pub struct Memory<const VOLATILE: bool> {
    base: NonNull<u8>,
    arena: Arc<Arena>,
}

// SAFETY: the base points into the mapping, which the arena keeps; all else is Send and Sync.
unsafe impl<const VOLATILE: bool> Send for Memory<VOLATILE> {}
// SAFETY: as above.
unsafe impl<const VOLATILE: bool> Sync for Memory<VOLATILE> {}

impl<const VOLATILE: bool> Clone for Memory<VOLATILE> {
    fn clone(&self) -> Self {
        Self { base: self.base, arena: self.arena.clone() }
    }
}

impl<const VOLATILE: bool> Memory<VOLATILE> {
    /// Zeroed memory of `bytes` bytes that can grow to `most`.
    pub fn zeroed(bytes: usize, most: usize) -> Result<Self, MapError> {
        Mapping::anonymous(bytes, most).map(|mapping| Self::over(mapping, most.max(bytes)))
    }

    /// As [`Memory::zeroed`], but reuses memory of this size that this thread allocated earlier and
    /// dropped. Allocating takes as long as several recoveries.
    pub fn zeroed_reused(bytes: usize, most: usize) -> Result<Self, MapError> {
        const UNUSED_MAX: usize = 4;
        thread_local! {
            static UNUSED: RefCell<Vec<Arc<Arena>>> = const { RefCell::new(Vec::new()) };
        }
        let fits = |arena: &&Arc<Arena>| {
            let size = (arena.mapping.len(), arena.flags.len());
            Arc::strong_count(arena) == 1 && size == (bytes, most.div_ceil(LINE))
        };
        UNUSED.with_borrow_mut(|unused| {
            if let Some(arena) = unused.iter().find(fits) {
                arena.clear();
                let memory = Self { base: arena.mapping.base(), arena: arena.clone() };
                memory.set_all(&[]);
                return Ok(memory);
            }
            let memory = Self::zeroed(bytes, most)?;
            // Write every page once now: pages that are first read would be mapped twice.
            memory.set_all(&[]);
            if unused.len() == UNUSED_MAX {
                unused.remove(0);
            }
            unused.push(memory.arena.clone());
            Ok(memory)
        })
    }

    fn over(mapping: Mapping, most: usize) -> Self {
        let lines = most.div_ceil(LINE);
        let base = mapping.base();
        let arena = Arena {
            mapping,
            seen: Bits::new(lines),
            scratch: Bits::new(lines),
            flags: array(lines),
            ever_read: Bits::new(lines),
            undecided_words: array(lines),
            undecided_reads: Stack::new(lines),
            kept: Stack::new(lines),
            old: array(lines),
            fingerprint: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            held: AtomicU64::new(0),
            rest: rest::Rest::new(lines),
        };
        Self { base, arena: Arc::new(arena) }
    }

    /// Number of lines.
    pub fn lines(&self) -> usize {
        self.arena.mapping.len() / LINE
    }

    #[inline(always)]
    fn word(&self, word: usize) -> &AtomicU64 {
        assert!(word < self.arena.flags.len() * WORDS, "word {word} is not in the memory");
        // SAFETY: in the reserved range (checked: the arrays are as long as that), aligned, mapped
        // as long as `self`; any bits are a word.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().cast::<u64>().add(word)) }
    }

    /// A word, for a test's loads and stores.
    #[cfg(test)]
    pub(super) fn at(&self, index: usize) -> &terrace_medium::Word {
        assert!(index < self.lines() * WORDS);
        // SAFETY: in the mapping, which lives as long as the memory; any bits are a word.
        unsafe { self.base.cast::<terrace_medium::Word>().add(index).as_ref() }
    }

    /// The content of a line.
    pub fn line(&self, line: usize) -> Words {
        let words = self.words_of(line);
        std::array::from_fn(|word| words[word].load(Relaxed))
    }

    #[inline(always)]
    fn words_of(&self, line: usize) -> &[AtomicU64; WORDS] {
        assert!(line < self.arena.flags.len(), "line {line} is not in the memory");
        // SAFETY: as in `word`; a line is as many words as this.
        unsafe { &*self.base.as_ptr().cast::<[AtomicU64; WORDS]>().add(line) }
    }

    /// Sets the content of a line, outside any run.
    pub fn set_line(&self, line: usize, words: &Words) {
        let changes = rest::change(line, &self.line(line), words);
        self.arena.held.store(self.arena.held.load(Relaxed) ^ changes, Relaxed);
        self.fill_line(line, words);
    }

    fn fill_line(&self, line: usize, words: &Words) {
        self.words_of(line).iter().zip(words).for_each(|(word, &value)| word.store(value, Relaxed));
    }

    /// Sets the whole content to `image`, followed by zeros.
    pub fn set_all(&self, image: &[u64]) {
        let (lines, behind) = image.as_chunks::<WORDS>();
        let mut last = [0; WORDS];
        last[..behind.len()].copy_from_slice(behind);
        let mut held = 0;
        for line in 0..self.lines() {
            let words = lines.get(line).unwrap_or(if line == lines.len() { &last } else { &[0; WORDS] });
            held ^= rest::change(line, &[0; WORDS], words);
            self.fill_line(line, words);
        }
        self.arena.held.store(held, Relaxed);
    }

    /// All words.
    pub fn image(&self) -> Vec<u64> {
        (0..self.lines() * WORDS).map(|word| self.word(word).load(Relaxed)).collect()
    }

    /// Marks a line that recovery resets whatever its content.
    pub fn set_scratch(&self, line: usize) {
        or(&self.arena.flags[line], SCRATCH);
        self.arena.scratch.set_line(line);
        self.arena.seen.set_line(line);
    }

    /// Whether the line is so marked.
    pub fn is_scratch(&self, line: usize) -> bool {
        self.arena.flags[line].load(Relaxed) & SCRATCH != 0
    }

    /// Sets whether the crash leaves a choice for the content of this line.
    pub fn set_undecided(&self, line: usize, undecided: bool) {
        let flags = self.arena.flags[line].load(Relaxed);
        let flags = if undecided { flags | UNDECIDED } else { flags & !UNDECIDED };
        self.arena.flags[line].store(flags, Relaxed);
    }

    /// Starts a run.
    pub fn begin(&self) {
        let arena = &*self.arena;
        arena.undecided_reads.iter().for_each(|line| arena.undecided_words[line].store(0, Relaxed));
        arena.undecided_reads.len.store(0, Relaxed);
        arena.seen.copy_from(&arena.scratch);
        arena.fingerprint.store(0, Relaxed);
        arena.steps.store(STEPS_MAX, Relaxed);
        arena.rest.is_on.store(false, Relaxed);
    }

    /// Sets the content of a line for this run only.
    pub fn place(&self, line: usize, words: &Words) {
        self.keep(line);
        self.fill_line(line, words);
    }

    /// Ends the run and restores all lines.
    pub fn end(&self) {
        let arena = &*self.arena;
        for line in arena.kept.iter() {
            copy(self.words_of(line), &arena.old[line]);
            let flags = arena.flags[line].load(Relaxed);
            arena.flags[line].store(flags & !KEPT, Relaxed);
        }
        arena.kept.len.store(0, Relaxed);
    }

    /// The undecided lines that the run has read so far, in order, with a bit for each word that it
    /// read before writing it.
    pub fn undecided_reads(&self) -> impl Iterator<Item = (usize, u8)> + '_ {
        self.arena.undecided_reads.iter().map(|line| (line, self.arena.undecided_words[line].load(Relaxed)))
    }

    /// A hash of all words that the run has read before writing them, and of their values.
    pub fn fingerprint(&self) -> u64 {
        self.arena.fingerprint.load(Relaxed)
    }

    /// Whether any run since [`Memory::forget_reads`] read one of these words (one bit each) of a
    /// line before writing it.
    pub fn was_read(&self, line: usize, words: u8) -> bool {
        self.arena.ever_read.of_line(line) & words != 0
    }

    /// Forgets what earlier runs read.
    pub fn forget_reads(&self) {
        self.arena.ever_read.clear();
    }

    #[inline(always)]
    fn index(&self, at: *const u8) -> usize {
        at.addr().wrapping_sub(self.base.addr().get()) / 8
    }

    #[inline(always)]
    fn reads(&self, word: usize) {
        if !self.arena.seen.has(word) {
            self.first_read(word);
        }
    }

    /// Records the first access of the run to a word, a read.
    #[inline(never)]
    fn first_read(&self, word: usize) {
        let (arena, line) = (&*self.arena, word / WORDS);
        arena.seen.set(word);
        let value = self.word(word).load(Relaxed);
        if arena.rest.record_read(word, value) {
            return;
        }
        let flags = arena.flags[line].load(Relaxed);
        arena.ever_read.set(word);
        let fingerprint = arena.fingerprint.load(Relaxed) ^ hash(word as u64, value);
        arena.fingerprint.store(fingerprint, Relaxed);
        if flags & UNDECIDED != 0 {
            if arena.undecided_words[line].load(Relaxed) == 0 {
                arena.undecided_reads.push(line);
            }
            or(&arena.undecided_words[line], bit(word));
        }
    }

    #[inline(always)]
    fn writes(&self, word: usize) {
        let line = word / WORDS;
        if let Some(flags) = self.arena.flags.get(line) {
            if flags.load(Relaxed) & KEPT == 0 {
                self.keep(line);
            }
            self.arena.seen.set(word);
        }
    }

    /// Saves the content of a line for the end of the run, unless it is saved already.
    #[inline(never)]
    fn keep(&self, line: usize) {
        let arena = &*self.arena;
        if arena.flags[line].load(Relaxed) & KEPT != 0 {
            return;
        }
        or(&arena.flags[line], KEPT);
        copy(&arena.old[line], self.words_of(line));
        arena.kept.push(line);
    }

    /// Records a read or write of several bytes. A word that is written in part counts as written:
    /// no code reads the remaining bytes of such a word.
    fn bytes(&self, at: *const u8, len: usize, write: bool) {
        if len == 0 {
            return;
        }
        let start = at.addr().wrapping_sub(self.base.addr().get());
        let (first, last) = (start / 8, (start + len - 1) / 8);
        if write {
            (first / WORDS..=last / WORDS).for_each(|line| self.keep(line));
        }
        for group in first / 64..=last / 64 {
            let from = first.max(group * 64) % 64;
            let to = last.min(group * 64 + 63) % 64;
            let mask = !0 << from & !0 >> (63 - to);
            self.all_of(group, mask, write);
        }
    }

    /// Records a read or write of several words of a group of 64.
    fn all_of(&self, group: usize, mask: u64, write: bool) {
        let Some(seen) = self.arena.seen.0.get(group) else { return };
        let mut new = mask & !seen.load(Relaxed);
        if write {
            return seen.store(seen.load(Relaxed) | mask, Relaxed);
        }
        while new != 0 {
            self.first_read(group * 64 + new.trailing_zeros() as usize);
            new &= new - 1;
        }
    }

    #[inline(always)]
    fn step(&self) {
        let steps = self.arena.steps.load(Relaxed);
        self.arena.steps.store(steps.wrapping_sub(1), Relaxed);
        if steps == 1 {
            out_of_steps();
        }
    }
}

#[cold]
fn out_of_steps() {
    // A panic during unwinding would abort the program.
    assert!(std::thread::panicking(), "{ENDLESS}");
}

#[inline(always)]
fn bit(word: usize) -> u8 {
    1 << (word % WORDS)
}

#[inline(always)]
fn or(byte: &AtomicU8, bits: u8) {
    byte.store(byte.load(Relaxed) | bits, Relaxed);
}

/// Hashes two numbers.
#[inline(always)]
pub(crate) fn hash(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x2d35_8dcc_aa6c_78a5) * u128::from(b ^ 0x8bb8_4b93_962e_acc9);
    let folded = (product as u64) ^ (product >> 64) as u64;
    (folded ^ a.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ folded >> 29
}

impl<const VOLATILE: bool> CallObserver for Memory<VOLATILE> {}

impl<const VOLATILE: bool> MappedMedium for Memory<VOLATILE> {
    fn new(mapping: Mapping) -> Self {
        let most = mapping.len();
        Self::over(mapping, most)
    }
    #[inline(always)]
    fn mapping(&self) -> &Mapping {
        &self.arena.mapping
    }
}

// SAFETY: the arena keeps its mapping until the last handle is dropped, and its length never
// shrinks.
unsafe impl<const VOLATILE: bool> Medium for Memory<VOLATILE> {
    const VOLATILE_CACHE: bool = VOLATILE;

    #[inline(always)]
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.arena.mapping.len()
    }

    #[inline(always)]
    fn write_back(&self, _: *const u8) {}

    #[inline(always)]
    fn fence(&self) {}

    #[inline(always)]
    fn before_access(&self, access: Access, at: *const u8) {
        match access {
            Access::Load => {
                self.step();
                self.reads(self.index(at));
            }
            Access::Store => self.writes(self.index(at)),
            Access::Rmw | Access::RmwFailed => {
                self.step();
                self.reads(self.index(at));
                self.writes(self.index(at));
            }
            Access::Read(len) => self.bytes(at, len, false),
            Access::Copy(len) | Access::StreamedCopy(len) => self.bytes(at, len, true),
        }
    }
}
