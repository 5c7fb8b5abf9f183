//! Merges of tables, step by step.

use crate::jobs::output::{Placed, Written, discard, open_tables};
use crate::state::edit::{Added, Edit};
use crate::state::store::Store;
use crate::state::table::{self, LEVELS, Table};
use crate::state::{Bucket, State};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use terrace_disk::{DiskError, Kept, Merge, TableCursor, TableWriter};
use terrace_engine::WriteError;
use terrace_medium::files::StoredFile;

/// Bytes that a step reads, about.
const STEP: u64 = 1 << 20;

type Cursor = TableCursor<'static>;

/// The items of a merge.
type Items = Kept<Merge<Cursor>>;

/// A merge that was begun.
pub(crate) struct Merging {
    bucket: Arc<Bucket>,
    what: What,
    inputs: Vec<Arc<Table>>,
    /// `None` before the first step.
    items: Option<Items>,
    output: Option<Output>,
    outputs: Vec<Written>,
}

enum What {
    /// All tables of this level.
    Level(usize),
    /// All tables of the bucket.
    Whole,
    /// All tables of a parent, for its children: their ids and lowest keys.
    Division(Vec<(u64, Arc<[u8]>)>),
}

/// A table that is being written.
struct Output {
    number: u64,
    path: PathBuf,
    file: Arc<dyn StoredFile>,
    writer: TableWriter<'static>,
    /// The bucket that it comes to, and that bucket's place among the children.
    bucket: u64,
    nth: usize,
}

impl Merging {
    pub(crate) fn of_level(bucket: &Arc<Bucket>, level: usize) -> Self {
        assert!(level < LEVELS, "a level of a bucket");
        let inputs = bucket.levels[level].tables.clone();
        Self::new(bucket, What::Level(level), inputs)
    }

    pub(crate) fn whole(bucket: &Arc<Bucket>) -> Self {
        let inputs = bucket.tables().map(|(_, table)| Arc::clone(table)).collect();
        Self::new(bucket, What::Whole, inputs)
    }

    pub(crate) fn division(parent: &Arc<Bucket>, children: Vec<(u64, Arc<[u8]>)>) -> Self {
        assert!(!children.is_empty(), "a parent stays as long as it has children");
        debug_assert!(children.is_sorted_by(|one, next| one.1 < next.1), "children are in order");
        let inputs = parent.tables().map(|(_, table)| Arc::clone(table)).collect();
        Self::new(parent, What::Division(children), inputs)
    }

    fn new(bucket: &Arc<Bucket>, what: What, inputs: Vec<Arc<Table>>) -> Self {
        Self { bucket: Arc::clone(bucket), what, inputs, items: None, output: None, outputs: Vec::new() }
    }

    pub(crate) fn bucket_id(&self) -> u64 {
        self.bucket.id
    }

    /// The level that the merge writes to.
    fn level(&self) -> usize {
        match self.what {
            What::Level(level) => (level + 1).min(LEVELS - 1),
            What::Whole | What::Division(_) => LEVELS - 1,
        }
    }

    /// Whether nothing older lies behind the merged tables.
    fn is_last(&self) -> bool {
        match self.what {
            What::Level(level) => {
                let behind = self.bucket.levels[level + 1..].iter().map(|level| level.tables.len());
                behind.sum::<usize>() == 0 && self.bucket.parent.is_none()
            }
            What::Whole => self.bucket.parent.is_none(),
            What::Division(_) => true,
        }
    }

    /// Whether it is small beside the other kinds, which must not hold it up.
    pub(crate) fn is_small(&self) -> bool {
        matches!(self.what, What::Level(level) if level + 1 < LEVELS)
    }

    /// The bucket of an item's key, its place, and the first key behind it.
    fn target(&self, key: &[u8]) -> (u64, usize) {
        match &self.what {
            What::Level(_) | What::Whole => (self.bucket.id, 0),
            What::Division(children) => {
                let nth = children.partition_point(|(_, low)| **low <= *key).max(1) - 1;
                (children[nth].0, nth)
            }
        }
    }

    /// Whether a key lies behind the bucket with this place.
    fn is_behind(&self, nth: usize, key: &[u8]) -> bool {
        match &self.what {
            What::Level(_) | What::Whole => false,
            What::Division(children) => children.get(nth + 1).is_some_and(|(_, low)| **low <= *key),
        }
    }
}

impl Merging {
    /// Goes on with a merge. Returns whether it is done. After an error its tables are removed.
    pub(crate) fn go_on(&mut self, store: &Store) -> Result<bool, WriteError> {
        let done = self.merge_some(store);
        if !matches!(done, Ok(false)) {
            // Those that are in use by now are spared.
            self.remove_unused(store);
        }
        done
    }

    fn merge_some(&mut self, store: &Store) -> Result<bool, WriteError> {
        store.standing.check_writable()?;
        if self.items.is_none() {
            self.items = Some(self.begin_merge(store)?);
        }
        let mut left = STEP;
        while left > 0 {
            let items = self.items.as_ref().expect("begun above");
            let Some(item) = items.item() else {
                self.end_output(store)?;
                self.install(store)?;
                return Ok(true);
            };
            if self.output.as_ref().is_some_and(|output| self.is_behind(output.nth, item.key)) {
                self.end_output(store)?;
                continue;
            }
            if self.output.is_none() {
                let (bucket, nth) = self.target(item.key);
                self.output = Some(Self::begin_output(store, bucket, nth, self.level())?);
            }
            let items = self.items.as_mut().expect("begun above");
            let output = self.output.as_mut().expect("begun above");
            let item = items.item().expect("seen above");
            output.writer.add(&item)?;
            left = left.saturating_sub(item.bytes() as u64 + 16);
            items.next()?;
        }
        store.counters.merged.fetch_add(STEP, Relaxed);
        Ok(false)
    }

