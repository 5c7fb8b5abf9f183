//! Tests of the ledger.

use crate::arbiter::Ledger;
use crate::memory::area::Area;
use crate::memory::ledger::AreaLedger;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn longest_lease_survives_a_death() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, pool) = (directory.path().join("pool.log"), Path::new("pool"));
    let mut ledger = AreaLedger(Arc::new(Area::create(&path, 7, 4, 5 << 20).unwrap()));
    assert_eq!(ledger.lease(), Duration::from_nanos(1), "none was noted");
    ledger.set_lease(Duration::from_secs(60));
    let again = AreaLedger(Arc::new(Area::open(&path, pool, 7).unwrap()));
    again.check().unwrap();
    assert_eq!(again.lease(), Duration::from_secs(60));
}
