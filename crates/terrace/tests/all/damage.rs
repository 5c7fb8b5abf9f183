//! Tests: a changed byte anywhere in a pool gives an error or a right answer, and nothing worse.

use crate::common::{Medium, Site, contents, directory};
use std::collections::BTreeMap;
use std::path::Path;
use terrace::{ByteSize, Change, Index, Options, ReadError, Store};
use terrace_testkit::stride;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn model() -> Model {
    let mut model = Model::new();
    for n in 0..60u32 {
        let len = [0, 5, 64, 700, 5000][n as usize % 5];
        model.insert(format!("key {n}").into_bytes(), (0..len).map(|i| (i * 31 + n) as u8).collect());
    }
    model
}

/// A small closed pool, as bytes.
fn image(model: &Model) -> Vec<u8> {
    image_with(model, Index::Clht)
}

fn image_with(model: &Model, index: Index) -> Vec<u8> {
    let site = Site::new(Medium::Shm, ByteSize::kib(512)).with_index(index);
    let store = site.create();
    for (n, (key, value)) in model.iter().enumerate() {
        store.put(key, b"first").unwrap();
        store.put(key, value).unwrap();
        if n % 3 == 0 {
            store.modify(key, |_| (Change::Expire(Some(u64::MAX)), ())).unwrap();
        }
    }
    let mut batch = store.batch();
    batch.put(b"batched", b"together").put(b"and", b"this");
    batch.commit().unwrap();
    store.close().unwrap();
    std::fs::read(&site.path).unwrap()
}

fn options(path: &Path) -> Options {
    Store::options().path(path).huge_pages(false).expiry_thread(false)
}

/// Reads everything in every way. Fails on a wrong value. Returns how many present keys were
/// reported absent, and whether any read reported damage.
fn read_all(store: &Store, model: &Model) -> (u32, bool) {
    let (mut lost, mut reported) = (0, false);
    for (key, value) in model {
        match store.get(key) {
            Ok(Some(found)) => assert!(*found == **value, "a wrong value for {}", key.escape_ascii()),
            Ok(None) => lost += 1,
            Err(ReadError::Corrupt { .. }) => reported = true,
            Err(error) => panic!("{error}"),
        }
    }
    let keys: Vec<&[u8]> = model.keys().map(Vec::as_slice).collect();
    store.get_many(&keys, &mut |nth, entry| {
        if let Ok(Some(entry)) = entry {
            assert!(entry.value == model[keys[nth]], "a wrong value");
        }
    });
    store.snapshot_many(&keys, &mut |_, _| {});
    let (mut cursor, mut steps) = (terrace::Cursor::START, 0);
    while let Ok(next) = store.scan(&cursor, 16, &mut |key, entry| {
        let expected = model.get(key);
        assert!(
            expected.is_some_and(|value| value == entry.value),
            "a wrong entry for {}",
            key.escape_ascii()
        );
    }) {
        cursor = next;
        steps += 1;
        if cursor.is_end() || steps > 100_000 {
            break;
        }
    }
    if store.is_ordered() {
        lost += lost_in_ranges(store, model);
    }
    let _ = (store.random_key(), store.len(), store.stats());
    (lost, reported)
}

