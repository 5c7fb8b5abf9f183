//! fjall. It has no direct I/O, so the page cache serves its reads.

use super::Outcome;
use super::store::{BACKGROUND, Each, Figures, Setup, Stored, Write};
use fjall::config::CompressionPolicy;
use fjall::{Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use std::path::Path;

struct Fjall {
    db: Database,
    keyspace: Keyspace,
    is_synced: bool,
}

pub(crate) fn open(directory: &Path, setup: Setup) -> Outcome<Box<dyn Stored>> {
    let half = setup.memory as u64 / 2;
    #[allow(deprecated, reason = "the only bound on the memory of all write buffers")]
    let builder = Database::builder(directory).max_write_buffer_size(Some(half));
    let db = builder.cache_size(half).worker_threads(BACKGROUND).open()?;
    let none = CompressionPolicy::disabled();
    let options = || {
        let options = KeyspaceCreateOptions::default().max_memtable_size(half / 3);
        options.data_block_compression_policy(none.clone()).index_block_compression_policy(none.clone())
    };
    let keyspace = db.keyspace("data", options)?;
    Ok(Box::new(Fjall { db, keyspace, is_synced: setup.is_synced }))
}

impl Fjall {
    fn sync(&self) -> Outcome<()> {
        if self.is_synced {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

impl Stored for Fjall {
    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.keyspace.insert(key, value)?;
        self.sync()
    }

    fn write(&self, batch: &[Write<'_>]) -> Outcome<()> {
        let mode = if self.is_synced { PersistMode::SyncData } else { PersistMode::Buffer };
        let mut steps = self.db.batch().durability(Some(mode));
        for &(key, value) in batch {
            match value {
                Some(value) => steps.insert(&self.keyspace, key, value),
                None => steps.remove(&self.keyspace, key),
            }
        }
        Ok(steps.commit()?)
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        self.keyspace.remove(key)?;
        self.sync()
    }

    fn get(&self, key: &[u8], each: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        Ok(self.keyspace.get(key)?.inspect(|value| each(value)).is_some())
    }

    fn range(&self, from: &[u8], is_forward: bool, most: usize, each: &mut Each<'_>) -> Outcome<()> {
        let mut visit = |entry: Guard| -> Outcome<()> {
            let (key, value) = entry.into_inner()?;
            each(&key, &value);
            Ok(())
        };
        match is_forward {
            true => self.keyspace.range(from..).take(most).try_for_each(&mut visit),
            false => self.keyspace.range(..=from).rev().take(most).try_for_each(&mut visit),
        }
    }

    fn snapshot(&self, keys: &[&[u8]]) -> Outcome<Vec<Option<Vec<u8>>>> {
        let snapshot = self.db.snapshot();
        let get = |key: &&[u8]| Ok(snapshot.get(&self.keyspace, key)?.map(|value| value.to_vec()));
        keys.iter().map(get).collect()
    }

    fn flush(&self) -> Outcome<()> {
        Ok(self.keyspace.rotate_memtable_and_wait()?)
    }

    fn figures(&self) -> Figures {
        Figures { table_bytes: self.keyspace.disk_space(), ..Figures::default() }
    }
}
