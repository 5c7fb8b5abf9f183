//! Replaying a log. See the head of the [module](super) for what ends it.

use super::Position;
use super::head::{HEAD, Head, read_head};
use super::record::{Chain, Owner};
use super::records::{Records, Rest};
use super::segment::{Begun, MAGIC, number_of, path_of};
use crate::ends::{self, Noted};
use crate::{DiskError, list_files};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_medium::files::{Files, Purpose};

/// A record of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its first sequence number, and how many it has.
    pub first_seq: u64,
    /// How many sequence numbers it has.
    pub count: u32,
    /// The position behind it.
    pub end: Position,
    /// A position up to which the log is known to be synced, by what was read so far.
    pub synced: Position,
    /// Its payload; empty if it tells that the store was cleared.
    pub payload: &'a [u8],
    is_clear: bool,
}

/// The payload of a record that tells that the store was cleared. No item begins so.
pub(super) const CLEARED: &[u8] = b"cleared";

impl<'a> Record<'a> {
    pub(super) fn new(
        (first_seq, count): (u64, u32),
        end: Position,
        synced: Position,
        payload: &'a [u8],
    ) -> Self {
        let is_clear = payload == CLEARED;
        let payload = if is_clear { &[] } else { payload };
        Self { first_seq, count, end, synced, payload, is_clear }
    }

    /// If the record tells that the store was cleared: the number below which all is gone.
    pub fn cleared(&self) -> Option<u64> {
        self.is_clear.then_some(self.first_seq)
    }
}

/// The part of a log that a power loss tore. No sync had covered it, as far as the log knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The number of the segment where it begins.
    pub segment: u64,
    /// Its offset there.
    pub offset: u64,
    /// Its length up to the last byte that is not zero, with later segments.
    pub bytes: u64,
    /// Records behind its first one whose headers are sound. A power loss may keep these, though it
    /// takes what was written before them. Damage, too, where nothing tells that it was durable.
    pub records: u64,
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment, offset, bytes, records } = self;
        write!(
            f,
            "the last {bytes} bytes of the log count no more, from offset {offset} of {segment:010}.log on: a crash \
             tore what was not synced; {records} sound records lie behind the first bad one"
        )
    }
}

/// What a replay has found.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Number of records.
    pub records: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// The highest sequence number; 0 if there is none.
    pub last_seq: u64,
    /// What was torn behind the last record, if anything was.
    pub tail: Option<Tail>,
    /// The number of the segment that the writer begins next.
    pub next_segment: u64,
    /// The position behind the last record.
    pub end: Position,
    /// The segments that count, the oldest first.
    pub(super) begun: Vec<Begun>,
    /// The segments behind them, to be removed.
    pub(super) surplus: Vec<u64>,
    /// The end of the chain of records.
    pub(super) chain: Chain,
    /// A position up to which the log is known to be synced, by the records that count.
    pub(super) durable: Position,
    /// The same by all that there is. While the machine has not stopped, what was written counts.
    pub synced: Position,
    /// Bytes of the last segment that are not zero.
    pub(super) used: u64,
}

/// A segment that was found in the directory.
struct Listed {
    number: u64,
    path: PathBuf,
    head: Option<Head>,
}

/// Where the records of a segment stop.
enum Stop {
    /// Where the next segment says, or at an end record.
    End { follows: bool },
    /// Before something that is no record, at this offset.
    Bad(u64),
}

