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

use crate::shortage::Shortage;
use crate::space::memory::{Here, Memory, memory_with};
use crate::space::record::{Kind, Shape};
use crate::space::stripes::Stripes;
use crate::store::{Make, Settings, Tiered};
use crate::tier::edit::{Edit, Name, Plan};
use crate::tier::entries::{Entries, Found};
use crate::tier::large;
use crate::tier::read::{self as block, Block, Blocks, Held};
use crate::tier::unnamed;
use crate::write::{New, Stuck, store_in_place};
use arc_swap::{ArcSwap, ArcSwapOption};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};
use terrace_disk::{
    Content, Directory, DiskError, Ends, Identity, Log, LogOptions, Manifest, Need, Position, Record,
    list_files, replay,
};
use terrace_engine::DRAM_PER_KEY;
use terrace_engine::Retry;
use terrace_engine::Standing;
use terrace_engine::read_drafts;
use terrace_engine::{Durability, OpenError, WriteError};
use terrace_index::{PointIndex, Stored, Swapped};
use terrace_medium::Dram;
use terrace_medium::files::Files;
use terrace_pool::Pool;

/// The name of this engine in a store's identity.
pub const NAME: &str = "tiered";
/// Records that are looked up together.
const GROUP: usize = 64;

/// Bytes of the index for a key, at most, about.
const INDEX_BYTES: u64 = 16;

/// Makes an anonymous pool for DRAM.
pub type MakePool = Box<dyn Fn() -> Result<Pool<Dram>, terrace_pool::OpenError> + Send + Sync>;

/// Warnings of an open, at most.
const WARNINGS_MAX: usize = 10;

/// What the log has told.
#[derive(Default)]
struct Logged {
    /// Files of large values.
    large: BTreeSet<u64>,
    /// Keys that were removed.
    removed: Vec<Vec<u8>>,
    seqs: unnamed::Logged,
    /// Large values that are damaged, though nothing has torn the log where it names them.
    damaged: Vec<Damaged>,
    /// Up to this position the log is known to have been synced, if that was asked.
    synced: Option<Position>,
}

/// A large value that cannot be read.
struct Damaged {
    key: Vec<u8>,
    seq: u64,
    why: DiskError,
}

/// Keeps the error of a replay, and returns one that ends it.
fn fail(failed: &mut Option<TieredError>, path: &Path, error: TieredError) -> DiskError {
    *failed = Some(error);
    DiskError::corrupt(path, 0, "the log cannot be replayed")
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

/// Why a store could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum TieredError {
    /// A file.
    Disk(DiskError),
    /// DRAM, or the index in it.
    Memory(OpenError),
    /// The pool in DRAM.
    Pool(terrace_pool::OpenError),
    /// The index does not fit into DRAM.
    Dram {
        /// The keys that the store has, at most.
        keys: u64,
        /// Bytes of DRAM that suffice for them.
        enough: u64,
    },
    /// The log has more than fits into DRAM, and the store is only read, so that nothing of it goes
    /// to the tier.
    Log {
        /// Bytes of the log.
        bytes: u64,
    },
    /// What the log has could not be written.
    Write(WriteError),
}

