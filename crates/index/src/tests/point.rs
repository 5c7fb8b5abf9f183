//! Tests of `point.rs`.

use super::*;

#[test]
fn load_factor_is_keys_per_slot() {
    let load = |keys, slots| IndexStats { keys, slots, ..IndexStats::default() }.load_factor();
    assert_eq!([load(3, 4), load(0, 4), load(8, 8), load(0, 0)], [0.75, 0.0, 1.0, 0.0]);
}
