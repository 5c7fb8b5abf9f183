//! Tests of `pairs.rs`.

use super::*;

#[test]
fn each_word_of_a_bucket_has_one_use() {
    let mut used: Vec<usize> = (0..U64::SLOTS).flat_map(|slot| [key_at(slot), value_at(slot)]).collect();
    used.extend([super::super::bucket::META, super::super::bucket::LOCK]);
    used.sort_unstable();
    assert_eq!(used, (0..16).collect::<Vec<_>>());
    assert!((0..U64::SLOTS).all(|slot| key_at(slot) / 8 == value_at(slot) / 8), "a pair lies in one line");
}
