//! Detaches the child of a fork from its parent's open pools. Otherwise the child would write to
//! the parent's thread slots and keep its locks after the parent's death.
//!
//! In the child, pinning a pool that was open at the fork fails until the child opens the pool
//! itself. The handles to the pool's file carry its locks, so they are replaced by handles to
//! `/dev/null`. The mapping keeps the file open, too, and is replaced by empty private memory.

use crate::reclaim::last_slot;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, AtomicUsize};
use terrace_medium::Mapping;

/// The error for a pool that was opened by the process that forked this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forked;

impl std::fmt::Display for Forked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "this store was opened by the process that forked this one; open it again in the child")
    }
}

impl std::error::Error for Forked {}

/// The most handles that can be registered at a time; each pool has one or two.
const HANDLES: usize = 256;
const NONE: RawFd = -1;

/// A handle and the address range mapped to its file, if any.
struct HandleEntry {
    handle: AtomicI32,
    base: AtomicUsize,
    bytes: AtomicUsize,
}

static FORKS: AtomicU64 = AtomicU64::new(0);
static REGISTERED: [HandleEntry; HANDLES] = [const {
    HandleEntry { handle: AtomicI32::new(NONE), base: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
}; HANDLES];

/// Longest name that is kept, in bytes. Of a longer one, the end is kept.
pub(crate) const NAME: usize = 240;

/// The pools' names in messages, by the index of their handle; a zero ends a name.
static NAMES: [[AtomicU8; NAME]; HANDLES] = [const { [const { AtomicU8::new(0) }; NAME] }; HANDLES];

/// Sets the name in messages of the pool at index `at`.
fn set_name(at: usize, name: &Path) {
    let name = name.as_os_str().as_bytes();
    let shown = &name[name.len().saturating_sub(NAME)..];
    for (nth, byte) in NAMES[at].iter().enumerate() {
        byte.store(shown.get(nth).copied().unwrap_or(0), Relaxed);
    }
}

/// The name in messages of the pool at index `at`. Takes no lock and allocates nothing.
pub(crate) fn name_of(at: usize) -> &'static [AtomicU8; NAME] {
    &NAMES[at]
}

/// Number of forks between the first process of this family that opened a pool and this one.
#[inline(always)]
pub(crate) fn generation() -> u64 {
    FORKS.load(Relaxed)
}

/// Counts the forks that lead to a process, from now on.
fn count_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only makes calls that are allowed in the child of a fork.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Tells whether this process is the one that has opened something. For what needs no handles
/// replaced in the child of a fork.
#[derive(Clone, Copy, Debug)]
pub struct Opener(u64);

impl Opener {
    /// This process.
    pub fn here() -> Self {
        count_forks();
        Self(generation())
    }

    /// Returns [`Forked`] in a process that was forked from it. One load.
    #[inline(always)]
    pub fn check(self) -> Result<(), Forked> {
        if self.0 == generation() { Ok(()) } else { Err(Forked) }
    }
}

/// The registration of a handle to be replaced in the child of a fork. Dropped before the handle is
/// closed.
pub(crate) struct ForkSafe(Option<usize>);

impl ForkSafe {
    pub(crate) fn new(file: &File) -> Self {
        Self::with(file, 0, 0)
    }

    /// Registers the file of a mapping, if it has one, and the mapping. Messages call its pool
    /// `name`.
    pub(crate) fn mapping(mapping: &Mapping, name: &Path) -> Option<Self> {
        let file = mapping.as_file()?;
        let registered = Self::with(file, mapping.base().as_ptr().expose_provenance(), mapping.reserved());
        if let Some(at) = registered.0 {
            set_name(at, name);
        }
        Some(registered)
    }

    fn with(file: &File, base: usize, bytes: usize) -> Self {
        count_forks();
        let take = |place: &HandleEntry| {
            place.handle.compare_exchange(NONE, file.as_raw_fd(), Release, Relaxed).is_ok()
        };
        let at = REGISTERED.iter().position(take);
        if let Some(at) = at {
            REGISTERED[at].base.store(base, Relaxed);
            // ORDER: Release: comes after the base. 0 until then.
            REGISTERED[at].bytes.store(bytes, Release);
        }
        Self(at)
    }
}

impl Drop for ForkSafe {
    fn drop(&mut self) {
        if let Some(at) = self.0 {
            REGISTERED[at].bytes.store(0, Relaxed);
            REGISTERED[at].handle.store(NONE, Release);
        }
    }
}

/// The registry index of the mapping that contains `address`, the address's offset in it, and the
/// handle of its file. Takes no lock and allocates nothing, so a signal handler may call it.
pub(crate) fn mapping_of(address: usize) -> Option<(usize, usize, RawFd)> {
    REGISTERED.iter().enumerate().find_map(|(at, place)| {
        // ORDER: Acquire: pairs with the store of the length; the base was stored before.
        let bytes = place.bytes.load(Acquire);
        let offset = address.checked_sub(place.base.load(Relaxed))?;
        (offset < bytes).then(|| (at, offset, place.handle.load(Acquire)))
    })
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Release);
    last_slot::forget_slot();
    // SAFETY: open(2) and dup2(2) may be called here, and the path is a C string.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    for place in &REGISTERED {
        let handle = place.handle.load(Acquire);
        if handle != NONE && null != NONE {
            // SAFETY: as above; the handle stays open, and its owner in this process only closes
            // it.
            unsafe { libc::dup3(null, handle, libc::O_CLOEXEC) };
        }
        let bytes = place.bytes.load(Acquire);
        if bytes != 0 {
            empty(place.base.load(Relaxed), bytes);
        }
    }
    if null != NONE {
        // SAFETY: opened above.
        unsafe { libc::close(null) };
    }
}

/// Replaces a mapping by zeroed private memory. Code that still holds a guard of the parent's may
/// store to it, without effect.
fn empty(base: usize, bytes: usize) {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the range is a registered mapping, which exists until its pool is dropped; the pool
    // ends the registration first. It contains only words, for which any value is valid. The
    // child's only thread is running this function.
    unsafe { libc::mmap(std::ptr::with_exposed_provenance_mut(base), bytes, protection, flags, -1, 0) };
}
