//! Opening a store: the manifest names the blocks, their entries tell which records are the newest,
//! and the log has what no block has (Algorithm 1 of the paper, mended).
//!
//! 1. The log is replayed into DRAM. A removal leaves its tombstone in the index for now.
//! 2. The entries of all blocks are read in parts, by their hashes, so that memory is bounded. Of
//!    each key the newest version counts, here or in DRAM. (The paper marks the wrong one as dead,
//!    and its table of all keys may take more memory than there is.)
//! 3. Tombstones leave the index, and files that nothing names are removed.
//!
//! Nothing is changed on the tier but by blocks that are sealed when DRAM does not suffice for the
//! log, and no part of the log is let go before the end. So an open that was interrupted may be
//! repeated: a write that both a block and the log have has the same sequence number in both.

use crate::engine::{Make, Tiered};
use crate::error::TieredError;
use crate::expiry::Sweep;
use crate::journal::Journal;
use crate::read::Reads;
use crate::records::Records;
use crate::recover::recover;
use crate::settings::Settings;
use crate::space::memory::{Memory, memory_with};
use crate::space::stripes::Stripes;
use crate::tier::NAME;
use crate::tier::cold;
use crate::tier::edit::{Edit, Plan};
use crate::tier::entries::Entries;
use crate::tier::files::Tier;
use crate::tier::read::{Block, Blocks, Held};
use crate::upkeep::work::Upkeep;
use crate::write::Writes;
use arc_swap::{ArcSwap, ArcSwapOption};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use terrace_disk::{Directory, DiskError, Ends, Identity, Log, LogOptions, Manifest};
use terrace_engine::DRAM_PER_KEY;
use terrace_engine::Standing;
use terrace_engine::{Durability, WriteError};
use terrace_index::{PointIndex, Stored};
use terrace_medium::Dram;
use terrace_medium::files::Files;
use terrace_pool::Pool;

/// Makes an anonymous pool for DRAM.
pub type MakePool = Box<dyn Fn() -> Result<Pool<Dram>, terrace_pool::OpenError> + Send + Sync>;

impl Tiered {
    /// Creates an empty store in the directory at `path`, over the index `I` in pools from `make`.
    ///
    /// # Errors
    /// There is one already, or something else, or it cannot be created.
    pub fn create<I>(
        files: impl Into<Arc<dyn Files>>,
        path: &Path,
        settings: Settings,
        make: MakePool,
    ) -> Result<Self, TieredError>
    where
        I: PointIndex<Medium = Dram, Kind = crate::Kind> + Stored<Medium = Dram> + 'static,
    {
        let files = files.into();
        let identity = Identity::new(NAME, settings.chance | 1);
        let first =
            Edit { cleared: Some(1), block_shift: settings.shares.block_bytes().ilog2(), ..Edit::default() };
        let begin = |directory: &Path| {
            Manifest::create(&files, directory, identity.store, &[first.to_bytes()]).map(drop)
        };
        drop(Directory::create(&files, path, &identity, begin)?);
        Self::open::<I>(files, path, settings, make)
    }

    /// Whether there is a store in the directory at `path`.
    ///
    /// # Errors
    /// The file system does not tell.
    pub fn exists(files: &Arc<dyn Files>, path: &Path) -> Result<bool, DiskError> {
        Directory::exists(files, path)
    }

    /// Opens the store in the directory at `path`, with a new index `I` in a pool from `make`.
    ///
    /// # Errors
    /// There is none, another process has it open, a file is damaged, or DRAM does not suffice.
    pub fn open<I>(
        files: impl Into<Arc<dyn Files>>,
        path: &Path,
        mut settings: Settings,
        make: MakePool,
    ) -> Result<Self, TieredError>
    where
        I: PointIndex<Medium = Dram, Kind = crate::Kind> + Stored<Medium = Dram> + 'static,
    {
        let files = files.into();
        if !files.outlasts_power() {
            settings.durability = settings.durability.min(Durability::Process);
        }
        let directory = Directory::open(&files, path, NAME, settings.read_only)?;
        let store = directory.identity().store;
        let (plan, mut manifest) = read_plan(&files, path, store, settings.read_only)?;
        let ends = Ends::beside(manifest.as_mut(), &files, path, store)?;
        if !(12..=30).contains(&plan.block_shift) {
            return Err(DiskError::corrupt(path, 0, "the manifest tells no size of blocks").into());
        }
        // Addresses stay as they are, whatever DRAM there is.
        let shares = settings.shares.with_block(1 << plan.block_shift);
        let shares = if settings.read_only { shares.for_reading() } else { shares };
        let make: Make = Box::new(move |keys| {
            let pool = make().map_err(TieredError::Pool)?;
            Ok(memory_with::<I>(pool, shares, keys)?)
        });
        let block_bytes = shares.block_bytes();
        Opening { files, directory, settings, make, plan, manifest, ends, block_bytes }.finish()
    }
}

/// An open that has read what the manifest says.
struct Opening {
    files: Arc<dyn Files>,
    directory: Directory,
    settings: Settings,
    make: Make,
    plan: Plan,
    manifest: Option<Manifest>,
    ends: Ends,
    block_bytes: u64,
}

