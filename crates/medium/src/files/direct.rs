//! Reads past the page cache, of any offset and length.
//!
//! The kernel refuses a direct read whose offset, length or memory is not aligned. A read that is
//! not, goes through an aligned buffer that covers it.

use super::DIRECT_BLOCK as BLOCK;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The longest read through a buffer; longer ones are short.
const LONGEST: usize = 1 << 20;

/// Reads bytes from `at` on; `None` if the file system refuses direct reads of this file.
pub(super) fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<Option<usize>> {
    let aligned = at.is_multiple_of(BLOCK as u64)
        && buffer.len().is_multiple_of(BLOCK)
        && buffer.as_ptr().addr().is_multiple_of(BLOCK);
    let read = if aligned { file.read_at(buffer, at) } else { read_through(file, buffer, at) };
    match read {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => Ok(None),
        read => read.map(Some),
    }
}

/// Reads whole blocks into an aligned buffer, and copies the wanted bytes.
fn read_through(file: &File, wanted: &mut [u8], at: u64) -> io::Result<usize> {
    let skip = (at % BLOCK as u64) as usize;
    let length = wanted.len().min(LONGEST);
    let covered = (skip + length).next_multiple_of(BLOCK);
    let mut memory = vec![0; covered + BLOCK];
    let spare = memory.as_ptr().align_offset(BLOCK);
    let blocks = &mut memory[spare..][..covered];
    // The kernel transfers whole blocks, but for the last one of the file. So fewer bytes than
    // `skip` mean that the file ends before `at`.
    let read = file.read_at(blocks, at - skip as u64)?;
    let found = read.saturating_sub(skip).min(length);
    wanted[..found].copy_from_slice(&blocks[skip..][..found]);
    Ok(found)
}

/// Turns later reads of `file` into plain ones.
pub(super) fn give_up(file: &File) -> io::Result<()> {
    Ok(fcntl_setfl(file, fcntl_getfl(file)? - OFlags::DIRECT)?)
}
