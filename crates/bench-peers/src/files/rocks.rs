//! RocksDB, by its crate.

use super::Outcome;
use super::store::{BACKGROUND, Each, Figures, Setup, Stored, Write};
use rocksdb::statistics::Ticker;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Options, ReadOptions, WriteBatch, WriteBufferManager,
    WriteOptions,
};
use std::path::Path;

/// RocksDB's own default of a write buffer.
const DEFAULT_BUFFER: usize = 64 << 20;

struct Rocks {
    db: DB,
    /// For its counters.
    options: Options,
    write: WriteOptions,
}

pub(crate) fn open(directory: &Path, is_deep: bool, setup: Setup) -> Outcome<Box<dyn Stored>> {
    let options = options(is_deep, setup.memory);
    let mut write = WriteOptions::default();
    write.set_sync(setup.is_synced);
    Ok(Box::new(Rocks { db: DB::open(&options, directory)?, options, write }))
}

fn options(is_deep: bool, memory: usize) -> Options {
    // One budget: what buffers take is taken from the cache.
    let cache = Cache::new_lru_cache(memory);
    let buffers =
        WriteBufferManager::new_write_buffer_manager_with_cache(DEFAULT_BUFFER, false, cache.clone());
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&cache);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_cache_index_and_filter_blocks(true);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_manager(&buffers);
    options.set_compression_type(DBCompressionType::None);
    options.set_use_direct_reads(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    options.set_max_background_jobs(BACKGROUND as i32);
    options.enable_statistics();
    if is_deep {
        options.set_write_buffer_size(2 << 20);
        options.set_target_file_size_base(2 << 20);
        options.set_max_bytes_for_level_base(8 << 20);
    }
    options
}

impl Rocks {
    fn count(&self, tickers: &[Ticker]) -> u64 {
        tickers.iter().map(|&ticker| self.options.get_ticker_count(ticker)).sum()
    }
}

impl Stored for Rocks {
    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.db.put_opt(key, value, &self.write)?)
    }

    fn write(&self, batch: &[Write<'_>]) -> Outcome<()> {
        let mut steps = WriteBatch::default();
        for (key, value) in batch {
            match value {
                Some(value) => steps.put(key, value),
                None => steps.delete(key),
            }
        }
        Ok(self.db.write_opt(steps, &self.write)?)
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        Ok(self.db.delete_opt(key, &self.write)?)
    }

    fn get(&self, key: &[u8], each: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        Ok(self.db.get_pinned(key)?.inspect(|value| each(value)).is_some())
    }

    fn range(&self, from: &[u8], is_forward: bool, most: usize, each: &mut Each<'_>) -> Outcome<()> {
        let mut cursor = self.db.raw_iterator();
        if is_forward {
            cursor.seek(from)
        } else {
            cursor.seek_for_prev(from)
        }
        for _ in 0..most {
            let Some((key, value)) = cursor.item() else { break };
            each(key, value);
            if is_forward { cursor.next() } else { cursor.prev() }
        }
        Ok(cursor.status()?)
    }

    fn snapshot(&self, keys: &[&[u8]]) -> Outcome<Vec<Option<Vec<u8>>>> {
        let (snapshot, mut read) = (self.db.snapshot(), ReadOptions::default());
        read.set_snapshot(&snapshot);
        keys.iter().map(|key| Ok(self.db.get_opt(key, &read)?)).collect()
    }

    fn flush(&self) -> Outcome<()> {
        Ok(self.db.flush()?)
    }

    fn figures(&self) -> Figures {
        let table_bytes = self.db.property_int_value("rocksdb.total-sst-files-size");
        Figures {
            tables_written: Some(self.count(&[Ticker::FlushWriteBytes, Ticker::CompactWriteBytes])),
            log_written: self.count(&[Ticker::WalFileBytes]),
            table_bytes: table_bytes.ok().flatten().unwrap_or(0),
            blocks_read: Some(self.count(&[Ticker::BlockCacheMiss])),
            splits: 0,
        }
    }
}