/// Reads all ranges, both ways. Fails on a wrong entry, and on a wrong order. Returns how many
/// present keys they left out without an error.
fn lost_in_ranges(store: &Store, model: &Model) -> u32 {
    type Item = Result<(Vec<u8>, terrace::OwnedValue), ReadError>;
    let lost = |range: &mut dyn Iterator<Item = Item>| {
        let (mut found, mut failed): (Vec<Vec<u8>>, _) = (Vec::new(), false);
        for entry in range {
            match entry {
                Ok((key, value)) => {
                    let is_right = model.get(&key).is_some_and(|expected| **expected == *value);
                    assert!(is_right, "a wrong entry for {}", key.escape_ascii());
                    found.push(key);
                }
                Err(ReadError::Corrupt { .. } | ReadError::Skipped { .. }) => failed = true,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(found.is_sorted_by(|a, b| a < b) || found.is_sorted_by(|a, b| a > b), "out of order");
        if failed { 0 } else { (model.len() - found.len()) as u32 }
    };
    let prefixes = model.keys().filter(|key| store.prefix(key).next().is_none()).count() as u32;
    lost(&mut store.range(..)) + lost(&mut store.range(..).rev()) + prefixes
}

/// Writes in every way. Checks only that it ends, and that successful writes can be read.
fn write_all(store: &Store, model: &Model) {
    for (n, key) in model.keys().enumerate() {
        let done = match n % 3 {
            0 => store.put(key, b"new").map(|()| Some(&b"new"[..])),
            1 => store.remove(key).map(|_| None),
            _ => store.compare_and_swap(key, None, b"swapped").map(|done| done.then_some(&b"swapped"[..])),
        };
        match (done, store.get(key)) {
            (Ok(Some(value)), Ok(found)) => assert!(found.is_none_or(|found| found == value)),
            (Ok(None) | Err(_), _) | (_, Err(_)) => {}
        }
    }
    let _ = store.increment(b"counter", 1);
    let mut batch = store.batch();
    batch.put(b"a", b"1").put(b"b", b"2").remove(b"key 3");
    let _ = batch.commit();
    store.upkeep().sweep_expired(1000);
    let _ = (store.delete_prefix("key 1"), store.delete_range("key 4"..));
    let _ = store.clear();
}

/// The pool of [`image`], as a process that is killed now would leave it.
fn left_image(model: &Model) -> Vec<u8> {
    let site = Site::new(Medium::Shm, ByteSize::kib(512));
    let store = site.create();
    model.iter().for_each(|(key, value)| store.put(key, value).unwrap());
    std::fs::read(&site.path).unwrap()
}

/// Writes values of all sizes until nothing more fits, and removes them.
fn fill_and_empty(store: &Store) {
    let mut written = Vec::new();
    for len in [20_000, 3000, 500, 60, 10] {
        for n in 0..3000u32 {
            let key = [&n.to_le_bytes()[..], &(len as u32).to_le_bytes()].concat();
            if store.put(&key, vec![0xcc; len]).is_err() {
                break;
            }
            written.push(key);
        }
    }
    written.iter().for_each(|key| _ = store.remove(key));
}

/// Damaged metadata may make memory unusable, but used memory is never allocated again.
#[test]
fn damaged_metadata_overwrites_no_data() {
    let model = model();
    let layout = terrace_pool::Layout::new(terrace_pool::Geometry::for_size(512 << 10)).unwrap();
    let slab = 1usize << layout.geometry.slab_log2;
    let directory = directory();
    let path = directory.path().join("damaged.pool");
    for (name, image) in [("closed", image(&model)), ("left", left_image(&model))] {
        let head = layout.zones as usize;
        // The words of the first zone's units, and the start of units that may be slabs.
        let words = (head..head + 16 * 32).filter(|&at| image[at] != 0);
        let bitmaps = (1..16).flat_map(|unit| (0..16).map(move |at| head + unit * slab + at));
        for at in words.chain(bitmaps).step_by(stride(5)) {
            let flip = if at % 2 == 0 { image[at].max(1) } else { 0x11 };
            let mut damaged = image.clone();
            damaged[at] ^= flip;
            std::fs::write(&path, &damaged).unwrap();
            let intact = |store: &Store| -> Vec<Vec<u8>> {
                let is_right = |(key, value): &(&Vec<u8>, &Vec<u8>)| {
                    store.get(key).is_ok_and(|found| found.is_some_and(|found| *found == ***value))
                };
                model.iter().filter(is_right).map(|(key, _)| key.clone()).collect()
            };
            let mut known = None;
            for life in 0..2 {
                let store = options(&path).open().unwrap();
                let known = known.get_or_insert_with(|| intact(&store));
                assert!(known.len() >= model.len() - 1, "{name}, byte {at:#x} ^ {flip:#x}");
                for _ in 0..2 {
                    fill_and_empty(&store);
                    assert!(intact(&store) == *known, "{name}, byte {at:#x} ^ {flip:#x}, life {life}");
                    store.upkeep().wait_until_collected();
                }
                store.close().unwrap();
            }
        }
    }
}

/// Changes a byte; then opens, checks, reads and writes the pool. Returns how many present keys
/// were reported absent although neither a read nor a check reported damage.
fn try_damage(image: &mut [u8], at: usize, flip: u8, model: &Model, directory: &Path) -> u32 {
    let path = directory.join("damaged.pool");
    image[at] ^= flip;
    std::fs::write(&path, &*image).unwrap();
    image[at] ^= flip;
    let mut silent = 0;
    if let Ok(store) = options(&path).read_only(true).open() {
        let (lost, reported) = read_all(&store, model);
        if lost > 0 && !reported && store.check(&mut |_, _| {}).is_sound() {
            silent = lost;
        }
    }
    if let Ok(store) = options(&path).open() {
        read_all(&store, model);
        write_all(&store, model);
        store.check(&mut |_, _| {});
    }
    silent
}

#[test]
fn changed_byte_is_an_error_or_harmless() {
    change_any_byte(Index::Clht);
}

#[test]
fn changed_byte_is_an_error_or_harmless_in_rewo() {
    change_any_byte(Index::Rewo);
}

#[test]
fn changed_byte_is_an_error_or_harmless_in_turbo() {
    change_any_byte(Index::Turbo);
}

#[test]
fn changed_byte_is_an_error_or_harmless_in_level() {
    change_any_byte(Index::Level);
}

#[test]
fn changed_byte_is_an_error_or_harmless_in_art() {
    change_any_byte(Index::Art);
}

#[test]
fn changed_byte_is_an_error_or_harmless_in_hot() {
    change_any_byte(Index::Hot);
}

#[test]
fn changed_byte_is_an_error_or_harmless_in_masstree() {
    change_any_byte(Index::Masstree);
}

#[test]
fn changed_byte_is_an_error_or_harmless_in_bwtree() {
    change_any_byte(Index::BwTree);
}

#[test]
fn changed_byte_is_an_error_or_harmless_in_sptree() {
    change_any_byte(Index::SpTree);
}

fn change_any_byte(index: Index) {
    let mut model = model();
    let mut image = image_with(&model, index);
    model.insert(b"batched".to_vec(), b"together".to_vec());
    model.insert(b"and".to_vec(), b"this".to_vec());
    let directory = directory();
    assert_eq!(try_damage(&mut image, 0, 0, &model, directory.path()), 0);
    // Changes bytes that are not zero in small steps, and zeros in large ones.
    let effort = std::env::var("TERRACE_EFFORT").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut draw = 12_345u64;
    let mut tried = 0;
    for at in 0..image.len() {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let every: u64 = if image[at] == 0 { 2000 } else { 40 };
        if (draw >> 33).is_multiple_of((every / effort).max(1)) {
            let flip = ((draw >> 20) as u8).max(1);
            let silent = try_damage(&mut image, at, flip, &model, directory.path());
            assert_eq!(silent, 0, "byte {at:#x} ^ {flip:#x}: keys were lost without a report");
            tried += 1;
        }
    }
    assert!(tried > 500, "{tried} bytes changed");
}

/// The index's root names its buckets, and writers store to them. A changed root must not be
/// followed, not even to other memory of the pool.
#[test]
fn index_root_detects_any_changed_byte() {
    let mut model = model();
    let mut image = image(&model);
    model.insert(b"batched".to_vec(), b"together".to_vec());
    model.insert(b"and".to_vec(), b"this".to_vec());
    let directory = directory();
    let path = directory.path().join("root.pool");
    // | lock | current | next | seed | stripes | kind | resizes | check |
    let kind = (0..image.len()).step_by(8).find(|&at| image[at..].starts_with(b"clhttags")).unwrap();
    let root = kind - 5 * 8;
    for at in root..root + 64 {
        for flip in [0x01, 0x82, 0xff] {
            let silent = try_damage(&mut image, at, flip, &model, directory.path());
            assert_eq!(silent, 0, "byte {} of the root ^ {flip:#x}", at - root);
            if !matches!((at - root) / 8, 0 | 6) {
                image[at] ^= flip;
                std::fs::write(&path, &image).unwrap();
                image[at] ^= flip;
                assert!(options(&path).open().is_err(), "byte {} of the root ^ {flip:#x}", at - root);
            }
        }
    }
}

/// After a change of any byte of a record, its key is never read wrongly or as absent.
#[test]
fn record_detects_any_changed_byte() {
    let site = Site::new(Medium::Shm, ByteSize::kib(256));
    let store = site.create();
    let (key, value) = (b"needle of a key", b"haystack of a value");
    store.put(key, value).unwrap();
    store.modify(key, |_| (Change::Expire(Some(u64::MAX - 1)), ())).unwrap();
    store.close().unwrap();
    let mut image = std::fs::read(&site.path).unwrap();
    let needle = [&key[..], value].concat();
    // The current record has an expiry before its key. Bytes of the first put's record may still
    // exist.
    let expiry = (u64::MAX - 1).to_le_bytes();
    let at = (8..image.len() - needle.len())
        .find(|&at| image[at..].starts_with(&needle) && image[at - 8..at] == expiry)
        .unwrap();
    let path = site.path.with_extension("damaged");
    for byte in at - 24..at + needle.len() {
        for flip in [1, 0x80, 0xff] {
            image[byte] ^= flip;
            std::fs::write(&path, &image).unwrap();
            image[byte] ^= flip;
            let store = options(&path).read_only(true).open().unwrap();
            match store.get(key) {
                Err(ReadError::Corrupt { .. }) => {}
                Ok(found) => panic!("byte {} ^ {flip:#x}: {found:?}", byte as i64 - at as i64),
                Err(error) => panic!("{error}"),
            }
            assert!(!store.check(&mut |_, _| {}).is_sound());
        }
    }
}

#[test]
fn damaged_record_can_be_replaced_and_removed() {
    let site = Site::new(Medium::Shm, ByteSize::kib(256));
    let store = site.create();
    for key in [b"one", b"two"] {
        store.put(key, b"a value that is somewhere").unwrap();
    }
    store.close().unwrap();
    let mut image = std::fs::read(&site.path).unwrap();
    let needle = b"a value that is somewhere";
    let places: Vec<usize> = (0..image.len()).filter(|&at| image[at..].starts_with(needle)).collect();
    places.iter().for_each(|&at| image[at] ^= 1);
    std::fs::write(&site.path, &image).unwrap();
    let store = site.open();
    assert!(store.get(b"one").is_err() && store.modify(b"one", |_| (Change::Keep, ())).is_err());
    let text = store.get(b"one").unwrap_err().to_string();
    assert!(text.contains("damaged at offset") && text.contains("terrace check"), "{text}");
    store.put(b"one", b"whole again").unwrap();
    assert_eq!(store.get(b"one").unwrap().unwrap(), b"whole again");
    assert_eq!(store.remove(b"two"), Ok(true));
    assert!(store.check(&mut |_, _| {}).is_sound());
    assert_eq!(contents(&store).len(), 1);
}

#[test]
fn salvage_keeps_sound_records() {
    let mut model = model();
    let mut image = image(&model);
    model.insert(b"batched".to_vec(), b"together".to_vec());
    model.insert(b"and".to_vec(), b"this".to_vec());
    let directory = directory();
    let path = directory.path().join("store.pool");
    // Flips a bit in the values of two keys.
    for key in ["key 2", "key 4"] {
        let value = &model[key.as_bytes()];
        // The value follows its key, or is in an extent.
        let record = [key.as_bytes(), value].concat();
        let at = match value.len() {
            ..4096 => (0..image.len()).rfind(|&at| image[at..].starts_with(&record)).unwrap() + key.len(),
            _ => (0..image.len()).step_by(64).rfind(|&at| image[at..].starts_with(value)).unwrap(),
        };
        image[at + value.len() / 2] ^= 4;
    }
    std::fs::write(&path, &image).unwrap();
    let store = options(&path).salvage(true).open().unwrap();
    let salvaged = store.opening().salvaged().unwrap().clone();
    assert_eq!((salvaged.kept, salvaged.dropped), (60, 2), "{salvaged:#?}");
    assert!(salvaged.findings.iter().any(|finding| finding.to_string().contains("key 2")), "{salvaged:#?}");
    assert!(salvaged.damaged.exists() && salvaged.damaged != path);
    for (key, value) in &model {
        let kept = !matches!(&key[..], b"key 2" | b"key 4");
        assert_eq!(store.get(key).unwrap().map(|found| found.to_vec()), kept.then(|| value.clone()));
    }
    assert!(store.check(&mut |_, _| {}).is_sound());
    store.put(b"key 2", b"again").unwrap();
    store.close().unwrap();
    assert_eq!(options(&path).open().unwrap().len(), 61);
    assert_eq!(std::fs::read(&salvaged.damaged).unwrap(), image);
}

/// A changed bit of a tree hides a leaf's keys from a repair at most, and no range is short without
/// an error.
#[test]
fn salvage_reaches_both_sides_of_damage_to_a_tree() {
    const KEYS: u32 = 1000;
    let model: Model = (0..KEYS).map(|n| (format!("user:{n:04}").into_bytes(), vec![n as u8; 9])).collect();
    let directory = directory();
    for index in [Index::Art, Index::Masstree, Index::BwTree, Index::Hot, Index::SpTree] {
        let mut image = image_with(&model, index);
        let mut draw = 7u64;
        for _ in 0..300 {
            let at = loop {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (draw >> 20) as usize % image.len();
                if image[at] != 0 {
                    break at;
                }
            };
            let (path, flip) = (directory.path().join(format!("{at}.pool")), 1 << (draw >> 60 & 7));
            image[at] ^= flip;
            std::fs::write(&path, &image).unwrap();
            image[at] ^= flip;
            let Ok(store) = options(&path).read_only(true).open() else { continue };
            let read = model.keys().filter(|key| matches!(store.get(key), Ok(Some(_)))).count() as u64;
            let listed = store.range("user:"..).filter(Result::is_ok).count();
            let failed = store.range("user:"..).any(|entry| entry.is_err());
            assert!(failed || listed == model.len(), "{index:?}: byte {at:#x} ^ {flip}: {listed} keys");
            drop(store);
            let store = options(&path).salvage(true).open().unwrap();
            let kept = model.keys().filter(|key| matches!(store.get(key), Ok(Some(_)))).count() as u64;
            assert!(kept + 200 > read, "{index:?}: byte {at:#x} ^ {flip}: {kept} of {read} keys");
            drop(store);
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn pool_of_crashed_machine_is_only_salvaged() {
    let site = Site::new(Medium::Shm, ByteSize::kib(512));
    let store = site.create();
    let model = model();
    model.iter().for_each(|(key, value)| store.put(key, value).unwrap());
    // What a disk would have; here, all of it.
    let path = site.path.with_extension("crashed");
    std::fs::copy(&site.path, &path).unwrap();
    let refused = options(&path).boot_id(7).open().unwrap_err().to_string();
    assert!(
        refused.contains("when the machine itself went down") && refused.contains("--salvage"),
        "{refused}"
    );
    let store = options(&path).boot_id(7).salvage(true).open().unwrap();
    let salvaged = store.opening().salvaged().unwrap();
    assert_eq!((salvaged.kept, salvaged.dropped), (60, 0), "{salvaged:#?}");
    assert!(model.iter().all(|(key, value)| *store.get(key).unwrap().unwrap() == **value));
    store.close().unwrap();
    options(&path).boot_id(8).open().unwrap();
}

#[test]
fn truncated_pool_is_refused_and_salvaged() {
    let model = model();
    let image = image(&model);
    let directory = directory();
    let path = directory.path().join("short.pool");
    for part in [0, 1, 100, 4096, image.len() / 2, image.len() - 4096, image.len() - 1] {
        std::fs::write(&path, &image[..part]).unwrap();
        assert!(options(&path).open().is_err(), "{part} of {} bytes", image.len());
        if let Ok(store) = options(&path).salvage(true).open() {
            for (key, value) in &model {
                assert!(store.get(key).unwrap().is_none_or(|found| *found == **value));
            }
        }
        for file in std::fs::read_dir(directory.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
}
