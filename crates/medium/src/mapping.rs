//! A range of addresses over a file, a device or anonymous memory, reserved so that it grows in
//! place.
//!
//! The whole reserved range is mapped at once. What lies beyond [`Mapping::len`] has no storage yet
//! and is never accessed. So growing moves nothing, and other processes that map the same file need
//! not map it again.

use crate::{LINE, smaps};
use rustix::fs::{FallocateFlags, fallocate, fstatfs};
use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MsyncFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, msync,
    munmap,
};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Alignment of bases in bytes: the size of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// Whether a mapping may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Loads only. A store is a segmentation fault, so callers check before they write.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
    /// Loads and stores. Stores stay in this mapping and never reach the file.
    CopyOnWrite,
}

/// The storage below a mapping. It decides which durability can be promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Private memory: lost with the process.
    Anonymous,
    /// tmpfs (/dev/shm) or a memfd: outlives the process, not the machine.
    SharedMemory,
    /// hugetlbfs: shared memory that is always on huge pages.
    HugeTlb,
    /// A file on a disk file system: outlives the process. After a crash of the machine, only what
    /// was synced remains.
    File,
    /// A file on a DAX file system mapped with MAP_SYNC: durable once flushed.
    DaxFile,
    /// A device-DAX character device: durable once flushed.
    DaxDevice,
}

impl Backing {
    /// Whether flushed lines survive a power failure here.
    pub fn survives_power_loss(self) -> bool {
        matches!(self, Self::DaxFile | Self::DaxDevice)
    }
}

/// How much of a mapping is on huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Bytes on huge pages.
    pub huge: u64,
    /// Bytes resident in total.
    pub resident: u64,
}

/// Why memory could not be mapped or grown.
#[derive(Debug)]
#[non_exhaustive]
pub enum MapError {
    /// The operating system refused; the text says which action.
    Os(&'static str, io::Error),
    /// The file system has no room for the bytes asked for.
    NoSpace {
        /// Bytes asked for.
        wanted: u64,
    },
    /// The reserved range of addresses is too short.
    Reserved {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes reserved.
        reserved: u64,
    },
    /// A device's size cannot be changed.
    FixedSize {
        /// Bytes asked for.
        wanted: u64,
        /// Bytes the device has.
        size: u64,
    },
}

impl std::fmt::Display for MapError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Os(what, error) => write!(f, "could not {what}: {error}"),
            Self::NoSpace { wanted } => write!(f, "no room for {wanted} bytes on its file system"),
            Self::Reserved { wanted, reserved } => {
                write!(f, "{wanted} bytes are more than the {reserved} that were reserved when it was opened")
            }
            Self::FixedSize { wanted, size } => {
                write!(f, "the device has {size} bytes, fewer than the {wanted} asked for")
            }
        }
    }
}

impl std::error::Error for MapError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Os(_, error) => Some(error),
            _ => None,
        }
    }
}

/// A range of memory that grows in place.
pub struct Mapping {
    base: NonNull<u8>,
    len: AtomicUsize,
    reserved: usize,
    whole: Whole,
    file: Option<File>,
    /// Whether to look for growth of the file by other processes.
    follows: AtomicBool,
    backing: Backing,
    protection: Protection,
}

