//! Tests of leaks: whatever a thread leaves behind that dies between two instructions, a concurrent
//! collection frees it, and nothing else.

mod rig;

use self::rig::*;
use crate::allocator::bitmaps::Fill;
use crate::allocator::words::UNCLEAN;
use crate::allocator::zones::UnitUse;
use crate::format::lifetime::Start;
use crate::gc::CollectReport;
use crate::open::options::PoolOptions;
use crate::pool::Pool;
use crate::tests::fixtures::{collection, exclusive_pool, geometry, more_participants, participants};
use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use terrace_medium::{Dram, Shm};

#[test]
fn collection_frees_all_that_a_death_leaves() {
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
fn a_request_during_a_collection_is_not_forgotten() {
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
fn a_pool_with_a_pending_collection_is_not_settled() {
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
fn unfinished_revalidation_of_a_unit_is_completed() {
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
fn dead_collector_of_an_empty_slab_holds_no_thread_up() {
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
