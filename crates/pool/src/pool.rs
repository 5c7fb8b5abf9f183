//! An open pool.

use crate::allocator::words::{Memory, Shared};
use crate::error::{CloseError, Holder, OpenError, Problem};
use crate::fixed::Anchor;
use crate::format::layout::{Geometry, Layout};
use crate::format::lifetime::allocator_sum;
use crate::format::superblock::{self, Superblock};
use crate::open::options::PoolOptions;
use crate::sharing::fork::{self, ForkSafe};
use crate::sharing::liveness::{self, Liveness};
use crate::sharing::participants::{self, Owner};
use crate::sharing::protect::WriteProtection;
use crate::sync::lock::{Lock, LockWords, Locked};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use terrace_medium::{Line, MapError, MappedMedium, Offset, Region, Word, full_barrier};

/// The state in which an open found the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Newly created, in zeroed memory.
    Created,
    /// Closed in order: the allocator's words are valid.
    Clean,
    /// In use when its last process died, or closed while a collection was pending: the allocator's
    /// words are not trusted.
    Unclean,
}

/// How a pin gets its memory barrier (see `barrier`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pins {
    /// The thread that advances the epoch lets the kernel issue it in every thread, where possible.
    Light,
    /// Each pin issues its own: runs of a test are reproducible, and the kernel interrupts no
    /// thread.
    Heavy,
    /// As `Light`, but a test's medium stands in for the kernel.
    AsIfLight,
}

/// What an open found and decided.
pub(crate) struct OpenedAs {
    /// The pool's name in messages.
    pub(crate) name: PathBuf,
    pub(crate) start: Start,
    /// Whether the file may be written.
    pub(crate) writes: bool,
    /// Usable bytes; less than in the superblock if the file is cut short.
    pub(crate) size: u64,
    pub(crate) superblock: Superblock,
    /// The copy of the superblock to write first.
    pub(crate) copy: usize,
    pub(crate) pins: Pins,
    /// Tells which participants are alive; `None` if the pool is exclusive.
    pub(crate) liveness: Option<Arc<dyn Liveness>>,
}

/// The line of words that the pool itself shares. They hold while it is open, and every process
/// that joins reads them.
///
/// ```text
/// word 0     bytes of the pool
///      1     lock of the superblock
///      2     lock of the root directory
///      3     state found at open (8) | pins without barrier (8) | [`SHARING`] (48)
///      4     lock of the initialization of the contents
///      5     whether that has been completed since the pool was opened
///      6     bytes that the pool has or is about to have; a joining process needs as many
///            addresses
/// ```
mod word {
    pub(super) const SIZE: usize = 0;
    pub(super) const SUPERBLOCK: usize = 1;
    pub(super) const ROOTS: usize = 2;
    pub(super) const TERMS: usize = 3;
    pub(super) const OPENING: usize = 4;
    pub(super) const READY: usize = 5;
    pub(super) const CLAIMED: usize = 6;
}

/// Version of what processes share beyond the format that the pool was created with: thread slots,
/// allocator words, lock words, contents of later formats. Increase it when one of these changes
/// between releases. A program with another version is refused.
const SHARING_VERSION: u64 = 5;

/// Sharing protocol version: `| major (8) | minor (12) | patch (12) | SHARING_VERSION (16) |`.
/// Processes share a pool only if these words are equal. The release number is part of it, so that
/// a forgotten increase of [`SHARING_VERSION`] does no harm between releases.
pub(crate) const SHARING: u64 = {
    let [major, minor, patch] =
        [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
    number(major) << 40 | number(minor) << 28 | number(patch) << 16 | SHARING_VERSION
};

const fn number(digits: &str) -> u64 {
    match u64::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => panic!("the parts of a version are numbers"),
    }
}

/// What a process that joins an open pool takes over from it.
#[derive(Clone, Copy)]
pub(crate) struct SharingTerms {
    pub(crate) start: Start,
    pub(crate) light_pins: bool,
}

