//! Reading what is sound of a damaged log.

use super::head::{HEAD, read_head};
use super::record::{Chain, Owner};
use super::records::Records;
use super::replay::{Record, SHORTER, missing};
use super::segment::{MAGIC, number_of, path_of};
use crate::ends::{self, Noted};
use crate::{DiskError, Position, list_files};
use std::path::Path;
use std::sync::Arc;
use terrace_medium::files::{Files, Purpose};

const DAMAGED: &str = "a part of the log is not valid";

/// Hands every record in `directory` whose checksums prove it to `each`, in order, and an error for
/// each damaged part in front of such a record, or of the end of a segment that the next one tells.
/// What an open has dropped behind that end is left out. Changes nothing.
///
/// The record behind a damaged header is proved by the sum of that header, if either the sum or all
/// else of the header is sound.
pub fn salvage_log(
    files: &Arc<dyn Files>,
    directory: &Path,
    store: u64,
    each: &mut dyn FnMut(Result<Record<'_>, DiskError>),
) {
    let mut numbers = match list_files(files, directory, number_of) {
        Ok(numbers) => numbers,
        Err(error) => return each(Err(error)),
    };
    numbers.sort_unstable();
    let known = ends::read(files, directory, store).unwrap_or_else(|error| {
        each(Err(error));
        Noted::default()
    });
    let (first, last) = (numbers.first().copied(), numbers.last().copied());
    let gaps = numbers.windows(2).filter(|pair| pair[0] + 1 != pair[1]);
    gaps.for_each(|pair| each(Err(missing(directory, pair[0] + 1))));
    let (mut end, mut at) = (0, 0);
    for (nth, &number) in numbers.iter().enumerate() {
        let path = path_of(directory, number);
        let limit = numbers.get(nth + 1).filter(|next| **next == number + 1);
        let limit = limit.and_then(|&next| end_before(files, directory, store, next));
        match salvage_segment(files, &path, Owner { store, file: number }, limit, each) {
            Ok((found, offset)) => {
                if first == Some(number) && known.misses(number, found > 0) {
                    each(Err(missing(directory, known.oldest)));
                }
                (end, at) = (end.max(found), offset);
            }
            Err(error) => each(Err(error)),
        }
    }
    if end < known.log_end() {
        each(Err(lost_end(directory, &known, last, at)));
    }
}

/// The error of a log that ends before the end that it had: at this offset of its last segment.
fn lost_end(directory: &Path, known: &Noted, last: Option<u64>, at: u64) -> DiskError {
    match last {
        Some(last) if last >= known.segment => DiskError::corrupt(&path_of(directory, last), at, SHORTER),
        _ => missing(directory, known.segment),
    }
}

/// Where the segment before this one ended, as far as the head of this one tells.
fn end_before(files: &Arc<dyn Files>, directory: &Path, store: u64, number: u64) -> Option<Chain> {
    let path = path_of(directory, number);
    let file = files.open(&path, Purpose::Read).ok()?;
    Some(read_head(&*file, &path, MAGIC, Owner { store, file: number }).ok()??.before)
}

/// Reads a segment that ends at `limit`, if that is known: what lies behind was dropped, and others
/// have its numbers. Returns the position behind the last sound record, 0 if the segment does not
/// tell it, and the offset there.
fn salvage_segment(
    files: &Arc<dyn Files>,
    path: &Path,
    owner: Owner,
    limit: Option<Chain>,
    each: &mut dyn FnMut(Result<Record<'_>, DiskError>),
) -> Result<(Position, u64), DiskError> {
    let file = files.open(path, Purpose::Read).map_err(DiskError::io("open", path))?;
    let head = read_head(&*file, path, MAGIC, owner)?;
    let chain = head.map_or(Chain::default(), |head| head.after);
    let mut records = Records::new(&*file, path, owner, HEAD, chain)?;
    // Where the damage begins that the next sound record will lie behind.
    let mut damage = head.is_none().then_some(0);
    let mut last = HEAD;
    let end = |offset| (head.map_or(0, |head| head.after.end - HEAD + offset), offset);
    // Without a head, the sum of its last record tells where it ends.
    let offset = limit.and_then(|limit| limit.end.checked_sub(head?.base));
    let is_over = |records: &Records<'_>| match offset {
        Some(offset) => records.offset() >= offset,
        None => limit.is_some_and(|limit| limit.sum == records.chain().sum),
    };
    loop {
        if is_over(&records) {
            if let Some(offset) = damage {
                each(Err(DiskError::corrupt(path, offset, DAMAGED)));
            }
            return Ok(end(last));
        }
        let from = records.offset();
        match records.next()? {
            Some((header, _)) if header.is_end() => return Ok(end(from + header.size())),
            Some((header, payload)) => {
                last = from + header.size();
                if let Some(offset) = damage.take() {
                    each(Err(DiskError::corrupt(path, offset, DAMAGED)));
                }
                each(Ok(Record::new((header.first_seq, header.count), 0, 0, payload)));
            }
            None => {
                damage = damage.or(Some(records.offset()));
                if !records.pass_damage()? {
                    // Nothing sound lies behind it: a torn end, unless the log is known to go on.
                    if let Some(from) = damage.filter(|_| offset.is_some()) {
                        each(Err(DiskError::corrupt(path, from, DAMAGED)));
                    }
                    return Ok(end(last));
                }
            }
        }
    }
}
