//! Tests of `obsolete.rs`.

use super::*;

#[test]
fn mark_is_never_zero() {
    let marks = [0, 1, 65_533, 65_534, 65_535, 65_536, u32::MAX].map(mark_of);
    assert_eq!(marks, [1, 2, 65_534, 65_535, 1, 2, 1]);
}

#[test]
fn generations_of_a_cycle_have_marks_of_their_own() {
    for generation in [0, 1, 65_534, 65_535, 131_069, 131_070, u32::MAX - 1] {
        let next = generation + 1;
        assert_eq!(cycle_of(next) != cycle_of(generation), mark_of(next) == 1, "{generation}");
    }
}