impl SharingTerms {
    fn encode(self) -> u64 {
        let start = match self.start {
            Start::Created => 1,
            Start::Clean => 2,
            Start::Unclean => 3,
        };
        start | u64::from(self.light_pins) << 8 | SHARING << 16
    }

    /// The terms in `word`, or the sharing version of the process that wrote it.
    fn decode(word: u64) -> Result<Self, u64> {
        let light_pins = word >> 8 & 1 == 1;
        match (word >> 16, word & 0xff) {
            (SHARING, 1) => Ok(Self { start: Start::Created, light_pins }),
            (SHARING, 2) => Ok(Self { start: Start::Clean, light_pins }),
            (SHARING, 3) => Ok(Self { start: Start::Unclean, light_pins }),
            (version, _) => Err(version),
        }
    }
}

/// The terms under which the pool in `region` is open, or the sharing version of the processes that
/// have it open; 0 if it is not shared.
pub(crate) fn terms<M: MappedMedium>(region: &Region<M>, layout: &Layout) -> Result<SharingTerms, u64> {
    let line = region.at::<Line>(Offset::new(layout.shared));
    SharingTerms::decode(line.0[word::TERMS].load(region.medium(), Ordering::Acquire))
}

/// Whether this participant reserved addresses for all that the pool has or is about to have; its
/// slot announces how many. The error is the number of bytes wanted and reserved.
pub(crate) fn check_addresses<M: MappedMedium>(
    region: &Region<M>,
    layout: &Layout,
) -> Result<(), (u64, u64)> {
    // ORDER: the store of the slot comes before this load. A growing process stores the claim, then
    // loads the slots. At least one side sees the other.
    full_barrier(region.medium());
    let claimed = &region.at::<Line>(Offset::new(layout.shared)).0[word::CLAIMED];
    let (wanted, reserved) =
        (claimed.load(region.medium(), Ordering::Acquire), region.medium().mapping().reserved() as u64);
    if wanted > reserved { Err((wanted, reserved)) } else { Ok(()) }
}

/// An open pool. Clones are handles to the same pool; dropping the last one closes it in order.
pub struct Pool<M: MappedMedium>(pub(crate) Arc<Inner<M>>);

/// The state that all handles of this process share.
pub(crate) struct Inner<M: MappedMedium> {
    /// The file's handle and the mapping, registered so that a forked child does not keep the
    /// file's locks. Dropped first.
    _fork_safe: Option<ForkSafe>,
    /// Distinguishes this open from all others of this process, for thread-local caches.
    pub(crate) id: u64,
    pub(crate) region: Region<M>,
    pub(crate) layout: Layout,
    /// The allocator's shared words, read by every pin.
    shared: Anchor<Shared>,
    pub(crate) owner: Owner,
    pub(crate) lock_words: LockWords,
    /// Counts opens. Units with an older open sequence must be revalidated, see `revalidate`.
    pub(crate) open_seq: u32,
    pub(crate) start: Start,
    pub(crate) writes: bool,
    pub(crate) hash_seed: u64,
    /// Held while the superblock changes: growth, close. A lock in the pool excludes other
    /// processes.
    superblock: Mutex<Superblock>,
    /// Held while a root is created; a lock in the pool excludes other processes.
    roots: Mutex<()>,
    /// Tells which participants are alive; `None` if the pool is exclusive.
    pub(crate) liveness: Option<Arc<dyn Liveness>>,
    /// For each participant, the last incarnation that was found exiting; 0 for none. See
    /// `recover`.
    pub(crate) exiting: Box<[AtomicU64]>,
    /// Whether this process may store to the zones.
    pub(crate) protected: WriteProtection,
    /// Whether the close has been done.
    closed: bool,
    /// The fork generation of the process that opened it.
    fork_generation: u64,
    /// Whether pins may leave their barrier to the thread that advances the epoch.
    pub(crate) light_pins: bool,
    /// See [`Inner::is_multi_host`].
    multi_host: bool,
    /// The epoch of the last wait for readers that timed out; `u64::MAX` if none has.
    pub(crate) held_up_at: AtomicU64,
    /// The part of the allocator's state that is not in the region; it follows from the geometry.
    pub(crate) memory: Memory,
}

