//! Tests: what calls cost on persistent memory, in lines written back, fences and lines read.

use std::path::Path;
use terrace_medium::files::Files;
use terrace_pool::Pool;
use terrace_testkit::{Counts, TappedPmem};
use terrace_tier::PoolFiles;

#[test]
fn calls_write_only_the_lines_they_touch() {
    let files = PoolFiles::create(Pool::<TappedPmem>::anonymous(16 << 20).unwrap(), Path::new("/")).unwrap();
    let file = files.create(Path::new("/a")).unwrap();
    file.allocate(1 << 20).unwrap();
    let pool = files.pool().clone();
    let cost = |call: &dyn Fn()| -> Counts { pool.medium().during(call).0 };
    // A record of the log, inside of what was allocated: nothing waits before the sync.
    let written = cost(&|| file.write_all_at(&[1; 100], 4000).unwrap());
    assert_eq!((written.write_backs, written.fences), (0, 0));
    let synced = cost(&|| file.sync_data().unwrap());
    assert_eq!((synced.write_backs, synced.fences), (3, 1));
    assert_eq!(cost(&|| file.sync_data().unwrap()).write_backs, 0);
    let read = cost(&|| file.read_exact_at(&mut [0; 4096], 8192).unwrap());
    assert_eq!(read.lines_read, 64 + 3, "the page, and what a pin reads");
}
