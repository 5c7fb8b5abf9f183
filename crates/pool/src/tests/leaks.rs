//! Tests of leaks: whatever a thread leaves behind that dies between two instructions, a concurrent
//! collection frees it, and nothing else.

use crate::allocator::bitmaps::Fill;
use crate::allocator::words::UNCLEAN;
use crate::allocator::zones::{UnitState, UnitUse};
use crate::format::lifetime::Start;
use crate::gc::CollectReport;
use crate::open::options::PoolOptions;
use crate::pool::Pool;
use crate::pool::guard::Guard;
use crate::pool::inner::Inner;
use crate::tests::fixtures::{collection, exclusive_pool, geometry, more_participants, participants};
use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use terrace_medium::{Dram, MappedMedium, Shm};

const SIZE: u64 = 1 << 20;
/// Sizes of small blocks and of extents.
const BYTES: [usize; 8] = [24, 64, 96, 200, 512, 700, 3000, 9000];

/// A pool, and the reachable blocks in it.
struct Rig<M: MappedMedium> {
    pool: Pool<M>,
    kept: Vec<(u64, usize)>,
}

fn fill<M: MappedMedium>(guard: &Guard<'_, M>, bytes: usize) -> u64 {
    let fresh = guard.alloc(bytes).unwrap();
    let offset = fresh.offset();
    (0..bytes / 8)
        .for_each(|at| fresh.word(at * 8).store(guard.pool().medium(), offset ^ at as u64, Relaxed));
    fresh.fenced_later().into_offset()
}

impl<M: MappedMedium> Rig<M> {
    fn new(pool: Pool<M>) -> Self {
        let mut rig = Self { pool, kept: Vec::new() };
        let guard = rig.pool.pin();
        let blocks: Vec<_> =
            (0..400).map(|i| BYTES[i % BYTES.len()]).map(|bytes| (fill(&guard, bytes), bytes)).collect();
        for (i, (offset, bytes)) in blocks.into_iter().enumerate() {
            if i % 3 == 0 { guard.free(offset, bytes) } else { rig.kept.push((offset, bytes)) }
        }
        drop(guard);
        rig
    }

    fn inner(&self) -> &Inner<M> {
        &self.pool.0
    }

    fn collect(&self) -> CollectReport {
        self.pool.collect(&mut |marker| {
            let _guard = self.pool.pin();
            self.kept.iter().for_each(|&(offset, bytes)| marker.mark(offset, bytes));
        })
    }

    /// Checks that all kept blocks are intact, and that nothing else is allocated.
    fn check(&self, what: &str) {
        assert!(!self.pool.needs_collection(), "{what}");
        let findings = self.pool.verify_memory();
        assert!(findings.is_empty(), "{what}: {findings:?}");
        for _ in 0..2 {
            self.pool.reclaim_blocking();
        }
        let findings = self.pool.verify_memory();
        assert!(findings.is_empty(), "{what}, after reclaim: {findings:?}");
        for &(offset, bytes) in &self.kept {
            for at in 0..bytes as u64 / 8 {
                let word = self.inner().base().word_at(offset + at * 8).load(self.pool.medium(), Relaxed);
                assert_eq!(word, offset ^ at, "{what}: the block at {offset:#x}");
            }
        }
        let used: u64 =
            self.kept.iter().map(|&(_, bytes)| self.inner().units().classes.footprint(bytes as u64)).sum();
        let space = self.pool.space();
        assert_eq!(
            (space.used_by_blocks, space.waiting_bytes, space.lost),
            (used, 0, 0),
            "{what}: {space:?}"
        );
        assert_eq!(self.pool.faults(), 0, "{what}");
    }

    /// Allocates all memory, to see that none is missing, and frees it. Returns the bytes.
    fn take_everything(&self) -> u64 {
        let guard = self.pool.pin();
        let mut blocks = Vec::new();
        for bytes in [4096, 512, 64, 8] {
            while let Ok(fresh) = guard.alloc(bytes) {
                blocks.push((fresh.fenced_later().into_offset(), bytes));
            }
        }
        let sum = blocks.iter().map(|&(_, bytes)| bytes as u64).sum();
        blocks.into_iter().for_each(|(offset, bytes)| guard.free(offset, bytes));
        sum
    }