impl<M: MappedMedium> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: MappedMedium> Pool<M> {
    /// Creates a pool of `size` bytes in anonymous memory, which ends with the process.
    pub fn anonymous(size: u64) -> Result<Self, OpenError> {
        PoolOptions::anonymous().size(size).create()
    }

    /// As [`Pool::anonymous`], with a given geometry.
    pub fn anonymous_with(size: u64, geometry: Geometry) -> Result<Self, OpenError> {
        PoolOptions::anonymous().size(size).geometry(geometry).create()
    }

    /// Initializes the shared structures as `opened.start` requires.
    pub(crate) fn start(
        region: Region<M>,
        layout: Layout,
        owner: Owner,
        opened: OpenedAs,
    ) -> Result<Self, Problem> {
        let one_kernel = opened.liveness.as_ref().is_none_or(|liveness| liveness.has_common_kernel());
        let light_pins = match opened.pins {
            Pins::Light => one_kernel && crate::reclaim::barrier::register(),
            Pins::Heavy => false,
            Pins::AsIfLight => true,
        };
        let (size, terms) = (opened.size, SharingTerms { start: opened.start, light_pins });
        let pool = Self::join(region, layout, owner, opened, terms);
        pool.0.set_size(size);
        pool.0.shared_word(word::READY).store(pool.medium(), 0, Ordering::Relaxed);
        pool.0.shared_word(word::TERMS).store(pool.medium(), terms.encode(), Ordering::Release);
        pool.0.open_allocator();
        Ok(pool)
    }

    /// Makes a handle to a pool whose shared structures are initialized, as when other processes
    /// have it open.
    pub(crate) fn join(
        region: Region<M>,
        layout: Layout,
        owner: Owner,
        opened: OpenedAs,
        terms: SharingTerms,
    ) -> Self {
        if opened.liveness.is_some() {
            region.medium().mapping().follow_growth();
        }
        let multi_host = opened.liveness.as_ref().is_some_and(|liveness| !liveness.has_common_kernel());
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let exiting = if opened.liveness.is_some() { layout.geometry.participants } else { 0 };
        let shared = Anchor::new(&region, Offset::new(layout.allocator))
            .expect("every layout has its allocator's words");
        Self(Arc::new(Inner {
            _fork_safe: ForkSafe::mapping(region.medium().mapping(), &opened.name),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            region,
            layout,
            shared,
            owner,
            lock_words: LockWords::of(owner),
            open_seq: opened.superblock.open_seq,
            start: terms.start,
            writes: opened.writes,
            hash_seed: opened.superblock.hash_seed,
            superblock: Mutex::new(opened.superblock),
            roots: Mutex::new(()),
            liveness: opened.liveness,
            exiting: (0..exiting).map(|_| AtomicU64::new(0)).collect(),
            protected: WriteProtection::default(),
            closed: false,
            fork_generation: fork::generation(),
            light_pins: terms.light_pins,
            multi_host,
            held_up_at: AtomicU64::new(u64::MAX),
            memory: Memory::new(&layout),
        }))
    }

    /// The pool's memory.
    #[inline(always)]
    pub fn region(&self) -> &Region<M> {
        &self.0.region
    }

    /// The medium below.
    #[inline(always)]
    pub fn medium(&self) -> &M {
        self.0.region.medium()
    }

    /// Where its parts lie.
    #[inline(always)]
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// Its size in bytes, a multiple of the page.
    #[inline(always)]
    pub fn size(&self) -> u64 {
        self.0.size()
    }

