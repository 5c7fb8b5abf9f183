//! Tests: when a pool is salvaged, how large the new one becomes, and which findings are kept.

use crate::common::{Medium, Site, contents};
use std::path::Path;
use terrace::{ByteSize, OpenError, Options, WriteError};

const SIZE: ByteSize = ByteSize::mib(2);

/// This many participants take a quarter of a MiB, which the damaged pool uses for records.
fn narrower(site: &Site) -> Options {
    site.options().participants(4096).salvage(true)
}

fn names(site: &Site) -> Vec<String> {
    let files = std::fs::read_dir(site.path.parent().unwrap()).unwrap().flatten();
    files.map(|file| file.file_name().into_string().unwrap()).collect()
}

#[test]
fn new_pool_grows_by_a_quarter_if_full() {
    let site = Site::new(Medium::Shm, SIZE);
    let store = site.create();
    let is_full = |n: &u32| {
        let put = store.put(n.to_le_bytes(), [7; 3000]);
        matches!(put, Err(WriteError::PoolFull { .. }))
    };
    let records = (0..).find(is_full).unwrap();
    let all = contents(&store);
    store.close().unwrap();
    let store = narrower(&site).open().unwrap();
    let salvaged = store.opening().salvaged().unwrap();
    assert_eq!((salvaged.kept, salvaged.dropped), (records.into(), 0));
    assert!(contents(&store) == all);
    assert_eq!(store.stats().pool.unwrap().size_bytes, SIZE.as_bytes() / 4 * 5);
}

#[test]
fn failed_salvage_leaves_the_pool_unchanged() {
    let site = Site::new(Medium::Shm, SIZE);
    let store = site.create();
    (0..40u32).for_each(|n| store.put(n.to_le_bytes(), b"small").unwrap());
    // Nearly as large as the free memory.
    let mut lens = (0..SIZE.as_bytes() as usize).rev().step_by(16 << 10);
    lens.find(|&len| store.put(b"large", vec![7; len]).is_ok()).unwrap();
    store.close().unwrap();
    let image = std::fs::read(&site.path).unwrap();
    let refused = narrower(&site).max_size(SIZE).open().unwrap_err();
    let OpenError::Salvage { pool, what } = &refused else { panic!("{refused}") };
    assert!(*pool == site.path && what.contains("could not be copied"), "{refused}");
    assert_eq!(names(&site), ["test.pool"]);
    assert!(std::fs::read(&site.path).unwrap() == image);
}

#[test]
fn salvage_keeps_ten_thousand_findings() {
    const RECORDS: u64 = 10_010;
    const VALUE: &[u8] = b"a value to be found";
    let site = Site::new(Medium::Shm, ByteSize::mib(8));
    let store = site.create();
    (0..RECORDS).for_each(|n| store.put(n.to_le_bytes(), VALUE).unwrap());
    store.put(b"key", b"whole").unwrap();
    store.close().unwrap();
    let mut image = std::fs::read(&site.path).unwrap();
    (0..image.len() - VALUE.len()).for_each(|at| {
        if image[at..].starts_with(VALUE) {
            image[at] ^= 1;
        }
    });
    std::fs::write(&site.path, image).unwrap();
    let store = site.options().salvage(true).open().unwrap();
    let salvaged = store.opening().salvaged().unwrap();
    assert_eq!((salvaged.kept, salvaged.dropped, salvaged.findings.len()), (1, RECORDS, 10_000));
    assert_eq!(store.get(b"key").unwrap().unwrap(), b"whole");
}

/// Such an open allows writes and starts the background threads.
#[test]
fn store_created_with_salvage_is_writable() {
    let site = Site::new(Medium::Shm, SIZE);
    let options = site.options().salvage(true).expiry_thread(true);
    for store in [options.create(), options.clone().anonymous().create()] {
        let store = store.unwrap();
        assert!(store.opening().salvaged().is_none());
        store.put_expiring(b"key", b"value", std::time::Duration::from_millis(5)).unwrap();
        site.clock.advance(5);
        while !store.is_empty() {
            std::thread::yield_now();
        }
        store.close().unwrap();
    }
}

#[test]
fn create_read_only_and_anonymous_salvage_nothing() {
    let site = Site::new(Medium::Shm, SIZE);
    site.create().close().unwrap();
    let options = site.options().salvage(true);
    assert!(matches!(options.create(), Err(OpenError::Pool(_))));
    assert!(options.clone().read_only(true).open().unwrap().opening().salvaged().is_none());
    assert!(options.clone().anonymous().open_or_create().unwrap().opening().salvaged().is_none());
    assert_eq!(names(&site), ["test.pool"]);
    assert!(options.open_or_create().unwrap().opening().salvaged().is_some());
    let there_is =
        |path: &Path| options.clone().path(path).open_or_create().unwrap().opening().salvaged().is_some();
    assert!(!there_is(&site.path.with_extension("new")));
}