    /// Revalidated units in use `usage`.
    fn units(&self, usage: UnitUse) -> Vec<u64> {
        let state =
            |unit: &u64| UnitState(self.inner().units().unit(*unit).state.load(self.pool.medium(), Relaxed));
        let inner = self.inner();
        inner
            .units()
            .all_units()
            .filter(|unit| state(unit).usage() == usage && state(unit).open_seq() == inner.base().open_seq)
            .collect()
    }

    /// A unit without taken granules.
    fn empty_unit(&self) -> u64 {
        let inner = self.inner();
        let empty = |unit: &u64| inner.units().unit(*unit).taken.load(self.pool.medium(), Relaxed) == 0;
        inner
            .units()
            .all_units()
            .find(|unit| empty(unit) && inner.units().revalidate(*unit).usage() == UnitUse::Granules)
            .unwrap()
    }

    fn state(&self, unit: u64) -> UnitState {
        UnitState(self.inner().units().unit(unit).state.load(self.pool.medium(), Relaxed))
    }

    fn set_state(&self, unit: u64, state: UnitState) {
        self.inner().units().unit(unit).state.store(self.pool.medium(), state.0, SeqCst);
    }

    /// A full slab whose blocks are all kept.
    fn full_slab(&mut self) -> (u64, usize) {
        let guard = self.pool.pin();
        let before = self.units(UnitUse::Full).len();
        let mut blocks = Vec::new();
        while self.units(UnitUse::Full).len() <= before {
            blocks.push((fill(&guard, 512), 512));
        }
        drop(guard);
        self.kept.extend(blocks);
        let unit = *self.units(UnitUse::Full).last().unwrap();
        let number = self.state(unit).class().unwrap();
        assert_eq!(
            self.inner().units().fill(unit, self.inner().units().classes.get(number).unwrap()),
            Fill::Full
        );
        (unit, number)
    }

    /// Removes a block of the slab from the kept ones. Returns its place in the slab's bitmap: word
    /// and bit.
    fn forget_one_of(&mut self, unit: u64, number: usize) -> (u64, u64) {
        let inner = &*self.pool.0;
        let (start, class) =
            (inner.units().zones.start_of(unit), *inner.units().classes.get(number).unwrap());
        let at = self.kept.iter().position(|&(offset, _)| offset >= start && offset < start + 4096).unwrap();
        let (offset, _) = self.kept.swap_remove(at);
        let block = class.block_at(offset - start).unwrap();
        (block / 64, 1 << (block % 64))
    }

    /// Retires blocks until a chunk of them is in this thread's queue, and ends its grace period.
    fn fill_a_page(&self) {
        let guard = self.pool.pin();
        let slot = guard.thread_slot();
        while slot.oldest.load(self.pool.medium(), Relaxed) == 0 {
            guard.retire(fill(&guard, 64), 64);
        }
        drop(guard);
        (0..crate::reclaim::epoch::GRACE_EPOCHS).for_each(|_| _ = self.inner().epochs().try_advance());
    }
}

/// Leaves something behind, as a thread that dies.
type Leave<M> = fn(&mut Rig<M>);

fn private_blocks<M: MappedMedium>(rig: &mut Rig<M>) {
    let guard = rig.pool.pin();
    BYTES.iter().cycle().take(40).for_each(|&bytes| _ = fill(&guard, bytes));
}

fn unlinked_blocks<M: MappedMedium>(rig: &mut Rig<M>) {
    rig.kept.truncate(rig.kept.len() * 3 / 4);
}

fn page_half_drained<M: MappedMedium>(rig: &mut Rig<M>) {
    rig.fill_a_page();
    let guard = rig.pool.pin();
    let entries = rig.inner().leave_half_drained(guard.thread_slot(), 7);
    assert!(entries > 7);
}

fn page_between_owner_and_queue<M: MappedMedium>(rig: &mut Rig<M>) {
    let guard = rig.pool.pin();
    (0..5).for_each(|_| guard.retire(fill(&guard, 200), 200));
    assert_ne!(guard.thread_slot().chunk.swap(rig.pool.medium(), 0, Relaxed), 0);
}

fn bits_in_no_cache<M: MappedMedium>(rig: &mut Rig<M>) {
    for unit in rig.units(UnitUse::Listed) {
        let class = rig.inner().units().classes.get(rig.state(unit).class().unwrap()).unwrap();
        rig.inner().units().allocated_word(unit, 0).fetch_or(rig.pool.medium(), class.valid(0), SeqCst);
    }
}

