//! Tests of `bucket.rs`.

use super::*;

fn word(bucket: &CacheBucket, key: u64) -> Option<u64> {
    match bucket.find(key) {
        Seen::Word { word, .. } => Some(word),
        _ => None,
    }
}

#[test]
fn least_recently_used_key_is_replaced() {
    let bucket = CacheBucket::new(false);
    (0..7).for_each(|key| assert_eq!(bucket.fill(key, key + 100, || true), Filled::Free));
    for key in [3, 0, 6, 1, 5, 4, 2] {
        assert_eq!(word(&bucket, key), Some(key + 100));
    }
    for (new, gone) in [(10, 3), (11, 0), (12, 6)] {
        assert_eq!(bucket.fill(new, new + 100, || true), Filled::Evicting { is_ghost: false });
        assert_eq!((bucket.find(gone), word(&bucket, new)), (Seen::Unknown, Some(new + 100)));
    }
    assert_eq!(bucket.fill(3, 103, || true), Filled::Evicting { is_ghost: true }, "it was here not long ago");
    assert_eq!(bucket.find(1), Seen::Unknown);
    assert_eq!(bucket.find(5), Seen::Word { word: 105, is_old: true });
    assert_eq!(bucket.find(5), Seen::Word { word: 105, is_old: false });
}

#[test]
fn complete_bucket_knows_absent_keys() {
    let bucket = CacheBucket::new(true);
    assert_eq!(bucket.find(1), Seen::Absent);
    for key in 1..=7 {
        bucket.begin(key, true);
        assert_eq!((bucket.find(key), bucket.find(8)), (Seen::Unknown, Seen::Absent), "under way");
        bucket.end(key, Some(key));
    }
    bucket.begin(7, false);
    bucket.end(7, None);
    assert_eq!(bucket.find(7), Seen::Absent, "deleted");
    bucket.begin(7, true);
    bucket.end(7, Some(70));
    bucket.begin(8, true);
    assert_eq!((bucket.find(8), bucket.find(9)), (Seen::Unknown, Seen::Unknown), "there was no room");
    bucket.end(8, Some(8));
    assert_eq!((bucket.find(8), word(&bucket, 7)), (Seen::Unknown, Some(70)), "a writer replaces nothing");
    bucket.begin(3, false);
    bucket.end(3, None);
    assert_eq!((bucket.find(3), bucket.find(9)), (Seen::Unknown, Seen::Unknown), "for ever");
}

#[test]
fn pending_key_is_unknown_until_filled() {
    let bucket = CacheBucket::new(true);
    bucket.begin(5, true);
    bucket.end(5, Some(50));
    bucket.begin(5, false);
    assert_eq!(bucket.fill(5, 50, || false), Filled::Not);
    assert_eq!(bucket.find(5), Seen::Unknown);
    // Its writer has deferred the fence; a thread that reads the word from the table persists
    // it.
    assert_eq!(bucket.fill(5, 51, || true), Filled::Free);
    assert_eq!((word(&bucket, 5), bucket.find(6)), (Some(51), Seen::Absent));
}

#[test]
fn two_keys_under_one_word_leave_the_bucket_incomplete() {
    let bucket = CacheBucket::new(true);
    for word in [1, 2] {
        bucket.begin(5, true);
        bucket.end(5, Some(word));
    }
    bucket.begin(5, false);
    bucket.end(5, None);
    assert_eq!(bucket.find(5), Seen::Unknown, "the other one may be there");
}

#[test]
fn removed_key_is_absent_from_any_slot() {
    for gone in 0..SLOTS as u64 {
        let bucket = CacheBucket::new(true);
        for key in 0..SLOTS as u64 {
            bucket.begin(key, true);
            bucket.end(key, Some(10 * key));
        }
        bucket.begin(gone, false);
        bucket.end(gone, None);
        for key in 0..SLOTS as u64 {
            assert_eq!(word(&bucket, key), (key != gone).then_some(10 * key), "{gone} is gone");
        }
        assert_eq!(bucket.find(gone), Seen::Absent);
        bucket.begin(100, true);
        bucket.end(100, Some(7));
        assert_eq!((word(&bucket, 100), bucket.find(gone)), (Some(7), Seen::Absent), "there is room again");
    }
}

#[test]
fn locked_bucket_is_not_filled() {
    let bucket = CacheBucket::new(false);
    let meta = bucket.lock();
    assert_eq!((bucket.find(1), bucket.fill(1, 1, || true)), (Seen::Unknown, Filled::Not));
    bucket.unlock(meta);
    assert_eq!(bucket.fill(1, 1, || true), Filled::Free);
}

fn full() -> CacheBucket {
    let bucket = CacheBucket::new(true);
    for key in 0..SLOTS as u64 {
        bucket.begin(key, true);
        bucket.end(key, Some(key));
    }
    bucket
}

#[test]
fn first_three_slots_of_a_complete_bucket_are_young() {
    let bucket = full();
    for key in [6, 2, 3, 0, 1, 4, 5, 6] {
        assert_eq!(bucket.find(key), Seen::Word { word: key, is_old: key >= 3 });
    }
}

#[test]
fn last_five_replaced_keys_are_ghosts() {
    // Their marks are all different.
    let keys: Vec<u64> = (0..20).collect();
    let marks: std::collections::BTreeSet<u64> = keys.iter().map(|&key| ghost_of(key)).collect();
    assert_eq!(marks.len(), keys.len());
    for (back, is_ghost) in [(0, false), (1, true), (2, true), (3, true), (4, true), (5, true), (6, false)] {
        let bucket = full();
        for (gone, new) in (0..6).zip(7..) {
            assert_eq!(bucket.fill(new, new, || true), Filled::Evicting { is_ghost: false }, "{gone}");
        }
        // Key 0 was the first to be replaced, 5 the last; 19 was never there.
        let again = if back == 0 { 19 } else { 6 - back };
        assert_eq!(bucket.fill(again, again, || true), Filled::Evicting { is_ghost }, "{back}");
        assert_eq!((word(&bucket, again), bucket.find(6)), (Some(again), Seen::Unknown), "6 was the oldest");
    }
}

#[test]
fn change_after_a_deferred_one_is_unknown() {
    for is_complete in [true, false] {
        let bucket = CacheBucket::new(is_complete);
        bucket.end(5, Some(50));
        for is_insert in [false, false, true, true, true] {
            bucket.begin(5, is_insert);
            assert_eq!(bucket.find(5), Seen::Unknown);
        }
        bucket.end(5, Some(51));
        assert_eq!(word(&bucket, 5), Some(51));
        assert_eq!(bucket.find(6), Seen::Unknown, "two keys are under one word");
    }
}

#[test]
fn incomplete_bucket_takes_a_key_at_the_end() {
    let bucket = CacheBucket::new(false);
    (0..SLOTS as u64).for_each(|key| bucket.begin(key, false));
    assert_eq!(bucket.fill(100, 1, || true), Filled::Free);
    bucket.end(3, Some(30));
    assert_eq!((word(&bucket, 100), word(&bucket, 3), word(&bucket, 4)), (Some(1), Some(30), None));
}
