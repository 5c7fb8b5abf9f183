//! Small writes to a file through a mapping: they cost no system call.
//!
//! Only for a part of the file that has its storage already, and on file systems that need no more
//! of it to change bytes in place. Elsewhere a store into the mapping could find no room, and the
//! process would end by a signal instead of getting an error.

use crate::{Mapping, Protection};
use rustix::fs::fstatfs;
use std::fs::File;
use std::{fmt, ptr};

/// Bytes of the longest write that goes through a mapping. A longer one costs less by `pwrite`,
/// which fills whole pages without a page fault for each.
const SMALL_MAX: usize = 4096;

/// File systems that change allocated bytes in place: ext2 to ext4, XFS and tmpfs.
const IN_PLACE: [u64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

/// The beginning of a file in memory.
pub(super) struct Mapped {
    mapping: Mapping,
    bytes: u64,
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
        Some(Self { mapping, bytes })
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
