//! Tests: tables are read as written, at any version, both ways; and say what is damaged.

use crate::model::{Model, items, models};
use proptest::prelude::*;
use std::cmp::Reverse;

use std::path::PathBuf;
use std::sync::Arc;
use terrace_disk::{
    DiskError, FilterKind, Item, Properties, Source, TableCache, TableOptions, TableReader, TableWriter,
};
use terrace_medium::files::{Files, Purpose, SystemFiles};

pub(crate) struct Made {
    _directory: tempfile::TempDir,
    pub(crate) path: PathBuf,
    properties: Properties,
}

/// Small blocks and partitions, so that a few items fill several of them.
pub(crate) fn small(compress: bool, has_filter: bool) -> TableOptions {
    let filter = if has_filter { FilterKind::Bits16 } else { FilterKind::None };
    TableOptions { block_bytes: 200, partition_blocks: 4, compress, filter, store: 1 }
}

pub(crate) fn write(model: &Model, options: TableOptions) -> Made {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("7.table");
    let file = SystemFiles.create(&path).unwrap();
    let mut writer = TableWriter::new(&*file, &path, 7, options);
    items(model).iter().for_each(|item| writer.add(item).unwrap());
    let properties = writer.finish().unwrap();
    Made { _directory: directory, path, properties }
}

pub(crate) fn open(made: &Made, cache: &Arc<TableCache>) -> Result<TableReader, DiskError> {
    TableReader::open(SystemFiles.open(&made.path, Purpose::Read).unwrap(), &made.path, cache)
}