fn slabs_in_no_cache<M: MappedMedium>(rig: &mut Rig<M>) {
    let guard = rig.pool.pin();
    for (i, cache) in guard.thread_slot().caches.iter().enumerate() {
        cache.place.store(rig.pool.medium(), 0, Relaxed);
        if i % 2 == 0 {
            cache.free.store(rig.pool.medium(), 0, Relaxed);
        }
        // As recovery does with a slot: what is left of the cache belongs to no slab.
    }
    rig.inner().heap().drain_caches(guard.thread_slot());
}

fn slabs_popped_but_listed<M: MappedMedium>(rig: &mut Rig<M>) {
    for list in &rig.inner().base().shared().lists {
        let head = list.head.load(rig.pool.medium(), Relaxed);
        if let Some(unit) = (head & 0xffff_ffff).checked_sub(1) {
            let next = rig.inner().units().unit(unit).link.load(rig.pool.medium(), Relaxed) & 0xffff_ffff;
            list.head.store(rig.pool.medium(), ((head >> 32) + 1) << 32 | next, Relaxed);
        }
    }
}

fn slab_listed_but_not_pushed<M: MappedMedium>(rig: &mut Rig<M>) {
    let (unit, number) = rig.full_slab();
    let (word, bit) = rig.forget_one_of(unit, number);
    rig.inner().units().allocated_word(unit, word).fetch_and(rig.pool.medium(), !bit, SeqCst);
    rig.set_state(unit, rig.state(unit).with(UnitUse::Listed));
}

fn full_slab_with_a_free_block<M: MappedMedium>(rig: &mut Rig<M>) {
    let (unit, number) = rig.full_slab();
    let (word, bit) = rig.forget_one_of(unit, number);
    rig.inner().units().allocated_word(unit, word).fetch_and(rig.pool.medium(), !bit, SeqCst);
}

fn full_slab_of_garbage<M: MappedMedium>(rig: &mut Rig<M>) {
    let (unit, number) = rig.full_slab();
    let class = rig.inner().units().classes.get(number).unwrap();
    (0..class.blocks).for_each(|_| _ = rig.forget_one_of(unit, number));
}

fn unit_that_is_no_slab_yet<M: MappedMedium>(rig: &mut Rig<M>) {
    let unit = rig.empty_unit();
    rig.inner().units().unit(unit).taken.store(rig.pool.medium(), !0, SeqCst);
}

fn granules_without_link<M: MappedMedium>(rig: &mut Rig<M>) {
    let unit = rig.empty_unit();
    rig.inner().units().unit(unit).taken.store(rig.pool.medium(), 0xff00_00ff_0f0f_0001, SeqCst);
}

fn unit_without_hints<M: MappedMedium>(rig: &mut Rig<M>) {
    let unit = rig.empty_unit();
    let zone = rig.inner().units().zones.of_unit(unit);
    for hint in [crate::allocator::zones::Hint::Empty, crate::allocator::zones::Hint::Room] {
        let (word, bit) = rig.inner().units().hint_word(hint, &zone, unit);
        word.fetch_and(rig.pool.medium(), !bit, SeqCst);
    }
}

fn new_slabs<M: MappedMedium>(rig: &mut Rig<M>) {
    for (number, usage) in [(3, UnitUse::Owned), (3, UnitUse::Reserve), (9, UnitUse::Owned)] {
        let class = rig.inner().units().classes.get(number).unwrap();
        let unit = rig.inner().heap().granules.take_unit(number, class, usage).unwrap();
        // Its marks are what was there before.
        (0..u64::from(class.words)).for_each(|word| {
            rig.inner().units().mark_word(unit, class, word).store(
                rig.pool.medium(),
                0x5a5a_1234_5678_9abc >> word,
                Relaxed,
            );
        });
    }
}

fn pages_of_the_reserve<M: MappedMedium>(rig: &mut Rig<M>) {
    let class = rig.inner().units().classes.of(512).unwrap();
    let class = rig.inner().units().classes.get(class).unwrap();
    (0..3).for_each(|_| _ = rig.inner().heap().take_from_reserve(class).unwrap());
}

fn bytes_lost<M: MappedMedium>(rig: &mut Rig<M>) {
    let guard = rig.pool.pin();
    let _ = fill(&guard, 512);
    rig.inner().base().leak(512);
}

