//! Tests: loading from files whose reads fail, are short, or return wrong bytes.

use super::{Format, Progress, Source, load};
use crate::{failure::Failure, target::Target};
use std::collections::BTreeSet;
use std::path::Path;
use terrace::{ByteSize, Cursor, Store};
use terrace_medium::files::Files;
use terrace_testkit::simfs::{Fault, Faulty, SimFs};

const RECORDS: usize = 400;

fn files(format: Format) -> (SimFs, &'static Path) {
    let (files, path) = (SimFs::new(["/d"]), Path::new("/d/records"));
    let mut text = String::from(if format == Format::Csv { "key,value\n" } else { "" });
    for n in 0..RECORDS {
        text += &match format {
            Format::Csv => format!("key{n},value {n}\n"),
            Format::Jsonl => format!("{{\"key\":\"key{n}\",\"value\":\"value {n}\"}}\n"),
            Format::Resp => format!("SET key{n} value{n}\r\n"),
        };
    }
    files.put(path, text.as_bytes());
    (files, path)
}

/// Loads the file; returns the result and the keys of the store afterwards.
fn run(files: &dyn Files, path: &Path, format: Format) -> (Result<u64, Failure>, BTreeSet<Vec<u8>>) {
    let store = Store::options().anonymous().size(ByteSize::mib(16)).create().unwrap();
    let mut target = Target::of(store.clone()).unwrap_or_else(|_| panic!("a store without a record"));
    let progress = Progress::new();
    let loaded = Source::open(files, path, &progress)
        .and_then(|source| load(&mut target, source, format, (progress, 0)));
    let (mut keys, mut cursor) = (BTreeSet::new(), Cursor::START);
    loop {
        cursor = store.scan(&cursor, 100, &mut |key, _| _ = keys.insert(key.to_vec())).unwrap();
        if cursor.is_end() {
            return (loaded, keys);
        }
    }
}

/// The first `count` keys of the file.
fn first(count: usize) -> BTreeSet<Vec<u8>> {
    (0..count).map(|n| format!("key{n}").into_bytes()).collect()
}

#[test]
fn failed_read_keeps_all_records_before_it() {
    for (format, short) in [(Format::Csv, 0), (Format::Jsonl, 1), (Format::Resp, 2)] {
        let mut counts = BTreeSet::new();
        for short in (short..60).step_by(3) {
            let (below, path) = files(format);
            let counting = Faulty::counting(below.clone()).short(short);
            let (loaded, keys) = run(&counting, path, format);
            assert_eq!((loaded.unwrap(), keys.len()), (0, RECORDS), "short reads lose nothing: {format:?}");
            for (nth, fault) in (0..counting.calls()).flat_map(|nth| Fault::ALL.map(|fault| (nth, fault))) {
                let faulty = Faulty::failing(below.clone(), nth, fault).short(short);
                let (loaded, keys) = run(&faulty, path, format);
                let why = format!("{:?}", loaded.expect_err("a failed read is reported"));
                assert!(
                    why.contains("cannot read") && why.contains("records"),
                    "{format:?}, call {nth}: {why}"
                );
                assert_eq!(keys, first(keys.len()), "{format:?}, call {nth}");
                counts.insert(keys.len());
            }
        }
        assert!(counts.len() > 3, "{format:?} {counts:?}");
    }
}

#[test]
fn flipped_bits_cost_only_their_lines() {
    for format in [Format::Csv, Format::Jsonl, Format::Resp] {
        for seed in 0..40 {
            let (files, path) = files(format);
            files.flip_bits(path, 1 + seed % 4, seed);
            let (loaded, keys) = run(&files, path, format);
            // An invalid command may end a stream of commands; lines are independent.
            if format == Format::Jsonl {
                assert!(loaded.is_ok(), "seed {seed}: {loaded:?}");
                assert!(keys.intersection(&first(RECORDS)).count() >= RECORDS - 8, "seed {seed}");
            }
        }
    }
}