impl std::fmt::Display for TieredError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Disk(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
            Self::Dram { keys, enough } => write!(
                f,
                "the index of its keys has no room, of which there are up to {keys}; {} are enough for these",
                terrace_pool::Bytes(*enough)
            ),
            Self::Log { bytes } => write!(
                f,
                "its log of {} has no room, and a store that is only read flushes nothing; open it for writing \
                 once, or with more",
                terrace_pool::Bytes(*bytes)
            ),
            Self::Write(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TieredError {}

impl From<DiskError> for TieredError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

impl From<WriteError> for TieredError {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

impl From<OpenError> for TieredError {
    fn from(error: OpenError) -> Self {
        Self::Memory(error)
    }
}

/// The probe of a key of which the hashes are known.
fn probe_of(found: &Found) -> [u8; 16] {
    let mut probe = [0; 16];
    probe[..8].copy_from_slice(&found.hash.to_le_bytes());
    probe[8..].copy_from_slice(&found.second.to_le_bytes());
    probe
}

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
        let make: Make = Box::new(move |keys| {
            let pool = make().map_err(TieredError::Pool)?;
            Ok(memory_with::<I>(pool, shares, keys)?)
        });
        let opened = open_blocks(&files, (path, store), &plan)?;
        let mut entries = Entries::of(&opened, plan.cleared_at, (2 * shares.block_bytes()).max(1 << 20));
        // An index that grows while it is filled takes three times as long, and some read what is
        // on the tier. One that does not fit is told of below.
        let keys = settings.expected_keys.max(entries.count_keys()?);
        let memory = make(keys).or_else(|_| make(settings.expected_keys))?;
        let blocks = place_blocks(path, &opened, &memory)?;
        let index_reads = Arc::default();
        crate::tier::cold::read_from(&memory, &blocks, &index_reads);
        let opened = opened.iter();
        // What a crash has lost had numbers, too. They must not come again: blocks are clean up to
        // them.
        let last_of = |block: &Held| block.foot.last_seq.max(block.foot.clean_seq.saturating_sub(1));
        let last_seq = opened.clone().map(last_of).max().unwrap_or(0).max(plan.cleared_at);
        let last_file = opened.map(|block| block.foot.generation).max().unwrap_or(0);
        // Room to seal a block and to rewrite another one, and for the log's records of removals.
        let reserve_bytes = 2 * shares.block_bytes() + settings.segment_bytes / 2;
        let options = LogOptions { segment_bytes: settings.segment_bytes, reserve_bytes };
        let log = Log::unopened(&files, path, store, options).with_ends(ends).within(directory.place());
        let mut tiered = Self {
            files,
            directory,
            memory: ArcSwap::from_pointee(memory),
            make,
            blocks,
            index_reads,
            stripes: Stripes::new(settings.stripes),
            log,
            log_start: 0,
            tail: None,
            next_seq: AtomicU64::new(last_seq + 1),
            seen_seq: AtomicU64::new(0),
            cleared_at: AtomicU64::new(plan.cleared_at),
            is_recovering: AtomicBool::new(true),
            has_left_log: AtomicBool::new(false),
            manifest: Mutex::new(manifest),
            removals: Default::default(),
            watches: Arc::default(),
            flushing: Mutex::default(),
            flushes: Retry::default(),
            rewrites: Retry::default(),
            reorganising: Mutex::default(),
            unsealed: Shortage::default(),
            unreclaimed: Shortage::default(),
            unlogged: Shortage::default(),
            freed: Default::default(),
            freed_lock: Mutex::default(),
            next_file: AtomicU64::new(last_file + 1),
            doomed: Mutex::default(),
            doomed_bytes: AtomicU64::new(0),
            seal_below: AtomicU64::new(0),
            strays: Mutex::default(),
            division: Default::default(),
            divided_at: AtomicU64::new(0),
            swept: Mutex::default(),
            unsynced: RwLock::default(),
            standing: Standing::new(settings.read_only, settings.durability),
            synced_at: AtomicU64::new(settings.clock.now_ms()),
            chance: AtomicU64::new(settings.chance),
            counters: Default::default(),
            warnings: Vec::new(),
            settings,
        };
        match tiered.recover(&plan, entries) {
            Err(TieredError::Write(WriteError::PoolFull { .. } | WriteError::DramFull { .. })) => {
                Err(tiered.needs_dram())
            }
            Err(TieredError::Write(WriteError::ReadOnly)) if tiered.settings.read_only => {
                Err(TieredError::Log { bytes: tiered.log.bytes() })
            }
            recovered => recovered.map(|()| tiered),
        }
    }
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

impl Tiered {
    /// The error of an open whose index has no room.
    fn needs_dram(&self) -> TieredError {
        let of_blocks: u64 = self.all_blocks().map(|block| block.foot.records - block.foot.tombstones).sum();
        // What is in the index already has come from the log, or from the blocks.
        let keys = of_blocks.max(self.memory().index.len());
        TieredError::Dram { keys, enough: (keys * DRAM_PER_KEY).next_multiple_of(1 << 20) }
    }

    /// Recovers while pages leave room for the index of the blocks: without it the log would fill
    /// DRAM, and each key that comes behind would look for memory for the index, and find none.
    fn recover(&mut self, plan: &Plan, entries: Entries) -> Result<(), TieredError> {
        let memory = self.memory.load_full();
        let records: u64 = self.all_blocks().map(|block| block.foot.records).sum();
        let has = crate::engine::figures_of_index(&memory).bytes;
        let left = (records * INDEX_BYTES).saturating_sub(has).min(memory.pages.pool.size() / 2);
        memory.pages.leave_to_index(left);
        let recovered = self.recover_all(plan, entries);
        memory.pages.take_back(left);
        *self.is_recovering.get_mut() = recovered.is_err();
        let logged = recovered?;
        if self.settings.read_only {
            return Ok(());
        }
        if self.settings.durability == Durability::None {
            *self.has_left_log.get_mut() = logged == 0 || self.leave_log()?;
        }
        Ok(())
    }

    /// A store without a log empties that of before, whose writes go to the tier.
    /// Otherwise a later open would find keys there whose removals it does not have. Returns false
    /// if the disk has no room for that.
    fn leave_log(&self) -> Result<bool, WriteError> {
        self.seal_all()?;
        self.remove_strays()?;
        let seq = self.next_seq.fetch_add(1, Relaxed);
        // A record without a write: the log needs nothing that lies before it.
        let left = self.log.append((seq, 1), &[], Need::Reserve).and_then(|end| self.log.sync(end));
        match left.and_then(|()| self.log.release(seq)) {
            Err(DiskError::Full { .. }) => Ok(false),
            left => left.map(|()| true).map_err(|error| self.standing.failed(error)),
        }
    }

    /// Returns how many bytes of writes the log has.
    fn recover_all(&mut self, plan: &Plan, entries: Entries) -> Result<u64, TieredError> {
        let unnamed = unnamed::blocks(&self.files, (self.path(), self.id()), plan)?;
        // Then whatever was written is there.
        let keeps_all = !self.files.outlasts_power();
        let (mut found, mut first_left, mut failed) = (Logged::default(), None, None);
        let mut torn = None;
        let mut each = |record: Record<'_>| {
            let mut take = || {
                let damaged = self.damaged_values(record)?;
                if !damaged.is_empty() && !keeps_all && !self.is_synced(record.end, &mut found)? {
                    torn = damaged.into_iter().next();
                    return Ok(false);
                }
                found.damaged.extend(damaged);
                unnamed::note(&mut found.seqs, &record);
                if first_left.is_none() && !self.replay_record(record, &mut found, false)? {
                    first_left = Some(record.first_seq);
                }
                Ok(true)
            };
            take().map_err(|error| fail(&mut failed, self.path(), error))
        };
        let replayed = replay(&self.files, self.path(), self.id(), &mut each);
        failed.map_or(Ok(()), Err)?;
        let replayed = replayed?;
        let named: Vec<Held> = self.all_blocks().collect();
        let memory = (2 * self.memory().pages.block_bytes()).max(1 << 20);
        let seqs = (found.seqs, plan.cleared_at);
        unnamed::check(&self.files, self.path(), (&named, &unnamed), seqs, memory)?;
        drop((named, unnamed));
        let next_seq = self.next_seq.get_mut();
        *next_seq = (*next_seq).max(replayed.last_seq + 1);
        // What is found here is durable from now on: large values before the log that names them.
        self.sync_large()?;
        self.log.start(&replayed, self.settings.read_only)?;
        if !self.settings.read_only {
            // An earlier life may have kept more. Where it fails, there is less room.
            let _ = self.log.reserve().fit(0);
        }
        (self.log_start, self.tail) = (self.log.end(), replayed.tail);
        if let Some(first) = first_left {
            if self.settings.read_only {
                return Err(WriteError::ReadOnly.into());
            }
            self.replay_rest(first, &mut found)?;
        }
        found.large.extend(self.take_entries(entries)?);
        self.drop_tombstones(found.removed)?;
        if !self.settings.read_only {
            self.remove_leftovers(plan, &found.large)?;
        }
        let last = found.large.last().map_or(0, |number| number + 1);
        self.next_file.fetch_max(last, Relaxed);
        self.warnings = self.warnings_of(found.damaged, torn)?;
        Ok(replayed.bytes)
    }

    /// What a user has to know of damaged large values: those of present keys, and the one at which
    /// the log was torn.
    fn warnings_of(&self, damaged: Vec<Damaged>, torn: Option<Damaged>) -> Result<Vec<String>, WriteError> {
        let (mut warnings, mut more) = (Vec::new(), 0);
        let shown = |key: &[u8]| key.escape_ascii().take(64).map(char::from).collect::<String>();
        if let Some(Damaged { key, seq, why }) = torn {
            let key = shown(&key);
            warnings.push(format!(
                "the log ends before write {seq}, of the key `{key}`, as after a loss of power: {why}"
            ));
        }
        for Damaged { key, seq, why } in damaged {
            let memory = self.memory.load_full();
            let here = Here::enter(&memory)?;
            let present = self.old_to_replace(&here, &self.probe(&key))?;
            if present.is_none_or(|present| present.copied.seq != seq) {
                continue;
            }
            if warnings.len() < WARNINGS_MAX {
                warnings.push(format!(
                    "the value of the key `{}` cannot be read until it is replaced: {why}",
                    shown(&key)
                ));
            } else {
                more += 1;
            }
        }
        if more > 0 {
            warnings.push(format!("and {more} values more; `terrace check` names them"));
        }
        Ok(warnings)
    }

    /// Whether the log is known to have been synced up to the position `end`, behind a record.
    fn is_synced(&self, end: Position, found: &mut Logged) -> Result<bool, DiskError> {
        let synced = match found.synced {
            Some(synced) => synced,
            // Later parts tell it. Damage among them ends this replay, as it ends the outer one.
            None => replay(&self.files, self.path(), self.id(), &mut |_| Ok(true))?.synced,
        };
        found.synced = Some(synced);
        Ok(end <= synced)
    }

    /// Replays what did not fit into DRAM. Blocks are sealed meanwhile: only now it is known that
    /// no record is a torn tail's.
    fn replay_rest(&self, first: u64, found: &mut Logged) -> Result<(), TieredError> {
        let mut failed = None;
        let mut each = |record: Record<'_>| {
            if record.first_seq < first {
                return Ok(true);
            }
            self.replay_record(record, found, true).map_err(|error| fail(&mut failed, self.path(), error))
        };
        let replayed = replay(&self.files, self.path(), self.id(), &mut each);
        failed.map_or(Ok(()), Err)?;
        replayed.map(drop).map_err(TieredError::from)
    }

    /// Puts the writes of a record of the log into DRAM. Returns false if there is no room, unless
    /// it `may_flush`.
    fn replay_record(
        &self,
        record: Record<'_>,
        found: &mut Logged,
        may_flush: bool,
    ) -> Result<bool, TieredError> {
        for (draft, seq) in read_drafts(record.payload).zip(record.first_seq..) {
            let what = "a record of the log is none of this engine";
            let draft = draft.ok_or_else(|| DiskError::corrupt(self.path(), 0, what))?;
            if seq < self.cleared_at.load(Relaxed) {
                continue;
            }
            let mut new = New::small(draft);
            let mut shape = new.shape(draft.key.len());
            if let Some((large, len)) = large::reference_in(&draft, self.path())? {
                found.large.insert(large.number);
                new.large = Some(large);
                shape = Shape { value_len: len, kind: Kind::Large, ..shape };
            }
            if matches!(draft.content, Content::Tombstone) {
                found.removed.push(draft.key.to_vec());
            }
            if !self.replay_write(&new, shape, seq, may_flush)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The large values that a record of the log names and that cannot be read: a loss of power may
    /// keep the record of a write that was not synced, and not its value.
    fn damaged_values(&self, record: Record<'_>) -> Result<Vec<Damaged>, TieredError> {
        let (mut damaged, cleared_at) = (Vec::new(), self.cleared_at.load(Relaxed));
        let drafts = read_drafts(record.payload).zip(record.first_seq..);
        for (draft, seq) in drafts.filter(|(_, seq)| *seq >= cleared_at) {
            let what = "a record of the log is none of this engine";
            let draft = draft.ok_or_else(|| DiskError::corrupt(self.path(), 0, what))?;
            if let Some((large, len)) = large::reference_in(&draft, self.path())? {
                match large::read(&self.files, self.path(), large, len) {
                    // Its file was synced before its record was.
                    Ok(Some(_)) if record.end <= record.synced => {}
                    Ok(Some(value)) => self.renew_large(large, &value)?,
                    Ok(None) => {
                        let why = self.missing_large(&large.to_bytes());
                        damaged.push(Damaged { key: draft.key.into(), seq, why });
                    }
                    Err(why @ DiskError::Corrupt { .. }) => {
                        damaged.push(Damaged { key: draft.key.into(), seq, why });
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(damaged)
    }

    fn replay_write(
        &self,
        new: &New<'_>,
        shape: Shape,
        seq: u64,
        may_flush: bool,
    ) -> Result<bool, TieredError> {
        let probe = self.probe(new.draft.key);
        let write = || {
            let memory = self.memory();
            let here = Here::enter(&memory)?;
            // Before blocks were sealed here, no cold record is in the index.
            let old = self.old_to_replace(&here, &probe)?;
            if let Some(old) = old.as_ref().filter(|old| old.copied.seq >= seq) {
                let dead = new.large.filter(|_| old.copied.seq > seq);
                dead.iter().for_each(|large| self.doom_large(*large, seq, shape.value_len));
                return Ok(());
            }
            if let Some(record) = old.as_ref().and_then(|old| self.in_place(&here, old, new, shape))
                && shape.kind == Kind::Value
            {
                let Content::Put { value, expires_at } = new.draft.content else { unreachable!("a value") };
                store_in_place(
                    &here,
                    record,
                    &crate::space::record::Record { shape, seq, expires_at, probe: &probe, inline: value },
                );
            } else {
                let room = self.stage(&here, (seq, shape), &probe, new)?;
                let from = old.as_ref().map(|old| old.address);
                self.swap(&here, &probe, (from, Some(room.address)))
                    .inspect_err(|_| self.waste(&here, &room))?;
                room.record.unlock(&here.guard, seq);
                old.iter().for_each(|old| self.bury(&here, old));
            }
            if let Some(old) = &old {
                self.uncount(old.copied.shape);
                self.doom_old(&old.copied, new);
            }
            self.count_in(shape);
            Ok::<_, Stuck>(())
        };
        if may_flush {
            self.with_room(Need::Room, write)?;
            return Ok(true);
        }
        match write() {
            Ok(()) => Ok(true),
            Err(Stuck::NoRoom(..) | Stuck::Failed(WriteError::PoolFull { .. })) => Ok(false),
            Err(Stuck::Failed(error)) => Err(error.into()),
        }
    }

    /// Puts the newest records of all blocks into the index. Returns the numbers of large values.
    fn take_entries(&self, mut entries: Entries) -> Result<Vec<u64>, TieredError> {
        let memory = self.memory.load_full();
        let of_blocks =
            self.all_blocks().filter(|block| block.foot.last_seq >= self.cleared_at.load(Relaxed));
        // At most: dead ones count, too.
        self.counters.expiring.fetch_add(of_blocks.map(|block| block.foot.expiring).sum(), Relaxed);
        while let Some(part) = entries.next_part()? {
            for group in part.chunks(GROUP) {
                // The records of the log may have all DRAM. What has been taken is taken as it is.
                self.with_room(Need::Room, || {
                    let here = Here::enter_by_hashes(&memory)?;
                    Ok(self.take_group(&here, group)?)
                })?;
            }
        }
        for (&number, &bytes) in &entries.dead {
            memory.dead(number).fetch_add(bytes, Relaxed);
        }
        Ok(entries.finish()?)
    }

    /// Takes some keys, whose places in the index are asked for together. Few are there already.
    fn take_group(&self, here: &Here<'_>, group: &[Found]) -> Result<(), WriteError> {
        let probes: Vec<[u8; 16]> = group.iter().map(probe_of).collect();
        let keys: Vec<&[u8]> = probes.iter().map(|probe| &probe[..]).collect();
        let mut is_there = [false; GROUP];
        here.search.forget();
        here.index().get_many(&here.guard, &keys, &mut |nth, word| is_there[nth] = word.is_some());
        let is_sure = here.search.take_met().is_none();
        let map = here.map();
        for ((found, probe), is_there) in group.iter().zip(&probes).zip(is_there) {
            if is_sure && !is_there {
                if found.is_tombstone {
                    continue;
                }
                let to = map.address(found.block.into(), found.offset.into());
                let swapped = here.index().compare_and_swap(&here.guard, probe, None, Some(to))?;
                // What it has met is another key's: it came with this group.
                here.search.take_met();
                if swapped == Swapped::Done {
                    self.counters.data.fetch_add(found.bytes(), Relaxed);
                    continue;
                }
            }
            here.search.forget();
            self.take_newest(here, found)?;
        }
        Ok(())
    }

    /// Takes the newest version of a key among those of the blocks, unless DRAM has a newer one.
    fn take_newest(&self, here: &Here<'_>, newest: &Found) -> Result<(), WriteError> {
        let probe = probe_of(newest);
        let own = here.map().address(newest.block.into(), newest.offset.into());
        let dead = here.memory.dead(newest.block.into());
        let to = (!newest.is_tombstone).then_some(own);
        let (word, read) = self.look_up(here, &probe)?;
        let Some(address) = word else {
            if to.is_some() {
                self.swap(here, &probe, (None, to))?;
                self.counters.data.fetch_add(newest.bytes(), Relaxed);
            }
            return Ok(());
        };
        if address == own {
            return Ok(());
        }
        let (shape, seq, bytes) = match here.record(address) {
            Some(record) => {
                let (shape, seq) = record.head(&here.guard);
                (shape, seq, record.room(&here.guard))
            }
            // It was sealed while the log was replayed.
            None => {
                let read = self.copy(here, address, read)?;
                let copied = read.ok_or_else(|| self.missing(here.map(), address))?;
                (copied.shape, copied.seq, copied.shape.size())
            }
        };
        if seq > newest.seq {
            dead.fetch_add(newest.bytes(), Relaxed);
        } else {
            // The same write, or an older one.
            self.swap(here, &probe, (Some(address), to))?;
            here.dead_of(address).fetch_add(bytes as u64, Relaxed);
            if to.is_none() {
                self.uncount(shape);
            }
        }
        Ok(())
    }

    /// Takes the tombstones of removed keys out of the index.
    fn drop_tombstones(&self, removed: Vec<Vec<u8>>) -> Result<(), WriteError> {
        let memory = self.memory.load_full();
        for key in removed {
            let here = Here::enter(&memory)?;
            let probe = self.probe(&key);
            if let Some(old) = self.old_to_replace(&here, &probe)?
                && old.copied.shape.kind == Kind::Tombstone
            {
                self.swap(&here, &probe, (Some(old.address), None))?;
            }
        }
        Ok(())
    }

    /// Removes the files that neither the manifest nor a record names: a crash has left them.
    fn remove_leftovers(&self, plan: &Plan, large: &BTreeSet<u64>) -> Result<(), DiskError> {
        let is_left = |name: &str| {
            let block = block::numbers_of(name);
            let is_unknown = |name: Name| {
                let known = self.block(name.0).map(|block| block.name());
                !plan.blocks.contains_key(&name) && known != Some(name)
            };
            block.is_some_and(is_unknown)
                || large::number_of(name).is_some_and(|number| !large.contains(&number))
        };
        let left = |name: &str| is_left(name).then(|| self.path().join(name));
        for path in list_files(&self.files, self.path(), left)? {
            self.files.remove(&path).map_err(DiskError::room("remove", &path))?;
        }
        Ok(())
    }
}
