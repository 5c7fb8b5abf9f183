//! Tests: pieces of any bytes, whose checksums fit, never make a reader panic, loop, or take memory
//! beyond what its file has.

use super::block::Block;
use super::partition::{Children, Partition};
use super::piece::{FOOT, Foot, Pieces, Place, TRAILER, put_piece, seal};
use super::properties::Properties;
use super::{FilterKind, TableCache, TableOptions, TableReader, TableWriter};
use crate::codec::Reader;
use crate::item::Item;
use crate::source::Source;
use proptest::prelude::*;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use terrace_medium::files::StoredFile;

/// A file in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl StoredFile for Memory {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let bytes = self.0.lock().unwrap();
        let rest = bytes.get(at as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let (mut all, end) = (self.0.lock().unwrap(), at as usize + bytes.len());
        let len = all.len().max(end);
        all.resize(len, 0);
        all[at as usize..end].copy_from_slice(bytes);
        Ok(bytes.len())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }
    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.0.lock().unwrap().resize(bytes as usize, 0);
        Ok(())
    }
    fn allocate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

fn path() -> &'static Path {
    Path::new("7.table")
}

fn pieces(file: Memory) -> Pieces {
    let length = file.length().unwrap();
    Pieces { file: Box::new(file), path: path().into(), table: 7, length }
}

/// A table of several partitions, each of several blocks.
fn table(options: TableOptions) -> Memory {
    let file = Memory::default();
    let mut writer = TableWriter::new(&file, path(), 7, options);
    for n in 0..150u64 {
        let key = (n / 3).to_be_bytes();
        let item =
            if n % 5 == 0 { Item::tombstone(&key, 900 - n) } else { Item::put(&key, 900 - n, b"value") };
        writer.add(&item).unwrap();
    }
    writer.finish().unwrap();
    file
}

/// Where the pieces of a sound table lie.
fn places(file: &Memory) -> Vec<Place> {
    let pieces = pieces(file.clone());
    let foot = Foot::read(&*pieces.file, path(), pieces.length).unwrap();
    let top = Children::read(&mut Reader(&pieces.read(foot.top).unwrap())).unwrap();
    let partitions: Vec<Place> = (0..top.len()).filter_map(|nth| top.place(nth)).collect();
    let mut places = vec![foot.top, foot.properties_place()];
    for &place in &partitions {
        let partition = Partition::read(&pieces.read(place).unwrap()).unwrap();
        places.extend((0..partition.blocks.len()).filter_map(|nth| partition.blocks.place(nth)));
    }
    [places, partitions].concat()
}

/// Reads a table in each way until its end or an error. Returns how many steps that took.
fn read_in_each_way(file: Memory) -> usize {
    let Ok(table) = TableReader::open(Box::new(file), path(), &TableCache::new(1 << 20)) else { return 0 };
    let (table, mut steps) = (Arc::new(table), 0);
    for n in 0..60u64 {
        let _ = table.get(&n.to_be_bytes(), 800);
    }
    for mut cursor in [table.shared_cursor(), table.cursor_for_merge()] {
        let mut moved = cursor.seek_first();
        while moved.is_ok() && cursor.item().is_some() && steps < 100_000 {
            steps += 1;
            moved = cursor.next();
        }
        let mut moved = cursor.seek_last();
        while moved.is_ok() && cursor.item().is_some() && steps < 100_000 {
            steps += 1;
            moved = cursor.previous();
        }
        for n in 0..60u64 {
            let moved = cursor.seek(&n.to_be_bytes(), 800).and_then(|()| cursor.previous());
            assert!(moved.is_ok() || cursor.item().is_none());
        }
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn pieces_of_any_bytes_take_little_memory(bytes in prop::collection::vec(any::<u8>(), 0..1000)) {
        // A key may share all of the one before it.
        let most = bytes.len() * bytes.len() + 1000;
        let children = Children::read(&mut Reader(&bytes));
        prop_assert!(children.is_none_or(|children| children.size() <= most));
        prop_assert!(Partition::read(&bytes).is_none_or(|partition| partition.size() <= most));
        prop_assert!(Properties::read(&bytes).is_none_or(|read| read.samples.len() <= bytes.len()));
        prop_assert!(Block::new(bytes.clone().into()).is_none_or(|block| block.size() <= most));
        let file = Memory(Arc::new(Mutex::new(bytes.clone())));
        prop_assert!(Foot::read(&file, path(), bytes.len() as u64).is_err());
        let place = Place { offset: bytes.len() as u64 / 2, bytes: u32::MAX };
        prop_assert!(pieces(file).read(place).is_err());
    }

    #[test]
    fn compressed_bytes_expand_within_bounds(
        mut bytes in prop::collection::vec(any::<u8>(), 4..200),
        size in prop_oneof![any::<u32>(), 0..5000u32],
    ) {
        bytes[..4].copy_from_slice(&size.to_le_bytes());
        // As it is compressed.
        bytes.push(1);
        seal(&mut bytes, 0, 7, 0);
        let place = Place { offset: 0, bytes: bytes.len() as u32 };
        let expanded = pieces(Memory::default()).unpack(&bytes, place).map_or(0, |expanded| expanded.len());
        prop_assert!(expanded <= 255 * bytes.len());
    }

    #[test]
    fn damage_with_fitting_checksums_is_bounded(
        piece in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        filter in prop_oneof![Just(FilterKind::None), Just(FilterKind::Bits8), Just(FilterKind::Bits16)],
    ) {
        let options = TableOptions { block_bytes: 150, partition_blocks: 4, compress: false, filter, store: 1 };
        let file = table(options);
        let place = *piece.get(&places(&file));
        let mut bytes = pieces(file.clone()).read(place).unwrap();
        for (at, byte) in changes {
            *at.get_mut(&mut bytes) = byte;
        }
        let mut piece = Vec::new();
        put_piece(&mut piece, &bytes, 7, place.offset, false);
        prop_assert_eq!(piece.len(), bytes.len() + TRAILER);
        file.write_all_at(&piece, place.offset).unwrap();
        prop_assert!(read_in_each_way(file) < 100_000);
    }
}

#[test]
fn foot_of_another_length_is_refused() {
    let sound = table(TableOptions::default());
    let bytes = sound.0.lock().unwrap().clone();
    let end = bytes.len() - FOOT;
    for cut in [1, 9, end / 2, end] {
        let file = Memory(Arc::new(Mutex::new([&bytes[..end - cut], &bytes[end..]].concat())));
        let length = file.length().unwrap();
        assert!(Foot::read(&file, path(), length).is_err(), "{cut}");
    }
    assert!(read_in_each_way(sound) > 500);
}
