//! Tests of `size.rs`.

use super::*;

fn counted(counts: &[(Event, u64)]) -> Counted {
    let tally = Tally::default();
    counts.iter().for_each(|&(event, by)| _ = tally.add(3, event, by));
    tally.sum()
}

#[test]
fn advice_depends_on_saved_reads() {
    use Event::*;
    let reads = [(Hit, 600), (Miss, 400), (Bucket, 400)];
    let with = |more: &[(Event, u64)]| counted(&[&reads, more].concat()).advice();
    assert_eq!(with(&[(GhostMiss, 32), (OldHit, 100)]), Advice::Double);
    assert_eq!(with(&[(GhostMiss, 31), (OldHit, 100)]), Advice::Keep);
    assert_eq!(with(&[(GhostMiss, 16), (Bucket, 400), (OldHit, 100)]), Advice::Double, "two buckets a miss");
    assert_eq!(with(&[(OldHit, 8)]), Advice::Keep);
    assert_eq!(with(&[(OldHit, 7)]), Advice::Halve);
    assert_eq!(with(&[(OldHit, 8), (Change, 1000)]), Advice::Halve, "for so many writes");
}

#[test]
fn bounds_round_down_to_a_power_of_two() {
    let logs = |min, max| CacheBounds { min, max }.logs();
    assert_eq!(logs(0, 0), None);
    assert_eq!(logs(0, 127), None, "less than a bucket");
    assert_eq!(logs(0, 128), Some((0, 0)));
    assert_eq!(logs(1000, 1 << 20), Some((2, 13)));
    assert_eq!(logs(1 << 20, 1 << 10), Some((3, 3)), "the largest counts");
}

#[test]
fn cache_is_judged_after_use_and_filling() {
    let seen = |operations| counted(&[(Event::Hit, operations)]);
    assert!(!seen(3583).is_enough_for(7) && seen(3584).is_enough_for(7));
    assert!(!seen(3999).is_enough_for(1000) && seen(4000).is_enough_for(1000));
    assert!(counted(&[(Event::Miss, 159), (Event::Filling, 10)]).is_filling());
    assert!(!counted(&[(Event::Miss, 160), (Event::Filling, 10)]).is_filling());
}

#[test]
fn sixteen_thread_slots_have_their_own_counters() {
    let tally = Tally::default();
    let first: Vec<u64> = (0..18).map(|thread_slot| tally.add(thread_slot, Event::Miss, 2)).collect();
    assert_eq!(first, [vec![2; 16], vec![4; 2]].concat());
    assert_eq!((tally.sum().of(Event::Miss), tally.sum().of(Event::Hit)), (36, 0));
}

#[test]
fn operations_are_hits_misses_and_changes() {
    let seen = counted(&[(Event::Hit, 100), (Event::Miss, 20), (Event::Change, 3), (Event::Bucket, 1000)]);
    assert_eq!(seen.operations(), 123);
    assert_eq!(seen.since(counted(&[(Event::Hit, 40), (Event::Change, 3)])).operations(), 80);
}
