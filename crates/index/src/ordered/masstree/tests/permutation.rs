//! Tests of `permutation.rs`.

use super::*;

fn slots(permutation: Permutation) -> Vec<usize> {
    permutation.slots().collect()
}

#[test]
fn insert_takes_the_first_free_slot() {
    let (one, slot) = Permutation::EMPTY.insert(0);
    assert_eq!((slots(one), slot), (vec![0], 0));
    let (two, slot) = one.insert(0);
    assert_eq!((slots(two), slot), (vec![1, 0], 1));
    let (three, slot) = two.insert(1);
    assert_eq!((slots(three), slot), (vec![1, 2, 0], 2));
    assert!(three.is_sound());
}

#[test]
fn removed_slot_is_the_next_free_one() {
    let four = Permutation::of(4);
    let three = four.remove(1);
    assert_eq!(slots(three), [0, 2, 3]);
    assert_eq!(three.insert(3), (Permutation(four.remove(1).insert(3).0.0), 1));
    assert!(three.is_sound());
}

#[test]
fn every_row_of_changes_keeps_each_slot_once() {
    let mut permutation = Permutation::EMPTY;
    for turn in 0..500usize {
        let len = permutation.len();
        permutation = match turn * 7 % 11 {
            0..6 if len < WIDTH => permutation.insert(turn % (len + 1)).0,
            10 => permutation.cut(len / 2),
            _ if len > 0 => permutation.remove(turn % len),
            _ => permutation,
        };
        assert!(permutation.is_sound(), "{permutation:?} after {turn} turns");
    }
}

#[test]
fn full_and_empty_are_sound() {
    assert!(Permutation::of(0).is_sound() && Permutation::of(WIDTH).is_sound());
    assert_eq!(slots(Permutation::of(WIDTH)), (0..WIDTH).collect::<Vec<_>>());
    assert!(!Permutation(Permutation::EMPTY.0 ^ 1 << 4).is_sound());
}
