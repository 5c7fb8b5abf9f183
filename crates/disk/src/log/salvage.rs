//! Reading what is sound of a damaged log.

use super::head::{HEAD, read_head};
use super::record::{Chain, Owner};
use super::records::Records;
use super::replay::Record;
use super::segment::{MAGIC, number_of, path_of};
use crate::DiskError;
use std::path::Path;
use terrace_medium::files::{Files, Purpose};

/// Hands every record in `directory` whose checksums prove it to `each`, in order, and an error for
/// each damaged part in front of such a record. Changes nothing.
///
/// The record behind a damaged header is not proved, since its checksum builds on that header.
pub fn salvage_log<F: Files>(
    files: &F,
    directory: &Path,
    store: u64,
    each: &mut dyn FnMut(Result<Record<'_>, DiskError>),
) {
    let names = match files.list(directory) {
        Ok(names) => names,
        Err(error) => return each(Err(DiskError::io("list", directory)(error))),
    };
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name.to_str()?)).collect();
    numbers.sort_unstable();
    for pair in numbers.windows(2) {
        if pair[0] + 1 != pair[1] {
            let missing = path_of(directory, pair[0] + 1);
            each(Err(DiskError::corrupt(&missing, 0, "this segment of the log is missing")));
        }
    }
    for number in numbers {
        let path = path_of(directory, number);
        if let Err(error) = salvage_segment(files, &path, Owner { store, file: number }, each) {
            each(Err(error));
        }
    }
}

fn salvage_segment<F: Files>(
    files: &F,
    path: &Path,
    owner: Owner,
    each: &mut dyn FnMut(Result<Record<'_>, DiskError>),
) -> Result<(), DiskError> {
    let file = files.open(path, Purpose::Read).map_err(DiskError::io("open", path))?;
    let head = read_head(&file, path, MAGIC, owner)?;
    let chain = head.map_or(Chain::default(), |head| head.after);
    let mut records = Records::new(&file, path, owner, HEAD, chain)?;
    // Where the damage begins that the next sound record will lie behind.
    let mut damage = head.is_none().then_some(0);
    loop {
        match records.next()? {
            Some((header, _)) if header.is_end() => return Ok(()),
            Some((header, payload)) => {
                if let Some(offset) = damage.take() {
                    each(Err(DiskError::corrupt(path, offset, "a part of the log is not valid")));
                }
                let (first_seq, count) = (header.first_seq, header.count);
                each(Ok(Record { first_seq, count, end: 0, payload }));
            }
            None => {
                damage = damage.or(Some(records.offset()));
                if !records.pass_damage()? {
                    // Nothing sound lies behind it: a torn end, as far as the log knows.
                    return Ok(());
                }
            }
        }
    }
}
