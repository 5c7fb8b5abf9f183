//! Statistics and check results of a store.

use crate::{Finding, Layers, Place, Remedy};
use terrace_index::CacheStats;
use terrace_pool::Start;

/// Statistics of a store. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// Keys, with expired ones that were not removed yet.
    pub records: u64,
    /// Keys with an expiry. After an unclean stop an estimate until the background collection has
    /// run.
    pub expiring: u64,
    /// Keys and values. After an unclean stop an estimate until the background collection has run.
    pub data_bytes: u64,
    /// Memory used beyond the data: index, record headers, unused parts of blocks, metadata.
    pub overhead_bytes: u64,
    /// Expired keys that were removed since the store was opened.
    pub expired: u64,
    /// Damaged records that scans have skipped since the store was opened. A record counts each
    /// time that a scan skips it.
    pub damaged_records_skipped: u64,
    /// Write-backs and fences of writes, which follow from the store's durability.
    pub costs: Costs,
    /// The pool, if the store's data lies in one.
    pub pool: Option<PoolStats>,
    /// The index, if the engine has one.
    pub index: Option<IndexFigures>,
    /// The files, if the store's data lies in files.
    pub disk: Option<DiskStats>,
    /// The tiers, if the store's data lies in two.
    pub tier: Option<TierStats>,
}

/// Statistics of a store over DRAM and a slower tier. Sizes in bytes; counts since the store was
/// opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStats {
    /// Bytes of DRAM that the store may use, and of the index in it.
    pub dram_bytes: u64,
    /// See `dram_bytes`.
    pub index_bytes: u64,
    /// Bytes of pages that take writes, of those that the tier has as well, and of the read cache.
    pub open_bytes: u64,
    /// See `open_bytes`.
    pub sealed_bytes: u64,
    /// See `open_bytes`.
    pub cache_bytes: u64,
    /// Blocks on the tier, their bytes, and the bytes of records in them that are dead.
    pub blocks: u64,
    /// See `blocks`.
    pub block_bytes: u64,
    /// See `blocks`.
    pub dead_bytes: u64,
    /// Bytes of the log, and those written to it.
    pub log_bytes: u64,
    /// See `log_bytes`.
    pub log_bytes_written: u64,
    /// Times that the log was synced.
    pub syncs: u64,
    /// Bytes of keys and values that were written by callers.
    pub written_bytes: u64,
    /// Bytes that flushes wrote to the tier, and those that rewrites of blocks did.
    pub flushed_bytes: u64,
    /// See `flushed_bytes`.
    pub rewritten_bytes: u64,
    /// Blocks that were sealed, and those that were rewritten or emptied.
    pub flushes: u64,
    /// See `flushes`.
    pub rewrites: u64,
    /// Looks at records that found them in DRAM, those of them that found a copy in the cache, and
    /// reads of the tier.
    pub hits: u64,
    /// See `hits`.
    pub copy_hits: u64,
    /// See `hits`.
    pub cold_reads: u64,
    /// Writes in place, and writes to new places.
    pub in_place: u64,
    /// See `in_place`.
    pub appended: u64,
    /// Writes that had to wait for pages, and how long they waited together, in milliseconds.
    pub stalls: u64,
    /// See `stalls`.
    pub stalled_ms: u64,
}

/// Statistics of a store in files. Sizes in bytes; counts since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Ranges of keys with tables of their own.
    pub buckets: u64,
    /// Tables of each level, the first level first.
    pub tables: [u64; 3],
    /// Bytes of all tables.
    pub table_bytes: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Memory of writes that no table has yet.
    pub memtable_bytes: u64,
    /// Memory of the block cache.
    pub cache_bytes: u64,
    /// Blocks of tables that were read from files.
    pub blocks_read: u64,
    /// Bytes of keys and values that were written since the store was opened.
    pub written_bytes: u64,
    /// Bytes that were written to the log since the store was opened.
    pub log_bytes_written: u64,
    /// Writes that had to wait for flushes or merges since the store was opened, and how long they
    /// waited together, in milliseconds.
    pub stalls: u64,
    /// See `stalls`.
    pub stalled_ms: u64,
    /// Writes that were delayed by a millisecond, as flushes fell behind.
    pub delays: u64,
    /// Bytes that were written to tables since the store was opened.
    pub table_bytes_written: u64,
    /// MemTables that were written to tables.
    pub flushes: u64,
    /// Merges of tables.
    pub compactions: u64,
    /// Buckets that were split.
    pub splits: u64,
    /// Pairs of small buckets that were joined.
    pub joins: u64,
    /// Sequence numbers that readers hold.
    pub snapshots: u64,
    /// Flushes and merges that failed. They are tried again, ever less often.
    pub failures: u64,
    /// 1 if the last flush or the last merge has failed; else 0.
    pub is_failing: u64,
}

