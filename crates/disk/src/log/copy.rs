//! A copy of a log: its segments, linked into another directory.

use super::Position;
use super::head::HEAD;
use super::record::HEADER;
use super::segment::{self, path_of};
use super::writer::Log;
use crate::{DiskError, Ends};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use terrace_medium::files::Purpose;

/// A position at which a log can be copied: a segment ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The number of that segment.
    number: u64,
    /// The position behind its last byte.
    pub end: Position,
}

impl Log {
    /// Ends the segment that takes records, so that the log up to here never changes again. The
    /// next record begins another segment.
    ///
    /// # Errors
    /// The log has failed, or there is no room for the next segment; then nothing has changed.
    pub fn cut(&self) -> Result<Cut, DiskError> {
        let mut state = self.lock();
        loop {
            state.failure()?;
            if !state.has_current() {
                return Ok(Cut { number: state.number, end: state.end() });
            }
            if state.has_next() {
                let end = state.put_end(true);
                return Ok(Cut { number: state.number, end });
            }
            state = self.make(state, HEAD + HEADER)?;
        }
    }

    /// Makes a log that ends at `cut` in `directory`, of links to this log's segments, and notes it
    /// in `ends`. `link` makes one, of a file at the first path with the second as its name. The
    /// caller has synced the log up to the cut, and syncs the directory.
    ///
    /// # Errors
    /// A link cannot be made.
    pub fn link_into(
        &self,
        directory: &Path,
        cut: Cut,
        ends: &Ends,
        link: &mut dyn FnMut(&Path, &Path) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        // No segment is removed meanwhile.
        let _one = self.releasing.lock().unwrap_or_else(PoisonError::into_inner);
        let segments: Vec<(u64, u64)> = {
            let state = self.lock();
            let ended = state.begun.iter().filter(|begun| begun.number <= cut.number);
            ended.map(|begun| (begun.number, begun.end - begun.base)).collect()
        };
        let oldest = segments.first().map_or(cut.number + 1, |(number, _)| *number);
        ends.note(|noted| {
            (noted.segment, noted.oldest) = (cut.number, oldest);
            (noted.written, noted.durable) = (cut.end, cut.end);
        });
        for (number, used) in segments {
            let path = path_of(&self.directory, number);
            if number == cut.number {
                // What is allocated behind its end is not needed any more. It does no harm either.
                let _ = self.files.open(&path, Purpose::Write).and_then(|file| file.set_length(used));
            }
            link(&path, &path_of(directory, number))?;
        }
        // An end record says that this one follows.
        let next: PathBuf = path_of(directory, cut.number + 1);
        segment::create(&self.files, &next).map(drop)
    }
}
