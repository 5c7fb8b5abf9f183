//! What a fork does to a process's open pools: they stay the parent's. The child would write to the parent's seats and hold its locks beyond its death.
//!
//! In the child every pool that was open refuses to be pinned, until the child opens it for itself. The handles to its file, with the locks that they carry, are
//! replaced by ones to `/dev/null`, and so is its memory by empty memory of the child's own: a mapping keeps the file open, and with it the locks, as a handle does.

use crate::lost;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize};
use terrace_medium::Mapping;

/// The pool was opened by the process that this one was forked from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forked;

impl std::fmt::Display for Forked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "this pool was opened by the process that forked this one; open it again in the child")
    }
}

impl std::error::Error for Forked {}

/// Handles that are watched at one time; there are one or two to each pool.
pub(crate) const HANDLES: usize = 256;
const NONE: RawFd = -1;

/// A handle, and the addresses that are mapped to its file, if any are.
struct HandleEntry {
    handle: AtomicI32,
    base: AtomicUsize,
    bytes: AtomicUsize,
}

static FORKS: AtomicU64 = AtomicU64::new(0);
static REGISTERED: [HandleEntry; HANDLES] = [const {
    HandleEntry { handle: AtomicI32::new(NONE), base: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
}; HANDLES];

/// Forks between the first process of this family that opened a pool and this one.
#[inline(always)]
pub(crate) fn generation() -> u64 {
    FORKS.load(Relaxed)
}

/// A handle that is replaced in the child of a fork. Dropped before the handle is closed.
pub(crate) struct ForkSafe(Option<usize>);

impl ForkSafe {
    pub(crate) fn new(file: &File) -> Self {
        Self::with(file, 0, 0)
    }

    /// The file of a mapping, if it has one, and the mapping; `name` is what messages call the pool
    /// in it.
    pub(crate) fn mapping(mapping: &Mapping, name: &Path) -> Option<Self> {
        let file = mapping.as_file()?;
        let registered = Self::with(file, mapping.base().as_ptr().expose_provenance(), mapping.reserved());
        if let Some(at) = registered.0 {
            lost::set_name(at, name);
        }
        Some(registered)
    }

    fn with(file: &File, base: usize, bytes: usize) -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: the handler calls only what may be called in a child of a fork.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        let take = |place: &HandleEntry| {
            place.handle.compare_exchange(NONE, file.as_raw_fd(), Release, Relaxed).is_ok()
        };
        let at = REGISTERED.iter().position(take);
        if let Some(at) = at {
            REGISTERED[at].base.store(base, Relaxed);
            // ORDER: Release: where it begins comes first. 0 until then.
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

/// Which place holds the mapping that `address` lies in, the offset of the address in it, and the
/// handle of its file. Takes no lock and no memory, so a signal handler may call it.
pub(crate) fn mapping_of(address: usize) -> Option<(usize, usize, RawFd)> {
    REGISTERED.iter().enumerate().find_map(|(at, place)| {
        // ORDER: Acquire: pairs with the store of the bytes; where the mapping begins was stored
        // before.
        let bytes = place.bytes.load(Acquire);
        let offset = address.checked_sub(place.base.load(Relaxed))?;
        (offset < bytes).then(|| (at, offset, place.handle.load(Acquire)))
    })
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Release);
    crate::seats::forget_slot();
    // SAFETY: open(2) and dup2(2) may be called here, and the path is a C string.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    for place in &REGISTERED {
        let handle = place.handle.load(Acquire);
        if handle != NONE && null != NONE {
            // SAFETY: as above; the handle stays open, and its owner in this process only closes it.
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

/// Puts memory of this process alone, all zeros, in the place of a mapping. Who still holds a guard of the parent's may store to it, to no effect.
fn empty(base: usize, bytes: usize) {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the range is the mapping's, which is there until its pool is dropped and ends what is watched first. All that is in it are words, for which any
    // value will do, and no thread of this process is at it but this one, which is here.
    unsafe { libc::mmap(std::ptr::with_exposed_provenance_mut(base), bytes, protection, flags, -1, 0) };
}
