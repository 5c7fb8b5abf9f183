//! Committing a batch. See `batch.rs` for the steps and the argument.

use super::descriptor::{Descriptor, ENTRIES_MAX, Status};
use super::record::Role;
use super::scan::REMOVALS;
use super::stage::{Block, Draft, Source, Staged, blocks_of};
use super::store::{Direct, Kind};
use super::view::Record;
use crate::engine::{Commit, Expected, What, Write};
use crate::{Token, WriteError};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Release;
use terrace_index::{Deferred, PointIndex, Swapped};
use terrace_pool::{Guard, Lock, PoolFull};

/// One key of a batch.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) key: &'a [u8],
    /// `None`: it stays as it is.
    what: Option<What<'a>>,
    /// The position of an expectation and the version that it wants.
    expected: Option<(usize, Option<Token>)>,
}

impl<'a> Step<'a> {
    /// Keeps others from changing a key.
    pub(super) fn keep(key: &'a [u8]) -> Self {
        Self { key, what: None, expected: None }
    }
}

/// Why a batch was taken back.
enum Trouble {
    Changed(usize),
    Failed(WriteError),
}

impl<E: Into<WriteError>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The keys of a commit, each once; or the expectation that contradicts another one.
fn plan<'a>(writes: &[Write<'a>], expected: &[Expected<'a>]) -> Result<Vec<Step<'a>>, usize> {
    let mut steps: Vec<Step<'a>> = Vec::with_capacity(writes.len() + expected.len());
    let mut places: BTreeMap<&[u8], usize> = BTreeMap::new();
    for write in writes {
        // Written twice: the last one counts.
        let place = *places.entry(write.key).or_insert(steps.len());
        if place == steps.len() {
            steps.push(Step::keep(write.key));
        }
        steps[place].what = Some(write.what);
    }
    for (nth, &(key, token)) in expected.iter().enumerate() {
        let place = *places.entry(key).or_insert(steps.len());
        if place == steps.len() {
            steps.push(Step::keep(key));
        }
        match steps[place].expected {
            None => steps[place].expected = Some((nth, token)),
            Some((_, other)) if other == token => {}
            Some((earlier, _)) => return Err(earlier),
        }
    }
    Ok(steps)
}

impl<I: PointIndex<Kind = Kind>> Direct<I> {
    pub(super) fn commit_all(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
    ) -> Result<Commit, WriteError> {
        for write in writes {
            let len = if let What::Put { value, .. } = write.what { value.len() } else { 0 };
            self.may_write(write.key, len)?;
        }
        let steps = match plan(writes, expected) {
            Ok(steps) => steps,
            Err(nth) => return Ok(Commit::Changed(nth)),
        };
        self.with_relief(|| self.try_commit(&steps, writes.is_empty(), expected))
    }

    fn try_commit(
        &self,
        steps: &[Step<'_>],
        reads_only: bool,
        expected: &[Expected<'_>],
    ) -> Result<Commit, WriteError> {
        let done = match steps {
            _ if reads_only => self.confirm(expected),
            [step] => self.commit_one(*step),
            _ => self.commit_many(steps),
        };
        match done {
            Ok(()) => Ok(Commit::Done),
            Err(Trouble::Changed(nth)) => Ok(Commit::Changed(nth)),
            Err(Trouble::Failed(error)) => Err(error),
        }
    }

    /// Nothing is written: what was read before this call and has not changed until it was all there at the instant of the call.
    fn confirm(&self, expected: &[Expected<'_>]) -> Result<(), Trouble> {
        let guard = self.pool().pin();
        for (nth, &(key, token)) in expected.iter().enumerate() {
            if self.find_token(&guard, key)? != token {
                return Err(Trouble::Changed(nth));
            }
        }
        Ok(())
    }

    /// A single key needs no descriptor.
    fn commit_one(&self, step: Step<'_>) -> Result<(), Trouble> {
        let guard = self.pool().pin();
        loop {
            let seen = self.unclaimed(&guard, step.key)?;
            let live = self.expect(&guard, seen, step.expected)?;
            let done = match (step.what, seen) {
                (None, _) | (Some(What::Remove), None) => true,
                (Some(What::Remove), Some(word)) => self.unlink(&guard, step.key, word)?,
                (Some(What::Put { value, expires_at }), _) => {
                    self.replace(&guard, seen, &Draft::single(step.key, Source::Bytes(value), expires_at))?
                }
                (Some(What::Expire(at)), _) => match live {
                    Some(record) => {
                        self.replace(&guard, seen, &Draft::single(step.key, Source::of(&record), at))?
                    }
                    None => true,
                },
            };
            if done {
                return Ok(());
            }
        }
    }

    /// The record that readers see at `word`, if that is what was expected. (A damaged record may be replaced unless something is expected of it.)
    fn expect<'g>(
        &self,
        guard: &'g Guard<'_, I::Medium>,
        word: Option<u64>,
        expected: Option<(usize, Option<Token>)>,
    ) -> Result<Option<Record<'g>>, Trouble> {
        let live = match word {
            Some(word) => self.live(guard, word),
            None => Ok(None),
        };
        match (live, expected) {
            (Ok(live), Some((nth, token))) if live.map(|record| record.token()) != token => {
                Err(Trouble::Changed(nth))
            }
            (Ok(live), _) => Ok(live),
            (Err(_), None) => Ok(None),
            (Err(error), Some(_)) => Err(error.into()),
        }
    }

    fn commit_many(&self, steps: &[Step<'_>]) -> Result<(), Trouble> {
        let guard = self.pool().pin();
        let mut flight = self.prepare(&guard, steps)?;
        let lock = Lock::of(self.root.lock()).acquire(&guard);
        let published = flight.publish();
        match published {
            Ok(()) => flight.commit(),
            Err(_) => flight.take_back(),
        }
        lock.release();
        let remains = flight.remains();
        drop(guard);
        self.retire_blocks(&remains);
        published
    }

    /// Calls `each` with the word of every key in `steps`, all as they were at one instant. Keeps writers out meanwhile.
    pub(super) fn freeze(
        &self,
        guard: &Guard<'_, I::Medium>,
        steps: &[Step<'_>],
        mut each: impl FnMut(usize, Option<u64>),
    ) -> Result<(), WriteError> {
        self.is_running()?;
        let mut flight = match self.prepare(guard, steps) {
            Ok(flight) => flight,
            Err(Trouble::Failed(error)) => return Err(error),
            Err(Trouble::Changed(_)) => unreachable!("nothing is expected"),
        };
        let lock = Lock::of(self.root.lock()).acquire(guard);
        let published = flight.publish();
        if published.is_ok() {
            flight.olds.iter().enumerate().for_each(|(index, &old)| each(index, old));
        }
        flight.take_back();
        lock.release();
        self.retire_blocks(&flight.remains());
        match published {
            Err(Trouble::Failed(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Stages everything. Nobody sees any of it.
    fn prepare<'s, 'g>(
        &'s self,
        guard: &'g Guard<'g, I::Medium>,
        steps: &'s [Step<'s>],
    ) -> Result<Flight<'s, 'g, I>, Trouble> {
        if steps.len() > ENTRIES_MAX {
            let (wanted, size) = (steps.len() as u64 * 16, self.pool().size());
            return Err(Trouble::Failed(WriteError::PoolFull { wanted, size, longest: None, waiting: 0 }));
        }
        let block = Descriptor::alloc(guard, steps.len())?;
        let mut staged = Vec::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            staged.push(self.stage_step(
                guard,
                step,
                Descriptor::<I::Medium>::batch_word(block.offset(), index),
            )?);
        }
        let descriptor = Descriptor::draw(guard, block, steps.len());
        let news: Vec<u64> = staged.into_iter().map(Staged::into_offset).collect();
        news.iter().enumerate().for_each(|(index, &new)| descriptor.set_new(index, new));
        Ok(Flight {
            engine: self,
            guard,
            steps,
            descriptor,
            news,
            olds: Vec::new(),
            published: 0,
            landed: true,
        })
    }

    fn stage_step<'g>(
        &self,
        guard: &'g Guard<'_, I::Medium>,
        step: &Step<'_>,
        batch: u64,
    ) -> Result<Staged<'g, I::Medium>, Trouble> {
        let none = Source::Bytes(&[]);
        let (role, value, expires_at) = match step.what {
            None => (Role::Keep, none, None),
            Some(What::Remove) => (Role::Tombstone, none, None),
            Some(What::Put { value, expires_at }) => (Role::Put, Source::Bytes(value), expires_at),
            Some(What::Expire(at)) => {
                match self.expect(guard, self.index.get(guard, step.key), step.expected)? {
                    // The expectation makes sure that the extent, if it has one, is still its own when it is published.
                    Some(record) if step.expected.is_some() => (Role::Put, Source::of(&record), at),
                    _ => (Role::Keep, none, None),
                }
            }
        };
        Ok(self.stage(guard, &Draft { key: step.key, value, expires_at, role, batch })?)
    }
}

/// A batch on its way.
struct Flight<'s, 'g, I: PointIndex<Kind = Kind>> {
    engine: &'s Direct<I>,
    guard: &'g Guard<'g, I::Medium>,
    steps: &'s [Step<'s>],
    descriptor: Descriptor<'g, I::Medium>,
    news: Vec<u64>,
    olds: Vec<Option<u64>>,
    /// So many steps have their new record in its slot.
    published: usize,
    /// Whether it is not announced, or has ended.
    landed: bool,
}

impl<I: PointIndex<Kind = Kind>> Flight<'_, '_, I> {
    /// Under the lock: notes the old records, announces the batch, and puts the new records into the slots.
    fn publish(&mut self) -> Result<(), Trouble> {
        self.engine.is_running()?;
        let (engine, guard) = (self.engine, self.guard);
        self.olds.reserve(self.steps.len());
        engine.index.get_many(guard, self.steps.iter().map(|step| step.key), |_, old| self.olds.push(old));
        self.olds.iter().enumerate().for_each(|(index, &old)| self.descriptor.set_old(index, old));
        self.descriptor.write_back();
        // PERSIST: (1) records and descriptor, before the root names them.
        engine.pool().region().fence();
        self.landed = false;
        // PERSIST: (2) from here on a crash finds the batch.
        engine.root.set_active(self.descriptor.offset());
        let mut deferred = Deferred::default();
        let done = (0..self.steps.len()).try_for_each(|index| self.publish_one(index, &mut deferred));
        // PERSIST: (3) all slots, before the commit.
        engine.index.settle(guard, deferred);
        done
    }

    fn publish_one(&mut self, index: usize, deferred: &mut Deferred) -> Result<(), Trouble> {
        let (step, new) = (&self.steps[index], self.news[index]);
        loop {
            let old = self.olds[index];
            self.engine.expect(self.guard, old, step.expected)?;
            match self.engine.index.compare_and_swap_deferred(
                self.guard,
                step.key,
                old,
                Some(new),
                deferred,
            )? {
                Swapped::Done => {
                    self.published += 1;
                    return Ok(());
                }
                Swapped::Found(now) => {
                    self.olds[index] = now;
                    self.descriptor.persist_old(index, now);
                }
            }
        }
    }

    /// Every slot is durable: makes it happen, and settles it.
    fn commit(&mut self) {
        self.descriptor.decide(Status::Committed);
        // PERSIST: (4) the commit.
        self.descriptor.persist_status();
        self.engine.settle_entries(self.guard, &self.descriptor, Status::Committed);
        self.land();
    }

    /// Puts the old records back into the slots that have new ones.
    fn take_back(&mut self) {
        self.descriptor.decide(Status::Aborted);
        if !self.landed {
            self.engine.settle_entries(self.guard, &self.descriptor, Status::Aborted);
            self.land();
        }
    }

    fn land(&mut self) {
        // PERSIST: (6) after `settle_entries` has fenced.
        self.engine.root.set_active(0);
        self.landed = true;
    }

    /// The blocks that do not count now that the batch has ended. Those that nobody ever saw are freed at once.
    fn remains(self) -> Vec<Block> {
        let mut blocks = vec![(self.descriptor.offset(), self.descriptor.size())];
        for (index, &new) in self.news.iter().enumerate() {
            let Ok(record) = Record::at(self.guard, new) else { continue };
            let old = self.olds.get(index).copied().flatten();
            let old = old.and_then(|old| Record::at(self.guard, old).ok());
            let shared = old.as_ref().map(Record::facts);
            if self.descriptor.status() == Some(Status::Committed) {
                self.remains_of_committed(&record, old.as_ref(), &mut blocks);
            } else if index < self.published {
                blocks.extend(blocks_of(&record, shared));
            } else {
                blocks_of(&record, shared).for_each(|(offset, size)| self.guard.free(offset, size));
            }
        }
        blocks
    }

    fn remains_of_committed(&self, record: &Record<'_>, old: Option<&Record<'_>>, blocks: &mut Vec<Block>) {
        let successor = match record.shape.role {
            Role::Single | Role::Put => Some(record.facts()),
            Role::Tombstone => None,
            Role::Keep => return blocks.extend(blocks_of(record, None)),
        };
        self.engine.root.replaced(self.guard, old.map(Record::facts), successor);
        blocks.extend(old.into_iter().flat_map(|old| blocks_of(old, successor)));
        if successor.is_none() {
            blocks.extend(blocks_of(record, None));
        }
    }
}

impl<I: PointIndex<Kind = Kind>> Direct<I> {
    /// Gives blocks back that were unlinked before, a few a pin: when the pool is full, there may be no memory to note more of them in.
    fn retire_blocks(&self, blocks: &[Block]) {
        for blocks in blocks.chunks(REMOVALS) {
            let guard = self.pool().pin();
            blocks.iter().for_each(|&(offset, size)| guard.retire(offset, size));
        }
    }
}

impl<I: PointIndex<Kind = Kind>> Drop for Flight<'_, '_, I> {
    fn drop(&mut self) {
        if !self.landed {
            self.engine.stop_writing("a batch was cut off by a failure of this program");
        }
    }
}

impl<I: PointIndex<Kind = Kind>> Direct<I> {
    /// Brings every slot and record of a decided batch into the state that its status asks for, and fences. Can be done over.
    pub(super) fn settle_entries(
        &self,
        guard: &Guard<'_, I::Medium>,
        descriptor: &Descriptor<'_, I::Medium>,
        status: Status,
    ) {
        let mut deferred = Deferred::default();
        for index in 0..descriptor.count() {
            let (new, old) = descriptor.entry(index);
            // Records that cannot be read are in no slot under a key that could be looked up.
            let Ok(record) = Record::at(guard, new) else { continue };
            let becomes = match (status, record.shape.role) {
                (Status::Committed, Role::Put | Role::Single) => {
                    self.clear_batch_word(guard, &record);
                    continue;
                }
                (Status::Committed, Role::Tombstone) => None,
                _ => old,
            };
            // Neither takes memory. A slot with another record was settled before.
            let _: Result<Swapped, PoolFull> = self.index.compare_and_swap_deferred(
                guard,
                record.body.key,
                Some(new),
                becomes,
                &mut deferred,
            );
        }
        // PERSIST: (5) before the root forgets the batch.
        self.pool().region().fence();
        self.index.settle(guard, deferred);
    }

    fn clear_batch_word(&self, guard: &Guard<'_, I::Medium>, record: &Record<'_>) {
        let region = guard.pool().region();
        if let Some(word) = record.batch_word().and_then(|at| region.get(at)) {
            // ORDER: Release: who finds the record settled need not ask for the commit, which is durable by now.
            word.store(region.medium(), 0, Release);
            // PERSIST: fenced by the caller.
            region.write_back(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::{Key, Settings};
    use crate::{Engine, ManualClock, Put};
    use std::path::Path;
    use std::sync::Arc;
    use terrace_index::{Bytes, hash::Clht};
    use terrace_medium::{MappedMedium, Pmem, Shm};
    use terrace_pool::{Pool, PoolOptions};

    type Store<M> = Direct<Clht<M, Bytes<Key>>>;

    fn open<M: MappedMedium>(path: &Path) -> Store<M> {
        let pool =
            PoolOptions::at(path).size(4 << 20).assume_persistent(M::VOLATILE_CACHE).open_or_create::<M>();
        let settings =
            Settings { expected_keys: 100, verify_reads: true, clock: Arc::new(ManualClock::at(1000)) };
        Store::<M>::open(pool.unwrap(), settings).unwrap()
    }

    fn put<M: MappedMedium>(store: &Store<M>, key: &[u8], value: &[u8]) {
        store.put(Put { key, value, expires_at: None }).unwrap();
    }

    fn read<M: MappedMedium>(store: &Store<M>, key: &[u8]) -> Option<Vec<u8>> {
        store.get(key).unwrap().map(|value| value.to_vec())
    }

    const LONG: [u8; 9000] = [7; 9000];

    fn steps() -> [Step<'static>; 6] {
        let step = |key: &'static [u8], what| Step { key, what, expected: None };
        [
            step(b"changed", Some(What::Put { value: b"new", expires_at: None })),
            step(b"added", Some(What::Put { value: &LONG, expires_at: Some(5000) })),
            step(b"removed", Some(What::Remove)),
            step(b"not there", Some(What::Remove)),
            step(b"kept", None),
            step(b"kept away", None),
        ]
    }

    /// Where a batch is cut off.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Cut {
        Prepared,
        Announced,
        Published(usize),
        Committed,
        Settled,
        Aborted,
        TakenBack,
    }

    /// Does the batch up to the cut, copies the file there, as a kill would leave it, and then does the rest.
    fn cut_off<M: MappedMedium>(store: &Store<M>, cut: Cut, from: &Path, to: &Path) {
        let copy = |at| {
            if at == cut {
                std::fs::copy(from, to).unwrap();
            }
        };
        let steps = steps();
        let guard = store.pool().pin();
        let mut flight = store.prepare(&guard, &steps).unwrap_or_else(|_| panic!("there is room"));
        copy(Cut::Prepared);
        flight.olds = steps.iter().map(|step| store.index.get(&guard, step.key)).collect();
        flight.olds.iter().enumerate().for_each(|(index, &old)| flight.descriptor.set_old(index, old));
        flight.descriptor.write_back();
        store.root.set_active(flight.descriptor.offset());
        flight.landed = false;
        copy(Cut::Announced);
        let mut deferred = Deferred::default();
        for index in 0..steps.len() {
            assert!(flight.publish_one(index, &mut deferred).is_ok());
            copy(Cut::Published(index));
        }
        store.index.settle(&guard, deferred);
        if matches!(cut, Cut::Aborted | Cut::TakenBack) {
            flight.descriptor.decide(Status::Aborted);
            copy(Cut::Aborted);
            store.settle_entries(&guard, &flight.descriptor, Status::Aborted);
            copy(Cut::TakenBack);
        } else {
            flight.descriptor.decide(Status::Committed);
            copy(Cut::Committed);
            store.settle_entries(&guard, &flight.descriptor, Status::Committed);
            copy(Cut::Settled);
        }
        flight.land();
        store.retire_blocks(&flight.remains());
    }

    fn assert_state<M: MappedMedium>(store: &Store<M>, happened: bool, cut: Cut) {
        let text = |value: &[u8]| Some(value.to_vec());
        let expected = match happened {
            false => [text(b"old"), None, text(b"old"), None, text(b"old"), None],
            true => [text(b"new"), text(&LONG), None, None, text(b"old"), None],
        };
        let found = steps().map(|step| read(store, step.key));
        assert!(found == expected, "{cut:?}: {found:?}");
    }

    fn try_cut<M: MappedMedium>(cut: Cut) {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let (path, copy) = (directory.path().join("store"), directory.path().join("copy"));
        let store = open::<M>(&path);
        [&b"changed"[..], b"removed", b"kept"].iter().for_each(|key| put(&store, key, b"old"));
        cut_off(&store, cut, &path, &copy);
        let aborted = matches!(cut, Cut::Aborted | Cut::TakenBack);
        assert_state(&store, !aborted, cut);
        assert!(store.check(&mut |_, _| {}).is_sound());

        let happened = matches!(cut, Cut::Committed | Cut::Settled);
        // Read-only, nothing is ended; the descriptor is asked.
        let options = PoolOptions::at(&copy).assume_persistent(M::VOLATILE_CACHE).read_only(true);
        let settings =
            Settings { expected_keys: 0, verify_reads: true, clock: Arc::new(ManualClock::at(1000)) };
        let frozen = Store::<M>::open(options.open::<M>().unwrap(), settings).unwrap();
        assert_state(&frozen, happened, cut);
        drop(frozen);

        let again = open::<M>(&copy);
        let ended = (cut != Cut::Prepared).then_some(happened);
        assert_eq!(again.stats().batch_finished, ended, "{cut:?}");
        assert_state(&again, happened, cut);
        again.collect(&|| false);
        assert_state(&again, happened, cut);
        let report = again.check(&mut |_, _| {});
        assert!(report.is_sound(), "{cut:?}: {:#?}", report.findings);
        assert_eq!(again.len(), 3, "{cut:?}");
        // And it can all be written again.
        for step in steps() {
            put(&again, step.key, b"after");
            assert_eq!(read(&again, step.key), Some(b"after".to_vec()));
        }
    }

    #[test]
    fn a_batch_that_is_cut_off_happened_or_did_not() {
        let published = (0..6).map(Cut::Published);
        let others =
            [Cut::Prepared, Cut::Announced, Cut::Committed, Cut::Settled, Cut::Aborted, Cut::TakenBack];
        for cut in published.chain(others) {
            try_cut::<Shm>(cut);
            try_cut::<Pmem>(cut);
        }
    }

    #[test]
    fn what_was_expected_in_vain_changes_nothing() {
        let pool = Pool::<terrace_medium::Dram>::anonymous(4 << 20).unwrap();
        let settings =
            Settings { expected_keys: 100, verify_reads: true, clock: Arc::new(ManualClock::at(1000)) };
        let store = Store::open(pool, settings).unwrap();
        put(&store, b"a", b"1");
        put(&store, b"b", b"1");
        let (a, b) = (store.token(b"a").unwrap(), store.token(b"b").unwrap());
        let value = |value| What::Put { value, expires_at: None };
        let writes = [Write { key: b"a", what: value(b"2") }, Write { key: b"new", what: value(b"2") }];
        put(&store, b"b", b"1");
        let expected: [Expected<'_>; 2] = [(b"a", a), (b"b", b)];
        assert_eq!(store.commit(&writes, &expected), Ok(Commit::Changed(1)));
        assert_eq!(store.commit(&writes, &[(b"absent", a)]), Ok(Commit::Changed(0)));
        assert_eq!(store.commit(&writes, &[(b"a", a), (b"a", None)]), Ok(Commit::Changed(0)));
        assert_eq!((read(&store, b"a"), read(&store, b"new")), (Some(b"1".to_vec()), None));
        assert_eq!(store.token(b"a").unwrap(), a);
        assert_eq!(store.commit(&writes, &[(b"absent", None), (b"a", a)]), Ok(Commit::Done));
        assert_eq!((read(&store, b"a"), read(&store, b"new")), (Some(b"2".to_vec()), Some(b"2".to_vec())));
        assert!(store.check(&mut |_, _| {}).is_sound());
    }

    #[test]
    fn a_store_that_has_stopped_is_read_and_not_written() {
        let pool = Pool::<terrace_medium::Dram>::anonymous(4 << 20).unwrap();
        let settings =
            Settings { expected_keys: 100, verify_reads: true, clock: Arc::new(ManualClock::at(1000)) };
        let store = Store::open(pool, settings).unwrap();
        put(&store, b"a", b"1");
        store.stop("it was told to".into());
        assert_eq!(read(&store, b"a"), Some(b"1".to_vec()));
        let error = store.put(Put { key: b"a", value: b"2", expires_at: None }).unwrap_err();
        assert!(error.to_string().contains("it was told to"), "{error}");
        assert!(store.remove(b"a").is_err() && store.clear().is_err());
    }
}
