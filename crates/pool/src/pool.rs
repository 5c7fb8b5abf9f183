//! A pool that is open.

use crate::error::{CloseError, Holder, OpenError, Problem};
use crate::fixed::Anchor;
use crate::fork::{self, ForkSafe};
use crate::layout::{Geometry, Layout};
use crate::lifetime::allocator_sum;
use crate::liveness::{self, Liveness};
use crate::lock::{Lock, LockWords, Locked};
use crate::options::PoolOptions;
use crate::participants::{self, Owner};
use crate::protect::WriteProtection;
use crate::shared::{Memory, Shared};
use crate::superblock::{self, Superblock};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use terrace_medium::{Line, MapError, MappedMedium, Offset, Region, Word, full_barrier};

/// How a pool was found when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// It was made just now, in zeroed memory.
    Created,
    /// It had been closed in order: what the allocator left is true.
    Clean,
    /// It was in use when its last user died, or was closed before all memory was accounted for: what the allocator left is not
    /// believed.
    Unclean,
}

/// How pins come by their barrier (see `barrier`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pins {
    /// The kernel makes it for who moves the epoch on, where it does.
    Light,
    /// Each makes its own: every run of a test is the same, and the kernel interrupts nobody.
    Heavy,
    /// As if the kernel made it: a test's medium stands for that.
    AsIfLight,
}

/// What an opening found and decided.
pub(crate) struct OpenedAs {
    /// What messages call the pool.
    pub(crate) name: PathBuf,
    pub(crate) start: Start,
    /// Whether the file may be written.
    pub(crate) writes: bool,
    /// Bytes that can be used; less than the superblock says if the file is cut short.
    pub(crate) size: u64,
    pub(crate) superblock: Superblock,
    /// The copy of the superblock to write first.
    pub(crate) copy: usize,
    pub(crate) pins: Pins,
    /// Who of the participants is alive, if others may come in while the pool is open.
    pub(crate) liveness: Option<Arc<dyn Liveness>>,
}

/// The words that the pool itself shares, a line: what is true while it is open, for whoever comes in.
///
/// ```text
/// word 0     bytes of the pool
///      1     lock of the superblock
///      2     lock of the root directory
///      3     how the pool was found (8) | pins have no barrier (8) | what sharers share (48): see [`SHARING`]
///      4     lock of who brings the contents up
///      5     whether that has been done since the pool was opened
///      6     bytes that the pool has, or is about to have: who comes in needs addresses for as many
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

/// What sharers share beside the format of the pool: seats, the allocator's words, lock words; counted between releases, as that changes. A program that knows another version is refused.
const SHARING_VERSION: u64 = 3;

/// Whom this program shares a pool with: those that say the same, `| major (8) | minor (12) | patch (12) | version of sharing (16) |`. The release is among it, as nobody has to think of it.
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

/// What whoever comes in to a pool has to go by.
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

    /// The terms in `word`, or what those share who wrote it.
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

/// The terms on which the pool in `region` is open, or what those share who have it open; 0 if it is not shared.
pub(crate) fn terms<M: MappedMedium>(region: &Region<M>, layout: &Layout) -> Result<SharingTerms, u64> {
    let line = region.at::<Line>(Offset::new(layout.shared));
    SharingTerms::decode(line.0[word::TERMS].load(region.medium(), Ordering::Acquire))
}

/// Whether this participant, whose slot says how far it can follow, has addresses for all that the pool has or is about to have. If not, the bytes that are wanted and those reserved.
pub(crate) fn check_addresses<M: MappedMedium>(
    region: &Region<M>,
    layout: &Layout,
) -> Result<(), (u64, u64)> {
    // ORDER: the slot before this look, as who grows the pool says so before it looks at the slots: of the two one sees the other.
    full_barrier(region.medium());
    let claimed = &region.at::<Line>(Offset::new(layout.shared)).0[word::CLAIMED];
    let (wanted, reserved) =
        (claimed.load(region.medium(), Ordering::Acquire), region.medium().mapping().reserved() as u64);
    if wanted > reserved { Err((wanted, reserved)) } else { Ok(()) }
}

