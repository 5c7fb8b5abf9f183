//! Helpers shared by the tests of the store.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace::{ByteSize, Durability, Index, ManualClock, Options, Store};

/// The medium of a store under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    Dram,
    Shm,
    Pmem,
}

pub const MEDIA: [Medium; 3] = [Medium::Dram, Medium::Shm, Medium::Pmem];

/// A directory in shared memory, removed at the end of the test.
pub fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("terrace-test").tempdir_in("/dev/shm").unwrap()
}

/// Options of a small shared store at `path`.
pub fn shared(path: &Path, medium: Medium) -> Options {
    let options = Store::options().path(path).size(ByteSize::mib(16)).huge_pages(false).shared(true);
    match medium {
        Medium::Pmem => options.durability(Durability::Power).assume_persistent(true),
        _ => options,
    }
}

/// A place for a store on a medium, without background threads.
pub struct Site {
    pub medium: Medium,
    pub path: PathBuf,
    pub clock: Arc<ManualClock>,
    pub size: ByteSize,
    pub index: Index,
    _directory: tempfile::TempDir,
}

impl Site {
    pub fn new(medium: Medium, size: ByteSize) -> Self {
        let directory = directory();
        let path = directory.path().join("test.pool");
        let (clock, index) = (Arc::new(ManualClock::at(1_000_000)), Index::default());
        Self { medium, path, clock, size, index, _directory: directory }
    }

    /// The same with this index.
    pub fn with_index(mut self, index: Index) -> Self {
        self.index = index;
        self
    }

    pub fn options(&self) -> Options {
        let options = Store::options()
            .size(self.size)
            .expiry_thread(false)
            .huge_pages(false)
            .clock(self.clock.clone())
            .index(self.index);
        match self.medium {
            Medium::Dram => options.anonymous(),
            Medium::Shm => options.path(&self.path),
            Medium::Pmem => options.path(&self.path).durability(Durability::Power).assume_persistent(true),
        }
    }

    pub fn create(&self) -> Store {
        self.options().create().unwrap_or_else(|error| panic!("{:?}: {error}", self.medium))
    }

    pub fn open(&self) -> Store {
        self.options().open().unwrap_or_else(|error| panic!("{:?}: {error}", self.medium))
    }
}

/// All entries of a store, by a scan.
pub fn contents(store: &Store) -> std::collections::BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)> {
    let mut found = std::collections::BTreeMap::new();
    let mut cursor = terrace::Cursor::START;
    loop {
        cursor = store
            .scan(&cursor, 7, &mut |key, entry| {
                found.insert(key.to_vec(), (entry.value.to_vec(), entry.expires_at));
            })
            .unwrap();
        if cursor.is_end() {
            return found;
        }
    }
}

/// Fails with the findings if the store is not sound.
pub fn assert_sound(store: &Store) {
    let report = store.check(&mut |_, _| {});
    assert!(report.is_sound(), "{:#?}", report.findings);
}

/// Whether a condition becomes true within a minute. On a busy machine, other threads may not run
/// for some seconds.
#[allow(clippy::disallowed_methods, reason = "the condition cannot be waited for")]
pub fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    (0..6000).any(|look| {
        std::thread::sleep(std::time::Duration::from_millis(10 * u64::from(look > 0)));
        condition()
    })
}

/// A seeded random generator (SplitMix64): threads differ, runs do not.
pub struct Draws(pub u64);

impl Draws {
    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % limit
    }
}