impl Opening {
    fn finish(mut self) -> Result<Tiered, TieredError> {
        let (path, id) = (self.directory.path().to_path_buf(), self.directory.identity().store);
        let plan = std::mem::take(&mut self.plan);
        let opened = open_blocks(&self.files, (&path, id), &plan)?;
        let mut entries = Entries::of(&opened, plan.cleared_at, (2 * self.block_bytes).max(1 << 20));
        // An index that grows while it is filled takes three times as long, and some read what is
        // on the tier. One that does not fit is told of below.
        let keys = self.settings.expected_keys.max(entries.count_keys()?);
        let memory = (self.make)(keys).or_else(|_| (self.make)(self.settings.expected_keys))?;
        let (writes, make) = self.build(&opened, memory, plan.cleared_at)?;
        match recover(&writes, &plan, entries) {
            Err(TieredError::Write(WriteError::PoolFull { .. } | WriteError::DramFull { .. })) => {
                Err(needs_dram(writes.records()))
            }
            Err(TieredError::Write(WriteError::ReadOnly)) if writes.journal().settings.read_only => {
                Err(TieredError::Log { bytes: writes.journal().log.bytes() })
            }
            recovered => recovered.map(|recovered| Tiered {
                writes,
                make,
                seen_seq: AtomicU64::new(0),
                sweep: Sweep::default(),
                log_start: recovered.log_start,
                tail: recovered.tail,
                warnings: recovered.warnings,
            }),
        }
    }

    /// Puts the parts of a store together, from the tier up.
    fn build(self, opened: &[Held], memory: Memory, cleared_at: u64) -> Result<(Writes, Make), TieredError> {
        let Self { files, directory, settings, make, manifest, ends, block_bytes, .. } = self;
        let blocks = place_blocks(directory.path(), opened, &memory)?;
        let index_reads = Arc::default();
        cold::read_from(&memory, &blocks, &index_reads);
        // What a crash has lost had numbers, too. They must not come again: blocks are clean up to
        // them.
        let last_of = |block: &Held| block.foot.last_seq.max(block.foot.clean_seq.saturating_sub(1));
        let last_seq = opened.iter().map(last_of).max().unwrap_or(0).max(cleared_at);
        let last_file = opened.iter().map(|block| block.foot.generation).max().unwrap_or(0);
        // Room to seal a block and to rewrite another one, and for the log's records of removals.
        let reserve_bytes = 2 * block_bytes + settings.segment_bytes / 2;
        let options = LogOptions { segment_bytes: settings.segment_bytes, reserve_bytes };
        let log = Log::unopened(&files, directory.path(), directory.identity().store, options);
        let log = log.with_ends(ends).within(directory.place());
        let (stripes, chance) = (Stripes::new(settings.stripes), settings.chance);
        let standing = Standing::new(settings.read_only, settings.durability);
        let tier = Tier::new((files, directory), standing, blocks, last_file + 1);
        let journal = Journal::new((tier, settings), (log, manifest), (last_seq + 1, cleared_at));
        let records = Records {
            journal,
            memory: ArcSwap::from_pointee(memory),
            stripes,
            removals: Default::default(),
            counters: Default::default(),
            index_reads,
        };
        let upkeep = Upkeep::new(Reads::new(records, chance));
        Ok((Writes { upkeep, watches: Arc::default() }, make))
    }
}

/// The error of an open whose index has no room.
fn needs_dram(records: &Records) -> TieredError {
    let of_blocks: u64 = records.all_blocks().map(|block| block.foot.records - block.foot.tombstones).sum();
    // What is in the index already has come from the log, or from the blocks.
    let keys = of_blocks.max(records.memory().index.len());
    TieredError::Dram { keys, enough: (keys * DRAM_PER_KEY).next_multiple_of(1 << 20) }
}

fn read_plan(
    files: &Arc<dyn Files>,
    path: &Path,
    store: u64,
    is_read_only: bool,
) -> Result<(Plan, Option<Manifest>), DiskError> {
    let mut plan = Plan::default();
    let mut each = |bytes: &[u8]| {
        let added = Edit::read(bytes).ok_or("an edit is none").and_then(|edit| plan.add(edit));
        added.map_err(|what| DiskError::corrupt(path, 0, what))
    };
    let manifest = Manifest::open_or_read(files, path, store, is_read_only, &mut each)?;
    Ok((plan, manifest))
}

/// Opens the blocks of a plan.
fn open_blocks(
    files: &Arc<dyn Files>,
    (path, store): (&Path, u64),
    plan: &Plan,
) -> Result<Vec<Held>, DiskError> {
    let open = |(&name, &sum)| {
        let block = Block::open(files, path, store, name)?;
        block.check_sum(sum)?;
        Ok(Arc::new(block))
    };
    plan.blocks.iter().map(open).collect()
}

/// Blocks by their numbers.
fn place_blocks(path: &Path, opened: &[Held], memory: &Memory) -> Result<Arc<Blocks>, DiskError> {
    let mut blocks: Vec<Option<Held>> = (0..memory.pages.numbers.count()).map(|_| None).collect();
    for block in opened {
        let number = block.foot.number;
        let place = blocks.get_mut(number as usize).filter(|place| place.is_none() && number > 0);
        let what =
            "the manifest names a block that this DRAM has no address for; open it with as much as before";
        *place.ok_or_else(|| DiskError::corrupt(path, 0, what))? = Some(Arc::clone(block));
        memory.pages.numbers.note(number);
    }
    Ok(blocks.into_iter().map(ArcSwapOption::from).collect())
}
