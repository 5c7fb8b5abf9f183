//! Tests of `count.rs`.

use super::*;
use terrace_medium::{Dram, MappedMedium, Mapping, Offset, Region};
use terrace_testkit::TappedShm;

const KEY: u64 = 1 << 40;

fn with_count(test: impl FnOnce(&Count<'_, Dram>)) {
    with_count_on(test);
}

fn with_count_on<M: MappedMedium>(test: impl FnOnce(&Count<'_, M>)) {
    let region = Region::new(M::new(Mapping::anonymous(1 << 16, 1 << 16).unwrap()));
    let line = region.at(Offset::<Line>::new(0));
    let stripes = region.at(Offset::<Stripes>::new(64));
    test(&Count { medium: region.medium(), line, stripes });
}

fn recount(count: &Count<'_, Dram>, total: u64) {
    count.start_recount();
    count.advance_frontier(0);
    count.finish_recount(total);
}

#[test]
fn len_during_a_recount_is_consistent() {
    with_count(|count| {
        (0..7).for_each(|thread_slot| count.add(thread_slot, KEY, 1));
        for keys in [7, 8, 9, 10] {
            let mode = count.word(MODE).load(count.medium, Acquire);
            count.start_recount();
            count.advance_frontier(0);
            count.add(30, KEY, 1);
            count.finish_recount(keys);
            assert_eq!((count.len(), count.len_in(mode)), (keys + 1, keys + 1));
            let before = count.word(MODE).load(count.medium, Acquire);
            count.start_recount();
            assert_ne!(mode & COLUMN, before & COLUMN, "before the column was cleared");
            assert_eq!(count.len(), keys + 1);
        }
    });
}

#[test]
fn abandoned_recount_keeps_the_count() {
    with_count(|count| {
        count.add(1, KEY, 1);
        recount(count, 20);
        assert_eq!(count.len(), 20);
        count.start_recount();
        assert_eq!(count.len(), 20);
        count.advance_frontier(0);
        count.fill(30);
        assert_eq!(count.len(), 20);
        recount(count, 21);
        assert_eq!(count.len(), 21);
    });
}

#[test]
fn add_during_recount_restart_counts_once() {
    with_count(|count| {
        count.start_recount();
        count.advance_frontier(0);
        // Its collector has died. The next one begins, and a thread adds a key before the walk.
        count.clear();
        count.add(1, KEY, 1);
        count.word(MODE).store(count.medium, RECOUNTING, Release);
        count.advance_frontier(0);
        count.finish_recount(1);
        assert_eq!(count.len(), 1);
    });
}

#[test]
fn add_during_walk_counts_once() {
    for thread_slot in [3, 30] {
        with_count(|count| {
            for before in [0, 4, 8] {
                count.start_recount();
                assert_eq!(count.len(), before);
                // Before the walk, which will find the keys; at its place; and behind it.
                count.add(thread_slot, KEY, 1);
                count.advance_frontier(KEY);
                count.add(thread_slot, KEY, 1);
                count.add(thread_slot, KEY - 2, 1);
                count.advance_frontier(0);
                count.add(thread_slot, u64::MAX, 1);
                assert_eq!(count.len(), before + 4);
                count.finish_recount(before + 2);
                assert_eq!(count.len(), before + 4, "thread_slot {thread_slot}");
            }
        });
    }
}

#[test]
fn high_thread_slots_share_stripes() {
    with_count(|count| {
        let keys = |stripe: u64| count.stripes[stripe as usize].0[0].load(count.medium, Relaxed);
        for thread_slot in 0..OWN + 2 * SHARED {
            let stripe = if thread_slot < OWN { thread_slot } else { OWN + thread_slot % SHARED };
            let before = keys(stripe);
            count.add(thread_slot, KEY, 1);
            assert_eq!((keys(stripe), count.len()), (before + 1, thread_slot + 1));
        }
    });
}

#[test]
fn own_stripe_takes_no_read_modify_write() {
    with_count_on::<TappedShm>(|count| {
        let rmws = |thread_slot| count.medium.during(|| count.add(thread_slot, KEY, 1)).0.rmws;
        assert_eq!([0, OWN - 1, OWN, OWN + SHARED].map(rmws), [0, 0, 1, 1]);
        // Behind a walk it counts in both columns.
        count.start_recount();
        assert_eq!([0, OWN].map(rmws), [1, 1]);
        count.advance_frontier(0);
        assert_eq!([0, OWN].map(rmws), [2, 2]);
    });
}

#[test]
fn own_stripe_stays_own_during_recount() {
    with_count(|count| {
        count.start_recount();
        for thread_slot in 0..OWN + SHARED {
            count.add(thread_slot, KEY, 1);
            assert_eq!(
                count.stripes[thread_slot as usize].0[0].load(count.medium, Relaxed),
                1,
                "thread_slot {thread_slot}"
            );
        }
    });
}

#[test]
fn recover_ends_a_recount() {
    with_count(|count| {
        recount(count, 5);
        count.start_recount();
        count.recover();
        assert_eq!((count.word(MODE).load(count.medium, Relaxed), count.len()), (COLUMN, 5));
    });
}
