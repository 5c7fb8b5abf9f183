//! Whether the machine was started again since a process has had the store open.
//!
//! The file `BOOT` has the number of the machine's start, in hexadecimal, in which the store was
//! opened for writing last. If it is still the same, no power was lost: whatever was written is
//! there, synced or not. The file is not synced: after a loss of power it has another number.

use std::io;
use std::path::Path;
use terrace_medium::files::{Files, Purpose, StoredFile};

const NAME: &str = "BOOT";

fn text_of(boot: u128) -> String {
    format!("{boot:032x}\n")
}

/// Whether the store was opened last in this start of the machine.
pub(super) fn is_same<F: Files>(files: &F, directory: &Path, boot: u128) -> bool {
    let text = text_of(boot);
    let mut bytes = vec![0; text.len()];
    let file = files.open(&directory.join(NAME), Purpose::Read);
    file.and_then(|file| file.read_exact_at(&mut bytes, 0)).is_ok_and(|()| bytes == text.as_bytes())
}

/// Notes that the store is open for writing in this start of the machine.
pub(super) fn note<F: Files>(files: &F, directory: &Path, boot: u128) -> io::Result<()> {
    let path = directory.join(NAME);
    let file = match files.is_taken(&path)? {
        true => files.open(&path, Purpose::Write)?,
        false => files.create(&path)?,
    };
    file.write_all_at(text_of(boot).as_bytes(), 0)
}
