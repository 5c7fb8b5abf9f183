//! Committing: one key by itself, several as a batch.

use super::descriptor::Descriptor;
use super::flight::{Flight, Replaced};
use super::plan::{Step, Trouble, plan};
use super::record::Role;
use super::stage::{Draft, New, Source, Staged};
use super::store::Direct;
use super::view::Record;
use crate::engine::{Commit, Expected, What, Write};
use crate::{ReadError, Version, WriteError};
use terrace_medium::MappedMedium;
use terrace_pool::{Backoff, Guard, Lock};

impl<M: MappedMedium> Direct<M> {
    pub(super) fn commit_all(
        &self,
        writes: &[Write<'_>],
        expected: &[Expected<'_>],
    ) -> Result<Commit, WriteError> {
        for write in writes {
            let len = if let What::Put { value, .. } = write.what { value.len() } else { 0 };
            self.may_write(write.key, len)?;
        }
        let steps = match plan(writes, expected, self.pool().hash_seed()) {
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
            [step] if !step.expects_absence() => self.commit_one(step),
            _ => self.commit_many(steps, |_| {}),
        };
        match done {
            Ok(()) => Ok(Commit::Done),
            Err(Trouble::Changed(nth)) => Ok(Commit::Changed(nth)),
            Err(Trouble::Failed(error)) => Err(error),
            Err(Trouble::Moved) => unreachable!("a batch whose values were moved is prepared anew"),
        }
    }

    /// Nothing is written. What has an entry still had it at any instant of this call, and so it is with what was absent and has been so all along. Of what is only to be
    /// absent nothing is known from before: it is looked at twice, and all the others at the second time, so that everything was as expected between the two.
    fn confirm(&self, expected: &[Expected<'_>]) -> Result<(), Trouble> {
        let guard = self.pool().try_pin()?;
        let mut backoff = Backoff::new();
        loop {
            let mut since = Vec::with_capacity(expected.len());
            for (nth, &(key, version)) in expected.iter().enumerate() {
                let is_known = version.token.is_some() || version.absence.is_some();
                let seen = if is_known { version } else { self.find_version(&guard, key)? };
                if seen.token != version.token {
                    return Err(Trouble::Changed(nth));
                }
                since.push(seen);
            }
            match self.changed(&guard, expected, &since)? {
                None => return Ok(()),
                // It may have come and gone, or another of its stripe has gone.
                Some(nth) if since[nth] != expected[nth].1 => _ = backoff.spin(),
                Some(nth) => return Err(Trouble::Changed(nth)),
            }
        }
    }

    /// The first of these keys that has not stayed as it was.
    fn changed(
        &self,
        guard: &Guard<'_, M>,
        expected: &[Expected<'_>],
        since: &[Version],
    ) -> Result<Option<usize>, ReadError> {
        for (nth, (&(key, _), since)) in expected.iter().zip(since).enumerate() {
            if !self.has_stayed(key, since, self.find_version(guard, key)?) {
                return Ok(Some(nth));
            }
        }
        Ok(None)
    }

    /// A single key needs no descriptor.
    fn commit_one(&self, step: &Step<'_>) -> Result<(), Trouble> {
        let guard = self.pool().try_pin()?;
        loop {
            let seen = self.unclaimed(&guard, step.key)?;
            let live = self.expect(&guard, seen, step.expectation())?;
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
    pub(super) fn expect<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        word: Option<u64>,
        expected: Option<(usize, Version)>,
    ) -> Result<Option<Record<'g>>, Trouble> {
        let live = match word {
            Some(word) => self.live(guard, word),
            None => Ok(None),
        };
        match (live, expected) {
            (Ok(live), Some((nth, version))) if live.map(|record| record.token()) != version.token => {
                Err(Trouble::Changed(nth))
            }
            (Ok(live), _) => Ok(live),
            (Err(_), None) => Ok(None),
            (Err(error), Some(_)) => Err(error.into()),
        }
    }

    /// Commits as a batch. Calls `is_certain` when nothing can stop it any more and no reader has
    /// seen it.
    pub(super) fn commit_many(
        &self,
        steps: &[Step<'_>],
        mut is_certain: impl FnMut(&Flight<'_, '_, M>),
    ) -> Result<(), Trouble> {
        loop {
            match self.try_commit_many(steps, &mut is_certain) {
                Err(Trouble::Moved) => {}
                done => return done,
            }
        }
    }

    fn try_commit_many(
        &self,
        steps: &[Step<'_>],
        mut is_certain: impl FnMut(&Flight<'_, '_, M>),
    ) -> Result<(), Trouble> {
        let guard = self.pool().try_pin()?;
        let mut flight = self.prepare(&guard, steps)?;
        let lock = Lock::of(self.root.lock()).acquire(&guard);
        self.end_orphan_locked();
        let published = flight.publish();
        match published {
            Ok(()) => {
                is_certain(&flight);
                flight.commit();
            }
            Err(_) => flight.take_back(),
        }
        lock.release();
        if published.is_ok() {
            let written = steps.iter().filter(|step| step.what.is_some());
            written.for_each(|step| self.pool().notify_watches(step.key));
        }
        let remains = flight.remains();
        // A collection beside others takes what is neither linked nor retired for lost, unless whoever has it is pinned all the while.
        let _pinned = self.pool().is_shared().then_some(guard);
        self.retire_blocks(&remains);
        published
    }

    /// Calls `each` with the word of every key in `steps`, all as they were at one instant. Keeps writers out meanwhile.
    pub(super) fn freeze(
        &self,
        guard: &Guard<'_, M>,
        steps: &[Step<'_>],
        mut each: impl FnMut(usize, Option<u64>),
    ) -> Result<(), WriteError> {
        self.is_running()?;
        let mut flight = self.prepare(guard, steps).map_err(failed)?;
        let lock = Lock::of(self.root.lock()).acquire(guard);
        self.end_orphan_locked();
        let published = flight.publish();
        if published.is_ok() {
            flight.olds.iter().enumerate().for_each(|(index, &old)| each(index, old));
        }
        flight.take_back();
        lock.release();
        self.retire_blocks(&flight.remains());
        published.map_err(failed)
    }

    /// Stages everything. Nobody sees any of it.
    pub(super) fn prepare<'s, 'g>(
        &'s self,
        guard: &'g Guard<'g, M>,
        steps: &'s [Step<'s>],
    ) -> Result<Flight<'s, 'g, M>, Trouble> {
        let block = Descriptor::alloc(guard, steps.len())?;
        let descriptor = Descriptor::draw(guard, block, steps.len());
        let mut news: Vec<New> = Vec::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            let batch = Descriptor::<M>::batch_word(descriptor.offset(), index);
            match self.stage_step(guard, step, batch) {
                Ok(staged) => news.push(staged.into_new()),
                Err(trouble) => {
                    let staged = news.iter().flat_map(New::blocks);
                    let all = staged.chain([(descriptor.offset(), descriptor.size())]);
                    all.for_each(|(offset, size)| guard.free(offset, size));
                    return Err(trouble);
                }
            }
            descriptor.set_new(index, news[index].offset);
        }
        let (olds, replaced) = (Vec::with_capacity(steps.len()), Replaced::with_room_for(steps.len()));
        Ok(Flight {
            engine: self,
            guard,
            steps,
            descriptor,
            news,
            olds,
            replaced,
            published: 0,
            landed: true,
        })
    }

    fn stage_step<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        step: &Step<'_>,
        batch: u64,
    ) -> Result<Staged<'g, M>, Trouble> {
        let none = Source::Bytes(&[]);
        let (role, value, expires_at) = match step.what {
            None => (Role::Keep, none, None),
            Some(What::Remove) => (Role::Tombstone, none, None),
            Some(What::Put { value, expires_at }) => (Role::Put, Source::Bytes(value), expires_at),
            Some(What::Expire(at)) => {
                match self.expect(guard, self.index.get(guard, step.key), step.expectation())? {
                    // The expectation makes sure that the extent, if it has one, is still its own when it is published.
                    Some(record) if step.expected.is_some() => (Role::Put, Source::of(&record), at),
                    _ => (Role::Keep, none, None),
                }
            }
        };
        Ok(self.stage(guard, &Draft { key: step.key, value, expires_at, role, batch })?)
    }
}

/// What went wrong where nothing is expected.
fn failed(trouble: Trouble) -> WriteError {
    match trouble {
        Trouble::Failed(error) => error,
        Trouble::Changed(_) | Trouble::Moved => unreachable!("nothing is expected"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::Settings;
    use crate::direct::descriptor::Status;
    use crate::direct::small::{self, Store, settings, store};
    use crate::{Durably, Engine, ManualClock, Pooled, Put};
    use std::path::Path;
    use std::sync::Arc;
    use terrace_index::Deferred;
    use terrace_medium::{Dram, MappedMedium, Pmem, Shm};
    use terrace_pool::{Pool, PoolOptions};

    fn open<M: MappedMedium>(path: &Path) -> Store<M> {
        let pool =
            PoolOptions::at(path).size(4 << 20).assume_persistent(M::VOLATILE_CACHE).open_or_create::<M>();
        crate::direct::small::open::<M>(pool.unwrap(), settings()).unwrap()
    }

    fn put<M: MappedMedium>(store: &Store<M>, key: &[u8], value: &[u8]) {
        store.put(Put { key, value, expires_at: None }, Durably::Store).unwrap();
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
        store.index.persist_deferred(&guard, deferred);
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
        let settings = Settings { expected_keys: 0, ..settings() };
        let frozen = crate::direct::small::open::<M>(options.open::<M>().unwrap(), settings).unwrap();
        assert_state(&frozen, happened, cut);
        drop(frozen);

        let again = open::<M>(&copy);
        let ended = (cut != Cut::Prepared).then_some(happened);
        assert_eq!(again.stats().pool.unwrap().batch_finished, ended, "{cut:?}");
        assert_state(&again, happened, cut);
        again.collect(&|| false);
        assert_state(&again, happened, cut);
        let report = again.check(&mut |_, _| {});
        assert!(report.is_sound(), "{cut:?}: {:#?}", report.findings);
        assert_eq!(again.len().get(), 3, "{cut:?}");
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
        let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
        let store = small::open(pool, settings()).unwrap();
        put(&store, b"a", b"1");
        put(&store, b"b", b"1");
        let (a, b) = (store.version(b"a").unwrap(), store.version(b"b").unwrap());
        let value = |value| What::Put { value, expires_at: None };
        let writes = [Write { key: b"a", what: value(b"2") }, Write { key: b"new", what: value(b"2") }];
        put(&store, b"b", b"1");
        let expected: [Expected<'_>; 2] = [(b"a", a), (b"b", b)];
        assert_eq!(store.commit(&writes, &expected, Durably::Store), Ok(Commit::Changed(1)));
        assert_eq!(store.commit(&writes, &[(b"absent", a)], Durably::Store), Ok(Commit::Changed(0)));
        assert_eq!(
            store.commit(&writes, &[(b"a", a), (b"a", None.into())], Durably::Store),
            Ok(Commit::Changed(0))
        );
        assert_eq!((read(&store, b"a"), read(&store, b"new")), (Some(b"1".to_vec()), None));
        assert_eq!(store.version(b"a").unwrap(), a);
        assert_eq!(
            store.commit(&writes, &[(b"absent", None.into()), (b"a", a)], Durably::Store),
            Ok(Commit::Done)
        );
        assert_eq!((read(&store, b"a"), read(&store, b"new")), (Some(b"2".to_vec()), Some(b"2".to_vec())));
        assert!(store.check(&mut |_, _| {}).is_sound());
    }

    #[test]
    fn batch_of_several_pieces_happens_whole_or_not_at_all() {
        let (store, _) = store();
        let keys: Vec<[u8; 4]> = (0..300u32).map(u32::to_le_bytes).collect();
        let values = |store: &Store| -> Vec<_> { keys.iter().map(|key| read(store, key)).collect() };
        keys.iter().step_by(2).for_each(|key| store.give(key, &LONG[..64 + key[0] as usize], None));
        store.give(b"last", b"1", None);
        let (before, stale) = (values(&store), store.version(b"last").unwrap());
        store.give(b"last", b"2", None);
        let what = |nth: usize| match nth % 3 {
            0 => What::Remove,
            _ => What::Put { value: b"new", expires_at: None },
        };
        let writes: Vec<Write<'_>> =
            keys.iter().enumerate().map(|(nth, key)| Write { key, what: what(nth) }).collect();
        // The last step of all is the one that fails.
        assert_eq!(store.commit(&writes, &[(b"last", stale)], Durably::Store), Ok(Commit::Changed(0)));
        assert_eq!((values(&store) == before, store.len().get()), (true, 151));
        let now = store.version(b"last").unwrap();
        assert_eq!(store.commit(&writes, &[(b"last", now)], Durably::Store), Ok(Commit::Done));
        let expected: Vec<_> = (0..300).map(|nth| (nth % 3 != 0).then(|| b"new".to_vec())).collect();
        assert_eq!((values(&store) == expected, store.len().get()), (true, 201));
        let memory = store.memory();
        assert_eq!((memory.garbage, memory.used), (0, memory.reachable));
        assert!(store.check(&mut |_, _| {}).is_sound());
    }

    #[test]
    fn a_key_that_came_and_went_is_not_as_it_was() {
        let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
        let clock = Arc::new(ManualClock::at(1000));
        let settings = Settings { clock: clock.clone(), ..settings() };
        let store = small::open(pool, settings).unwrap();
        let value = |expires_at| What::Put { value: b"1", expires_at };
        let write = |what| [Write { key: b"a", what }, Write { key: b"b", what }];
        let came_and_went: [&dyn Fn(); 4] = [
            &|| assert_eq!(store.remove(b"a", Durably::Store), Ok(true)),
            &|| assert_eq!(store.commit(&write(What::Remove), &[], Durably::Store), Ok(Commit::Done)),
            &|| {
                clock.advance(100);
                while store.sweep_expired(1000) == 0 {}
            },
            // It is not there any more, but its record is.
            &|| clock.advance(100),
        ];
        for (nth, go) in came_and_went.into_iter().enumerate() {
            let now = store.now_ms();
            let absent = store.version(b"a").unwrap();
            assert_eq!(absent.token(), None);
            assert_eq!(store.commit(&[], &[(b"a", absent)], Durably::Store), Ok(Commit::Done));
            assert_eq!(store.commit(&write(value(Some(now + 50))), &[], Durably::Store), Ok(Commit::Done));
            go();
            for writes in [&[][..], &write(value(None))[..1], &write(value(None))] {
                assert_eq!(
                    store.commit(writes, &[(b"a", absent)], Durably::Store),
                    Ok(Commit::Changed(0)),
                    "{nth}"
                );
                assert_eq!(store.get(b"a").unwrap().map(|value| value.to_vec()), None);
            }
            // That it is not there now is another matter.
            assert_eq!(
                store.commit(&[], &[(b"a", None.into()), (b"a", None.into())], Durably::Store),
                Ok(Commit::Done)
            );
            store.remove(b"b", Durably::Store).unwrap();
        }
        let absent = store.version(b"a").unwrap();
        assert_eq!(
            store.commit(&write(value(None))[..1], &[(b"a", absent)], Durably::Store),
            Ok(Commit::Done)
        );
        assert_eq!(
            store.commit(&write(value(None))[..1], &[(b"a", absent)], Durably::Store),
            Ok(Commit::Changed(0))
        );
    }

    #[test]
    fn a_key_that_was_absent_as_a_batch_came_and_expired_since_is_not_as_it_was() {
        let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
        let clock = Arc::new(ManualClock::at(1000));
        let store = small::open(pool, Settings { clock: clock.clone(), ..settings() }).unwrap();
        let what = Some(What::Put { value: b"1", expires_at: Some(2000) });
        let steps = [Step { key: b"a", what, expected: None }];
        let guard = store.pool().pin();
        let mut flight = store.prepare(&guard, &steps).unwrap_or_else(|_| panic!("there is room"));
        assert!(flight.publish().is_ok());
        let absent = store.version(b"a").unwrap();
        assert_eq!(absent.token(), None);
        flight.commit();
        assert_eq!(read(&store, b"a"), Some(b"1".to_vec()));
        clock.advance(1000);
        assert_eq!(store.commit(&[], &[(b"a", absent)], Durably::Store), Ok(Commit::Changed(0)));
        store.retire_blocks(&flight.remains());
    }

    #[test]
    fn a_store_that_has_stopped_is_read_and_not_written() {
        let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
        let store = small::open(pool, settings()).unwrap();
        put(&store, b"a", b"1");
        store.stop("it was told to".into());
        assert_eq!(read(&store, b"a"), Some(b"1".to_vec()));
        let error = store.put(Put { key: b"a", value: b"2", expires_at: None }, Durably::Store).unwrap_err();
        assert!(error.to_string().contains("it was told to"), "{error}");
        assert!(store.remove(b"a", Durably::Store).is_err() && store.clear(Durably::Store).is_err());
    }

    #[test]
    fn who_finds_no_batch_to_end_leaves_it_open_whether_its_end_is_durable() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let store = open::<Pmem>(&directory.path().join("pool"));
        let guard = store.pool().pin();
        let lock = Lock::of(store.root.lock());
        lock.acquire(&guard).release_unfenced();
        store.end_orphan(&guard);
        assert!(Lock::may_be_unfenced(lock.load_word(store.pool().medium())));
    }

    /// A batch that has been published and not decided.
    fn published<'s>(
        store: &'s Store,
        guard: &'s Guard<'s, Dram>,
        steps: &'s [Step<'s>],
    ) -> Flight<'s, 's, Dram> {
        let mut flight = store.prepare(guard, steps).unwrap_or_else(|_| panic!("there is room"));
        assert!(flight.publish().is_ok());
        flight
    }

    #[test]
    fn all_that_a_batch_under_way_names_can_be_reached_and_is_not_swept() {
        let (store, clock) = store();
        store.give(b"a", &LONG, Some(2000));
        let put = |key, value| Step {
            key,
            what: Some(What::Put { value, expires_at: Some(2000) }),
            expected: None,
        };
        let steps = [put(b"a", &LONG), put(b"b", b"short")];
        let guard = store.pool().pin();
        let mut flight = published(&store, &guard, &steps);
        let reachable: Vec<u64> = store.reachable().into_iter().map(|block| block.0).collect();
        let extent = |at| Record::at(&guard, at).ok()?.body.outline.map(|outline| outline.extent);
        let (new, old) = (flight.news[0].offset, flight.olds[0].unwrap());
        let blocks = [
            Some(flight.descriptor.offset()),
            Some(new),
            extent(new),
            Some(flight.news[1].offset),
            Some(old),
            extent(old),
        ];
        assert!(blocks.iter().all(|block| reachable.contains(&block.unwrap())));
        clock.advance(1000);
        assert_eq!(store.sweep_expired(1000), 0);
        flight.commit();
        store.retire_blocks(&flight.remains());
        drop(guard);
        assert_eq!(store.sweep_expired(1000), 2);
    }

    #[test]
    fn a_record_is_claimed_from_when_its_batch_publishes_it_until_that_has_ended() {
        let (store, _) = store();
        let what = Some(What::Put { value: b"1", expires_at: None });
        let steps = [Step { key: b"a", what, expected: None }];
        let guard = store.pool().pin();
        let mut flight = published(&store, &guard, &steps);
        let word = flight.news[0].offset;
        let is_claimed = || store.is_claimed(&guard, word);
        assert!(is_claimed());
        // Its own batch word says so.
        store.root.set_active(0);
        assert!(is_claimed());
        store.root.set_active(flight.descriptor.offset());
        flight.descriptor.decide(Status::Committed);
        store.settle_entries(&guard, &flight.descriptor, Status::Committed);
        // Whoever ends the batch in the place of one who dies now must find it.
        assert!(is_claimed());
        flight.land();
        assert!(!is_claimed());
        store.retire_blocks(&flight.remains());
    }

    #[test]
    fn what_a_batch_leaves_behind_is_nobody_s_and_all_else_is_somebody_s() {
        let (store, _) = store();
        let put = |key, value| Write { key, what: What::Put { value, expires_at: None } };
        let remove = |key| Write { key, what: What::Remove };
        let sound = |what: &str| {
            let memory = store.memory();
            assert_eq!((memory.garbage, memory.used - memory.reachable), (0, 0), "{what}: {memory:?}");
            assert!(store.check(&mut |_, _| {}).is_sound());
        };
        store.give(b"a", &LONG, None);
        let a = store.version(b"a").unwrap();
        assert_eq!(
            store.commit(&[put(b"b", &LONG), put(b"a", b"short")], &[], Durably::Store),
            Ok(Commit::Done)
        );
        sound("committed");
        // Of the keys, in the order in which they come, none, one or two are published when it turns out.
        for expected in [b"a", b"x", b"y"] {
            let writes = [put(b"a", &LONG), put(b"x", &LONG), put(b"y", b"short")];
            assert_eq!(store.commit(&writes, &[(expected, a)], Durably::Store), Ok(Commit::Changed(0)));
            sound("taken back");
        }
        assert_eq!(
            store.commit(&[remove(b"a"), remove(b"b"), remove(b"nobody")], &[], Durably::Store),
            Ok(Commit::Done)
        );
        sound("removed");
        assert_eq!(store.len().get(), 0);
        let keys: [&[u8]; 2] = [b"p", b"q"];
        keys.iter().for_each(|key| store.give(key, &LONG, None));
        let guard = store.pool().pin();
        store.see_frozen(&guard, &keys);
        drop(guard);
        sound("frozen");
    }
}