    /// How often it has been opened by a first process. A lock word of another generation is free.
    #[inline(always)]
    pub fn generation(&self) -> u32 {
        self.0.owner.generation
    }

    /// This process, as lock words identify it.
    #[inline(always)]
    pub fn owner(&self) -> Owner {
        self.0.owner
    }

    /// The seed of every hash of a key in this pool.
    #[inline(always)]
    pub fn hash_seed(&self) -> u64 {
        self.0.hash_seed
    }

    /// The state in which it was found when it was opened.
    pub fn found(&self) -> Start {
        self.0.start
    }

    /// Whether it is open read-only: stores to it stay private to this process.
    pub fn is_read_only(&self) -> bool {
        !self.0.writes
    }

    /// Whether other processes may have it open too.
    pub fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    /// The other processes that have it open now.
    pub fn other_participants(&self) -> Vec<Holder> {
        let others = self.0.other_live_participants();
        let blocking = self.0.blocking_participants();
        let all = others.into_iter();
        all.map(|(index, holder)| Holder { blocks_reclaim: blocking.contains(&index), ..holder }).collect()
    }

    /// Excludes other processes from initializing the pool's contents until the result is dropped.
    /// For code that opens or creates a store in it.
    pub fn initialize(&self) -> Initializing<'_, M> {
        let locked = self.is_shared().then(|| self.0.opening_lock().acquire_in(&self.0));
        Initializing { pool: self, _locked: locked }
    }

    /// Whether the contents have been initialized since the pool was opened, so that other
    /// processes may be using them.
    pub fn is_initialized(&self) -> bool {
        self.0.shared_word(word::READY).load(self.medium(), Ordering::Acquire) != 0
    }

    /// Its unique identifier.
    pub fn uuid(&self) -> u128 {
        self.0.superblock().uuid
    }

    /// The label that was set when it was created.
    pub fn label(&self) -> String {
        self.0.superblock().label.clone()
    }

    /// Makes this a pool of the newest format, for contents that programs before it do not know:
    /// they refuse it from now on. Durable on return.
    pub fn raise_format(&self) -> Result<(), MapError> {
        let mut superblock = self.0.superblock();
        if superblock.version == superblock::VERSION {
            return Ok(());
        }
        let version = superblock::VERSION;
        let raised =
            Superblock { version, sequence: superblock.sequence.wrapping_add(1), ..superblock.clone() };
        raised.store(self.region(), 0)?;
        *superblock = raised;
        Ok(())
    }

    /// Closes the pool in order: the next open finds it clean and, on a disk, intact even if the
    /// machine crashes. Returns [`CloseError::StillOpen`] unless this is the last handle; then
    /// dropping the last handle closes the pool.
    pub fn close(self) -> Result<(), CloseError> {
        let mut inner = Arc::into_inner(self.0).ok_or(CloseError::StillOpen)?;
        inner.close().map_err(CloseError::Map)
    }

    /// Leaves the pool as a crashed process does: the next open finds it in use. For tests.
    #[doc(hidden)]
    pub fn abandon(self) {
        if let Some(mut inner) = Arc::into_inner(self.0) {
            inner.closed = true;
        }
    }

    /// Asks the kernel for huge pages for the next piece of the pool, from `from` on. Returns where
    /// to continue; `None` at the end. Takes some 50 ms, so it belongs in a thread of its own.
    pub fn collapse_step(&self, from: u64) -> Option<u64> {
        const STEP: u64 = 16 << 20;
        if from >= self.size() {
            return None;
        }
        self.medium().mapping().collapse_huge_pages(from as usize, STEP as usize);
        Some(from + STEP)
    }

    /// Writes the current superblock.
    pub(crate) fn store_superblock(&self) -> Result<(), MapError> {
        self.0.superblock().store(self.region(), 0)
    }
}