// SAFETY: a Mapping is an address range and a file. The range is accessed only through atomics, or
// under the promises of `Region`'s unsafe methods.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of anonymous zeroed memory that can grow to `reserve`.
    pub fn anonymous(len: usize, reserve: usize) -> Result<Self, MapError> {
        let reserve = round_up(reserve.max(len).max(1), HUGE_PAGE);
        let (whole, base) = reserve_addresses(reserve)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the range was reserved just above and nothing uses it yet.
        unsafe { mmap_anonymous(base.as_ptr().cast(), reserve, read_write(), flags) }
            .map_err(|e| os("map memory", e))?;
        let (backing, protection) = (Backing::Anonymous, Protection::ReadWrite);
        Ok(Self {
            base,
            len: AtomicUsize::new(whole_lines(len)),
            reserved: reserve,
            whole,
            file: None,
            follows: AtomicBool::new(false),
            backing,
            protection,
        })
    }

    /// Maps the first `len` bytes of `file`, shared with every process that maps it; it can grow to
    /// `reserve`. The file has at least `len` bytes: see [`Mapping::allocate`].
    pub fn file(file: File, len: usize, reserve: usize, protection: Protection) -> Result<Self, MapError> {
        let kind = file_kind(&file)?;
        let reserve = match kind {
            Backing::DaxDevice => len,
            _ => round_up(reserve.max(len).max(1), HUGE_PAGE),
        };
        let prot = match protection {
            Protection::ReadOnly => ProtFlags::READ,
            Protection::ReadWrite | Protection::CopyOnWrite => read_write(),
        };
        if protection == Protection::CopyOnWrite {
            return Self::copy_on_write(file, len, reserve, reserve_addresses(reserve)?, kind);
        }
        // MAP_SYNC is tried on plain files, because nothing else identifies persistent memory.
        let dax = kind == Backing::File && is_synchronous(&file, prot);
        let sharing = if dax { MapFlags::SHARED_VALIDATE | MapFlags::SYNC } else { MapFlags::SHARED };
        let (whole, base) = reserve_addresses(reserve)?;
        let flags = MapFlags::FIXED | MapFlags::NORESERVE | sharing;
        // SAFETY: the range was reserved just above and nothing uses it yet.
        unsafe { mmap(base.as_ptr().cast(), reserve, prot, flags, &file, 0) }
            .map_err(|e| os("map the file", e))?;
        let backing = if dax { Backing::DaxFile } else { kind };
        Ok(Self {
            base,
            len: AtomicUsize::new(whole_lines(len)),
            reserved: reserve,
            whole,
            file: Some(file),
            follows: AtomicBool::new(false),
            backing,
            protection,
        })
    }

    fn copy_on_write(
        file: File,
        len: usize,
        reserved: usize,
        (whole, base): (Whole, NonNull<u8>),
        backing: Backing,
    ) -> Result<Self, MapError> {
        let flags = MapFlags::FIXED | MapFlags::NORESERVE | MapFlags::PRIVATE;
        // SAFETY: the range was reserved by the caller and nothing uses it yet.
        unsafe { mmap(base.as_ptr().cast(), reserved, read_write(), flags, &file, 0) }
            .map_err(|e| os("map the file without writing to it", e))?;
        let (len, follows) = (AtomicUsize::new(whole_lines(len)), AtomicBool::new(false));
        let (file, protection) = (Some(file), Protection::CopyOnWrite);
        Ok(Self { base, len, reserved, whole, file, follows, backing, protection })
    }

    /// Waits until `len` bytes from the page boundary `from` on are on the disk, if the mapping has
    /// a disk.
    pub fn sync(&self, from: usize, len: usize) -> Result<(), MapError> {
        let on_disk = matches!(self.backing, Backing::File | Backing::DaxFile);
        if !on_disk || self.protection != Protection::ReadWrite {
            return Ok(());
        }
        let (from, end) = (from.min(self.len()), from.saturating_add(len).min(self.len()));
        let at = self.base.as_ptr().wrapping_add(from);
        // SAFETY: the range lies in the mapping; writing it to the disk changes nothing in memory.
        unsafe { msync(at.cast(), end - from, MsyncFlags::SYNC) }
            .map_err(|e| os("write the file to its disk", e))
    }

    /// Refuses stores from byte `from` on, or allows them again. `from` is rounded up to whole
    /// pages: those of the system, or the file's huge pages. Memory added by growth later is
    /// treated the same.
    pub fn refuse_stores(&self, from: usize, refuse: bool) -> Result<(), MapError> {
        const HUGE: usize = 2 << 20;
        let page = if self.backing == Backing::HugeTlb {
            self.file_block().max(HUGE)
        } else {
            rustix::param::page_size()
        };
        let from = from.next_multiple_of(page);
        let Some(len) = (self.reserved / page * page).checked_sub(from).filter(|len| *len > 0) else {
            return Ok(());
        };
        let flags = if refuse { MprotectFlags::READ } else { MprotectFlags::READ | MprotectFlags::WRITE };
        // SAFETY: the range lies in the mapping, and callers do not store to it while stores are
        // refused.
        unsafe { mprotect(self.base.as_ptr().wrapping_add(from).cast(), len, flags) }
            .map_err(|e| os("protect the mapping", e))
    }

    /// Bytes of a block of the file: on hugetlbfs, of a huge page.
    fn file_block(&self) -> usize {
        let metadata = self.file.as_ref().and_then(|file| file.metadata().ok());
        metadata.map_or(0, |metadata| metadata.blksize() as usize)
    }

    /// Allocates storage for the first `len` bytes of `file`, so that no store into them fails for
    /// lack of space. Where the file system cannot (NFS before 4.2, some in user space), zeros are
    /// written behind the present end.
    pub fn allocate(file: &File, len: u64) -> Result<(), MapError> {
        let metadata = file.metadata().map_err(|e| MapError::Os("read the file's size", e))?;
        if metadata.file_type().is_char_device() {
            return Ok(());
        }
        match fallocate(file, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP) => write_zeros(file, metadata.len(), len),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(MapError::NoSpace { wanted: len }),
            Err(e) => Err(os("reserve space for the file", e)),
        }
    }

    /// Allocates storage for a part of a file that is mapped, as [`Mapping::allocate`] does for its
    /// begin. Anonymous memory has none.
    pub fn allocate_part(&self, from: u64, len: u64) -> Result<(), MapError> {
        let Some(file) = self.file.as_ref().filter(|_| self.backing != Backing::DaxDevice) else {
            return Ok(());
        };
        match fallocate(file, FallocateFlags::KEEP_SIZE, from, len) {
            Ok(()) => Ok(()),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(MapError::NoSpace { wanted: len }),
            Err(e) => Err(os("reserve space for the file", e)),
        }
    }

    /// Grows to `len` bytes in place. Does nothing if it is already that large.
    pub fn grow(&self, len: usize) -> Result<(), MapError> {
        if len <= self.len() {
            return Ok(());
        }
        if self.backing == Backing::DaxDevice {
            return Err(MapError::FixedSize { wanted: len as u64, size: self.len() as u64 });
        }
        if len > self.reserved {
            return Err(MapError::Reserved { wanted: len as u64, reserved: self.reserved as u64 });
        }
        if let Some(file) = &self.file {
            Self::allocate(file, len as u64)?;
        }
        self.extend_view(len);
        Ok(())
    }

    /// Extends the accessible range after another participant has grown the file to `len` bytes.
    pub fn extend_view(&self, len: usize) {
        // ORDER: Release: pairs with the Acquire in `len`. A thread that sees the length sees
        // storage behind it.
        self.len.fetch_max(whole_lines(len.min(self.reserved)), Ordering::Release);
    }

    /// Declares that other processes may grow the file, so that [`Mapping::refresh_len`] looks for
    /// that.
    pub fn follow_growth(&self) {
        self.follows.store(true, Ordering::Relaxed);
    }

    /// Extends the accessible range to the file's size, if [`Mapping::follow_growth`] was called.
    /// Returns whether it has grown since the last look.
    #[cold]
    pub fn refresh_len(&self) -> bool {
        let before = self.len();
        if let Some(file) = self.file.as_ref().filter(|_| self.follows.load(Ordering::Relaxed))
            && let Ok(metadata) = file.metadata()
        {
            self.extend_view(metadata.len() as usize);
        }
        self.len() > before
    }

    /// The address of the first byte.
    #[inline(always)]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Number of bytes that may be accessed: whole lines only.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "a mapping is never asked whether it is empty")]
    pub fn len(&self) -> usize {
        // ORDER: Relaxed: the kernel provided the memory behind a larger length before that length
        // was stored. No thread reads another's writes on the strength of the length alone.
        self.len.load(Ordering::Relaxed)
    }

    /// Number of bytes it can grow to.
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// The storage below.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// Whether it may be written.
    pub fn protection(&self) -> Protection {
        self.protection
    }

    /// The file below, if any.
    pub fn as_file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Asks for huge pages where memory is touched from now on. Advice: nothing fails without them.
    pub fn advise_huge_pages(&self) {
        // SAFETY: this advice changes how pages are backed, not what they hold.
        let _ = unsafe { madvise(self.base.as_ptr().cast(), self.reserved, Advice::LinuxHugepage) };
    }

    /// Collapses the populated pages of `from..from + len` into huge pages, where the kernel can.
    /// Takes about 3 s a GiB, so it belongs in the background. Returns whether the kernel did it.
    pub fn collapse_huge_pages(&self, from: usize, len: usize) -> bool {
        let from = from / HUGE_PAGE * HUGE_PAGE;
        let end = (from + len).min(self.len()) / HUGE_PAGE * HUGE_PAGE;
        let at = self.base.as_ptr().wrapping_add(from);
        // SAFETY: collapsing moves pages without changing what the addresses hold. (rustix does not
        // know this advice.)
        end > from && unsafe { libc::madvise(at.cast(), end - from, libc::MADV_COLLAPSE) } == 0
    }

    /// How much of the mapping is on huge pages now, according to the kernel.
    pub fn huge_pages(&self) -> io::Result<HugePages> {
        let start = self.base.addr().get() as u64;
        Ok(smaps::huge_pages(&smaps::read()?, start..start + self.reserved as u64))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this Mapping and no borrow of it can outlive the Mapping.
        let _ = unsafe { munmap(self.whole.0.as_ptr().cast(), self.whole.1) };
    }
}

