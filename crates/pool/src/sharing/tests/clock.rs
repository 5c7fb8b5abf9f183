//! Tests of `clock`.

use super::*;

#[test]
fn today_has_no_date_and_other_days_have_one() {
    assert_eq!(wall_clock(now_ms()).len(), 5);
    assert!(wall_clock(0).starts_with("19"));
    wall_clock(u64::MAX);
}
