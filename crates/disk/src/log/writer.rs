//! The log's writer.

use super::Position;
use super::head::HEAD;
use super::record::{HEADER, Header, PAYLOAD_MAX, payload_sum, size};
use super::replay::CLEARED;
use super::segment::{self, Failure};
use super::state::{Chunk, State};
use crate::{DiskError, Ends, Place, Reserve};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use terrace_medium::files::Files;

/// Bytes of the largest buffer that is used again.
const BUFFER_MAX: usize = 4 << 20;

/// How long a sync waits for the next of the threads that the one before has released.
const GATHER: Duration = Duration::from_micros(100);

/// How a log is written.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Bytes of a segment. A record that is longer gets a segment of its own.
    pub segment_bytes: u64,
    /// Bytes that are kept for records that make room.
    pub reserve_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, reserve_bytes: 64 << 20 }
    }
}

/// What a record may do when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is refused.
    Room,
    /// It makes room, so it gets what is kept for such.
    Reserve,
}

/// By how much segments are shorter while the reserve is not kept.
const SHORTER: u64 = 64;

/// A log that takes records from many threads.
///
/// A record is durable against the end of the process once [`Log::write`] has returned, and against
/// a loss of power once [`Log::sync`] has. One thread writes or syncs for all that wait.
pub struct Log {
    pub(super) files: Arc<dyn Files>,
    pub(super) directory: PathBuf,
    pub(super) store: u64,
    pub(super) options: LogOptions,
    /// Where it is noted how far the log went.
    pub(super) ends: Ends,
    /// Asked before a segment is made.
    place: Option<Place>,
    pub(super) state: Mutex<State>,
    /// Signalled when a thread has made a segment, has written, or has synced.
    made: Condvar,
    wrote: Condvar,
    synced: Condvar,
    /// Signalled when as many threads wait for a sync as the one before has released.
    gathered: Condvar,
    /// Held while segments are removed.
    pub(super) releasing: Mutex<()>,
    /// Room for records that make room, and for the work behind them.
    pub(super) reserve: Reserve,
}

pub(super) type Guard<'l> = MutexGuard<'l, State>;

impl Log {
    pub(super) fn with_state(
        files: Arc<dyn Files>,
        directory: PathBuf,
        store: u64,
        options: LogOptions,
        state: State,
    ) -> Self {
        let (made, wrote, synced, gathered) = Default::default();
        let (state, releasing) = (Mutex::new(state), Mutex::new(()));
        let (ends, place) = (Ends::default(), None);
        let reserve = Reserve::new(files.clone(), &directory, options.reserve_bytes);
        Self {
            files,
            directory,
            store,
            options,
            ends,
            place,
            state,
            made,
            wrote,
            synced,
            gathered,
            releasing,
            reserve,
        }
    }

    /// The same log, which notes in `ends` how far it went.
    #[must_use]
    pub fn with_ends(self, ends: Ends) -> Self {
        Self { ends, ..self }
    }

    /// The same log, which makes no segment where the directory is another one than `place`.
    #[must_use]
    pub fn within(self, place: &Place) -> Self {
        Self { place: Some(place.clone()), ..self }
    }

    /// Whether a record of this need is taken at present, as far as known beforehand: while the
    /// reserve cannot be kept, none but those that make room is.
    ///
    /// # Errors
    /// There is no room for the reserve, or the file system refuses it.
    pub fn check_room(&self, need: Need) -> Result<(), DiskError> {
        if need == Need::Room { self.reserve.keep() } else { Ok(()) }
    }

    /// The room that is kept for records that make room.
    pub fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    pub(super) fn lock(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a record behind the others, into memory, and returns the position behind it. The record
    /// has `count` sequence numbers from `first_seq` on, and the parts together as its payload.
    /// `need` says what it may do where there is no room.
    ///
    /// # Panics
    /// If the payload is longer than [`LOG_PAYLOAD_MAX`](crate::LOG_PAYLOAD_MAX), or `count` has
    /// more than 32 bits.
    ///
    /// # Errors
    /// The log has failed; or the record needs a new segment, and there is no room for one: then
    /// the log is as before.
    pub fn append(
        &self,
        (first_seq, count): (u64, u64),
        parts: &[&[u8]],
        need: Need,
    ) -> Result<Position, DiskError> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        assert!(len <= PAYLOAD_MAX, "a record of {len} bytes, at most {PAYLOAD_MAX}");
        let count = u32::try_from(count).expect("a record has fewer than 2^32 sequence numbers");
        assert!(first_seq.checked_add(count.into()).is_some(), "sequence numbers have 64 bits");
        let sum = payload_sum(self.store, parts);
        let mut state = self.lock();
        state.failure()?;
        if need == Need::Room && !self.reserve.is_kept() {
            drop(state);
            self.check_room(need)?;
            state = self.lock();
        }
        let mut lent = None;
        loop {
            state.failure()?;
            if state.fits(size(len)) || state.go_on(HEAD + size(len) + HEADER) {
                let header = Header { first_seq, durable: state.durable, bytes: len as u32, count };
                return Ok(state.put(header, sum, parts));
            }
            state = match self.make(state, HEAD + size(len) + HEADER) {
                Err(full @ DiskError::Full { .. }) if need == Need::Reserve && lent.is_none() => {
                    lent = Some(self.reserve.let_go()?.ok_or(full)?);
                    self.lock()
                }
                made => made?,
            };
        }
    }

