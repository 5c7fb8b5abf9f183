//! Opening a log behind what was replayed, releasing its oldest segments, and closing it.

use super::head::HEAD;
use super::record::Chain;
use super::records::renew;
use super::replay::Replayed;
use super::segment::{self, Failure, Spare, path_of};
use super::state::State;
use super::writer::{Log, LogOptions};
use crate::DiskError;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::PoisonError;
use terrace_medium::files::{Files, Purpose};

impl Log {
    /// The log in `directory`, before it is known where its records end. The caller does nothing
    /// with it but [`Log::start`].
    pub fn unopened(files: &Arc<dyn Files>, directory: &Path, store: u64, options: LogOptions) -> Self {
        let state = State::new(store, VecDeque::new(), 0, Chain::default());
        Self::with_state(files.clone(), directory.into(), store, options, state)
    }

    /// Opens the log in `directory` behind what was replayed from there. Its next record begins a
    /// segment. If `is_read_only`, nothing is changed, and every append fails.
    ///
    /// # Errors
    /// The replayed segments cannot be synced, or those behind them removed. Lack of room is no
    /// error: appends fail until there is some.
    pub fn open(
        files: &Arc<dyn Files>,
        directory: &Path,
        store: u64,
        options: LogOptions,
        replayed: &Replayed,
        is_read_only: bool,
    ) -> Result<Self, DiskError> {
        let log = Self::unopened(files, directory, store, options);
        log.start(replayed, is_read_only)?;
        Ok(log)
    }

    /// Opens a log that was not, as [`Log::open`] does.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn start(&self, replayed: &Replayed, is_read_only: bool) -> Result<(), DiskError> {
        let (files, directory) = (&self.files, &self.directory);
        let begun = replayed.begun.iter().copied().collect();
        let number = replayed.next_segment - 1;
        *self.lock() = State::new(self.store, begun, number, replayed.chain);
        if is_read_only {
            self.lock().fail(&DiskError::ReadOnly { path: directory.clone() });
            return Ok(());
        }
        // The newest first: what is left has no gap. The oldest stays, empty: the segment before it
        // may end with the record that says that another follows.
        for &number in replayed.surplus.iter().skip(1).rev() {
            segment::remove(files, directory, number).map_err(|failure| failure.error)?;
        }
        settle(files, directory, replayed)?;
        let (end, oldest) = (replayed.chain.end, replayed.begun.first().map_or(number + 1, |one| one.number));
        self.ends.note(|noted| {
            (noted.segment, noted.oldest) = (number, oldest);
            (noted.written, noted.durable) = (end, end);
        });
        let old = replayed.surplus.first().map(|_| segment::empty(files, directory, number + 1));
        let old = old.transpose()?;
        match self.reserve.keep() {
            Err(DiskError::Full { .. }) => {}
            kept => kept?,
        }
        match segment::make(files, directory, number + 1, old.clone(), self.segment_bytes()) {
            Ok(spare) => self.lock().add_spare(spare),
            Err(Failure { error: DiskError::Full { .. }, .. }) => {
                old.into_iter().for_each(|segment| self.lock().add_spare(Spare { segment, size: 0 }));
            }
            Err(Failure { error, .. }) => return Err(error),
        }
        Ok(())
    }

    /// Removes the segments whose sequence numbers are all below `below`, from the oldest on, but
    /// not the one that takes records. Syncs the log as far as needed.
    ///
    /// # Errors
    /// The log has failed, or a segment cannot be removed.
    pub fn release(&self, below: u64) -> Result<(), DiskError> {
        let _one = self.releasing.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let state = self.lock();
            state.failure()?;
            let (Some(oldest), Some(next)) = (state.begun.front(), state.begun.get(1)) else { return Ok(()) };
            if oldest.seqs.is_some_and(|(_, last)| last >= below) {
                return Ok(());
            }
            // The first segment of a log must have a head.
            let (number, needed) = (oldest.number, next.base + HEAD);
            let is_durable = state.durable >= needed;
            drop(state);
            if !is_durable {
                self.sync(needed)?;
                continue;
            }
            // A power loss must not leave a note that the segment counts.
            self.ends.note_durably(|noted| noted.oldest = number + 1)?;
            let removed = segment::remove(&self.files, &self.directory, number);
            let mut state = self.lock();
            match removed {
                Ok(()) => _ = state.begun.pop_front(),
                Err(Failure { error, is_final }) => {
                    if is_final {
                        state.fail(&error);
                        self.wake_all();
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Bytes of the records and heads in the log's segments.
    pub fn bytes(&self) -> u64 {
        self.lock().begun.iter().map(|begun| begun.end - begun.base).sum()
    }

    /// The lowest sequence number in the log's segments.
    pub fn oldest_seq(&self) -> Option<u64> {
        self.lock().begun.iter().filter_map(|begun| begun.seqs).map(|(first, _)| first).min()
    }

    /// Writes and syncs everything, and ends the log so that the next replay finds no tail. The
    /// caller appends nothing from then on.
    ///
    /// # Errors
    /// The log has failed, or prepared segments cannot be removed.
    pub fn close(&self) -> Result<(), DiskError> {
        self.sync(self.end())?;
        let mut state = self.lock();
        // Without a segment to end, the last one may say already that another follows.
        let mut needed = 1;
        if let Some((segment, offset)) = state.open_end() {
            needed = 0;
            let path = segment.path.clone();
            let end = state.put_end(false);
            drop(state);
            self.write(end)?;
            segment.file.set_length(offset).map_err(DiskError::io("cut", &path))?;
            self.sync(end)?;
            state = self.lock();
        }
        let spare = std::mem::take(&mut state.spare);
        drop(state);
        for spare in spare.iter().take(needed) {
            let (file, path) = (&spare.segment.file, &spare.segment.path);
            file.set_length(0).map_err(DiskError::io("cut", path))?;
            self.lock().add_spare(Spare { segment: spare.segment.clone(), size: 0 });
        }
        for spare in spare.iter().skip(needed).rev() {
            let removed = segment::remove(&self.files, &self.directory, spare.segment.number);
            removed.map_err(|failure| failure.error)?;
        }
        self.ends.sync()
    }
}

/// Makes the replayed segments durable, as far as they are not known to be. Frees what the last one
/// has allocated behind its records.
fn settle(files: &Arc<dyn Files>, directory: &Path, replayed: &Replayed) -> Result<(), DiskError> {
    for begun in replayed.begun.iter().filter(|begun| begun.end > replayed.durable) {
        let path = path_of(directory, begun.number);
        let file = files.open(&path, Purpose::Write).map_err(DiskError::io("open", &path))?;
        if begun.number + 1 == replayed.next_segment {
            // Not needed, and a full file system may refuse it.
            let _ = file.set_length(replayed.used);
        }
        let from = replayed.durable.saturating_sub(begun.base);
        renew(&*file, &path, from, begun.end - begun.base)?;
    }
    Ok(())
}