fn everything<M: MappedMedium>() -> Vec<(&'static str, Leave<M>)> {
    vec![
        ("private blocks", private_blocks),
        ("unlinked blocks", unlinked_blocks),
        ("a chunk half drained", page_half_drained),
        ("a chunk between owner and queue", page_between_owner_and_queue),
        ("bits in no cache", bits_in_no_cache),
        ("slabs in no cache", slabs_in_no_cache),
        ("slabs popped but listed", slabs_popped_but_listed),
        ("a slab listed but not pushed", slab_listed_but_not_pushed),
        ("a full slab with a free block", full_slab_with_a_free_block),
        ("a full slab of garbage", full_slab_of_garbage),
        ("a unit that is no slab yet", unit_that_is_no_slab_yet),
        ("granules without link", granules_without_link),
        ("a unit without hints", unit_without_hints),
        ("new slabs", new_slabs),
        ("chunks of the reserve", pages_of_the_reserve),
        ("bytes lost", bytes_lost),
    ]
}

#[test]
fn whatever_is_left_comes_back() {
    for (what, leave) in everything::<Dram>() {
        let mut rig = Rig::new(exclusive_pool::<Dram>());
        let all = rig.take_everything();
        let used = |rig: &Rig<Dram>| -> u64 {
            rig.kept.iter().map(|&(_, bytes)| rig.inner().units().classes.footprint(bytes as u64)).sum()
        };
        let before = used(&rig);
        leave(&mut rig);
        rig.inner().base().request_collection();
        assert!(rig.pool.needs_collection() && rig.pool.space().collecting);
        assert_eq!(rig.collect().unsound, 0, "{what}");
        rig.check(what);
        // All memory is available again, except what is newly kept and the slabs that contain it.
        let kept_more = used(&rig).saturating_sub(before);
        assert!(rig.take_everything() + 2 * kept_more + (8 << 10) >= all, "{what}");
        rig.check(what);
        assert_eq!(rig.collect(), CollectReport::default(), "{what}");
    }
}

#[test]
fn all_of_it_together_comes_back_time_and_again() {
    let mut rig = Rig::new(Pool::<Dram>::anonymous_with(2 * SIZE, geometry()).unwrap());
    for round in 0..12 {
        for (at, (_, leave)) in everything().into_iter().enumerate() {
            if (at + round) % 4 != 0 {
                leave(&mut rig);
            }
        }
        rig.inner().base().request_collection();
        assert!(rig.collect().freed > 0);
        rig.check("everything");
        // Makes room for the next round.
        let guard = rig.pool.pin();
        rig.kept.drain(..).for_each(|(offset, bytes)| guard.retire(offset, bytes));
        rig.kept = BYTES.iter().map(|&bytes| (fill(&guard, bytes), bytes)).collect();
        drop(guard);
        rig.pool.reclaim_blocking();
    }
}

#[test]
fn collection_keeps_reachable_blocks() {
    let rig = Rig::new(exclusive_pool::<Dram>());
    let guard = rig.pool.pin();
    (0..50).for_each(|i| guard.retire(fill(&guard, BYTES[i % 8]), BYTES[i % 8]));
    drop(guard);
    let space = rig.pool.space();
    rig.inner().base().request_collection();
    // All that is allocated is reachable, in a cache, or in limbo.
    let report = rig.collect();
    assert_eq!((report.freed, report.unsound), (0, 0));
    assert_eq!(rig.pool.space(), crate::Space { collecting: false, ..space });
    rig.check("alive");
}

