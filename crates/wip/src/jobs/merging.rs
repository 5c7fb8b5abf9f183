//! Merges of tables, step by step.

use crate::state::edit::{Added, Edit};
use crate::state::store::Wip;
use crate::state::table::{self, Table};
use crate::state::{Bucket, LEVELS, State};
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

/// A table and the bucket that it comes to.
pub(crate) type Placed = (u64, Arc<Table>);

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

/// A table that was written.
pub(crate) struct Written {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) bucket: u64,
}

impl Merging {
    pub(crate) fn of_level(bucket: &Arc<Bucket>, level: usize) -> Self {
        let inputs = bucket.levels[level].tables.clone();
        Self::new(bucket, What::Level(level), inputs)
    }

    pub(crate) fn whole(bucket: &Arc<Bucket>) -> Self {
        let inputs = bucket.tables().map(|(_, table)| Arc::clone(table)).collect();
        Self::new(bucket, What::Whole, inputs)
    }

    pub(crate) fn division(parent: &Arc<Bucket>, children: Vec<(u64, Arc<[u8]>)>) -> Self {
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

impl Wip {
    /// Goes on with a merge. Returns whether it is done. After an error its tables are removed.
    pub(crate) fn go_on(&self, merging: &mut Merging) -> Result<bool, WriteError> {
        let done = self.merge_some(merging);
        if !matches!(done, Ok(false)) {
            // Those that are in use by now are spared.
            self.remove_unused(merging);
        }
        done
    }

    fn merge_some(&self, merging: &mut Merging) -> Result<bool, WriteError> {
        self.standing.check_writable()?;
        if merging.items.is_none() {
            merging.items = Some(self.begin_merge(merging)?);
        }
        let mut left = STEP;
        while left > 0 {
            let items = merging.items.as_ref().expect("begun above");
            let Some(item) = items.item() else {
                self.end_output(merging)?;
                self.install(merging)?;
                return Ok(true);
            };
            if merging.output.as_ref().is_some_and(|output| merging.is_behind(output.nth, item.key)) {
                self.end_output(merging)?;
                continue;
            }
            if merging.output.is_none() {
                let (bucket, nth) = merging.target(item.key);
                merging.output = Some(self.begin_output(bucket, nth, merging.level())?);
            }
            let items = merging.items.as_mut().expect("begun above");
            let output = merging.output.as_mut().expect("begun above");
            let item = items.item().expect("seen above");
            output.writer.add(&item)?;
            left = left.saturating_sub(item.bytes() as u64 + 16);
            items.next()?;
        }
        self.counters.merged.fetch_add(STEP, Relaxed);
        Ok(false)
    }

    fn begin_merge(&self, merging: &Merging) -> Result<Items, WriteError> {
        let cursors = merging.inputs.iter().map(|table| table.reader().cursor_for_merge());
        let merge = Merge::new(cursors.collect());
        let snapshots = self.snapshots.in_use(&self.visible);
        let mut kept = Kept::new(merge, snapshots, merging.is_last(), self.settings.clock.now_ms());
        kept.seek_first()?;
        Ok(kept)
    }

    fn begin_output(&self, bucket: u64, nth: usize, level: usize) -> Result<Output, WriteError> {
        let number = self.structure.number();
        self.standing.check_place(&self.directory)?;
        let path = table::path_of(self.path(), number);
        let file = self.files.create(&path).map_err(DiskError::room("create", &path))?;
        let options = table::options_of(level, self.settings.compress, self.id());
        let file = Arc::from(file);
        let writer = TableWriter::shared(&file, &path, number, options);
        Ok(Output { number, path, file, writer, bucket, nth })
    }

    fn end_output(&self, merging: &mut Merging) -> Result<(), WriteError> {
        let Some(output) = merging.output.take() else { return Ok(()) };
        let Output { number, path, file, writer, bucket, .. } = output;
        // Noted first, so that it is removed if something fails.
        merging.outputs.push(Written { number, bytes: 0, bucket });
        writer.finish()?;
        file.sync_data().map_err(DiskError::room("sync", &path))?;
        let bytes = file.length().map_err(DiskError::room("read", &path))?;
        merging.outputs.last_mut().expect("just pushed").bytes = bytes;
        self.counters.tables.fetch_add(bytes, Relaxed);
        Ok(())
    }

    /// Puts the written tables in the place of the merged ones.
    fn install(&self, merging: &mut Merging) -> Result<(), WriteError> {
        let tables = self.open_tables(&merging.outputs)?;
        let level = merging.level();
        // All other merges take all tables of the level that they write to. What may have come in
        // front meanwhile is a division's, so it is older.
        let is_oldest = matches!(merging.what, What::Division(_));
        let mut edit = Edit {
            added: tables.iter().map(|(to, table)| added(*to, level, table, is_oldest)).collect(),
            removed: merging.inputs.iter().map(|table| table.number).collect(),
            written: self.counters.tables.load(Relaxed),
            ..Edit::default()
        };
        if let What::Division(_) = merging.what {
            edit.ended.push(merging.bucket.id);
        }
        let mut manifest = self.structure.lock();
        if !self.is_present(merging) {
            // The store was cleared.
            return Ok(());
        }
        self.write_edit(&mut manifest, &edit)?;
        self.structure.change(&self.state, |state| match &merging.what {
            What::Level(from) => Some(replaced(state, merging, *from..=*from, level, &tables)),
            What::Whole => Some(replaced(state, merging, 0..=level, level, &tables)),
            What::Division(_) => Some(divided(state, merging, level, &tables)),
        });
        merging.inputs.iter().for_each(|table| table.remove());
        merging.outputs.clear();
        self.counters.compactions.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Opens tables that were written, once their names are durable.
    pub(crate) fn open_tables(&self, written: &[Written]) -> Result<Vec<Placed>, WriteError> {
        if written.is_empty() {
            return Ok(Vec::new());
        }
        self.files.sync_directory(self.path()).map_err(DiskError::room("sync", self.path()))?;
        let open = |written: &Written| {
            let table =
                Table::open(&self.files, self.path(), self.id(), written.number, written.bytes, &self.cache)?;
            Ok((written.bucket, Arc::new(table)))
        };
        written.iter().map(open).collect()
    }

    fn is_present(&self, merging: &Merging) -> bool {
        let state = self.state.load();
        match merging.what {
            What::Level(_) | What::Whole => state.position(merging.bucket.id).is_some(),
            What::Division(_) => state.parents().any(|parent| parent.id == merging.bucket.id),
        }
    }

    /// Removes the tables that were written and did not come into use.
    fn remove_unused(&self, merging: &mut Merging) {
        let begun = merging.output.take().map(|output| output.number);
        for number in merging.outputs.drain(..).map(|written| written.number).chain(begun) {
            self.discard(number);
        }
    }
}

pub(crate) fn added(bucket: u64, level: usize, table: &Table, is_oldest: bool) -> Added {
    Added { bucket, level, number: table.number, bytes: table.bytes(), is_oldest }
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