fn read_write() -> ProtFlags {
    ProtFlags::READ | ProtFlags::WRITE
}

/// Rounds down to whole lines: a `T` within one line then takes a single comparison to check.
fn whole_lines(len: usize) -> usize {
    len / LINE * LINE
}

fn round_up(value: usize, to: usize) -> usize {
    value.div_ceil(to) * to
}

/// Writes zeros from `at` to `end`.
fn write_zeros(file: &File, mut at: u64, end: u64) -> Result<(), MapError> {
    const ZEROS: &[u8] = &[0; 64 << 10];
    while at < end {
        let piece = &ZEROS[..(end - at).min(ZEROS.len() as u64) as usize];
        file.write_all_at(piece, at).map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => MapError::NoSpace { wanted: end },
            _ => MapError::Os("reserve space for the file", error),
        })?;
        at += piece.len() as u64;
    }
    Ok(())
}

fn os(what: &'static str, errno: Errno) -> MapError {
    MapError::Os(what, errno.into())
}

/// A whole reservation, as munmap needs it.
type Whole = (NonNull<u8>, usize);

/// Reserves addresses, aligned for huge pages. Returns the whole reservation and the aligned base.
///
/// If mapping over it fails, the caller leaves the reservation as it is. The kernel removes the old
/// mapping before it asks the file, so another thread may own part of the range by then. Unused
/// addresses cost nothing.
fn reserve_addresses(len: usize) -> Result<(Whole, NonNull<u8>), MapError> {
    let whole_len = len
        .checked_add(HUGE_PAGE)
        .ok_or(MapError::Reserved { wanted: len as u64, reserved: usize::MAX as u64 })?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let at = unsafe { mmap_anonymous(std::ptr::null_mut(), whole_len, ProtFlags::empty(), flags) }
        .map_err(|e| os("reserve addresses", e))?;
    let whole = NonNull::new(at.cast::<u8>()).ok_or_else(|| os("reserve addresses", Errno::NOMEM))?;
    let padding = whole.addr().get().next_multiple_of(HUGE_PAGE) - whole.addr().get();
    // SAFETY: the padding is smaller than a huge page, and the reservation is longer by that much.
    let base = unsafe { whole.add(padding) };
    Ok(((whole, whole_len), base))
}