    fn begin_merge(&self, store: &Store) -> Result<Items, WriteError> {
        let cursors = self.inputs.iter().map(|table| table.reader().cursor_for_merge());
        let merge = Merge::new(cursors.collect());
        let snapshots = store.snapshots.in_use(&store.visible);
        let mut kept = Kept::new(merge, snapshots, self.is_last(), store.settings.clock.now_ms());
        kept.seek_first()?;
        Ok(kept)
    }

    fn begin_output(store: &Store, bucket: u64, nth: usize, level: usize) -> Result<Output, WriteError> {
        let number = store.structure.number();
        store.standing.check_place(&store.directory)?;
        let path = table::path_of(store.path(), number);
        let file = store.files.create(&path).map_err(DiskError::room("create", &path))?;
        let options = table::options_of(level, store.settings.compress, store.id());
        let file = Arc::from(file);
        let writer = TableWriter::shared(&file, &path, number, options);
        Ok(Output { number, path, file, writer, bucket, nth })
    }

    fn end_output(&mut self, store: &Store) -> Result<(), WriteError> {
        let Some(output) = self.output.take() else { return Ok(()) };
        let Output { number, path, file, writer, bucket, .. } = output;
        // Noted first, so that it is removed if something fails.
        self.outputs.push(Written { number, bytes: 0, bucket });
        writer.finish()?;
        file.sync_data().map_err(DiskError::room("sync", &path))?;
        let bytes = file.length().map_err(DiskError::room("read", &path))?;
        self.outputs.last_mut().expect("just pushed").bytes = bytes;
        store.counters.tables.fetch_add(bytes, Relaxed);
        Ok(())
    }

    /// Puts the written tables in the place of the merged ones.
    fn install(&mut self, store: &Store) -> Result<(), WriteError> {
        assert!(self.output.is_none(), "the last table was ended");
        let tables = open_tables(store, &self.outputs)?;
        let level = self.level();
        // All other merges take all tables of the level that they write to. What may have come in
        // front meanwhile is a division's, so it is older.
        let is_oldest = matches!(self.what, What::Division(_));
        let mut edit = Edit {
            added: tables.iter().map(|(to, table)| Added::of(*to, level, table, is_oldest)).collect(),
            removed: self.inputs.iter().map(|table| table.number).collect(),
            written: store.counters.tables.load(Relaxed),
            ..Edit::default()
        };
        if let What::Division(_) = self.what {
            edit.ended.push(self.bucket.id);
        }
        let mut manifest = store.structure.lock();
        if !self.is_present(store) {
            // The store was cleared.
            return Ok(());
        }
        store.write_edit(&mut manifest, &edit)?;
        store.structure.change(&store.state, |state| match &self.what {
            What::Level(from) => Some(replaced(state, self, *from..=*from, level, &tables)),
            What::Whole => Some(replaced(state, self, 0..=level, level, &tables)),
            What::Division(_) => Some(divided(state, self, level, &tables)),
        });
        self.inputs.iter().for_each(|table| table.remove());
        self.outputs.clear();
        store.counters.compactions.fetch_add(1, Relaxed);
        Ok(())
    }

    fn is_present(&self, store: &Store) -> bool {
        let state = store.state.load();
        match self.what {
            What::Level(_) | What::Whole => state.position(self.bucket.id).is_some(),
            What::Division(_) => state.parents().any(|parent| parent.id == self.bucket.id),
        }
    }

    /// Removes the tables that were written and did not come into use.
    fn remove_unused(&mut self, store: &Store) {
        let begun = self.output.take().map(|output| output.number);
        for number in self.outputs.drain(..).map(|written| written.number).chain(begun) {
            discard(store, number);
        }
    }
}

/// The state with the outputs in the place of the inputs.
fn replaced(
    state: &State,
    merging: &Merging,
    from: RangeInclusive<usize>,
    to: usize,
    tables: &[Placed],
) -> State {
    let nth = state.position(merging.bucket.id).expect("no other thread removes it: it has a job");
    let mut bucket = Bucket::clone(&state.buckets[nth]);
    let is_input = |table: &Arc<Table>| merging.inputs.iter().any(|input| input.number == table.number);
    for level in &mut bucket.levels[from] {
        level.tables.retain(|table| !is_input(table));
        level.reads.store(0, Relaxed);
    }
    // What is left in that level is older: a merge into it takes all its tables, or none.
    bucket.levels[to].tables.extend(tables.iter().map(|(_, table)| Arc::clone(table)));
    state.with(bucket)
}

/// The state without the parent, with the outputs as the oldest tables of its children.
fn divided(state: &State, merging: &Merging, level: usize, tables: &[Placed]) -> State {
    let is_child =
        |bucket: &Bucket| bucket.parent.as_ref().is_some_and(|parent| parent.id == merging.bucket.id);
    let buckets = state.buckets.iter().map(|bucket| {
        if !is_child(bucket) {
            return Arc::clone(bucket);
        }
        let mut child = Bucket::clone(bucket);
        let parent = child.parent.take().expect("a child has it");
        child.passed = child.passed.max(parent.passed);
        let own = tables.iter().filter(|(to, _)| *to == child.id).map(|(_, table)| Arc::clone(table));
        child.levels[level].tables.splice(0..0, own);
        Arc::new(child)
    });
    State::new(buckets.collect())
}
