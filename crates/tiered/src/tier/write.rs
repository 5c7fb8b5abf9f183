//! How a block is written.

use super::edit::Name;
use super::format::{Foot, Mention, PAGE, PIECE, PLACE};
use crate::space::record::{Kind, LargeValue, Record};
use std::path::Path;
use terrace_disk::DiskError;
use terrace_medium::files::StoredFile;
use xxhash_rust::xxh3::Xxh3;

/// Writes a block.
pub(crate) struct BlockWriter<'f> {
    file: &'f dyn StoredFile,
    path: &'f Path,
    foot: Foot,
    buffer: Vec<u8>,
    written: u64,
    fences: Vec<u32>,
    mentions: Vec<Mention>,
    large: Vec<u64>,
}

impl<'f> BlockWriter<'f> {
    pub(crate) fn new(
        file: &'f dyn StoredFile,
        path: &'f Path,
        store: u64,
        (number, generation): Name,
    ) -> Self {
        let foot = Foot {
            store,
            number,
            generation,
            first_seq: u64::MAX,
            first_expiry: u64::MAX,
            ..Foot::default()
        };
        Self {
            file,
            path,
            foot,
            buffer: Vec::new(),
            written: 0,
            fences: Vec::new(),
            mentions: Vec::new(),
            large: Vec::new(),
        }
    }

    /// Adds a record, whose bytes are these.
    ///
    /// # Panics
    /// If it is none, or does not come behind the last one.
    pub(crate) fn add(&mut self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let record = Record::read(bytes).expect("a sound record");
        let offset = u32::try_from(offset).expect("a block has less than 4 GiB");
        assert!(self.mentions.last().is_none_or(|last| last.offset < offset), "records come in order");
        let used = self.buffer.len() % PAGE;
        if used > 0 && used + PLACE + bytes.len() > PAGE {
            self.end_page();
        }
        if self.buffer.len().is_multiple_of(PAGE) {
            if self.buffer.len() >= PIECE {
                self.flush()?;
            }
            let pages = (PLACE + bytes.len()).div_ceil(PAGE);
            self.fences.extend(std::iter::repeat_n(offset, pages));
        }
        let mention = Mention::of(&record, offset);
        self.buffer.extend_from_slice(&offset.to_le_bytes());
        self.buffer.extend_from_slice(&mention.words.to_le_bytes());
        self.buffer.extend_from_slice(bytes);
        if PLACE + bytes.len() > PAGE {
            self.end_page();
        }
        self.note(&record, mention);
        Ok(())
    }

    fn end_page(&mut self) {
        self.buffer.resize(self.buffer.len().next_multiple_of(PAGE), 0);
    }

    fn note(&mut self, record: &Record<'_>, mention: Mention) {
        let Mention { seq, is_tombstone, words, .. } = mention;
        self.mentions.push(mention);
        let foot = &mut self.foot;
        foot.records += 1;
        foot.tombstones += u64::from(is_tombstone);
        foot.bytes += 8 * u64::from(words);
        (foot.first_seq, foot.last_seq) = (foot.first_seq.min(seq), foot.last_seq.max(seq));
        if record.shape.kind == Kind::Large {
            foot.large += 1;
            self.large.extend(LargeValue::read(record.inline).map(|large| large.number));
        }
        if let Some(at) = record.expires_at {
            foot.expiring += 1;
            (foot.first_expiry, foot.last_expiry) = (foot.first_expiry.min(at), foot.last_expiry.max(at));
        }
    }

    /// Whether it has no record.
    pub(crate) fn is_empty(&self) -> bool {
        self.mentions.is_empty()
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        let write = self.file.write_all_at(&self.buffer, self.written);
        write.map_err(DiskError::room("write", self.path))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest, and syncs all. All versions with a later one below `clean_seq` are gone.
    pub(crate) fn finish(mut self, clean_seq: u64) -> Result<Foot, DiskError> {
        self.end_page();
        self.flush()?;
        (self.foot.data_bytes, self.foot.clean_seq) = (self.written, clean_seq);
        assert_eq!((self.fences.len() * PAGE) as u64, self.written, "a fence for each page");
        self.mentions.sort_unstable();
        let fences = std::mem::take(&mut self.fences);
        self.buffer.extend(fences.iter().flat_map(|fence| fence.to_le_bytes()));
        let mut sum = Xxh3::with_seed(self.foot.number);
        for mention in std::mem::take(&mut self.mentions) {
            self.buffer.extend_from_slice(&mention.to_bytes());
            if self.buffer.len() >= PIECE {
                sum.update(&self.buffer);
                self.flush()?;
            }
        }
        self.buffer.extend(self.large.iter().flat_map(|number| number.to_le_bytes()));
        sum.update(&self.buffer);
        self.foot.sum = sum.digest();
        self.buffer.extend_from_slice(&self.foot.to_bytes());
        self.flush()?;
        self.file.sync_data().map_err(DiskError::room("sync", self.path))?;
        Ok(self.foot)
    }
}
