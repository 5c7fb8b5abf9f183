//! The medium with delays.

use super::cache::{Cache, Found};
use super::clock;
use super::device::{Device, Traffic};
use super::profile::Profile;
use super::thread::Thread;
use crate::threads;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Access, Dram, LINE, MappedMedium, Mapping, Medium, Offset, Region, Word};

/// Size of the modelled cache by default.
const CACHE_BYTES: u64 = 512 << 10;
const THREADS: usize = 1024;

/// How time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    /// Threads really wait.
    Real,
    /// Each thread's waits are only added up.
    Counted,
}

/// The medium `M`, slowed down to a [`Profile`].
///
/// Wrap [`Pmem`](terrace_medium::Pmem) to see the cost of durability, and
/// [`Shm`](terrace_medium::Shm) for memory whose caches survive (CXL and CMM-H with global
/// persistent flush).
///
/// ```
/// use terrace_medium::{Mapping, MappedMedium, Pmem};
/// use terrace_testkit::{Profile, Slow};
///
/// let mapping = Mapping::anonymous(1 << 20, 1 << 20).unwrap();
/// let medium = Slow::counted(Pmem::new(mapping), Profile::OPTANE_100);
/// # let _ = medium;
/// ```
pub struct Slow<M> {
    below: M,
    cache: Cache,
    device: Device,
    threads: Box<[Thread]>,
    time: Time,
}

impl<M: Medium> Slow<M> {
    /// Threads really wait as long as `profile` says.
    pub fn over(below: M, profile: Profile) -> Self {
        Self::with(below, profile, Time::Real, CACHE_BYTES)
    }

    /// No thread waits; [`Slow::during`] returns how long it would have. Deterministic with one
    /// thread.
    pub fn counted(below: M, profile: Profile) -> Self {
        Self::with(below, profile, Time::Counted, CACHE_BYTES)
    }

    /// Sets the size of the modelled cache, before first use; 512 KiB by default.
    pub fn cache_bytes(self, bytes: u64) -> Self {
        Self { cache: Cache::new(bytes), ..self }
    }

    fn with(below: M, profile: Profile, time: Time, cache_bytes: u64) -> Self {
        let threads = (0..THREADS).map(|_| Thread::default()).collect();
        Self { below, cache: Cache::new(cache_bytes), device: Device::new(profile), threads, time }
    }

    /// The profile.
    pub fn profile(&self) -> &Profile {
        self.device.profile()
    }

    /// The traffic of the device so far.
    pub fn traffic(&self) -> Traffic {
        self.device.traffic()
    }

    /// The traffic caused by `work`, and the time in ns that this thread waits for it in the model.
    pub fn during<R>(&self, work: impl FnOnce() -> R) -> (Traffic, u64, R) {
        let (traffic, began) = (self.traffic(), self.now());
        let result = work();
        (self.traffic() - traffic, self.now() - began, result)
    }

    #[inline]
    fn own_state(&self) -> &Thread {
        &self.threads[threads::number() % THREADS]
    }

    #[inline]
    fn now(&self) -> u64 {
        match self.time {
            Time::Real => clock::now_ns(),
            Time::Counted => self.own_state().now.load(Relaxed),
        }
    }

    #[inline]
    fn wait_until(&self, thread: &Thread, moment: u64) {
        match self.time {
            Time::Real => clock::wait_until(moment.saturating_sub(overhead_ns())),
            Time::Counted => thread.now.store(thread.now.load(Relaxed).max(moment), Relaxed),
        }
    }

    /// The lines that contain `len` bytes at `at`.
    fn lines(&self, at: *const u8, len: usize) -> std::ops::Range<u64> {
        let start = (at.addr() - self.below.base().addr().get()) as u64;
        start / LINE as u64..(start + len as u64).div_ceil(LINE as u64)
    }

    /// When `line` is in the cache, if it is requested at `now`.
    fn fetch(&self, thread: &Thread, now: u64, line: u64, write: bool) -> u64 {
        match self.cache.touch(line, write, thread.random()) {
            Found::Hit => thread.ready_at(line, now),
            Found::Miss(dropped) => {
                let begins = thread.fill_begins(now);
                let ready_at = self.device.read(thread, begins, line);
                thread.fill(line, ready_at);
                if let Some(dropped) = dropped {
                    self.device.write(now, dropped);
                }
                ready_at
            }
        }
    }

