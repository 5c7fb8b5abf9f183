//! Small writes to a file through a mapping: they cost no system call.
//!
//! Only for a part of the file that has its storage already, and on file systems that need no more
//! of it to change bytes in place. Elsewhere a store into the mapping could find no room, and the
//! process would end by a signal instead of getting an error.

use crate::{Mapping, Protection};
use rustix::fs::fstatfs;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{
    AtomicI32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::{fmt, ptr};

/// Bytes of the longest write that goes through a mapping. A longer one costs less by `pwrite`,
/// which fills whole pages without a page fault for each.
const SMALL_MAX: usize = 4096;

/// File systems that change allocated bytes in place: ext2 to ext4, XFS and tmpfs.
const IN_PLACE: [u64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

/// The beginning of a file in memory.
pub(super) struct Mapped {
    /// Dropped before the mapping.
    _listed: Listed,
    mapping: Mapping,
    bytes: u64,
}

/// Mappings that are listed at a time, at most. Of further ones [`mapped_at`] does not know.
const PLACES: usize = 256;

/// A mapping, for [`mapped_at`].
struct Place {
    /// 0 if the place is free.
    base: AtomicUsize,
    bytes: AtomicUsize,
    handle: AtomicI32,
}

static LISTED: [Place; PLACES] =
    [const { Place { base: AtomicUsize::new(0), bytes: AtomicUsize::new(0), handle: AtomicI32::new(-1) } };
        PLACES];

/// A place among the listed mappings, until it is dropped.
struct Listed(Option<usize>);

impl Listed {
    fn new(mapping: &Mapping) -> Self {
        let base = mapping.base().as_ptr().expose_provenance();
        let handle = mapping.as_file().map_or(-1, AsRawFd::as_raw_fd);
        let take = |place: &Place| place.base.compare_exchange(0, base, Relaxed, Relaxed).is_ok();
        let at = LISTED.iter().position(take);
        if let Some(at) = at {
            LISTED[at].handle.store(handle, Relaxed);
            // ORDER: Release: comes after the base and the handle. 0 until then.
            LISTED[at].bytes.store(mapping.reserved(), Release);
        }
        Self(at)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(at) = self.0 {
            LISTED[at].bytes.store(0, Relaxed);
            // ORDER: Release: the place is taken again only after its length is 0.
            LISTED[at].base.store(0, Release);
        }
    }
}

/// The file that small writes to `address` go to, and the offset there. Takes no lock and allocates
/// nothing, so a signal handler may call it.
pub fn mapped_at(address: usize) -> Option<(RawFd, usize)> {
    LISTED.iter().find_map(|place| {
        // ORDER: Acquire: pairs with the store of the length; base and handle were stored before.
        let bytes = place.bytes.load(Acquire);
        let offset = address.checked_sub(place.base.load(Relaxed))?;
        (offset < bytes).then(|| (place.handle.load(Relaxed), offset))
    })
}

impl Mapped {
    /// Maps the first `bytes` bytes, which have storage. `None` where that is not safe, or not
    /// possible.
    pub(super) fn new(file: &File, bytes: u64) -> Option<Self> {
        let kind = fstatfs(file).ok()?.f_type as u64;
        if !IN_PLACE.contains(&kind) || file.metadata().ok()?.len() < bytes {
            return None;
        }
        let len = usize::try_from(bytes).ok()?;
        let mapping = Mapping::file(file.try_clone().ok()?, len, len, Protection::ReadWrite).ok()?;
        Some(Self { _listed: Listed::new(&mapping), mapping, bytes })
    }

    /// Writes `bytes` at `at` if they are few and lie in the mapping. Returns whether it has.
    pub(super) fn write_at(&self, bytes: &[u8], at: u64) -> bool {
        let fits = at.checked_add(bytes.len() as u64).is_some_and(|end| end <= self.bytes);
        if !fits || bytes.len() > SMALL_MAX {
            return false;
        }
        let place = self.mapping.base().as_ptr().wrapping_add(at as usize);
        // SAFETY: the bytes lie in the mapping, as just checked, and no reference to them exists:
        // the mapping is private to this type, which only stores. The file keeps its length as long
        // as the mapping lives (see `SystemFile`).
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
        true
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped").field("bytes", &self.bytes).finish()
    }
}