    /// Writes a record that tells that everything below `seq` is gone, and has this number itself:
    /// for a salvage that finds nothing else that tells it. Returns the position behind it. A store
    /// is cleared without it, too: nothing is written where there is no room.
    ///
    /// # Errors
    /// The log has failed.
    pub fn note_clear(&self, seq: u64) -> Result<Option<Position>, DiskError> {
        let noted =
            self.append((seq, 1), &[CLEARED], Need::Reserve).and_then(|end| self.write(end).map(|()| end));
        match noted {
            Err(DiskError::Full { .. }) => Ok(None),
            noted => noted.map(Some),
        }
    }

    /// Returns once everything up to `to`, and whatever else was appended, has reached the files.
    ///
    /// # Errors
    /// The log has failed; or there was no room and the record that ends at `to` was taken out.
    ///
    /// # Panics
    /// If `to` is a position that no record has reached.
    pub fn write(&self, to: Position) -> Result<(), DiskError> {
        self.write_up_to(self.lock(), to).1
    }

    /// Returns once everything up to `to`, and whatever else was written, survives a power loss.
    ///
    /// # Errors
    /// As [`Log::write`]. A failed sync ends the log.
    ///
    /// # Panics
    /// As [`Log::write`].
    pub fn sync(&self, to: Position) -> Result<(), DiskError> {
        let mut state = self.lock();
        if state.wait_for(to) {
            self.gathered.notify_one();
        }
        loop {
            state.check(to)?;
            if state.durable >= to {
                return Ok(());
            }
            if state.is_syncing {
                state = self.synced.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_syncing = true;
            state = self.gather(state);
            // Whatever else is pending, so that this sync covers it.
            let all = if state.is_writing { to } else { state.end() };
            state.syncing = all;
            let (written, result) = self.write_up_to(state, all);
            state = written;
            if result.is_ok() {
                state = self.sync_written(state);
            }
            state.is_syncing = false;
            self.synced.notify_all();
        }
    }

    /// Makes the next segment ahead of time, once records have begun to fill the current one.
    /// Returns whether it did. Keeps the reserve first, if it is not kept and there is room for it.
    ///
    /// # Errors
    /// The log has failed, or there is no room.
    pub fn prepare(&self) -> Result<bool, DiskError> {
        let state = self.lock();
        state.failure()?;
        if !self.reserve.is_kept() {
            drop(state);
            return match self.reserve.keep() {
                // What there is belongs to records that make room.
                Err(DiskError::Full { .. }) => Ok(false),
                kept => kept.map(|()| true),
            };
        }
        if state.is_making || !state.spare.is_empty() || !state.wants_next() {
            return Ok(false);
        }
        drop(self.make(state, self.segment_bytes())?);
        Ok(true)
    }

    /// Bytes of a segment that is made now.
    pub(super) fn segment_bytes(&self) -> u64 {
        if self.reserve.is_kept() { self.options.segment_bytes } else { self.options.segment_bytes / SHORTER }
    }

    /// The position behind the last record.
    pub fn end(&self) -> Position {
        self.lock().end()
    }

    /// Whether the log still has the record that ends at `to`.
    ///
    /// # Errors
    /// The log has failed; or there was no room, and the record was taken out.
    ///
    /// # Panics
    /// As [`Log::write`].
    pub fn has(&self, to: Position) -> Result<(), DiskError> {
        self.lock().check(to)
    }

    /// The position up to which the files have everything.
    pub fn written(&self) -> Position {
        self.lock().written
    }

    /// The position up to which everything survives a power loss.
    pub fn durable(&self) -> Position {
        self.lock().durable
    }

    /// Times that records were synced since the log was opened.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// Makes the next segment with at least `bytes` bytes, or waits for a thread that makes one.
    /// The caller looks again whether it has what it needs.
    pub(super) fn make<'l>(&'l self, mut state: Guard<'l>, bytes: u64) -> Result<Guard<'l>, DiskError> {
        if state.is_making {
            return Ok(self.made.wait(state).unwrap_or_else(PoisonError::into_inner));
        }
        state.is_making = true;
        // A spare segment in the way is made larger: numbers have no gap.
        let old = state.spare.pop_front().map(|spare| spare.segment);
        let number = old.as_ref().map_or(state.number + 1, |old| old.number);
        drop(state);
        let bytes = bytes.max(self.segment_bytes());
        let is_there = self.place.as_ref().map_or(Ok(()), Place::check).map_err(Failure::last);
        let made =
            is_there.and_then(|()| segment::make(&self.files, &self.directory, number, old.clone(), bytes));
        let mut state = self.lock();
        state.is_making = false;
        self.made.notify_all();
        match made {
            Ok(spare) => state.add_spare(spare),
            Err(Failure { error, is_final }) => {
                if let Some(segment) = old {
                    state.add_spare(segment::Spare { segment, size: 0 });
                }
                if is_final {
                    state.fail(&error);
                    self.wake_all();
                }
                return Err(error);
            }
        }
        Ok(state)
    }

    /// Waits until as many threads wait for this sync as the one before has released: they come
    /// again soon, one after the other. Gives up once none has come for a while.
    fn gather<'l>(&'l self, mut state: Guard<'l>) -> Guard<'l> {
        let mut before = 0;
        while before < state.waiting && state.waiting < state.released {
            before = state.waiting;
            let waited = self.gathered.wait_timeout(state, GATHER);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.released = std::mem::take(&mut state.waiting);
        state
    }

    /// As [`Log::write`], with the state locked before and after.
    fn write_up_to<'l>(&'l self, mut state: Guard<'l>, to: Position) -> (Guard<'l>, Result<(), DiskError>) {
        loop {
            let result = state.check(to);
            if result.is_err() || state.written >= to {
                return (state, result);
            }
            state = if state.is_writing {
                self.wrote.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.write_pending(state)
            };
        }
    }

    /// Writes everything that is pending.
    fn write_pending<'l>(&'l self, mut state: Guard<'l>) -> Guard<'l> {
        state.is_writing = true;
        let mut chunks = std::mem::take(&mut state.pending);
        assert!(!chunks.is_empty(), "what is appended is written or pending");
        let last = state.number;
        drop(state);
        let write = |chunk: &Chunk| chunk.segment.file.write_all_at(&chunk.bytes, chunk.offset);
        let failed = chunks.iter().enumerate().find_map(|(nth, chunk)| Some((nth, write(chunk).err()?)));
        let written = failed.as_ref().map_or(chunks.len(), |(nth, _)| *nth);
        let failed = failed.map(|(nth, error)| {
            let error = DiskError::room("write", &chunks[nth].segment.path)(error);
            let cut = if matches!(error, DiskError::Full { .. }) { cut(&chunks[nth]) } else { Ok(()) };
            cut.err().unwrap_or(error)
        });
        // Before any of these writes counts as done.
        if let Some(last) = chunks[..written].last() {
            self.ends.note(|noted| (noted.segment, noted.written) = (last.segment.number, last.end));
        }
        // No more goes to these: their pages need not stay in memory until their sync.
        let is_over = |chunk: &&Chunk| chunk.segment.number < last;
        chunks[..written].iter().filter(is_over).for_each(|chunk| chunk.segment.file.expect_small_writes(0));
        let mut state = self.lock();
        chunks[..written].iter().for_each(|chunk| state.wrote(chunk));
        match failed {
            Some(error @ DiskError::Full { .. }) => state.take_out(&chunks[written..], error),
            Some(error) => {
                state.fail(&error);
                self.wake_all();
            }
            None if chunks[0].bytes.capacity() <= BUFFER_MAX => {
                state.buffer = std::mem::take(&mut chunks[0].bytes);
                state.buffer.clear();
            }
            None => {}
        }
        state.is_writing = false;
        self.wrote.notify_all();
        state
    }

    /// Syncs everything that is written.
    fn sync_written<'l>(&'l self, mut state: Guard<'l>) -> Guard<'l> {
        let (to, segments) = (state.written, std::mem::take(&mut state.unsynced));
        drop(state);
        let sync = |segment: &segment::Segment| {
            segment.file.sync_data().map_err(DiskError::io("sync", &segment.path))
        };
        let result = segments.iter().try_for_each(|segment| sync(segment));
        if result.is_ok() {
            self.ends.note(|noted| noted.durable = to);
        }
        let mut state = self.lock();
        match result {
            Ok(()) => (state.durable, state.syncs) = (to, state.syncs + 1),
            Err(error) => {
                state.fail(&error);
                self.wake_all();
            }
        }
        state
    }

    /// Wakes all that wait, because the log has failed.
    pub(super) fn wake_all(&self) {
        [&self.made, &self.wrote, &self.synced].iter().for_each(|changed| changed.notify_all());
    }
}

/// Cuts a segment to where a chunk began, so that nothing of the chunk is ever found.
fn cut(chunk: &Chunk) -> Result<(), DiskError> {
    let path = &chunk.segment.path;
    chunk.segment.file.set_length(chunk.offset).map_err(DiskError::io("cut", path))?;
    chunk.segment.file.sync().map_err(DiskError::io("sync", path))
}