/// A figure of some statistics: for programs that show all of them.
#[derive(Clone, Copy)]
pub struct Figure<S> {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub help: &'static str,
    /// Whether it only grows.
    pub is_counter: bool,
    /// Reads it.
    pub get: fn(&S) -> u64,
    /// Sets it.
    pub set: fn(&mut S, u64),
}

macro_rules! figures {
    ($($field:ident $is_counter:literal $help:literal,)*) => {
        [$(Figure {
            name: stringify!($field),
            help: $help,
            is_counter: $is_counter,
            get: |stats| stats.$field,
            set: |stats, value| stats.$field = value,
        }),*]
    };
}

impl TierStats {
    /// All figures.
    pub const FIGURES: &[Figure<Self>] = &figures! {
        dram_bytes false "DRAM that the store may use",
        index_bytes false "DRAM of the index",
        open_bytes false "DRAM of writes that the tier does not have yet",
        sealed_bytes false "DRAM of writes that the tier has as well",
        cache_bytes false "DRAM of copies of records on the tier",
        blocks false "Blocks on the tier",
        block_bytes false "Bytes of blocks on the tier",
        dead_bytes false "Bytes of dead records in blocks on the tier",
        log_bytes false "Bytes of the log",
        log_bytes_written true "Bytes written to the log",
        syncs true "Syncs of the log",
        written_bytes true "Bytes of keys and values written",
        flushed_bytes true "Bytes that flushes wrote to the tier",
        rewritten_bytes true "Bytes that rewrites of blocks wrote to the tier",
        flushes true "Blocks sealed",
        rewrites true "Blocks rewritten or emptied",
        hits true "Looks at records that found them in DRAM",
        copy_hits true "Looks at records that found a copy in the cache",
        cold_reads true "Reads of the tier",
        in_place true "Writes in place",
        appended true "Writes to new places",
        stalls true "Writes that waited for pages",
        stalled_ms true "Milliseconds that writes waited for pages",
    };

    /// DRAM that is in use.
    pub fn used_bytes(&self) -> u64 {
        self.index_bytes + self.open_bytes + self.sealed_bytes + self.cache_bytes
    }
}

/// Statistics of the pool of a store. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolStats {
    /// The whole pool.
    pub size_bytes: u64,
    /// How far the pool can grow while it is open.
    pub reserved_bytes: u64,
    /// Free.
    pub free_bytes: u64,
    /// The longest run of free memory: the largest value that fits.
    pub largest_free_bytes: u64,
    /// Retired, but a reader may still see it.
    pub waiting_bytes: u64,
    /// Threads that are pinned now, without the calling thread.
    pub readers: u32,
    /// Of those, threads that have been pinned since before some block was retired: that block, and
    /// all that were retired since, wait for them.
    pub blocking_readers: u32,
    /// Freed while there was no memory to record it; the next open reclaims it.
    pub lost_bytes: u64,
    /// Memory that was found to be damaged and is not used any more.
    pub damaged_bytes: u64,
    /// How many processes can have the pool open at one time.
    pub participants: u32,
    /// Number of opens so far.
    pub generation: u32,
    /// The state in which the pool was found when it was opened.
    pub found: Start,
    /// Whether the last stop interrupted a batch, and whether the batch was committed (`true`) or
    /// undone.
    pub batch_finished: Option<bool>,
}

impl Default for PoolStats {
    fn default() -> Self {
        Self {
            size_bytes: 0,
            reserved_bytes: 0,
            free_bytes: 0,
            largest_free_bytes: 0,
            waiting_bytes: 0,
            readers: 0,
            blocking_readers: 0,
            lost_bytes: 0,
            damaged_bytes: 0,
            participants: 0,
            generation: 0,
            found: Start::Clean,
            batch_finished: None,
        }
    }
}

/// Statistics of the index of a store. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IndexFigures {
    /// Its name.
    pub name: &'static str,
    /// Its size.
    pub bytes: u64,
    /// Slots for keys; in a tree also for children.
    pub slots: u64,
    /// Nodes of a tree by kind, the smallest kind first; 0 of a hash index.
    pub nodes: [u64; 4],
    /// Resizes completed since the pool was created.
    pub resizes: u64,
    /// Whether it is being resized.
    pub resizing: bool,
    /// Its cache in DRAM, if it has one.
    pub cache: Option<CacheStats>,
    /// Its layers in DRAM, or why it has none; `None` if this kind of index never has any.
    pub layers: Option<Layers>,
}