fn file_kind(file: &File) -> Result<Backing, MapError> {
    // statfs(2), linux/magic.h.
    const TMPFS: i64 = 0x0102_1994;
    const HUGETLBFS: i64 = 0x9584_58f6;
    let metadata = file.metadata().map_err(|e| MapError::Os("read the file's type", e))?;
    if metadata.file_type().is_char_device() {
        return if is_dax_device(metadata.rdev()) {
            Ok(Backing::DaxDevice)
        } else {
            Err(MapError::Os("use this device", io::Error::from(io::ErrorKind::Unsupported)))
        };
    }
    let magic = fstatfs(file).map_err(|e| os("read the file system's type", e))?.f_type;
    #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
    Ok(match magic as i64 {
        TMPFS => Backing::SharedMemory,
        HUGETLBFS => Backing::HugeTlb,
        _ => Backing::File,
    })
}

/// Whether the kernel honours MAP_SYNC for `file`. That mmap accepts the flag proves nothing: a
/// layer in between may drop flags it does not know, as qemu's user mode does. A pool on an
/// ordinary disk would then promise to survive a power failure.
///
/// Tried at an address of the kernel's choice, never within a reservation. If the file refuses the
/// flag, the mapping at a fixed address is already gone, and the next mmap of any thread may get
/// that address.
fn is_synchronous(file: &File, prot: ProtFlags) -> bool {
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let Ok(at) = (unsafe { mmap(std::ptr::null_mut(), HUGE_PAGE, prot, flags, file, 0) }) else {
        return false;
    };
    let kept = smaps::read().is_ok_and(|smaps| smaps::is_synchronous(&smaps, at.addr() as u64));
    // SAFETY: mapped just above, and no other thread knows of it.
    let _ = unsafe { munmap(at, HUGE_PAGE) };
    kept
}

fn is_dax_device(rdev: u64) -> bool {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    std::fs::read_link(format!("/sys/dev/char/{major}:{minor}/subsystem"))
        .is_ok_and(|subsystem| subsystem.ends_with("dax"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    #[test]
    fn file_kind_and_page_size_are_detected() {
        let pages = |file: File| {
            let kind = file_kind(&file).unwrap();
            let mapping = Mapping::file(file, 0, 0, Protection::ReadOnly).unwrap();
            (kind, mapping.backing(), mapping.file_block())
        };
        let memory = tempfile::tempfile_in("/dev/shm").unwrap();
        let page = rustix::param::page_size();
        assert_eq!(pages(memory), (Backing::SharedMemory, Backing::SharedMemory, page));
        assert_eq!(Mapping::anonymous(64, 0).unwrap().file_block(), 0);
        // Wherever the system supports huge pages, even if none is free.
        if let Ok(huge) = memfd_create("huge", MemfdFlags::HUGETLB) {
            let kind = file_kind(&File::from(huge)).unwrap();
            assert_eq!(kind, Backing::HugeTlb);
        }
    }
}