#[test]
fn a_collector_that_died_anywhere_is_followed_by_another() {
    for stop in 0..6 {
        let mut rig = Rig::new(exclusive_pool::<Dram>());
        everything().iter().for_each(|(_, leave)| leave(&mut rig));
        rig.inner().base().request_collection();
        // The steps of a collection, up to some point.
        let inner = rig.inner();
        collection(inner).clear_marks();
        collection(inner).start_marking();
        if stop > 0 {
            collection(inner).snapshot_granules();
            collection(inner).mark_caches();
        }
        if stop > 1 {
            inner.base().shared().sweeping.store(
                rig.pool.medium(),
                inner.units().all_units().nth(20).unwrap() + 1,
                SeqCst,
            );
        }
        let guard = rig.pool.pin();
        let others: Vec<_> = (0..60).map(|i| (fill(&guard, BYTES[i % 8]), BYTES[i % 8])).collect();
        if stop > 2 {
            others.into_iter().for_each(|(offset, bytes)| guard.retire(offset, bytes));
        } else {
            rig.kept.extend(others);
        }
        drop(guard);
        // A thread dies under the first collector's round.
        if stop > 3 {
            slabs_popped_but_listed(&mut rig);
            slabs_in_no_cache(&mut rig);
            slab_listed_but_not_pushed(&mut rig);
        }
        if stop > 4 {
            rig.inner().base().request_collection();
        }
        assert!(rig.pool.needs_collection());
        rig.collect();
        rig.check(&format!("stopped at {stop}"));
    }
}

#[test]
fn a_trace_that_gives_up_or_panics_frees_nothing() {
    let mut rig = Rig::new(exclusive_pool::<Dram>());
    everything().iter().for_each(|(_, leave)| leave(&mut rig));
    rig.inner().base().request_collection();
    let report = rig.pool.collect(&mut |marker| marker.give_up());
    assert_eq!((report.freed, report.units), (0, 0));
    let traced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        rig.pool.collect(&mut |_| panic!("as planned"));
    }));
    assert!(traced.is_err() && rig.pool.needs_collection());
    rig.take_everything();
    rig.collect();
    rig.check("at last");
}

#[test]
fn stopped_collection_frees_nothing() {
    for late in [false, true] {
        let (_directory, [pool, other]) = participants::<Shm, 2>(geometry());
        let rig = Rig::new(pool);
        fill(&rig.pool.pin(), 64);
        rig.inner().base().request_collection();
        let (mut stays, asked) = ((!late).then(|| other.pin()), Cell::new(0));
        let should_stop = || asked.replace(asked.get() + 1) == 2;
        let report = rig.pool.collect_until(&should_stop, &mut |marker| {
            rig.kept.iter().for_each(|&(offset, bytes)| marker.mark(offset, bytes));
            stays.get_or_insert_with(|| other.pin());
        });
        assert_eq!((report.freed, report.units, asked.get()), (0, 0, 3), "{late}");
        assert!(rig.pool.needs_collection() && !rig.inner().base().is_marking());
        rig.take_everything();
        drop(stays);
        // Nor does it wait for another collector.
        let busy = other.0.peers.acquire(&other.0.base().shared().collector);
        let report = rig.pool.collect_until(&|| true, &mut |_| panic!("another one collects"));
        assert_eq!(report, CollectReport::default());
        drop(busy);
        assert_eq!(rig.collect().freed, 64, "{late}");
        rig.check("at last");
    }
}

#[test]
fn stopped_collection_leaves_unclean_units_to_the_next() {
    let (directory, [pool, other]) = participants::<Shm, 2>(geometry());
    let Rig { pool, kept } = Rig::new(pool);
    fill(&pool.pin(), 64);
    [pool, other].into_iter().for_each(Pool::abandon);
    let [pool, other] = more_participants::<Shm, 2>(&directory, geometry());
    let rig = Rig { pool, kept };
    let stays = other.pin();
    assert_eq!(rig.pool.collect_until(&|| true, &mut |_| panic!("before it traces")).freed, 0);
    assert!(rig.inner().base().is_unclean());
    drop(stays);
    assert!(rig.collect().freed >= 64);
    rig.check("at last");
}

#[test]
fn a_doubt_during_a_collection_is_not_forgotten() {
    let rig = Rig::new(exclusive_pool::<Dram>());
    rig.inner().base().request_collection();
    rig.pool.collect(&mut |marker| {
        rig.kept.iter().for_each(|&(offset, bytes)| marker.mark(offset, bytes));
        let guard = rig.pool.pin();
        let _ = fill(&guard, 64);
        rig.inner().base().request_collection();
    });
    assert!(rig.pool.needs_collection());
    assert_eq!(rig.collect().freed, 64);
    rig.check("twice");
}