/// Write-backs and fences of a write. The allocator adds some, once in a few hundred writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Fences of a put. Puts that are made together share them.
    pub fences_per_put: u32,
    /// Fences of a removal.
    pub fences_per_removal: u32,
    /// Fences of a batch of up to 64 keys. Each further 64 keys add two.
    pub fences_per_batch: u32,
    /// Lines that a put writes back in addition to those of its record.
    pub write_backs_per_put: u32,
    /// Lines that a removal writes back.
    pub write_backs_per_removal: u32,
}

impl Costs {
    /// The costs of a store that survives the end of a process; that takes neither.
    pub const PROCESS: Self = Self {
        fences_per_put: 0,
        fences_per_removal: 0,
        fences_per_batch: 0,
        write_backs_per_put: 0,
        write_backs_per_removal: 0,
    };
    /// The costs of a store that survives a loss of power.
    pub const POWER: Self = Self {
        fences_per_put: 2,
        fences_per_removal: 1,
        fences_per_batch: 6,
        write_backs_per_put: 1,
        write_backs_per_removal: 1,
    };

    /// As [`Costs::POWER`], for an index that takes `fences_per_insert` fences to add a key, each
    /// after a write-back. In a batch, each new key adds the fences beyond the first.
    pub fn power(fences_per_insert: u32) -> Self {
        let more = fences_per_insert.saturating_sub(1);
        let Self { fences_per_put, write_backs_per_put, .. } = Self::POWER;
        let (fences_per_put, write_backs_per_put) = (fences_per_put + more, write_backs_per_put + more);
        Self { fences_per_put, write_backs_per_put, ..Self::POWER }
    }
}

impl IndexFigures {
    /// Number of nodes of a tree; 0 of a hash index.
    pub fn all_nodes(&self) -> u64 {
        // Damage may have made the counts anything.
        self.nodes.iter().fold(0, |all, &nodes| all.saturating_add(nodes))
    }

    /// The share of slots that are used, 0 to 1, in a store with `records` keys. In a tree all
    /// nodes but the root use one, too.
    pub fn load_factor(&self, records: u64) -> f64 {
        let children = self.all_nodes().saturating_sub(1);
        if self.slots == 0 { 0.0 } else { records.saturating_add(children) as f64 / self.slots as f64 }
    }
}

impl Stats {
    /// Statistics of a store without a pool.
    pub fn new(records: u64, data_bytes: u64, overhead_bytes: u64) -> Self {
        Self {
            records,
            expiring: 0,
            data_bytes,
            overhead_bytes,
            expired: 0,
            damaged_records_skipped: 0,
            costs: Costs::PROCESS,
            pool: None,
            index: None,
            disk: None,
            tier: None,
        }
    }

    /// Average number of bytes per record beyond key and value.
    pub fn overhead_per_record(&self) -> f64 {
        if self.records == 0 { 0.0 } else { self.overhead_bytes as f64 / self.records as f64 }
    }
}

/// The result of a check of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records that were read and compared with their checksums.
    pub records: u64,
    /// Buckets of the index; 0 of a tree.
    pub buckets: u64,
    /// Nodes of the index if it is a tree.
    pub nodes: u64,
    /// Named roots of the pool.
    pub roots: u64,
    /// Whether other processes may have written meanwhile, so that only the records were checked:
    /// see [`Engine::check_records`](crate::Engine::check_records).
    pub concurrent: bool,
    /// The damage that was found. Only about the first thousand findings.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The report of a child of the process that has opened the store: it can check nothing.
    pub fn in_child(forked: terrace_pool::Forked) -> Self {
        let finding = Finding {
            place: Place::Pool(0),
            what: "store",
            expected: "a store that this process has opened".into(),
            found: forked.to_string(),
            bytes: 0,
            affected: None,
            remedy: Remedy::Dropped,
        };
        Self { findings: vec![finding], ..Self::default() }
    }

    /// Whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}

/// How much memory a store uses, for tests. In a sound store, `garbage` and `overlapping` are 0,
/// and if nothing is waiting, `used` is `reachable`.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of the blocks that the store can reach.
    pub reachable: u64,
    /// Bytes of the blocks that the pool has allocated.
    pub used: u64,
    /// Bytes that were freed but are still in a thread's caches. They count as used.
    pub waiting: u64,
    /// Bytes that a collection frees although no crash has asked for one: a bug leaked them.
    pub garbage: u64,
    /// Blocks that the store can reach and that begin within another block.
    pub overlapping: u64,
}
