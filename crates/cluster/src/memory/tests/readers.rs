//! Tests of the bound of what readers hold back.

use crate::memory::readers::holds_too_much;
use std::time::Duration;

#[test]
fn node_that_stopped_for_half_a_lease_keeps_its_session() {
    let (lease, pool) = (Duration::from_secs(1), 800);
    let is_over =
        |waiting, age: u32, is_full| holds_too_much((waiting, pool), (lease * age / 8, lease), is_full);
    assert!(!is_over(700, 5, false));
    assert!(is_over(101, 9, false));
    // It holds back little of what waits, whatever its age.
    assert!(!is_over(100, 9, true));
    // Others lack the memory.
    assert!(is_over(101, 5, true));
    assert!(!is_over(101, 3, true));
}