/// Draining a cache changes no count, and takes less time than a recount.
#[test]
fn bytes_are_not_counted_while_a_cache_is_emptied() {
    let rig = Rig::new(exclusive_pool::<Dram>());
    let wait = |turns: usize| (0..turns).for_each(|_| std::hint::spin_loop());
    for round in 0..300 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let empty_again_and_again = || {
                while !stop.load(Relaxed) {
                    let guard = rig.pool.pin();
                    guard.free(fill(&guard, 24), 24);
                    drop(guard);
                    wait(200);
                    let guard = rig.pool.pin();
                    rig.inner().heap().drain_caches(guard.thread_slot());
                    drop(guard);
                    wait(200);
                }
            };
            scope.spawn(empty_again_and_again);
            (0..100).for_each(|_| wait(10 * (round % 10)));
            while !rig.inner().limbo().recount_if_quiet() {}
            stop.store(true, Relaxed);
        });
        assert_eq!(rig.pool.verify_memory(), [], "round {round}");
    }
}

#[test]
fn contradicted_blocks_are_kept() {
    let mut rig = Rig::new(exclusive_pool::<Dram>());
    let guard = rig.pool.pin();
    let (small, large) = (fill(&guard, 64), fill(&guard, 9000));
    drop(guard);
    rig.inner().base().request_collection();
    let report = rig.pool.collect(&mut |marker| {
        rig.kept.iter().for_each(|&(offset, bytes)| marker.mark(offset, bytes));
        marker.mark(small, 200);
        marker.mark(large, 24);
        marker.mark(1, 24);
        marker.mark_around(small + 8);
    });
    assert_eq!((report.unsound, report.freed), (3, 9000u64.next_multiple_of(64) - 64));
    rig.kept.push((small, 64));
    let guard = rig.pool.pin();
    assert!(rig.inner().heap().granules.free_extent(large, 64));
    drop(guard);
    rig.inner().base().request_collection();
    assert_eq!(rig.collect().freed, 0);
    rig.check("contradicted");
}

#[test]
fn a_pool_that_is_in_doubt_is_not_called_settled() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = PoolOptions::at(dir.path().join("pool")).size(SIZE).geometry(geometry());
    let mut rig = Rig::new(options.create::<Shm>().unwrap());
    everything().iter().for_each(|(_, leave)| leave(&mut rig));
    rig.inner().base().request_collection();
    let Rig { pool, kept } = rig;
    pool.close().unwrap();
    let rig = Rig { pool: options.open::<Shm>().unwrap(), kept };
    assert_eq!((rig.pool.found(), rig.pool.needs_collection()), (Start::Unclean, true));
    // A death before that collection is dealt with after it.
    let guard = rig.pool.pin();
    (0..20).for_each(|i| _ = fill(&guard, BYTES[i % 8]));
    drop(guard);
    rig.inner().base().request_collection();
    assert_eq!(rig.inner().base().shared().phase.load(rig.pool.medium(), Relaxed), UNCLEAN);
    rig.collect();
    rig.check("reopened");
    let Rig { pool, kept } = rig;
    pool.close().unwrap();
    let rig = Rig { pool: options.open::<Shm>().unwrap(), kept };
    assert_eq!((rig.pool.found(), rig.pool.needs_collection()), (Start::Clean, false));
    rig.inner().base().request_collection();
    assert_eq!(rig.collect().freed, 0);
    rig.check("clean");
}

#[test]
fn a_unit_whose_arrival_was_left_unfinished_is_brought_in() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = PoolOptions::at(dir.path().join("pool")).size(SIZE).geometry(geometry());
    for clean in [true, false] {
        let Rig { pool, kept } = Rig::new(options.create::<Shm>().unwrap());
        if clean {
            pool.close().unwrap()
        } else {
            pool.abandon()
        }
        let rig = Rig { pool: options.open::<Shm>().unwrap(), kept };
        let open_seq = rig.inner().base().open_seq;
        for unit in rig.inner().units().all_units() {
            let state = rig.state(unit);
            if state.open_seq() != open_seq && unit % 8 < 2 {
                rig.set_state(unit, state.at_open_seq(open_seq).with(UnitUse::Revalidating));
            }
        }
        rig.inner().base().request_collection();
        // Meanwhile other threads use the rest.
        let guard = rig.pool.pin();
        let more: Vec<_> = (0..20).map(|i| (fill(&guard, BYTES[i % 8]), BYTES[i % 8])).collect();
        more.into_iter().for_each(|(offset, bytes)| guard.retire(offset, bytes));
        drop(guard);
        rig.collect();
        assert!(rig.units(UnitUse::Revalidating).is_empty());
        rig.check(if clean { "closed" } else { "left in use" });
        drop(rig);
        std::fs::remove_file(dir.path().join("pool")).unwrap();
    }
}

