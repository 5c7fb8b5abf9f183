//! Opening a store: the manifest gives the structure, the log the items that no table has.

use crate::engine::Wip;
use crate::jobs::Jobs;
use crate::jobs::refill::{refill, refill_rest};
use crate::memtable::MemTable;
use crate::state::bell::Bell;
use crate::state::edit::{Edit, NewBucket};
use crate::state::store::{Counters, Settings, Store, Writer};
use crate::state::structure::Structure;
use crate::state::table::LEVELS;
use crate::state::table::{self, Table};
use crate::state::{Bucket, State};
use arc_swap::ArcSwap;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use terrace_disk::{Directory, DiskError, Ends, Identity, Log, LogOptions, Manifest, TableCache, list_files};
use terrace_engine::Standing;
use terrace_medium::files::Files;

/// The engine's name in the identity of a directory.
pub const NAME: &str = "wip";

/// What the edits of a manifest add up to.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) cleared_at: u64,
    buckets: BTreeMap<u64, Planned>,
    written: u64,
    /// The highest number of a bucket or a table.
    last_number: u64,
}

#[derive(Default)]
struct Planned {
    low: Vec<u8>,
    parent: Option<u64>,
    flushed: u64,
    /// Numbers and bytes of tables, by level, the oldest first.
    levels: [Vec<(u64, u64)>; LEVELS],
}

impl Plan {
    pub(crate) fn add(&mut self, edit: Edit) -> Result<(), &'static str> {
        if let Some(seq) = edit.cleared {
            (self.cleared_at, self.buckets) = (seq, BTreeMap::new());
        }
        for NewBucket { id, low, parent } in edit.buckets {
            self.last_number = self.last_number.max(id);
            let flushed = parent.and_then(|id| self.buckets.get(&id)).map_or(0, |parent| parent.flushed);
            self.buckets.insert(id, Planned { low, parent, flushed, ..Planned::default() });
        }
        let removed: BTreeSet<u64> = edit.removed.into_iter().collect();
        if !removed.is_empty() {
            let levels = self.buckets.values_mut().flat_map(|bucket| &mut bucket.levels);
            levels.for_each(|tables| tables.retain(|(number, _)| !removed.contains(number)));
        }
        for id in edit.ended {
            self.buckets.remove(&id).ok_or("an edit ends a bucket that does not exist")?;
            for child in self.buckets.values_mut().filter(|bucket| bucket.parent == Some(id)) {
                child.parent = None;
            }
        }
        for added in edit.added {
            self.last_number = self.last_number.max(added.number);
            let bucket = self.buckets.get_mut(&added.bucket);
            let bucket = bucket.ok_or("an edit adds a table to a bucket that does not exist")?;
            let tables = &mut bucket.levels[added.level];
            let place = if added.is_oldest { 0 } else { tables.len() };
            tables.insert(place, (added.number, added.bytes));
        }
        for (id, seq) in edit.flushed {
            if let Some(bucket) = self.buckets.get_mut(&id) {
                bucket.flushed = seq;
            }
        }
        self.written = edit.written.max(self.written);
        Ok(())
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = u64> {
        let levels = self.buckets.values().flat_map(|bucket| &bucket.levels);
        levels.flat_map(|tables| tables.iter().map(|(number, _)| *number))
    }
}

/// Reads the manifest into a plan.
fn read_plan(
    files: &Arc<dyn Files>,
    path: &Path,
    store: u64,
    is_read_only: bool,
) -> Result<(Plan, Option<Manifest>), DiskError> {
    let mut plan = Plan::default();
    let mut each = |bytes: &[u8]| {
        let added = Edit::read(bytes).ok_or("it is none").and_then(|edit| plan.add(edit));
        added.map_err(|what| DiskError::Corrupt { path: path.into(), offset: 0, what })
    };
    let manifest = Manifest::open_or_read(files, path, store, is_read_only, &mut each)?;
    Ok((plan, manifest))
}

impl Wip {
    /// Creates an empty store in the directory at `path`.
    ///
    /// # Errors
    /// There is one already, or something else, or it cannot be created.
    pub fn create(
        files: impl Into<Arc<dyn Files>>,
        path: &Path,
        settings: Settings,
    ) -> Result<Self, DiskError> {
        let files = files.into();
        let identity = Identity::new(NAME, settings.chance | 1);
        let first = Edit {
            cleared: Some(1),
            buckets: vec![NewBucket { id: 1, low: Vec::new(), parent: None }],
            ..Edit::default()
        };
        let begin = |directory: &Path| {
            Manifest::create(&files, directory, identity.store, &[first.to_bytes()]).map(drop)
        };
        drop(Directory::create(&files, path, &identity, begin)?);
        Self::open(files, path, settings)
    }

    /// Whether there is a store in the directory at `path`.
    pub fn exists(files: &Arc<dyn Files>, path: &Path) -> Result<bool, DiskError> {
        Directory::exists(files, path)
    }

    /// Opens the store in the directory at `path`.
    ///
    /// # Errors
    /// There is none, another process has it open, or a file is damaged.
    pub fn open(
        files: impl Into<Arc<dyn Files>>,
        path: &Path,
        settings: Settings,
    ) -> Result<Self, DiskError> {
        Self::open_on(files.into(), path, settings)
    }

    fn open_on(files: Arc<dyn Files>, path: &Path, settings: Settings) -> Result<Self, DiskError> {
        let store = store_on(files, path, settings)?;
        let synced_at = AtomicU64::new(store.settings.clock.now_ms());
        let (jobs, owed) = (Jobs::default(), AtomicU64::new(0));
        let mut wip = Self { store, jobs, log_start: 0, tail: None, synced_at, owed };
        wip.start()?;
        Ok(wip)
    }
}