fn numbered(count: u64) -> Model {
    let value = |n: u64| vec![n as u8; (n % 50) as usize];
    (0..count).map(|n| ((n.to_be_bytes().to_vec(), Reverse(n + 1)), Some((value(n), None)))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn table_reads_as_a_map(model in models(), options in (any::<bool>(), any::<bool>())) {
        let (made, cache) = (write(&model, small(options.0, options.1)), TableCache::new(1 << 20));
        let table = open(&made, &cache).unwrap();
        let items = items(&model);
        prop_assert_eq!(table.properties(), &made.properties);
        prop_assert_eq!(made.properties.items, items.len() as u64);
        let mut cursor = table.cursor();
        cursor.seek_first().unwrap();
        for item in &items {
            prop_assert_eq!(cursor.item(), Some(*item));
            cursor.next().unwrap();
        }
        prop_assert_eq!(cursor.item(), None);
        cursor.seek_last().unwrap();
        for item in items.iter().rev() {
            prop_assert_eq!(cursor.item(), Some(*item));
            cursor.previous().unwrap();
        }
        prop_assert_eq!(cursor.item(), None);
        let keys = model.keys().map(|(key, _)| key.clone()).chain([vec![], b"ab".to_vec(), vec![255; 9]]);
        for (key, seq) in keys.flat_map(|key| [0, 7, 19, u64::MAX].map(|seq| (key.clone(), seq))) {
            let not_before = |item: &&Item<'_>| item.order(&Item::put(&key, seq, b"")) != std::cmp::Ordering::Less;
            let expected = items.iter().find(not_before).copied();
            cursor.seek(&key, seq).unwrap();
            prop_assert_eq!(cursor.item(), expected);
            let found = table.get(&key, seq).unwrap();
            prop_assert_eq!(found.as_ref().map(|found| found.item()), expected.filter(|item| item.key == key));
        }
    }
}

#[test]
fn get_of_an_absent_key_reads_no_block() {
    let (model, cache) = (numbered(50_000), TableCache::new(64 << 20));
    let made = write(&model, TableOptions::default());
    let table = open(&made, &cache).unwrap();
    let absent = |n: u64| [&n.to_be_bytes()[..], b"x"].concat();
    (0..50_000).for_each(|n| assert!(table.get(&absent(n), u64::MAX).unwrap().is_none()));
    assert!(cache.blocks_read() < 10, "{} blocks", cache.blocks_read());
    let before = cache.blocks_read();
    for n in (0..50_000u64).step_by(500) {
        let found = table.get(&n.to_be_bytes(), u64::MAX).unwrap().expect("a key that is there");
        assert_eq!(found.item().seq, n + 1);
    }
    assert_eq!(cache.blocks_read() - before, 100, "one block a key");
}

#[test]
fn cache_keeps_its_bounds() {
    let (model, cache) = (numbered(50_000), TableCache::new(128 << 10));
    let made = write(&model, TableOptions { compress: false, ..TableOptions::default() });
    let table = open(&made, &cache).unwrap();
    for n in 0..50_000u64 {
        assert!(table.get(&(n * 7919 % 50_000).to_be_bytes(), u64::MAX).unwrap().is_some());
        assert!(cache.bytes() <= 128 << 10);
    }
}

#[test]
fn changed_byte_is_an_error() {
    let model = numbered(300);
    for compress in [false, true] {
        let made = write(&model, small(compress, true));
        let sound = std::fs::read(&made.path).unwrap();
        let file = SystemFiles.open(&made.path, Purpose::Write).unwrap();
        for (at, byte) in (0..).zip(&sound) {
            file.write_all_at(&[byte ^ 0x10], at).unwrap();
            let error = read_all(&made, &model).expect_err("a changed byte");
            let says = error.to_string();
            assert!(matches!(error, DiskError::Corrupt { .. } | DiskError::Newer { .. }), "{at}: {says}");
            assert!(says.contains("7.table"), "{says}");
            file.write_all_at(&[*byte], at).unwrap();
        }
        assert_eq!(read_all(&made, &model).unwrap(), 300);
    }
}

/// Reads each item and each key. Returns the number of items.
fn read_all(made: &Made, model: &Model) -> Result<u64, DiskError> {
    let table = open(made, &TableCache::new(64 << 10))?;
    let (mut cursor, mut count) = (table.cursor(), 0);
    cursor.seek_first()?;
    while cursor.item().is_some() {
        count += 1;
        cursor.next()?;
    }
    model.keys().try_for_each(|(key, _)| table.get(key, u64::MAX).map(drop))?;
    Ok(count)
}

#[test]
fn table_in_the_place_of_another_is_an_error() {
    let made = write(&numbered(300), small(false, true));
    let mut bytes = std::fs::read(&made.path).unwrap();
    let other = {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("8.table");
        let file = SystemFiles.create(&path).unwrap();
        let mut writer = TableWriter::new(&*file, &path, 8, small(false, true));
        items(&numbered(300)).iter().for_each(|item| writer.add(item).unwrap());
        writer.finish().unwrap();
        std::fs::read(&path).unwrap()
    };
    // The first block of the other table, which has the same items.
    bytes[..200].copy_from_slice(&other[..200]);
    std::fs::write(&made.path, &bytes).unwrap();
    let cache = TableCache::new(1 << 20);
    let table = open(&made, &cache).unwrap();
    assert!(table.get(&0u64.to_be_bytes(), u64::MAX).is_ok(), "the same items: the same bytes");
    let file = SystemFiles.open(&made.path, Purpose::Write).unwrap();
    file.write_all_at(&other, 0).unwrap();
    let reopened = open(&made, &cache).unwrap();
    assert_eq!(reopened.table(), 8, "the number tells whose table it is");
}

#[test]
fn cut_file_is_an_error() {
    let made = write(&numbered(100), small(true, true));
    let sound = std::fs::read(&made.path).unwrap();
    for cut in (0..sound.len()).step_by(13) {
        std::fs::write(&made.path, &sound[..cut]).unwrap();
        assert!(matches!(open(&made, &TableCache::new(0)), Err(DiskError::Corrupt { .. })), "{cut}");
    }
}

#[test]
#[should_panic(expected = "does not come after")]
fn item_out_of_order_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("table");
    let file = SystemFiles.create(&path).unwrap();
    let mut writer = TableWriter::new(&*file, &path, 1, TableOptions::default());
    writer.add(&Item::put(b"key", 5, b"")).unwrap();
    let _ = writer.add(&Item::put(b"key", 5, b""));
}