/// Hands all records of the log in `directory` to `each`, in order, and changes nothing.
///
/// Records may be handed out before an error behind them is found. A record for which `each`
/// returns false is not whole: what belongs to it elsewhere was lost. It counts as a torn one, so
/// it ends the log, unless the log shows that it was synced.
///
/// # Errors
/// A segment is damaged, missing, of another store or of a later format; it cannot be read; or
/// `each` failed.
pub fn replay(
    files: &Arc<dyn Files>,
    directory: &Path,
    store: u64,
    each: &mut dyn FnMut(Record<'_>) -> Result<bool, DiskError>,
) -> Result<Replayed, DiskError> {
    let known = ends::read(files, directory, store)?;
    let listed = list(files, directory, (store, &known))?;
    let mut replayed = Replayed::before(listed.first(), &known);
    for (nth, segment) in listed.iter().enumerate() {
        let next = listed.get(nth + 1);
        match replayed.read(files, (store, known.durable), segment, next, each)? {
            Stop::End { follows: true } if next.is_none() => {
                return Err(missing(directory, segment.number + 1));
            }
            Stop::End { .. } => {}
            Stop::Bad(offset) => {
                replayed.look_behind(files, store, &listed[nth..], (offset, known.log_end()))?;
                break;
            }
        }
    }
    replayed.end = replayed.chain.end;
    replayed.synced = replayed.synced.max(replayed.durable);
    match listed.last() {
        _ if replayed.end >= known.log_end() => Ok(replayed),
        Some(last) if last.number >= known.segment => {
            Err(DiskError::corrupt(&last.path, replayed.used, SHORTER))
        }
        _ => Err(missing(directory, known.segment)),
    }
}

/// What is wrong with a log that ends before the end that it had.
pub(super) const SHORTER: &str = "the log is not valid from here on, though more of it was written";

/// The error of a segment that is not there.
pub(super) fn missing(directory: &Path, number: u64) -> DiskError {
    DiskError::corrupt(&path_of(directory, number), 0, "this segment of the log is missing")
}

/// The segments in the directory, with their heads.
fn list(
    files: &Arc<dyn Files>,
    directory: &Path,
    (store, known): (u64, &Noted),
) -> Result<Vec<Listed>, DiskError> {
    let mut numbers = list_files(files, directory, number_of)?;
    numbers.sort_unstable();
    if let Some(gap) = numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
        return Err(missing(directory, gap[0] + 1));
    }
    let listed = numbers.into_iter().map(|number| {
        let path = path_of(directory, number);
        let file = files.open(&path, Purpose::Read).map_err(DiskError::io("open", &path))?;
        let head = read_head(&*file, &path, MAGIC, Owner { store, file: number })?;
        Ok(Listed { number, path, head })
    });
    let listed: Vec<Listed> = listed.collect::<Result<_, DiskError>>()?;
    let is_missed = |first: &Listed| known.misses(first.number, first.head.is_some());
    if listed.first().is_some_and(is_missed) {
        return Err(missing(directory, known.oldest));
    }
    // Older segments are removed only once the head of the next one is durable.
    match listed.first() {
        Some(first) if first.head.is_none() && first.number > 1 => {
            Err(DiskError::corrupt(&first.path, 0, "the head of the log's first segment is not valid"))
        }
        _ => Ok(listed),
    }
}

impl Replayed {
    /// Nothing yet, of a log that begins with this segment.
    fn before(first: Option<&Listed>, known: &Noted) -> Self {
        Self {
            records: 0,
            bytes: 0,
            last_seq: 0,
            tail: None,
            next_segment: first.map_or(1, |first| first.number),
            end: 0,
            begun: Vec::new(),
            surplus: Vec::new(),
            chain: first.and_then(|first| first.head).map_or(Chain::default(), |head| head.before),
            durable: 0,
            synced: known.log_end(),
            used: 0,
        }
    }