/// A pool that is open. Clones are handles to the same pool; it is closed, in order, when the last one goes.
pub struct Pool<M: MappedMedium>(pub(crate) Arc<Inner<M>>);

/// What the handles share.
pub(crate) struct Inner<M: MappedMedium> {
    /// The file's handle and the mapping, so that a child does not keep what the handle locks. Dropped first.
    _fork_safe: Option<ForkSafe>,
    /// Tells this opening from every other of this process, for thread-local caches.
    pub(crate) id: u64,
    pub(crate) region: Region<M>,
    pub(crate) layout: Layout,
    /// The allocator's shared words, read by every pin.
    shared: Anchor<Shared>,
    pub(crate) owner: Owner,
    pub(crate) lock_words: LockWords,
    /// Counts openings: what the allocator left in an older era is believed by and by, as `arrival` says.
    pub(crate) open_seq: u32,
    pub(crate) start: Start,
    pub(crate) writes: bool,
    pub(crate) hash_seed: u64,
    /// Held while the superblock changes: growth, close. Other processes are kept out by a lock in the pool.
    superblock: Mutex<Superblock>,
    /// Held while a root is made; as above.
    roots: Mutex<()>,
    /// Who of the participants is alive; `None` if this process has the pool for itself.
    pub(crate) liveness: Option<Arc<dyn Liveness>>,
    /// Of each participant the last life that was found to be ending; 0 for none. See `recover`.
    pub(crate) exiting: Box<[AtomicU64]>,
    /// Whether this process may store to the zones.
    pub(crate) protected: WriteProtection,
    /// Whether [`Pool::close`] has done its work.
    closed: bool,
    /// Which process of a family of forks opened it.
    fork_generation: u64,
    /// Whether pins may leave their barrier to who moves the epoch on.
    pub(crate) light_pins: bool,
    /// See [`Inner::is_multi_host`].
    multi_host: bool,
    /// The epoch in which readers were waited for in vain last; `u64::MAX` if never.
    pub(crate) held_up_at: AtomicU64,
    /// The allocator's part that is not in the region: what follows from the geometry.
    pub(crate) memory: Memory,
}

impl<M: MappedMedium> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: MappedMedium> Pool<M> {
    /// A pool of `size` bytes in anonymous memory: gone with the process.
    pub fn anonymous(size: u64) -> Result<Self, OpenError> {
        PoolOptions::anonymous().size(size).create()
    }

    /// As [`Pool::anonymous`], with a geometry of the caller's choice.
    pub fn anonymous_with(size: u64, geometry: Geometry) -> Result<Self, OpenError> {
        PoolOptions::anonymous().size(size).geometry(geometry).create()
    }

    /// Brings the shared structures into the state that `opened.start` asks for.
    pub(crate) fn start(
        region: Region<M>,
        layout: Layout,
        owner: Owner,
        opened: OpenedAs,
    ) -> Result<Self, Problem> {
        let one_kernel = opened.liveness.as_ref().is_none_or(|liveness| liveness.has_common_kernel());
        let light_pins = match opened.pins {
            Pins::Light => one_kernel && crate::barrier::register(),
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

    /// A handle to a pool whose shared structures are as they should be, as when others have it open.
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

    /// How often it has been opened with nobody else in it: a lock of another generation is free.
    #[inline(always)]
    pub fn generation(&self) -> u32 {
        self.0.owner.generation
    }

    /// This process, as lock words name it.
    #[inline(always)]
    pub fn owner(&self) -> Owner {
        self.0.owner
    }

    /// The seed of every hash of a key in this pool.
    #[inline(always)]
    pub fn hash_seed(&self) -> u64 {
        self.0.hash_seed
    }

    /// How it was found when it was opened.
    pub fn found(&self) -> Start {
        self.0.start
    }

    /// Whether it was opened to be read only: what is stored in it stays with this process.
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
        let holding_up = self.0.blocking_participants();
        let all = others.into_iter();
        all.map(|(index, holder)| Holder { holds_up: holding_up.contains(&index), ..holder }).collect()
    }

    /// Keeps others from bringing up what is in the pool, or making it, until it is dropped. For whoever opens a store in it.
    pub fn initialize(&self) -> Initializing<'_, M> {
        let locked = self.is_shared().then(|| self.0.opening_lock().acquire_in(&self.0));
        Initializing { pool: self, _locked: locked }
    }

