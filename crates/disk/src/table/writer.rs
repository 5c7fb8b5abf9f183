//! Writing a table.

use super::block::BlockBuilder;
use super::filter::{Filter, FilterKind};
use super::partition::{Children, Partition, separator};
use super::piece::{Foot, Place, put_piece};
use super::properties::Properties;
use crate::DiskError;
use crate::codec::{hash, shared};
use crate::item::{Content, Item};
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_medium::files::StoredFile;

/// Bytes that are written at a time.
const BUFFER: usize = 256 << 10;

/// How a table is written.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// Bytes of items after which a block ends.
    pub block_bytes: usize,
    /// Blocks of a partition.
    pub partition_blocks: usize,
    /// Whether blocks are compressed by LZ4.
    pub compress: bool,
    /// The filters of partitions.
    pub filter: FilterKind,
    /// The store that the table is a part of.
    pub store: u64,
}

impl Default for TableOptions {
    fn default() -> Self {
        let filter = FilterKind::Bits16;
        Self { block_bytes: 4096, partition_blocks: 128, compress: true, filter, store: 0 }
    }
}

/// Writes a table to an empty file.
pub struct TableWriter<'f> {
    file: Written<'f>,
    path: PathBuf,
    table: u64,
    options: TableOptions,
    /// Bytes that were not given to the file yet, and where they will lie.
    buffer: Vec<u8>,
    at: u64,
    block: BlockBuilder,
    /// The last item of the block: its seq, and how many items and tombstones the block has.
    last_seq: u64,
    in_block: (u64, u64),
    /// Where the last block lies that has no entry in a partition yet: that needs the next key.
    pending: Option<(Vec<u8>, u64, Place)>,
    blocks: Children,
    hashes: Vec<u64>,
    top: Children,
    properties: Properties,
}

/// The file of a table.
enum Written<'f> {
    Borrowed(&'f dyn StoredFile),
    Shared(Arc<dyn StoredFile>),
}

impl Written<'_> {
    fn file(&self) -> &dyn StoredFile {
        match self {
            Self::Borrowed(file) => *file,
            Self::Shared(file) => &**file,
        }
    }
}

impl TableWriter<'static> {
    /// As [`TableWriter::new`], with a file that is shared.
    pub fn shared(file: &Arc<dyn StoredFile>, path: &Path, table: u64, options: TableOptions) -> Self {
        Self::with(Written::Shared(Arc::clone(file)), path, table, options)
    }
}

impl<'f> TableWriter<'f> {
    /// A writer of the table with the number `table` to `file`, which lies at `path`.
    pub fn new(file: &'f dyn StoredFile, path: &Path, table: u64, options: TableOptions) -> Self {
        Self::with(Written::Borrowed(file), path, table, options)
    }

    fn with(file: Written<'f>, path: &Path, table: u64, options: TableOptions) -> Self {
        Self {
            file,
            path: path.into(),
            table,
            options,
            buffer: Vec::with_capacity(BUFFER + options.block_bytes),
            at: 0,
            block: BlockBuilder::default(),
            last_seq: 0,
            in_block: (0, 0),
            pending: None,
            blocks: Children::default(),
            hashes: Vec::new(),
            top: Children::default(),
            properties: Properties::default(),
        }
    }

    /// Adds an item.
    ///
    /// # Panics
    /// If it does not come after the one before it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, item: &Item<'_>) -> Result<(), DiskError> {
        // One pass over the keys tells their order and what they share.
        let last = self.block.last_key();
        let shared = shared(last, item.key);
        let order = last[shared..].first().cmp(&item.key[shared..].first());
        let is_in_order = self.is_empty() || order.then(item.seq.cmp(&self.last_seq)) == Ordering::Less;
        assert!(is_in_order, "an item of a table that does not come after the one before it");
        self.enter_pending(Some(item.key))?;
        let hash = hash(item.key);
        // A partition that begins with a further version of a key has the key too.
        if order == Ordering::Less || self.hashes.is_empty() {
            self.hashes.push(hash);
        }
        self.block.add(item, hash, shared);
        self.properties.add(item, hash, shared);
        self.last_seq = item.seq;
        let is_tombstone = matches!(item.content, Content::Tombstone);
        self.in_block = (self.in_block.0 + 1, self.in_block.1 + u64::from(is_tombstone));
        if self.block.len() >= self.options.block_bytes { self.end_block() } else { Ok(()) }
    }

    /// Bytes of the table so far.
    pub fn len(&self) -> u64 {
        self.at + (self.buffer.len() + self.block.len()) as u64
    }

    /// Whether no item was added.
    pub fn is_empty(&self) -> bool {
        self.properties.items == 0
    }

    /// Writes the rest. The caller syncs the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<Properties, DiskError> {
        if !self.block.is_empty() {
            self.end_block()?;
        }
        self.properties.last_key = self.block.last_key().to_vec();
        self.enter_pending(None)?;
        self.end_partition()?;
        let mut bytes = Vec::new();
        self.top.write(&mut bytes);
        let top = self.put(&bytes, true)?;
        bytes.clear();
        self.properties.write(&mut bytes);
        let properties = self.put(&bytes, true)?.bytes;
        self.buffer.extend_from_slice(
            &Foot { table: self.table, store: self.options.store, top, properties }.to_bytes(),
        );
        self.flush()?;
        Ok(self.properties)
    }

    fn end_block(&mut self) -> Result<(), DiskError> {
        let key = self.block.last_key().to_vec();
        let offset = self.at + self.buffer.len() as u64;
        put_piece(&mut self.buffer, self.block.finish(), self.table, offset, self.options.compress);
        self.block.clear();
        let place = self.placed(offset)?;
        let (items, tombstones) = std::mem::take(&mut self.in_block);
        self.properties.sparse_blocks += u64::from(tombstones * 2 > items);
        self.pending = Some((key, self.last_seq, place));
        Ok(())
    }

    /// Enters the last block into its partition, now that the key behind it is known.
    fn enter_pending(&mut self, next: Option<&[u8]>) -> Result<(), DiskError> {
        let Some((key, seq, place)) = self.pending.take() else { return Ok(()) };
        let (key, seq) = separator((&key, seq), next);
        self.blocks.add(key, seq, place);
        if self.blocks.len() < self.options.partition_blocks {
            return Ok(());
        }
        self.end_partition()
    }

    fn end_partition(&mut self) -> Result<(), DiskError> {
        let blocks = std::mem::take(&mut self.blocks);
        let Some((key, seq)) = blocks.last() else { return Ok(()) };
        let filter = Filter::new(&mut self.hashes, self.options.filter);
        self.hashes.clear();
        let place = self.put(&Partition::write(&blocks, filter.as_ref()), false)?;
        self.top.add(key, seq, place);
        Ok(())
    }

    /// Appends a piece and returns its place.
    fn put(&mut self, bytes: &[u8], compress: bool) -> Result<Place, DiskError> {
        let offset = self.at + self.buffer.len() as u64;
        put_piece(&mut self.buffer, bytes, self.table, offset, compress);
        self.placed(offset)
    }

    /// The place of the piece that was put at `offset`, as the last one.
    fn placed(&mut self, offset: u64) -> Result<Place, DiskError> {
        let place = Place { offset, bytes: (self.at + self.buffer.len() as u64 - offset) as u32 };
        if self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(place)
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.file.file().write_all_at(&self.buffer, self.at).map_err(DiskError::io("write", &self.path))?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
