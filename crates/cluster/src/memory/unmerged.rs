//! Looks from outside whether a pool lacks writes that its log area has.

use super::area::log_path;
use super::format::{CLOSED, MAGIC, OWNERS, USE, seal};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The log area beside a pool, if there is one that no memory node has left in order: it runs, or
/// was killed. Then what serving nodes have acknowledged may be in the log area alone.
///
/// # Errors
/// A file with the log area's name cannot be read.
pub fn unmerged(pool: &Path) -> io::Result<Option<PathBuf>> {
    let path = log_path(pool);
    let file = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = [0; OWNERS as usize];
    match file.read_exact_at(&mut bytes, 0) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let word = |at: u64| {
        let at = at as usize;
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
    };
    let is_log_area = word(0) == MAGIC;
    Ok((is_log_area && word(USE) != seal(CLOSED, USE)).then_some(path))
}