#[test]
fn blocks_in_a_unit_under_revalidation_are_kept() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = PoolOptions::at(dir.path().join("pool")).size(SIZE).geometry(geometry());
    let Rig { pool, kept } = Rig::new(options.create::<Shm>().unwrap());
    pool.abandon();
    let rig = Rig { pool: options.open::<Shm>().unwrap(), kept };
    // A crash was observed, so waits for the revalidation are short.
    rig.inner().base().request_collection();
    let inner = rig.inner();
    rig.pool.collect(&mut |marker| {
        let _guard = rig.pool.pin();
        // Other threads begin to revalidate unused units, and are slow.
        let slow: Vec<_> = inner
            .units()
            .all_units()
            .filter(|&unit| rig.state(unit).open_seq() != inner.base().open_seq)
            .collect();
        for &unit in &slow {
            rig.set_state(
                unit,
                rig.state(unit).at_open_seq(inner.base().open_seq).with(UnitUse::Revalidating),
            );
        }
        rig.kept.iter().for_each(|&(offset, bytes)| marker.mark(offset, bytes));
        slow.iter().for_each(|&unit| inner.units().resume_revalidation(unit, rig.state(unit)));
    });
    rig.check("kept");
}

#[test]
fn disowned_slab_is_not_adopted_before_it_is_listed() {
    let mut rig = Rig::new(exclusive_pool::<Dram>());
    let (unit, number) = rig.full_slab();
    let (word, bit) = rig.forget_one_of(unit, number);
    let full = rig.state(unit);
    // It has left its owner's cache, and the owner is about to mark it full.
    rig.set_state(unit, full.with(UnitUse::Owned));
    rig.inner().base().request_collection();
    rig.pool.collect(&mut |marker| {
        let _guard = rig.pool.pin();
        rig.kept.iter().for_each(|&(offset, bytes)| marker.mark(offset, bytes));
        // The owner does so. Another thread frees a block of it, and is about to list it.
        rig.inner().units().allocated_word(unit, word).fetch_and(rig.pool.medium(), !bit, SeqCst);
        rig.set_state(unit, full.with(UnitUse::Listed));
    });
    rig.inner().heap().push(unit, rig.inner().units().unit(unit), full.with(UnitUse::Listed));
    let findings = rig.pool.verify_memory();
    assert!(findings.is_empty(), "{findings:?}");
}

/// A pool with listed slabs without an allocated block.
fn with_empty_slabs() -> Rig<Dram> {
    let rig = Rig::new(exclusive_pool::<Dram>());
    let guard = rig.pool.pin();
    let blocks: Vec<u64> = (0..100).map(|_| fill(&guard, 512)).collect();
    blocks.iter().for_each(|&offset| guard.free(offset, 512));
    rig.inner().heap().drain_caches(guard.thread_slot());
    drop(guard);
    rig
}

#[test]
fn a_slab_that_a_collector_looks_into_stays_one_until_it_has() {
    let rig = with_empty_slabs();
    let empty = |unit: &u64| {
        let class = rig.inner().units().classes.get(rig.state(*unit).class().unwrap()).unwrap();
        rig.inner().units().fill(*unit, class) == Fill::Empty
    };
    let unit = rig.units(UnitUse::Listed).into_iter().find(empty).unwrap();
    let after = rig.inner().units().inspect_unit(unit, |before| {
        rig.inner().heap().release_empty_slabs();
        assert_eq!(rig.state(unit).0, before.0);
        rig.inner().heap().release_empty_slabs();
        rig.state(unit).usage()
    });
    assert_eq!((after, rig.inner().heap().release_empty_slabs()), (UnitUse::Listed, 1));
}

#[test]
fn an_empty_slab_that_a_collector_died_over_holds_nobody_up() {
    let rig = with_empty_slabs();
    for unit in rig.units(UnitUse::Listed) {
        // If it were popped and listed again and again, this would not end.
        rig.inner().base().shared().sweeping.store(rig.pool.medium(), unit + 1, SeqCst);
        rig.inner().heap().release_empty_slabs();
    }
    rig.inner().base().request_collection();
    rig.collect();
    rig.check("inspected");
    assert!(rig.take_everything() > 0);
}
