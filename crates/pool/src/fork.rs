//! What a fork does to a process's open pools: they stay the parent's. The child would write to the parent's seats and hold its locks beyond its death.
//!
//! In the child every pool that was open refuses to be pinned, until the child opens it for itself, and the handles to its file, with the locks that they carry, are
//! replaced by ones to `/dev/null`.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Once;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU64};

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
const HANDLES: usize = 256;
const NONE: RawFd = -1;

static FORKS: AtomicU64 = AtomicU64::new(0);
static WATCHED: [AtomicI32; HANDLES] = [const { AtomicI32::new(NONE) }; HANDLES];

/// Forks between the first process of this family that opened a pool and this one.
#[inline(always)]
pub(crate) fn generation() -> u64 {
    FORKS.load(Relaxed)
}

/// A handle that is replaced in the child of a fork. Dropped before the handle is closed.
pub(crate) struct Watched(Option<usize>);

impl Watched {
    pub(crate) fn new(file: &File) -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: the handler calls only what may be called in a child of a fork.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        let take =
            |place: &AtomicI32| place.compare_exchange(NONE, file.as_raw_fd(), Release, Relaxed).is_ok();
        Self(WATCHED.iter().position(take))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(at) = self.0 {
            WATCHED[at].store(NONE, Release);
        }
    }
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Release);
    crate::seats::forget_seat();
    // SAFETY: open(2) and dup2(2) may be called here, and the path is a C string.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    for place in &WATCHED {
        let handle = place.load(Acquire);
        if handle != NONE && null != NONE {
            // SAFETY: as above; the handle stays open, and its owner in this process only closes it.
            unsafe { libc::dup3(null, handle, libc::O_CLOEXEC) };
        }
    }
    if null != NONE {
        // SAFETY: opened above.
        unsafe { libc::close(null) };
    }
}
