//! How fast tables are merged: 8 tables of 100,000 items, 16 bytes of key and 100 of value each,
//! into one. Also what its parts cost alone: reading, merging in memory, writing.
//!
//! The first argument is how often each is repeated (5 unless told), the second a directory
//! (`/dev/shm` unless told), the third one part to run alone, for a profile.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measurement")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use terrace_disk::{
    FilterKind, Item, Kept, Merge, OwnedItem, Sorted, Source, TableCache, TableOptions, TableReader,
    TableWriter,
};
use terrace_medium::files::{Files, Purpose, SystemFiles};

const TABLES: u64 = 8;
const ITEMS: u64 = 100_000;
const ITEM_BYTES: u64 = 116;
const OPTIONS: TableOptions = TableOptions {
    block_bytes: 4096,
    partition_blocks: 128,
    compress: false,
    filter: FilterKind::Bits8,
    store: 1,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Items of one table, in memory.
fn items(table: u64) -> Sorted {
    let mut items: Vec<OwnedItem> = (0..ITEMS)
        .map(|n| {
            let seq = table * ITEMS + n + 1;
            let key = [mixed(seq).to_be_bytes(), mixed(!seq).to_be_bytes()].concat();
            let value: Vec<u8> = (0..100).map(|at| mixed(seq + at / 8) as u8).collect();
            Item::put(&key, seq, &value).into()
        })
        .collect();
    items.sort_by(|one, other| one.item().order(&other.item()));
    Sorted::new(items)
}

/// Writes what a compaction of `source` keeps as a table.
fn write(source: impl Source, path: &Path) -> Outcome<u64> {
    let _ = SystemFiles.remove(path);
    let file = SystemFiles.create(path)?;
    let mut writer = TableWriter::new(&*file, path, 7, OPTIONS);
    let mut kept = Kept::new(source, Vec::new(), false, 0);
    kept.seek_first()?;
    while let Some(item) = kept.item() {
        writer.add(&item)?;
        kept.next()?;
    }
    Ok(writer.finish()?.items)
}

/// Reads all items.
fn read(mut source: impl Source) -> Outcome<u64> {
    let mut items = 0;
    source.seek_first()?;
    while let Some(item) = source.item() {
        std::hint::black_box(item);
        items += 1;
        source.next()?;
    }
    Ok(items)
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds: u32 = arguments.first().map_or(Ok(5), |rounds| rounds.parse())?;
    let parent = arguments.get(1).map_or("/dev/shm", String::as_str);
    let directory = Path::new(parent).join(format!("merge-speed-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let measured = measure(&directory, rounds, arguments.get(2).map(String::as_str));
    std::fs::remove_dir_all(&directory)?;
    measured
}

fn measure(directory: &Path, rounds: u32, only: Option<&str>) -> Outcome<()> {
    let cache = TableCache::new(0);
    let memory: Vec<Sorted> = (0..TABLES).map(items).collect();
    let mut tables: Vec<Arc<TableReader>> = Vec::new();
    for (source, nth) in memory.iter().zip(0..) {
        let path = directory.join(format!("{nth}.table"));
        write(source.clone(), &path)?;
        tables.push(Arc::new(TableReader::open(SystemFiles.open(&path, Purpose::Read)?, &path, &cache)?));
    }
    let whole: Vec<OwnedItem> = {
        let (mut merge, mut whole) = (Merge::new(memory.clone()), Vec::new());
        merge.seek_first()?;
        while let Some(item) = merge.item() {
            whole.push(item.into());
            merge.next()?;
        }
        whole
    };
    let (whole, new) = (Sorted::new(whole), directory.join("new.table"));
    let cursors = || tables.iter().map(|table| table.cursor_for_merge()).collect();
    let parts: [(&str, &dyn Fn() -> Outcome<u64>); 5] = [
        ("read tables", &|| tables.iter().map(|table| read(table.cursor_for_merge())).sum()),
        ("merge in memory", &|| read(Merge::new(memory.clone()))),
        ("read and merge", &|| read(Merge::new(cursors()))),
        ("write a table", &|| write(whole.clone(), &new)),
        ("merge into a table", &|| write(Merge::new(cursors()), &new)),
    ];
    for (name, part) in parts.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        let mut seconds = Vec::new();
        for _ in 0..rounds {
            let start = Instant::now();
            assert_eq!(part()?, TABLES * ITEMS);
            seconds.push(start.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        let best = seconds[0];
        let median = seconds[seconds.len() / 2];
        let rate = |seconds: f64| (TABLES * ITEMS) as f64 / seconds / 1e6;
        println!(
            "{name:20} {:6.2} M items/s {:7.0} MB/s, median {:6.2} M items/s",
            rate(best),
            rate(best) * ITEM_BYTES as f64,
            rate(median)
        );
    }
    Ok(())
}
