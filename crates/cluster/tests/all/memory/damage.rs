//! Files that are damaged, missing, or another's.

use super::client::{Client, directory, fabric, options, start};
use std::fs::Permissions;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use terrace_cluster::memory::{MemoryError, MemoryNode, Options};

fn refusal(options: Options) -> MemoryError {
    MemoryNode::start(fabric(), options, Box::new(|_| ())).err().expect("it is refused")
}

/// A pool with a key, and its log area with a session.
fn used(path: &Path) {
    let node = start(options(path));
    let mut client = Client::with_all(node.address(), "one");
    client.put(b"key", b"value");
    client.settle();
    node.stop().unwrap();
}

#[test]
fn damaged_log_area_is_refused_with_its_place() {
    let directory = directory();
    used(directory.path());
    let log = directory.path().join("pool.log");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&log).unwrap();
    // The header, both counters, owners, sessions, segments.
    for offset in
        [16, 40, 48, 4096, 4104, 8192, 139_263, 139_264, 139_272, 139_300, 270_336, 270_352, 270_368]
    {
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 0x20], offset).unwrap();
        let error = refusal(options(directory.path()));
        let text = error.to_string();
        let MemoryError::Damaged { offset: told, .. } = error else { panic!("{offset}: {error}") };
        assert!(told.abs_diff(offset) <= 48 && text.contains("pool.log"), "{offset}: {text}");
        file.write_all_at(&byte, offset).unwrap();
    }
    // Zeros are no free words either.
    let mut words = [0; 8];
    file.read_exact_at(&mut words, 8192).unwrap();
    file.write_all_at(&[0; 8], 8192).unwrap();
    assert!(matches!(refusal(options(directory.path())), MemoryError::Damaged { offset: 8192, .. }));
    file.write_all_at(&words, 8192).unwrap();
    let node = start(options(directory.path()));
    assert_eq!(Client::with_all(node.address(), "one").value(b"key").unwrap(), b"value");
}

#[test]
fn log_area_that_is_cut_short_is_refused() {
    let directory = directory();
    used(directory.path());
    let log = directory.path().join("pool.log");
    let file = std::fs::OpenOptions::new().write(true).open(&log).unwrap();
    file.set_len(file.metadata().unwrap().len() - 4096).unwrap();
    assert!(matches!(refusal(options(directory.path())), MemoryError::Damaged { .. }));
    file.set_len(100).unwrap();
    assert!(matches!(refusal(options(directory.path())), MemoryError::NoLog { .. }));
}

#[test]
fn log_area_of_another_kind_or_version_is_refused() {
    let directory = directory();
    used(directory.path());
    let log = directory.path().join("pool.log");
    let file = std::fs::OpenOptions::new().write(true).open(&log).unwrap();
    file.write_all_at(&7_u64.to_le_bytes(), 8).unwrap();
    let error = refusal(options(directory.path()));
    assert!(
        matches!(error, MemoryError::Version { found: 7, .. }) && error.to_string().contains("version 7")
    );
    file.write_all_at(b"something", 0).unwrap();
    assert!(matches!(refusal(options(directory.path())), MemoryError::NoLog { .. }));
}

#[test]
fn log_area_of_another_pool_is_refused() {
    let (directory, other) = (directory(), directory());
    used(directory.path());
    used(other.path());
    std::fs::copy(other.path().join("pool.log"), directory.path().join("pool.log")).unwrap();
    let error = refusal(options(directory.path()));
    assert!(matches!(error, MemoryError::OtherPool { .. }) && error.to_string().contains("another pool"));
}

/// It has what clients have written.
#[test]
fn log_area_is_its_owners_alone() {
    let directory = directory();
    let log = directory.path().join("pool.log");
    let mode = || std::fs::metadata(&log).unwrap().permissions().mode() & 0o777;
    // Left by another release, which died.
    let left = directory.path().join("pool.log.new");
    for path in [&left, &log] {
        if path == &left {
            std::fs::write(path, "").unwrap();
        }
        std::fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        start(options(directory.path())).stop().unwrap();
        assert_eq!(mode(), 0o600);
    }
}

#[test]
fn log_area_that_is_missing_is_missed() {
    let directory = directory();
    used(directory.path());
    std::fs::remove_file(directory.path().join("pool.log")).unwrap();
    let error = refusal(options(directory.path()));
    assert!(matches!(error, MemoryError::Missing { .. }), "{error}");
    let node = start(Options { adopt: true, ..options(directory.path()) });
    assert_eq!(Client::with_all(node.address(), "one").value(b"key").unwrap(), b"value");
}

#[test]
fn pool_that_is_open_elsewhere_is_refused() {
    let directory = directory();
    let node = start(options(directory.path()));
    assert!(matches!(refusal(options(directory.path())), MemoryError::Pool { .. }));
    node.stop().unwrap();
    start(options(directory.path())).stop().unwrap();
}

#[test]
fn pool_with_another_index_is_refused_by_name() {
    let directory = directory();
    let store = terrace::Store::options().path(directory.path().join("pool")).index(terrace::Index::Turbo);
    store.size(terrace::ByteSize::mib(64)).create().unwrap().close().unwrap();
    let error = refusal(options(directory.path()));
    assert!(matches!(error, MemoryError::Pool { .. }) && error.to_string().contains("turbo"), "{error}");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let directory = directory();
    let of = |change: fn(&mut Options)| {
        let mut options = options(directory.path());
        change(&mut options);
        matches!(refusal(options), MemoryError::Setting(_))
    };
    assert!(of(|options| options.lease = std::time::Duration::from_millis(1)));
    assert!(of(|options| options.merge_threads = 0));
    assert!(of(|options| options.drift_ppm = 1_000_000));
    assert!(of(|options| options.log_segments = 0));
    assert!(of(|options| options.segment_bytes = 4 << 20));
    start(options(directory.path())).stop().unwrap();
}