/// The store in a directory, with empty MemTables and a log that is not open yet.
fn store_on(files: Arc<dyn Files>, path: &Path, settings: Settings) -> Result<Store, DiskError> {
    let directory = Directory::open(&files, path, NAME, settings.read_only)?;
    let store = directory.identity().store;
    let (plan, mut manifest) = read_plan(&files, path, store, settings.read_only)?;
    let ends = Ends::beside(manifest.as_mut(), &files, path, store)?;
    let cache = TableCache::new(settings.memory / 2);
    let chance = AtomicU64::new(settings.chance);
    if !settings.read_only {
        remove_leftovers(&files, path, &plan)?;
    }
    let state = state_of(&files, (path, store), &plan, &settings, &cache, &chance)?;
    let options =
        LogOptions { segment_bytes: settings.segment_bytes, reserve_bytes: settings.reserve_bytes() };
    let log = Log::unopened(&files, path, store, options).with_ends(ends).within(directory.place());
    let in_tables = plan.cleared_at.max(last_seq(&state));
    let tables = AtomicU64::new(plan.written);
    let counters = Counters { tables, tables_before: plan.written, ..Counters::default() };
    let writer = Writer { next_seq: in_tables + 1, heads: Vec::new() };
    Ok(Store {
        files,
        directory,
        cache,
        log,
        appended: AtomicU64::new(0),
        state: ArcSwap::from_pointee(state),
        visible: AtomicU64::new(in_tables),
        cleared_at: AtomicU64::new(plan.cleared_at),
        snapshots: Default::default(),
        removals: Default::default(),
        watches: Arc::default(),
        bell: Bell::default(),
        structure: Structure::new(manifest, plan.last_number + 1),
        writer: Mutex::new(writer),
        standing: Standing::new(settings.read_only, settings.durability),
        chance,
        refilled: AtomicU64::new(u64::MAX),
        counters,
        settings,
    })
}

impl Wip {
    /// Takes what the log has, and begins to write to it.
    fn start(&mut self) -> Result<(), DiskError> {
        let (replayed, first_left) = refill(&self.store)?;
        self.store.log.start(&replayed, self.store.settings.read_only)?;
        if !self.store.settings.read_only {
            self.store.fit_reserve();
        }
        (self.log_start, self.tail) = (self.store.log.end(), replayed.tail);
        let last_seq = replayed.last_seq.max(self.store.visible.load(Relaxed));
        self.store.visible.store(last_seq, Relaxed);
        self.store.writer().next_seq = last_seq + 1;
        first_left.map_or(Ok(()), |first| refill_rest(&self.store, &self.jobs, first, replayed.records))
    }
}

/// Removes tables that no edit names: a crash has left them.
fn remove_leftovers(files: &Arc<dyn Files>, path: &Path, plan: &Plan) -> Result<(), DiskError> {
    let known: BTreeSet<u64> = plan.tables().collect();
    let left = |name: &str| table::number_of(name).filter(|number| !known.contains(number));
    for number in list_files(files, path, left)? {
        let path = table::path_of(path, number);
        files.remove(&path).map_err(DiskError::room("remove", &path))?;
    }
    Ok(())
}

/// The state that the plan describes, with empty MemTables.
fn state_of(
    files: &Arc<dyn Files>,
    (path, store): (&Path, u64),
    plan: &Plan,
    settings: &Settings,
    cache: &Arc<TableCache>,
    chance: &AtomicU64,
) -> Result<State, DiskError> {
    let corrupt = |what| DiskError::Corrupt { path: path.into(), offset: 0, what };
    let mut built: BTreeMap<u64, Arc<Bucket>> = BTreeMap::new();
    let is_parent = |id: u64| plan.buckets.values().any(|bucket| bucket.parent == Some(id));
    // Parents have lower numbers than their children.
    for (&id, planned) in &plan.buckets {
        let freeze_at = settings.memtable_bytes;
        let seed = terrace_engine::mix(chance.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed));
        let mut bucket = Bucket::new(id, &planned.low, (MemTable::new(seed), freeze_at), planned.flushed);
        for (level, tables) in planned.levels.iter().enumerate() {
            for &(number, bytes) in tables {
                let table = Table::open(files, path, store, number, bytes, cache)?;
                bucket.levels[level].tables.push(Arc::new(table));
            }
        }
        if let Some(parent) = planned.parent {
            let parent =
                built.get(&parent).ok_or_else(|| corrupt("a bucket has a parent that does not exist"))?;
            bucket.parent = Some(Arc::clone(parent));
        }
        built.insert(id, Arc::new(bucket));
    }
    let mut buckets: Vec<_> = built.into_values().filter(|bucket| !is_parent(bucket.id)).collect();
    buckets.sort_by(|one, other| one.low.cmp(&other.low));
    let is_whole = buckets.first().is_some_and(|first| first.low.is_empty())
        && buckets.is_sorted_by(|one, next| one.low < next.low);
    if is_whole { Ok(State::new(buckets)) } else { Err(corrupt("the buckets do not cover all keys")) }
}

/// The highest sequence number that tables have, or that a bucket counts as flushed. After a crash
/// the log may lack some of them; a new item with such a number would count as flushed, too.
fn last_seq(state: &State) -> u64 {
    let tables = state.all().flat_map(|bucket| bucket.tables());
    let in_tables = tables.map(|(_, table)| table.properties().seqs.1);
    let flushed = state.all().map(|bucket| bucket.flushed.saturating_sub(1));
    in_tables.chain(flushed).max().unwrap_or(0)
}
