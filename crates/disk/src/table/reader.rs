//! Reading a table: gets, and the pieces that cursors need.

use super::block::{Block, BlockCursor};
use super::partition::{Children, Partition};
use super::piece::{Foot, Pieces, Place};
use super::properties::Properties;
use crate::DiskError;
use crate::codec::{Reader, hash};
use crate::item::{Content, Item};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_medium::files::StoredFile;

/// A piece of a table in memory.
#[derive(Clone)]
enum Cached {
    Block(Arc<Block>),
    Partition(Arc<Partition>),
}

#[derive(Clone)]
struct Sizes;

impl Weighter<(u64, u64), Cached> for Sizes {
    fn weight(&self, _: &(u64, u64), piece: &Cached) -> u64 {
        match piece {
            Cached::Block(block) => block.size() as u64,
            Cached::Partition(partition) => partition.size() as u64,
        }
    }
}

/// Pieces of tables that were read lately, by table and offset, up to a number of bytes.
pub struct TableCache {
    pieces: Cache<(u64, u64), Cached, Sizes>,
    read: AtomicU64,
}

impl TableCache {
    /// An empty cache of at most `bytes` bytes.
    pub fn new(bytes: u64) -> Arc<Self> {
        // An estimate for the cache's own table.
        let pieces = (bytes / 4096).max(16) as usize;
        Arc::new(Self { pieces: Cache::with_weighter(pieces, bytes, Sizes), read: AtomicU64::new(0) })
    }

    /// Blocks of items that were read from files into it.
    pub fn blocks_read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Bytes that it takes now.
    pub fn bytes(&self) -> u64 {
        self.pieces.weight()
    }
}

/// An open table.
pub struct TableReader {
    store: u64,
    pieces: Pieces,
    top: Children,
    properties: Properties,
    cache: Arc<TableCache>,
}

/// A version of a key that a get has found. It keeps the block that holds the value.
pub struct Found {
    block: BlockCursor<Arc<Block>>,
}

impl Found {
    /// The version.
    pub fn item(&self) -> Item<'_> {
        self.block.item().expect("a get found it")
    }
}

impl TableReader {
    /// Opens the table in `file`, which lies at `path`. Reads its end only.
    ///
    /// # Errors
    /// The file cannot be read, or is no sound table, or of a later format.
    pub fn open(file: Box<dyn StoredFile>, path: &Path, cache: &Arc<TableCache>) -> Result<Self, DiskError> {
        let length = file.length().map_err(DiskError::io("read", path))?;
        let foot = Foot::read(&*file, path, length)?;
        let pieces = Pieces { file, path: path.into(), table: foot.table, length };
        let corrupt = |place: Place, what| pieces.corrupt(place.offset, what);
        let (top, properties) = (pieces.read(foot.top)?, pieces.read(foot.properties_place())?);
        let top = Children::read(&mut Reader(&top))
            .ok_or_else(|| corrupt(foot.top, "the top of the table is incomplete"))?;
        let properties = Properties::read(&properties)
            .ok_or_else(|| corrupt(foot.properties_place(), "the properties of the table are incomplete"))?;
        Ok(Self { store: foot.store, pieces, top, properties, cache: cache.clone() })
    }

    /// Its number.
    pub fn table(&self) -> u64 {
        self.pieces.table
    }

    /// The store that it is a part of.
    pub fn store(&self) -> u64 {
        self.store
    }

    /// Bytes of its file.
    pub fn file_bytes(&self) -> u64 {
        self.pieces.length
    }

    /// What it has.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Bytes of memory that it takes beside the cache.
    pub fn size(&self) -> usize {
        self.top.size() + size_of::<Self>()
    }

    /// The newest version of `key` whose number is at most `seq`. Reads no block if the filter says
    /// that the table does not have the key.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn get(&self, key: &[u8], seq: u64) -> Result<Option<Found>, DiskError> {
        let Some(partition) = self.partition(self.top.find(key, seq))? else { return Ok(None) };
        let hash = hash(key);
        if !partition.may_have(hash) {
            return Ok(None);
        }
        let nth = partition.blocks.find(key, seq);
        let Some(place) = partition.blocks.place(nth) else { return Ok(None) };
        let mut block = BlockCursor::new(self.block(place)?);
        block.seek_key(key, hash, seq);
        if block.is_damaged() {
            return Err(self.pieces.corrupt(place.offset, "an item of a block is incomplete"));
        }
        let is_found = block.item().is_some_and(|item| item.key == key);
        Ok(is_found.then_some(Found { block }))
    }

    pub(super) fn top(&self) -> &Children {
        &self.top
    }

    pub(super) fn pieces(&self) -> &Pieces {
        &self.pieces
    }

    /// The partition with this number; `None` behind the last.
    pub(super) fn partition(&self, nth: usize) -> Result<Option<Arc<Partition>>, DiskError> {
        let Some(place) = self.top.place(nth) else { return Ok(None) };
        let at = (self.pieces.table, place.offset);
        if let Some(Cached::Partition(partition)) = self.cache.pieces.get(&at) {
            return Ok(Some(partition));
        }
        let partition = Arc::new(self.read_partition(place)?);
        self.cache.pieces.insert(at, Cached::Partition(partition.clone()));
        Ok(Some(partition))
    }

    /// The partition at this place, past the cache.
    pub(super) fn read_partition(&self, place: Place) -> Result<Partition, DiskError> {
        let corrupt = || self.pieces.corrupt(place.offset, "a partition is incomplete");
        Partition::read(&self.pieces.read(place)?).ok_or_else(corrupt)
    }

    /// The block of these bytes, which lie at `place`.
    pub(super) fn block_of(&self, bytes: Box<[u8]>, place: Place) -> Result<Arc<Block>, DiskError> {
        let corrupt = || self.pieces.corrupt(place.offset, "a block is incomplete");
        Block::new(bytes).map(Arc::new).ok_or_else(corrupt)
    }

    pub(super) fn block(&self, place: Place) -> Result<Arc<Block>, DiskError> {
        let at = (self.pieces.table, place.offset);
        if let Some(Cached::Block(block)) = self.cache.pieces.get(&at) {
            return Ok(block);
        }
        self.cache.read.fetch_add(1, Relaxed);
        let block = self.block_of(self.pieces.read(place)?.into(), place)?;
        self.cache.pieces.insert(at, Cached::Block(block.clone()));
        Ok(block)
    }
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let item = self.item();
        let is_tombstone = matches!(item.content, Content::Tombstone);
        f.debug_struct("Found").field("seq", &item.seq).field("is_tombstone", &is_tombstone).finish()
    }
}