    /// Reads the records of a segment.
    fn read(
        &mut self,
        files: &Arc<dyn Files>,
        (store, noted): (u64, Position),
        segment: &Listed,
        next: Option<&Listed>,
        each: &mut dyn FnMut(Record<'_>) -> Result<bool, DiskError>,
    ) -> Result<Stop, DiskError> {
        let Some(head) = segment.head.filter(|head| head.before == self.chain) else {
            return Ok(Stop::Bad(0));
        };
        let path = &segment.path;
        let file = files.open(path, Purpose::Read).map_err(DiskError::io("open", path))?;
        let owner = Owner { store, file: segment.number };
        let mut records = Records::new(&*file, path, owner, HEAD, head.after)?;
        let mut begun = Begun::new(segment.number, head.base);
        self.durable = self.durable.max(head.durable);
        let limit = next.and_then(|next| next.head).map(|next| next.before.end);
        let (stop, refused) = self.read_records(&mut records, &mut begun, (limit, noted), each)?;
        (self.chain, self.used) = refused.unwrap_or_else(|| (records.chain(), records.offset()));
        begun.end = self.chain.end;
        self.begun.push(begun);
        self.next_segment = segment.number + 1;
        Ok(stop)
    }

    /// Reads records up to where they stop, at the position `limit` if there is one. Returns the
    /// place of a record that `each` has refused, too.
    fn read_records(
        &mut self,
        records: &mut Records<'_>,
        begun: &mut Begun,
        (limit, noted): (Option<Position>, Position),
        each: &mut dyn FnMut(Record<'_>) -> Result<bool, DiskError>,
    ) -> Result<(Stop, Option<(Chain, u64)>), DiskError> {
        loop {
            let (chain, offset) = (records.chain(), records.offset());
            let end = chain.end;
            if limit == Some(end) {
                return Ok((Stop::End { follows: false }, None));
            }
            let Some((header, payload)) = records.next()? else {
                return Ok((Stop::Bad(records.offset()), None));
            };
            self.durable = self.durable.max(header.durable);
            if header.is_end() {
                return Ok((Stop::End { follows: header.count > 0 }, None));
            }
            let (seqs, end) = ((header.first_seq, header.count), end + header.size());
            if !each(Record::new(seqs, end, self.durable.max(noted), payload))? {
                return Ok((Stop::Bad(offset), Some((chain, offset))));
            }
            if let Some(last) = header.last_seq() {
                begun.add(header.first_seq, last);
                self.last_seq = self.last_seq.max(last);
            }
            self.records += 1;
            self.bytes += u64::from(header.bytes);
        }
    }

    /// Tells whether what lies behind the last record, at `offset` of the first of `segments`, is a
    /// torn tail or damage.
    fn look_behind(
        &mut self,
        files: &Arc<dyn Files>,
        store: u64,
        segments: &[Listed],
        (offset, known_end): (u64, Position),
    ) -> Result<(), DiskError> {
        let (mut durable, mut bytes, mut records) = (0, 0, 0);
        let first = &segments[0];
        if known_end > self.chain.end {
            return Err(DiskError::corrupt(&first.path, offset, SHORTER));
        }
        for (nth, segment) in segments.iter().enumerate() {
            let from = if nth == 0 { offset } else { 0 };
            let rest = rest(files, store, segment, from)?;
            if nth == 0 && from > 0 {
                self.used = self.used.max(rest.used);
            }
            durable = durable.max(rest.durable);
            bytes += rest.used.saturating_sub(from);
            records += rest.records;
            if from == 0 {
                self.surplus.push(segment.number);
                durable = durable.max(segment.head.map_or(0, |head| head.durable));
            }
            if durable > self.chain.end {
                let what = "a part of the log is not valid, though a later part shows that it was synced";
                return Err(DiskError::corrupt(&first.path, offset, what));
            }
        }
        self.synced = self.synced.max(durable);
        self.tail = (bytes > 0).then_some(Tail { segment: first.number, offset, bytes, records });
        Ok(())
    }
}

fn rest(files: &Arc<dyn Files>, store: u64, segment: &Listed, from: u64) -> Result<Rest, DiskError> {
    let path = &segment.path;
    let file = files.open(path, Purpose::Read).map_err(DiskError::io("open", path))?;
    let owner = Owner { store, file: segment.number };
    Records::new(&*file, path, owner, from, Chain::default())?.rest()
}
