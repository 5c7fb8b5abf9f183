//! Tests: how often, and how much of its file, a table reads.

use crate::model::{Model, items};
use crate::table::write;
use std::cmp::Reverse;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use terrace_disk::{FilterKind, Source, TableCache, TableOptions, TableReader};
use terrace_medium::files::{Files, Purpose, StoredFile, SystemFiles};

/// A file that counts reads and bytes read.
struct Counted(Box<dyn StoredFile>, Arc<(AtomicU64, AtomicU64)>);

impl StoredFile for Counted {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.1.0.fetch_add(1, Relaxed);
        self.1.1.fetch_add(buffer.len() as u64, Relaxed);
        self.0.read_at(buffer, at)
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.0.write_at(bytes, at)
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }
    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.0.set_length(bytes)
    }
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.0.allocate(bytes)
    }
}

struct Table {
    reader: Arc<TableReader>,
    counts: Arc<(AtomicU64, AtomicU64)>,
    model: Model,
    _made: crate::table::Made,
}

impl Table {
    fn new(keys: u64, filter: FilterKind, cache: &Arc<TableCache>) -> Self {
        let model: Model = (0..keys)
            .map(|n| ((n.to_be_bytes().to_vec(), Reverse(n + 1)), Some((vec![n as u8; 50], None))))
            .collect();
        let made = write(&model, TableOptions { compress: false, filter, ..TableOptions::default() });
        let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let file = Counted(SystemFiles.open(&made.path, Purpose::Read).unwrap(), counts.clone());
        let reader = Arc::new(TableReader::open(Box::new(file), &made.path, cache).unwrap());
        Self { reader, counts, model, _made: made }
    }

    /// Reads and bytes read since the last call.
    fn counts(&self) -> (u64, u64) {
        (self.counts.0.swap(0, Relaxed), self.counts.1.swap(0, Relaxed))
    }

    /// Gets absent keys all over the table, so that its partitions are in the cache.
    fn warm(&self) {
        for n in (0..self.model.len() as u64).step_by(100) {
            self.reader.get(&absent(n), u64::MAX).unwrap();
        }
        self.counts();
    }
}

/// A key behind the one of this number, which no table has.
fn absent(n: u64) -> Vec<u8> {
    [&n.to_be_bytes()[..], b"x"].concat()
}

#[test]
fn open_reads_the_end_only() {
    let table = Table::new(100_000, FilterKind::Bits8, &TableCache::new(0));
    let (reads, bytes) = table.counts();
    assert!(reads <= 3 && bytes < 16 << 10, "{reads} reads of {bytes} bytes");
    assert!(table.reader.file_bytes() > 5 << 20);
}

#[test]
fn get_reads_one_block_of_a_present_key() {
    for filter in [FilterKind::Bits8, FilterKind::Bits16] {
        let table = Table::new(50_000, filter, &TableCache::new(64 << 20));
        table.warm();
        let (mut gets, mut all_reads) = (0, 0);
        for key in (50..50_000u64).step_by(997).map(u64::to_be_bytes) {
            assert!(table.reader.get(&key, u64::MAX).unwrap().is_some());
            let reads = table.counts().0;
            assert!(reads <= 1, "{reads} with {filter:?}");
            assert!(table.reader.get(&key, u64::MAX).unwrap().is_some());
            assert_eq!(table.counts().0, 0, "the block is cached");
            (gets, all_reads) = (gets + 1, all_reads + reads);
        }
        // One in 256 gets of absent keys has read a block that a get then finds in the cache.
        assert!(all_reads >= gets - 2, "{all_reads} reads in {gets} gets with {filter:?}");
    }
}

#[test]
fn get_of_an_absent_key_reads_few_blocks() {
    let bounds =
        [(FilterKind::Bits8, 100..1000), (FilterKind::Bits16, 0..100), (FilterKind::None, 50_000..u64::MAX)];
    for (filter, bound) in bounds {
        // The partitions fit, and the blocks do not.
        let cache = TableCache::new(1 << 20);
        let table = Table::new(50_000, filter, &cache);
        table.warm();
        for n in 0..100_000u64 {
            let key = [&absent(n * 7919 % 50_000)[..], &[n as u8]].concat();
            assert!(table.reader.get(&key, u64::MAX).unwrap().is_none());
        }
        let (reads, _) = table.counts();
        assert!(bound.contains(&reads), "{reads} reads with {filter:?}");
    }
}

#[test]
fn cursor_for_a_merge_reads_in_large_pieces() {
    let cache = TableCache::new(8 << 20);
    let table = Table::new(100_000, FilterKind::Bits16, &cache);
    let file_bytes = table.reader.file_bytes();
    table.counts();
    let (mut cursor, mut count) = (table.reader.cursor_for_merge(), 0);
    cursor.seek_first().unwrap();
    while let Some(item) = cursor.item() {
        count += 1;
        std::hint::black_box(item);
        cursor.next().unwrap();
    }
    let (reads, bytes) = table.counts();
    assert_eq!(count, items(&table.model).len());
    assert!(bytes <= file_bytes, "{bytes} of {file_bytes}: nothing is read twice");
    // A partition, and its half a mebibyte in pieces.
    assert!(reads <= file_bytes / (128 << 10) + 4, "{reads} reads of {file_bytes} bytes");
    assert_eq!((cache.bytes(), cache.blocks_read()), (0, 0));
}