    /// Whether what is in the pool has been brought up since it was opened, so that others may be at work in it.
    pub fn is_initialized(&self) -> bool {
        self.0.shared_word(word::READY).load(self.medium(), Ordering::Acquire) != 0
    }

    /// Its name among all pools.
    pub fn uuid(&self) -> u128 {
        self.0.superblock().uuid
    }

    /// The label that it was made with.
    pub fn label(&self) -> String {
        self.0.superblock().label.clone()
    }

    /// Closes it in order, so that the next open finds it clean and, on a disk, whole through a crash of the machine. It is the
    /// last handle; else [`CloseError::StillOpen`], and the last one closes it when it goes.
    pub fn close(self) -> Result<(), CloseError> {
        let mut inner = Arc::into_inner(self.0).ok_or(CloseError::StillOpen)?;
        inner.close().map_err(CloseError::Map)
    }

    /// Lets go of the pool as a process does that dies: the next open finds it left in use. For tests.
    #[doc(hidden)]
    pub fn abandon(self) {
        if let Some(mut inner) = Arc::into_inner(self.0) {
            inner.closed = true;
        }
    }

    /// Asks the kernel for huge pages for the next piece of the pool from `from` on, and says where to go on; `None` at the end. Takes
    /// some 50 ms, so it belongs in a thread of its own.
    pub fn collapse_step(&self, from: u64) -> Option<u64> {
        const STEP: u64 = 16 << 20;
        if from >= self.size() {
            return None;
        }
        self.medium().mapping().collapse_huge_pages(from as usize, STEP as usize);
        Some(from + STEP)
    }

    /// Writes the superblock as it stands.
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
    /// It is done.
    pub fn done(self) {
        self.pool.0.shared_word(word::READY).store(self.pool.medium(), 1, Ordering::Release);
    }
}