/// See [`Pool::initialize`].
pub struct Initializing<'p, M: MappedMedium> {
    pool: &'p Pool<M>,
    _locked: Option<Locked<'p, M>>,
}

impl<M: MappedMedium> Initializing<'_, M> {
    /// Marks the contents as initialized.
    pub fn done(self) {
        self.pool.0.shared_word(word::READY).store(self.pool.medium(), 1, Ordering::Release);
    }
}

/// Exclusive access to a value, against threads of this process and other processes.
pub(crate) struct Exclusive<'a, M: MappedMedium, T> {
    // Dropped first: the other processes wait for the lock, the other threads for the mutex.
    _locked: Option<Locked<'a, M>>,
    mutex: MutexGuard<'a, T>,
}

impl<M: MappedMedium, T> Deref for Exclusive<'_, M, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.mutex
    }
}

impl<M: MappedMedium, T> DerefMut for Exclusive<'_, M, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.mutex
    }
}

impl<M: MappedMedium> Inner<M> {
    #[inline(always)]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: the region lives as long as `self`, which holds it.
        unsafe { self.shared.get() }
    }

    #[inline(always)]
    fn shared_word(&self, index: usize) -> &Word {
        &self.region.at::<Line>(Offset::new(self.layout.shared)).0[index]
    }

    /// The other participants that are alive, with their numbers.
    pub(crate) fn other_live_participants(&self) -> Vec<(u32, Holder)> {
        let own = u32::from(self.owner.participant);
        let Some(liveness) = &self.liveness else { return Vec::new() };
        participants::live_participants(&self.region, &self.layout, &**liveness, Some(own))
    }

    /// Whether one of the other participants is stopped, as far as this process can tell.
    #[cold]
    pub(crate) fn has_stopped_participant(&self) -> bool {
        self.other_live_participants().iter().any(|(_, holder)| holder.stopped)
    }

    /// Whether the participants run under different kernels. Then the cache of a host may be lost
    /// with it.
    #[inline(always)]
    pub(crate) fn is_multi_host(&self) -> bool {
        self.multi_host
    }

    /// Whether it was opened by the process that forked this one.
    pub(crate) fn is_forked_copy(&self) -> bool {
        self.fork_generation != fork::generation()
    }

    /// Whether other processes may have the pool open too.
    #[inline(always)]
    pub(crate) fn is_shared(&self) -> bool {
        self.liveness.is_some()
    }

    pub(crate) fn superblock_lock(&self) -> &Lock {
        Lock::of(self.shared_word(word::SUPERBLOCK))
    }

    pub(crate) fn opening_lock(&self) -> &Lock {
        Lock::of(self.shared_word(word::OPENING))
    }

    pub(crate) fn roots_lock(&self) -> &Lock {
        Lock::of(self.shared_word(word::ROOTS))
    }

    /// See [`Pool::size`].
    #[inline(always)]
    pub(crate) fn size(&self) -> u64 {
        // ORDER: Acquire: pairs with `set_size`. A thread that sees the size also sees a mapping of
        // that length.
        self.shared_word(word::SIZE).load(self.region.medium(), Ordering::Acquire)
    }

    /// Announces that the pool is about to have `size` bytes, or, after a refusal, only its old
    /// size. Comes before the check that all participants have addresses for them. The caller holds
    /// the superblock's lock.
    pub(crate) fn claim_size(&self, size: u64) {
        // ORDER: see `check_addresses`.
        self.shared_word(word::CLAIMED).store(self.medium(), size, Ordering::Release);
        full_barrier(self.medium());
    }

    /// Announces to all participants that the pool has `size` bytes. The superblock says so
    /// already, durably.
    pub(crate) fn set_size(&self, size: u64) {
        self.claim_size(size);
        // ORDER: Release: pairs with `Pool::size`.
        self.shared_word(word::SIZE).store(self.region.medium().point("pool.size"), size, Ordering::Release);
    }

    /// The current superblock, with exclusive access.
    pub(crate) fn superblock(&self) -> Exclusive<'_, M, Superblock> {
        let mut exclusive = self.exclusive(&self.superblock, self.superblock_lock());
        if self.is_shared()
            && let Ok(found) = superblock::load(&self.region)
        {
            // Another process may have grown the pool.
            *exclusive = found.superblock;
        }
        exclusive
    }

    /// Exclusive access to the root directory.
    pub(crate) fn roots(&self) -> Exclusive<'_, M, ()> {
        self.exclusive(&self.roots, self.roots_lock())
    }

    /// Excludes the other threads of this process, and then the other processes.
    fn exclusive<'a, T>(&'a self, mutex: &'a Mutex<T>, lock: &'a Lock) -> Exclusive<'a, M, T> {
        let mutex = mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let locked = self.is_shared().then(|| lock.acquire_in(self));
        Exclusive { _locked: locked, mutex }
    }

    /// Leaves the pool. The caller has the last handle of this process.
    fn close(&mut self) -> Result<(), MapError> {
        if std::mem::replace(&mut self.closed, true) || !self.writes || self.is_forked_copy() {
            return Ok(());
        }
        // Closing recovers dead participants, and the last process stores final allocator words;
        // both write to protected memory.
        std::mem::forget(self.allow_stores());
        let Some(liveness) = &self.liveness else { return self.close_exclusive() };
        liveness.enter().map_err(|error| MapError::Os("lock the pool's file", error))?;
        let outcome = if self.has_other_participants() { self.detach() } else { self.close_exclusive() };
        if let Some(liveness) = &self.liveness {
            liveness.release(u32::from(self.owner.participant));
            liveness.leave();
        }
        outcome
    }

    /// Whether another participant is alive. The caller has entered the gate, so none joins or
    /// leaves.
    fn has_other_participants(&self) -> bool {
        let mut others = (0..self.layout.geometry.participants)
            .filter(|&index| index != u32::from(self.owner.participant));
        self.liveness.as_ref().is_some_and(|liveness| others.any(|index| liveness.is_alive(index)))
    }

    /// Leaves the pool while other processes continue to use it.
    fn detach(&self) -> Result<(), MapError> {
        self.release_slots();
        let Owner { participant, incarnation, .. } = self.owner;
        participants::release(&self.region, &self.layout, u32::from(participant), incarnation);
        Ok(())
    }

    /// Leaves the pool so that the next open finds it clean.
    fn close_exclusive(&mut self) -> Result<(), MapError> {
        if self.is_shared() {
            self.recover_all_dead();
        }
        let complete = self.close_allocator();
        let Owner { participant, incarnation, .. } = self.owner;
        participants::release(&self.region, &self.layout, u32::from(participant), incarnation);
        // PERSIST: everything before the clean flag. A crash before leaves the pool in use.
        self.region.fence();
        self.region.medium().mapping().sync(0, usize::MAX)?;
        let mut superblock = self.superblock();
        superblock.sequence = superblock.sequence.wrapping_add(1);
        superblock.clean = true;
        superblock.collection_pending = !complete;
        superblock.allocator_sum = allocator_sum(&self.region, &self.layout);
        superblock.store(&self.region, 0)
    }
}

impl<M: MappedMedium> Drop for Inner<M> {
    /// Closes in order, except during a panic: then the next open should trust less.
    fn drop(&mut self) {
        if self.is_forked_copy() {
            return;
        }
        if !std::thread::panicking() {
            let _ = self.close();
        }
        if let Some(file) = self.region.medium().mapping().as_file() {
            // Unlocks explicitly, since closing may not suffice: a process that is just being
            // started may hold a copy of the handle.
            let _ = file.unlock();
            liveness::release_all(file);
        }
    }
}

#[cfg(test)]
#[path = "tests/pool.rs"]
mod tests;
