//! Tests of `cursor.rs`.

use super::*;

#[test]
fn cursor_and_position_convert_without_loss() {
    for cursor in [0, 1, 2, 0x1234_5678_9abc, CURSOR_LIMIT / 2, CURSOR_LIMIT - 1] {
        let position = position_of(cursor).expect("below the limit");
        assert_eq!(cursor_at(position), cursor);
        // A double represents it exactly.
        assert_eq!(cursor as f64 as u64, cursor);
    }
    assert_eq!((position_of(1), position_of(CURSOR_LIMIT - 1)), (Some(1 << 11), Some(u64::MAX << 11)));
}

#[test]
fn numbers_from_the_limit_on_are_no_cursors() {
    let numbers = [CURSOR_LIMIT, CURSOR_LIMIT + 1, 1 << 63, u64::MAX];
    assert!(numbers.iter().all(|&number| position_of(number).is_none()));
}
