//! The subjects of the measurements: the index alone, and the store above it.

use super::Outcome;
use std::sync::Arc;
use terrace_bench::{Random, spread};
use terrace_direct::{Direct, Settings};
use terrace_engine::{Durability, Durably, Engine, ManualClock, Put};
use terrace_index::{Bytes, CacheBounds, Inserted, PointIndex, Stored, U64, hash::Clht};
use terrace_medium::{MappedMedium, Mapping};
use terrace_pool::{Pool, PoolOptions};

/// A kind of subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// P-CLHT, 8-byte keys and values held inline.
    Index,
    /// The store's engine over P-CLHT: 16-byte keys, 64-byte values, checksums.
    Store,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Index, Self::Store];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Store => "store",
        }
    }

    /// Its description in the head of a table.
    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Index => "P-CLHT, 8-byte keys and values",
            Self::Store => "The store over P-CLHT, 16-byte keys and 64-byte values, checksums verified",
        }
    }

    /// Bytes of pool for `records` records, with room for retired memory.
    fn pool_bytes(self, records: u64) -> u64 {
        (64 << 20)
            + records
                * match self {
                    Self::Index => 80,
                    Self::Store => 400,
                }
    }

    /// An empty subject with room for `records`, on the medium that `medium` makes.
    pub(super) fn on<M: MappedMedium>(
        self,
        records: u64,
        medium: impl FnOnce(Mapping) -> M,
    ) -> Outcome<On<M>> {
        let bytes = self.pool_bytes(records) as usize;
        let mapping = Mapping::anonymous(bytes, bytes)?;
        mapping.advise_huge_pages();
        let pool = PoolOptions::anonymous().hash_seed(1).create_on(medium(mapping))?;
        let subject: Box<dyn Subject> = match self {
            Self::Index => Box::new(Index(Clht::create(&pool, "index", records)?)),
            Self::Store => Box::new(Store(Direct::open::<Clht<M, Bytes<terrace_direct::Key>>>(
                pool.clone(),
                settings(records),
            )?)),
        };
        Ok(On { pool, subject })
    }
}

fn settings(records: u64) -> Settings {
    Settings {
        expected_keys: records,
        index_cache: CacheBounds::default(),
        index_dram: Some(0),
        verify_reads: true,
        durability: Durability::Process,
        read_only: false,
        clock: Arc::new(ManualClock::at(1)),
    }
}

/// A subject and its pool.
pub(super) struct On<M: MappedMedium> {
    pub(super) pool: Pool<M>,
    pub(super) subject: Box<dyn Subject>,
}

/// Operations on numbered records. Each returns whether it found the record as expected.
pub(super) trait Subject {
    fn get(&self, record: u64) -> bool;
    /// Replaces the value of an existing record.
    fn update(&self, record: u64) -> bool;
    /// Adds a new record.
    fn insert(&self, record: u64) -> bool;
    fn remove(&self, record: u64) -> bool;
}

struct Index<M: MappedMedium>(Clht<M, U64>);

impl<M: MappedMedium> Subject for Index<M> {
    fn get(&self, record: u64) -> bool {
        self.0.get(&self.0.pool().pin(), &spread(record)).is_some()
    }
    fn update(&self, record: u64) -> bool {
        self.0.update(&self.0.pool().pin(), &spread(record), record).is_some()
    }
    fn insert(&self, record: u64) -> bool {
        matches!(self.0.insert(&self.0.pool().pin(), &spread(record), record), Ok(Inserted::New))
    }
    fn remove(&self, record: u64) -> bool {
        self.0.remove(&self.0.pool().pin(), &spread(record)).is_some()
    }
}

struct Store<M: MappedMedium>(Direct<M>);

fn key(record: u64) -> [u8; 16] {
    ((u128::from(record) << 64) | u128::from(spread(record))).to_be_bytes()
}

fn value(record: u64) -> [u8; 64] {
    let mut value = [0; 64];
    Random::new(record).fill(&mut value);
    value
}

impl<M: MappedMedium> Store<M> {
    fn put(&self, record: u64) -> bool {
        let (key, value) = (key(record), value(record));
        self.0.put(Put { key: &key, value: &value, expires_at: None }, Durably::Store).is_ok()
    }
}

impl<M: MappedMedium> Subject for Store<M> {
    fn get(&self, record: u64) -> bool {
        matches!(self.0.get(&key(record)), Ok(Some(value)) if value.len() == 64)
    }
    fn update(&self, record: u64) -> bool {
        self.put(record)
    }
    fn insert(&self, record: u64) -> bool {
        self.put(record)
    }
    fn remove(&self, record: u64) -> bool {
        matches!(self.0.remove(&key(record), Durably::Store), Ok(true))
    }
}
