//! Tests of `head.rs`.

use super::*;

#[test]
fn shape_keeps_what_it_is_made_of() {
    for (level, depth, counted) in [(0, 0, 0), (3, 8191, 65_535), (LEVELS - 1, 1, 7)] {
        let shape = Shape::new(level, depth, counted);
        assert_eq!((shape.level(), shape.depth(), shape.counted()), (level, depth, counted));
        assert!(shape.is_sound() && shape.with_counted(9).is_sound());
        let changed = (0..48).filter(|bit| Shape(shape.0 ^ 1 << bit).is_sound()).count();
        assert_eq!(changed, 0, "{shape:?}");
    }
    assert!(!Shape(0).is_sound());
}

#[test]
fn state_counts_reuse_of_a_slot_only() {
    let state = State::new(Permutation::of(2));
    assert_eq!(state.filling(2).counter(), 0, "the slot is new");
    assert_eq!(state.filling(1).counter(), 1);
    assert_eq!(state.filling(2).filling(2).counter(), 1);
    assert!(state.filling(2).is_sound());
}

#[test]
fn state_admits_two_permutations() {
    let (old, new) = (Permutation::of(3), Permutation::of(3).remove(1));
    let state = State::new(old).changing(old, new);
    assert!(state.admits(old) && state.admits(new) && !state.admits(new.remove(0)));
    let changed = (0..64).filter(|bit| State(state.0 ^ 1 << bit).is_sound()).count();
    assert_eq!(changed, 0);
}

#[test]
fn marks_are_apart() {
    let state = State::new(Permutation::EMPTY);
    assert!(!state.is_frozen() && !state.is_splitting());
    assert!(state.frozen().is_frozen() && !state.frozen().is_splitting());
    assert_eq!(state.with_splitting(true).with_splitting(false), state);
}