    /// Loads `len` bytes and waits for the last line. Fetches overlap as far as the fill buffers
    /// allow.
    fn load(&self, thread: &Thread, began: u64, at: *const u8, len: usize, write: bool) {
        let fetched = self.lines(at, len).map(|line| self.fetch(thread, began, line, write));
        let ready_at = fetched.fold(began, u64::max);
        self.wait_until(thread, ready_at);
    }

    /// Stores `len` bytes; waits only for free fill buffers.
    fn store(&self, thread: &Thread, began: u64, at: *const u8, len: usize) {
        let mut now = began;
        for line in self.lines(at, len) {
            self.fetch(thread, now, line, true);
            now = thread.fill_begins(now);
        }
        self.wait_until(thread, now);
    }

    fn stream(&self, thread: &Thread, began: u64, at: *const u8, len: usize) {
        for line in self.lines(at, len) {
            self.cache.drop(line);
            thread.durable_at(self.device.write(began, line));
        }
    }
}

/// The model's own overhead per access to a cached line, which is subtracted from waits; measured
/// once.
fn overhead_ns() -> u64 {
    static OVERHEAD: OnceLock<u64> = OnceLock::new();
    *OVERHEAD.get_or_init(|| {
        let Ok(mapping) = Mapping::anonymous(4096, 4096) else { return 0 };
        let region = Region::new(Slow::counted(Dram::new(mapping), Profile::DRAM));
        let word = region.at(Offset::<Word>::new(0));
        let began = clock::now_ns();
        (0..10_000).for_each(|_| _ = std::hint::black_box(word.load(region.medium(), Relaxed)));
        (clock::now_ns() - began) / 10_000
    })
}

impl<M: MappedMedium> MappedMedium for Slow<M> {
    /// With the profile `dram`; use `create_on` for pools with others.
    fn new(mapping: Mapping) -> Self {
        Self::over(M::new(mapping), Profile::DRAM)
    }
    fn mapping(&self) -> &Mapping {
        self.below.mapping()
    }
}

// SAFETY: base and length are those of the medium below, which promises the same.
unsafe impl<M: Medium> Medium for Slow<M> {
    const VOLATILE_CACHE: bool = M::VOLATILE_CACHE;

    fn base(&self) -> NonNull<u8> {
        self.below.base()
    }

    fn len(&self) -> usize {
        self.below.len()
    }

    fn write_back(&self, at: *const u8) {
        let (thread, now, line) = (self.own_state(), self.now(), self.lines(at, 1).start);
        if self.cache.clean(line) {
            let filled = thread.ready_at(line, now);
            thread.durable_at(self.device.write(filled, line));
        }
        self.below.write_back(at);
    }

    fn fence(&self) {
        self.below.fence();
        let thread = self.own_state();
        self.wait_until(thread, thread.durable_at.load(Relaxed));
    }

    fn before_access(&self, access: Access, at: *const u8) {
        self.below.before_access(access, at);
        self.own_state().began.store(self.now(), Relaxed);
    }

    fn accessed(&self, access: Access, at: *const u8, site: &'static Location<'static>) {
        self.below.accessed(access, at, site);
        let thread = self.own_state();
        let began = thread.began.load(Relaxed);
        match access {
            Access::Load | Access::RmwFailed => self.load(thread, began, at, 8, false),
            Access::Rmw => self.load(thread, began, at, 8, true),
            Access::Read(len) => self.load(thread, began, at, len, false),
            Access::Store => self.store(thread, began, at, 8),
            Access::Copy(len) => self.store(thread, began, at, len),
            Access::StreamedCopy(len) => self.stream(thread, began, at, len),
        }
    }

    fn persisted_at(&self, site: &'static Location<'static>) {
        self.below.persisted_at(site);
    }

    fn prefetched(&self, at: *const u8) {
        self.below.prefetched(at);
        let offset = at.addr().wrapping_sub(self.below.base().addr().get());
        if offset < self.below.len() {
            self.fetch(self.own_state(), self.now(), (offset / LINE) as u64, false);
        }
    }
}
