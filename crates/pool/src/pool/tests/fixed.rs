//! Tests of `fixed`.

use crate::pool::Pool;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Dram, Line, Offset, Word};

#[test]
fn fix_keeps_the_pool_open_and_checks_bounds() {
    let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
    let fixed = pool.fix::<Line>(Offset::new((1 << 20) - 64)).unwrap();
    assert_eq!(fixed.offset().raw(), (1 << 20) - 64);
    assert!(std::ptr::eq(&raw const *fixed, pool.region().at(fixed.offset())));
    assert!(pool.fix::<Line>(Offset::new(1 << 20)).is_none(), "beyond the end");
    assert!(pool.fix::<Line>(Offset::new(32)).is_none(), "not at a line");
    assert!(matches!(pool.close(), Err(crate::error::CloseError::StillOpen)), "it keeps the pool open");
    fixed.0[0].store(fixed.pool.medium(), 1, Relaxed);
}

#[test]
fn fix_row_checks_all_of_the_row() {
    let pool = Pool::<Dram>::anonymous(1 << 20).unwrap();
    let row = pool.fix_row::<Line>(Offset::new((1 << 20) - 192), 3).unwrap();
    assert_eq!((row.as_slice().len(), row.offset().raw()), (3, (1 << 20) - 192));
    assert!(std::ptr::eq(&raw const row.as_slice()[2], pool.region().at(Offset::new((1 << 20) - 64))));
    assert!(pool.fix_row::<Line>(Offset::new((1 << 20) - 192), 4).is_none(), "beyond the end");
    assert!(pool.fix_row::<Line>(Offset::new(32), 1).is_none(), "not at a line");
    assert!(pool.fix_row::<Word>(Offset::new(64), 0).is_none(), "none at all");
    assert!(pool.fix_row::<Word>(Offset::new(64), usize::MAX / 4).is_none(), "more than 64 bits can count");
}
