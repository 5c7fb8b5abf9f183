//! Bounds-checked access to a medium by offset.

use crate::{Access, LINE, Medium, Word, flush};
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

/// A type made only of [`Word`]s: any bits are a valid value, and every access is atomic.
///
/// So an index that follows a stale or hostile offset reads garbage, never undefined memory.
///
/// # Safety
/// `repr(C)`, every field is a `Word` or `Persistent`, no padding.
pub unsafe trait Persistent {}

// SAFETY: a Word is one word.
unsafe impl Persistent for Word {}
// SAFETY: an array has no padding between its elements.
unsafe impl<T: Persistent, const N: usize> Persistent for [T; N] {}

/// The distance of a `T` from a region's base, in bytes. Valid at any mapping address; 0 is null.
pub struct Offset<T>(u64, PhantomData<fn() -> T>);

impl<T> Offset<T> {
    /// The offset `raw`.
    #[inline(always)]
    pub const fn new(raw: u64) -> Self {
        Self(raw, PhantomData)
    }
    /// The distance from the base in bytes.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }
    /// The null offset.
    #[inline(always)]
    pub const fn null() -> Self {
        Self::new(0)
    }
    /// Whether this is null.
    #[inline(always)]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
    /// The offset of the `index`th `T` from here on.
    #[inline(always)]
    pub const fn element(self, index: u64) -> Self {
        Self::new(self.0.wrapping_add(index.wrapping_mul(size_of::<T>() as u64)))
    }
}

impl<T> Clone for Offset<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Offset<T> {}
impl<T> PartialEq for Offset<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T> Eq for Offset<T> {}
impl<T> std::fmt::Debug for Offset<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A medium whose words are accessed by typed offsets.
pub struct Region<M>(M);

impl<M: Medium> Region<M> {
    /// Wraps a medium.
    pub fn new(medium: M) -> Self {
        Self(medium)
    }

    /// The medium below.
    #[inline(always)]
    pub fn medium(&self) -> &M {
        &self.0
    }