/// Something that nobody else changes, in this process or another.
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

    /// Whether one of them stands still, as far as that is to be seen from here.
    #[cold]
    pub(crate) fn has_stopped_participant(&self) -> bool {
        self.other_live_participants().iter().any(|(_, holder)| holder.stopped)
    }

    /// Whether the participants run under kernels of their own: then no one's cache outlives its host.
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
        // ORDER: Acquire: pairs with `set_size`; whoever sees the size sees the mapping that long.
        self.shared_word(word::SIZE).load(self.region.medium(), Ordering::Acquire)
    }

    /// The pool is about to have so many bytes, or, as before, no more than it has: said before it is asked whether all have addresses for them. By who has the superblock's lock.
    pub(crate) fn claim_size(&self, size: u64) {
        // ORDER: see `check_addresses`.
        self.shared_word(word::CLAIMED).store(self.medium(), size, Ordering::Release);
        full_barrier(self.medium());
    }

    /// Tells everyone that the pool has `size` bytes. The superblock says so already, durably.
    pub(crate) fn set_size(&self, size: u64) {
        self.claim_size(size);
        // ORDER: Release: pairs with `Pool::size`.
        self.shared_word(word::SIZE).store(self.region.medium().point("pool.size"), size, Ordering::Release);
    }

    /// The superblock as it is now, which nobody else changes meanwhile.
    pub(crate) fn superblock(&self) -> Exclusive<'_, M, Superblock> {
        let mut exclusive = self.exclusive(&self.superblock, self.superblock_lock());
        if self.is_shared()
            && let Ok(found) = superblock::load(&self.region)
        {
            // Others may have made the pool grow.
            *exclusive = found.superblock;
        }
        exclusive
    }

    /// The root directory is nobody else's meanwhile.
    pub(crate) fn roots(&self) -> Exclusive<'_, M, ()> {
        self.exclusive(&self.roots, self.roots_lock())
    }

    /// Keeps out the other threads of this process, and then the other processes.
    fn exclusive<'a, T>(&'a self, mutex: &'a Mutex<T>, lock: &'a Lock) -> Exclusive<'a, M, T> {
        let mutex = mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let locked = self.is_shared().then(|| lock.acquire_in(self));
        Exclusive { _locked: locked, mutex }
    }

    /// Leaves the pool. Whoever calls this has the last handle of this process.
    fn close(&mut self) -> Result<(), MapError> {
        if std::mem::replace(&mut self.closed, true) || !self.writes || self.is_forked_copy() {
            return Ok(());
        }
        // What is left for the dead is taken back, and who goes last writes down what there is.
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

    /// Whether another participant is alive. Nobody comes or goes meanwhile.
    fn has_other_participants(&self) -> bool {
        let mut others = (0..self.layout.geometry.participants)
            .filter(|&index| index != u32::from(self.owner.participant));
        self.liveness.as_ref().is_some_and(|liveness| others.any(|index| liveness.is_alive(index)))
    }

    /// Leaves the pool to the others.
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
    /// The orderly close, unless something has gone wrong: then the next open had better trust less.
    fn drop(&mut self) {
        if self.is_forked_copy() {
            return;
        }
        if !std::thread::panicking() {
            let _ = self.close();
        }
        if let Some(file) = self.region.medium().mapping().as_file() {
            // By name and not by closing the file: a process that this one is just starting may hold a copy of it.
            let _ = file.unlock();
            liveness::release_all(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small::{exclusive_pool, geometry, participants};
    use std::io;
    use terrace_medium::{Dram, Mapping, Shm};

    #[test]
    fn initialize_excludes_others_until_done_or_dropped() {
        let (_directory, [one, other]) = participants::<Shm, 2>(Geometry::tiny());
        let is_free = || other.0.opening_lock().acquire_until(&other.0, &|| true).is_some();
        let bringing = one.initialize();
        assert!(!is_free() && !other.is_initialized());
        drop(bringing);
        assert!(is_free() && !other.is_initialized(), "it was given up");
        one.initialize().done();
        assert!(is_free() && other.is_initialized());
    }

    /// Nobody else, and whether there may be somebody under another kernel.
    struct Nobody {
        is_multi_host: bool,
    }

    impl Liveness for Nobody {
        fn claim(&self, _: u32) -> io::Result<bool> {
            Ok(true)
        }
        fn release(&self, _: u32) {}
        fn is_alive(&self, _: u32) -> bool {
            false
        }
        fn enter(&self) -> io::Result<()> {
            Ok(())
        }
        fn leave(&self) {}
        fn has_common_kernel(&self) -> bool {
            !self.is_multi_host
        }
    }

    #[test]
    fn only_under_one_kernel_it_makes_the_barriers_for_all() {
        let shared = |is_multi_host| {
            let medium = Shm::new(Mapping::anonymous(1 << 20, 1 << 20).unwrap());
            let options = PoolOptions::anonymous().geometry(geometry());
            let pool = options.create_shared_on(medium, Arc::new(Nobody { is_multi_host })).unwrap();
            assert!(pool.is_shared());
            (pool.0.is_multi_host(), pool.0.light_pins)
        };
        let exclusive = exclusive_pool::<Dram>();
        let is_made = crate::barrier::register();
        assert!(!exclusive.is_shared());
        assert_eq!((exclusive.0.is_multi_host(), exclusive.0.light_pins), (false, is_made));
        assert_eq!(shared(false), (false, is_made));
        assert_eq!(shared(true), (true, false));
    }
}