    /// All words that may be accessed now, for a device or a network that is told where memory
    /// lies. Accesses by this slice bypass the medium.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the base is aligned to a line, and the medium keeps its length mapped and whole.
        // All access to it is atomic or under the promises of the unsafe methods, as with a Word.
        unsafe {
            std::slice::from_raw_parts(self.0.base().as_ptr().cast(), self.0.len() / size_of::<AtomicU64>())
        }
    }

    /// The `T` at `offset`, or `None` if it would be out of bounds or misaligned.
    #[inline(always)]
    pub fn get<T: Persistent>(&self, offset: Offset<T>) -> Option<&T> {
        match self.get_if_known(offset) {
            None if self.is_inside_after_growth(offset.raw(), size_of::<T>()) => self.get_if_known(offset),
            found => found,
        }
    }

    /// As [`Region::get`], but also `None` if the `T` lies in memory that another process added
    /// since the last look. For hot paths with a slow path of their own: it calls no function, so
    /// no registers are saved over a call.
    #[inline(always)]
    pub fn get_if_known<T: Persistent>(&self, offset: Offset<T>) -> Option<&T> {
        let len = self.0.len() as u64;
        let is_inside = if size_of::<T>() == align_of::<T>() && size_of::<T>() <= LINE {
            // An aligned `T` of at most a line lies in one line, and a medium consists of whole
            // lines.
            offset.raw() < len
        } else {
            // Subtract from the length, which is known before the offset is.
            len.checked_sub(size_of::<T>() as u64).is_some_and(|last| offset.raw() <= last)
        };
        if !is_inside || !offset.raw().is_multiple_of(align_of::<T>() as u64) {
            return None;
        }
        // SAFETY: in bounds and aligned (just checked; the base is line-aligned, and no Persistent
        // type asks for more). T: Persistent makes any bytes a valid T that may be shared. The
        // medium keeps the range mapped.
        Some(unsafe { self.0.base().add(offset.raw() as usize).cast().as_ref() })
    }

    /// Whether `len` bytes at `offset` lie in the region, including what another process has added.
    #[inline(always)]
    pub fn holds(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.0.len() as u64)
            || self.is_inside_after_growth(offset, len)
    }

    /// Whether the range lies in the region after looking at its length again.
    #[cold]
    #[inline(never)]
    fn is_inside_after_growth(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.refreshed_len() as u64)
    }

    /// The length, including what another process has added since the last look.
    #[cold]
    pub fn refreshed_len(&self) -> usize {
        // The result does not matter: another thread may have seen the growth first.
        self.0.has_grown();
        self.0.len()
    }

    /// The `T` at `offset`, which this program computed. An offset from a file of unknown origin
    /// goes through [`Region::get`].
    ///
    /// # Panics
    /// If the `T` would be out of bounds or misaligned.
    #[inline(always)]
    #[track_caller]
    pub fn at<T: Persistent>(&self, offset: Offset<T>) -> &T {
        match self.get(offset) {
            Some(t) => t,
            None => self.out_of_bounds(offset.raw(), size_of::<T>()),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn out_of_bounds(&self, offset: u64, size: usize) -> ! {
        panic!("{size} bytes at offset {offset:#x} do not lie in the pool ({} bytes)", self.0.len())
    }

    /// The offset of `t`, which lies in this region.
    #[inline(always)]
    pub fn offset_of<T: Persistent>(&self, t: &T) -> Offset<T> {
        Offset::new(((&raw const *t).addr() - self.0.base().addr().get()) as u64)
    }

    /// Starts writing back every line that `t` touches; durable after the next [`Region::fence`].
    #[inline(always)]
    #[track_caller]
    pub fn write_back<T: Persistent>(&self, t: &T) {
        self.write_back_range((&raw const *t).cast(), size_of::<T>());
    }

    /// Starts writing back every line of the `len` bytes at `offset`.
    ///
    /// # Panics
    /// If they are out of bounds.
    #[inline(always)]
    #[track_caller]
    pub fn write_back_bytes(&self, offset: u64, len: usize) {
        if M::VOLATILE_CACHE {
            self.write_back_range(self.check(offset, len), len);
        }
    }

    #[inline(always)]
    #[track_caller]
    fn write_back_range(&self, start: *const u8, len: usize) {
        if !M::VOLATILE_CACHE {
            return;
        }
        self.0.persisted_at(Location::caller());
        let end = start.addr() + len;
        let mut line = start.map_addr(|a| a & !(LINE - 1));
        while line.addr() < end {
            self.0.write_back(line);
            line = line.wrapping_add(LINE);
        }
    }

    /// Waits until everything that this thread has written back is durable.
    #[inline(always)]
    #[track_caller]
    pub fn fence(&self) {
        if M::VOLATILE_CACHE {
            self.0.persisted_at(Location::caller());
            self.0.fence();
        }
    }

    /// Writes `t` back and waits: it is durable on return.
    #[inline(always)]
    #[track_caller]
    pub fn persist<T: Persistent>(&self, t: &T) {
        self.write_back(t);
        self.fence();
    }

    /// Prefetches the line at `offset`. Never faults, whatever the offset.
    #[inline(always)]
    pub fn prefetch(&self, offset: u64) {
        let at = self.0.base().as_ptr().wrapping_add(offset as usize);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch of any address has no architectural effect.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a prefetch of any address has no architectural effect.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
        }
        self.0.prefetched(at);
    }

    /// As [`Region::prefetch`], for a line that will be written: takes the line from other
    /// processors' caches now instead of at the first store.
    #[inline(always)]
    pub fn prefetch_to_write(&self, offset: u64) {
        let at = self.0.base().as_ptr().wrapping_add(offset as usize);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch of any address has no architectural effect; processors without this
        // instruction ignore it. (The compiler's intrinsic becomes an ordinary prefetch where it
        // may not assume that every processor has it.)
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a prefetch of any address has no architectural effect.
        unsafe {
            std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
        }
        self.0.prefetched(at);
    }

    #[inline(always)]
    #[track_caller]
    fn check(&self, offset: u64, len: usize) -> *mut u8 {
        match self.holds(offset, len) {
            true => self.0.base().as_ptr().wrapping_add(offset as usize),
            false => self.out_of_bounds(offset, len),
        }
    }

    /// The `len` bytes at `offset`, or `None` if they are out of bounds.
    ///
    /// # Safety
    /// No thread writes these bytes while the slice lives. The pool guarantees that: records are
    /// written before they are published, and reused only after every reader's epoch.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        if !self.holds(offset, len) {
            return None;
        }
        let at = self.0.base().as_ptr().wrapping_add(offset as usize);
        self.0.before_access(Access::Read(len), at);
        // SAFETY: in bounds (just checked), mapped for the life of the medium, and not written (the
        // caller's promise).
        let bytes = unsafe { std::slice::from_raw_parts(at, len) };
        self.0.accessed(Access::Read(len), at, Location::caller());
        Some(bytes)
    }

    /// Copies `bytes` to `offset` through the cache. Durable only after a write-back and a fence.
    ///
    /// # Safety
    /// No other thread accesses these bytes now.
    ///
    /// # Panics
    /// If they are out of bounds.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn copy_in(&self, offset: u64, bytes: &[u8]) {
        let at = self.check(offset, bytes.len());
        self.0.before_access(Access::Copy(bytes.len()), at);
        // SAFETY: in bounds (checked) and not shared (the caller's promise). The source is Rust
        // memory or another part of the region, and `copy` allows overlap.
        unsafe { std::ptr::copy(bytes.as_ptr(), at, bytes.len()) };
        self.0.accessed(Access::Copy(bytes.len()), at, Location::caller());
    }

    /// Writes whole lines at `offset`, a multiple of [`LINE`]. With a volatile cache it bypasses
    /// the cache, and the lines are durable at this thread's next fence without a write-back; else
    /// it stores plainly. Each 8 bytes are stored atomically, in no particular order: for memory
    /// that no other thread reads yet.
    ///
    /// # Panics
    /// If the lines are out of bounds, or `offset` is not a multiple of [`LINE`].
    #[inline(always)]
    #[track_caller]
    pub fn stream_lines(&self, offset: u64, lines: &[[u64; LINE / 8]]) {
        let len = size_of_val(lines);
        let at = self.check(offset, len);
        assert!(offset.is_multiple_of(LINE as u64), "streamed lines start at a line, not at {offset:#x}");
        let access = if M::VOLATILE_CACHE { Access::StreamedCopy(len) } else { Access::Copy(len) };
        self.0.before_access(access, at);
        for (i, &value) in lines.as_flattened().iter().enumerate() {
            let to = at.cast::<AtomicU64>().wrapping_add(i);
            if M::VOLATILE_CACHE {
                // SAFETY: in bounds and aligned (checked); an aligned 8-byte store is atomic in
                // hardware, and the compiler cannot see through it.
                unsafe { flush::stream(to.cast(), value) }
            } else {
                // SAFETY: in bounds and aligned (checked), and any bits are a valid word.
                unsafe { (*to).store(value, Ordering::Relaxed) }
            }
        }
        self.0.accessed(access, at, Location::caller());
        if flush::STREAM_NEEDS_WRITE_BACK {
            self.write_back_range(at, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dram, Line, MappedMedium, Mapping, Shm};
    use std::ptr::NonNull;
    use std::sync::Mutex;

    /// A call that reached the medium below.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Call {
        Before(Access, u64),
        After(Access, u64),
        /// The line's offset.
        WrittenBack(u64),
        Fenced,
        Site,
        Prefetched(u64),
    }

    /// A medium that records every call, and that is longer than it first says.
    struct Recorder<const VOLATILE: bool> {
        below: Dram,
        len: AtomicU64,
        done: Mutex<Vec<Call>>,
    }

    const LEN: u64 = 1024;

    impl<const VOLATILE: bool> Recorder<VOLATILE> {
        fn region() -> Region<Self> {
            let below = Dram::new(Mapping::anonymous(2 * LEN as usize, 0).unwrap());
            Region::new(Self { below, len: AtomicU64::new(LEN), done: Mutex::default() })
        }
        fn record(&self, done: impl FnOnce(u64) -> Call, at: *const u8) {
            self.done.lock().unwrap().push(done((at.addr() - self.base().addr().get()) as u64));
        }
        fn take_record(&self) -> Vec<Call> {
            std::mem::take(&mut self.done.lock().unwrap())
        }
    }

    // SAFETY: the memory below fulfils the contract. This shows a prefix of whole lines that only
    // grows.
    unsafe impl<const VOLATILE: bool> Medium for Recorder<VOLATILE> {
        const VOLATILE_CACHE: bool = VOLATILE;
        fn base(&self) -> NonNull<u8> {
            self.below.base()
        }
        fn len(&self) -> usize {
            self.len.load(Ordering::Relaxed) as usize
        }
        fn has_grown(&self) -> bool {
            self.len.swap(2 * LEN, Ordering::Relaxed) < 2 * LEN
        }
        fn write_back(&self, at: *const u8) {
            self.record(Call::WrittenBack, at);
        }
        fn fence(&self) {
            self.done.lock().unwrap().push(Call::Fenced);
        }
        fn before_access(&self, access: Access, at: *const u8) {
            self.record(|at| Call::Before(access, at), at);
        }
        fn accessed(&self, access: Access, at: *const u8, _: &'static Location<'static>) {
            self.record(|at| Call::After(access, at), at);
        }
        fn persisted_at(&self, _: &'static Location<'static>) {
            self.done.lock().unwrap().push(Call::Site);
        }
        fn prefetched(&self, at: *const u8) {
            self.record(Call::Prefetched, at);
        }
    }

    #[test]
    fn words_are_those_of_the_medium() {
        let region = Recorder::<false>::region();
        let words = region.words();
        words[3].store(7, Ordering::Relaxed);
        assert_eq!(region.at::<Word>(Offset::new(24)).load(region.medium(), Ordering::Relaxed), 7);
        assert_eq!(words.len() as u64, LEN / 8);
    }

    #[test]
    fn prefetches_reach_the_medium() {
        let region = Recorder::<false>::region();
        region.prefetch(64);
        region.prefetch_to_write(200);
        assert_eq!(region.medium().take_record(), [Call::Prefetched(64), Call::Prefetched(200)]);
    }

    #[test]
    fn write_back_covers_exactly_the_touched_lines() {
        let region = Recorder::<true>::region();
        let lines = |from, len| {
            region.write_back_bytes(from, len);
            let take_record = region.medium().take_record();
            assert_eq!(take_record[0], Call::Site);
            let line = |done: &Call| match done {
                Call::WrittenBack(at) => *at,
                other => panic!("{other:?}"),
            };
            take_record[1..].iter().map(line).collect::<Vec<u64>>()
        };
        assert_eq!(lines(64, 64), [64]);
        assert_eq!(lines(64, 65), [64, 128]);
        assert_eq!(lines(100, 28), [64]);
        assert_eq!(lines(100, 29), [64, 128]);
        assert_eq!(lines(127, 1), [64]);
        assert_eq!(lines(0, 192), [0, 64, 128]);
        region.persist(region.at(Offset::<[Word; 2]>::new(184)));
        let both = [Call::Site, Call::WrittenBack(128), Call::WrittenBack(192), Call::Site, Call::Fenced];
        assert_eq!(region.medium().take_record(), both);
    }

    #[test]
    fn nothing_is_written_back_without_volatile_cache() {
        let region = Recorder::<false>::region();
        region.write_back_bytes(0, 100);
        region.persist(region.at(Offset::<Line>::new(64)));
        region.fence();
        assert_eq!(region.medium().take_record(), []);
    }

    fn streams<const VOLATILE: bool>(access: Access) {
        let region = Recorder::<VOLATILE>::region();
        let lines = [[1, 2, 3, 4, 5, 6, 7, 8], [9; 8]];
        region.stream_lines(128, &lines);
        assert_eq!(region.medium().take_record(), [Call::Before(access, 128), Call::After(access, 128)]);
        for (nth, &word) in lines.as_flattened().iter().enumerate() {
            let at = region.at(Offset::<Word>::new(128 + 8 * nth as u64));
            assert_eq!(at.load(region.medium(), Ordering::Relaxed), word);
        }
    }

    #[test]
    fn lines_are_streamed_only_past_a_volatile_cache() {
        streams::<true>(Access::StreamedCopy(128));
        streams::<false>(Access::Copy(128));
    }

    #[test]
    fn copies_and_reads_reach_the_medium() {
        let region = Recorder::<false>::region();
        // SAFETY: no other thread uses this region.
        unsafe {
            region.copy_in(10, b"bytes");
            assert_eq!(region.bytes(9, 7), Some(&b"\0bytes\0"[..]));
        }
        let (copy, read) = (Access::Copy(5), Access::Read(7));
        let expected =
            [Call::Before(copy, 10), Call::After(copy, 10), Call::Before(read, 9), Call::After(read, 9)];
        assert_eq!(region.medium().take_record(), expected);
    }

    #[test]
    fn access_past_the_end_looks_for_growth_once() {
        let grown = |look: &dyn Fn(&Region<Recorder<false>>) -> bool| {
            let region = Recorder::<false>::region();
            (look(&region), region.medium().len() as u64)
        };
        // Inside the known length, the medium is not asked whether it has grown.
        assert_eq!(grown(&|region| region.get(Offset::<Word>::new(LEN - 8)).is_some()), (true, LEN));
        assert_eq!(grown(&|region| region.get(Offset::<[Word; 3]>::new(LEN - 24)).is_some()), (true, LEN));
        assert_eq!(grown(&|region| region.holds(0, LEN as usize)), (true, LEN));
        assert_eq!(grown(&|region| region.get_if_known(Offset::<Word>::new(LEN)).is_some()), (false, LEN));
        assert_eq!(
            grown(&|region| region.get_if_known(Offset::<[Word; 3]>::new(LEN - 16)).is_some()),
            (false, LEN)
        );
        assert_eq!(grown(&|region| region.get(Offset::<Word>::new(LEN)).is_some()), (true, 2 * LEN));
        assert_eq!(grown(&|region| region.get(Offset::<Line>::new(2 * LEN - 64)).is_some()), (true, 2 * LEN));
        assert_eq!(
            grown(&|region| region.get(Offset::<[Word; 3]>::new(LEN - 16)).is_some()),
            (true, 2 * LEN)
        );
        assert_eq!(grown(&|region| region.holds(LEN, LEN as usize)), (true, 2 * LEN));
        assert_eq!(grown(&|region| region.refreshed_len() as u64 == 2 * LEN), (true, 2 * LEN));
        assert_eq!(grown(&|region| region.get(Offset::<Word>::new(2 * LEN)).is_some()), (false, 2 * LEN));
        assert_eq!(
            grown(&|region| region.get(Offset::<[Word; 3]>::new(2 * LEN - 16)).is_some()),
            (false, 2 * LEN)
        );
        assert_eq!(grown(&|region| region.holds(LEN, LEN as usize + 1)), (false, 2 * LEN));
        assert_eq!(grown(&|region| region.holds(u64::MAX, 2)), (false, LEN));
    }

    #[test]
    #[should_panic(expected = "24 bytes at offset 0x3f8 do not lie in the pool (1024 bytes)")]
    fn at_panics_out_of_bounds() {
        let region = Region::new(Shm::new(Mapping::anonymous(LEN as usize, 0).unwrap()));
        region.at(Offset::<[Word; 3]>::new(LEN - 8));
    }

    #[test]
    fn offset_elements_count_in_their_type() {
        assert!(Offset::<Line>::null().is_null() && !Offset::<Line>::new(64).is_null());
        assert_eq!(Offset::<Line>::new(64).element(3).raw(), 256);
        assert!(
            Offset::<Word>::new(8) == Offset::<Word>::new(0).element(1)
                && Offset::<Word>::new(8) != Offset::null()
        );
        assert_eq!(format!("{:?}", Offset::<Line>::new(64)), "0x40");
        let region = Recorder::<false>::region();
        let line: &Line = region.at(Offset::new(192));
        assert_eq!((region.offset_of(line).raw(), region.offset_of(&line.0[3]).raw()), (192, 216));
    }
}
