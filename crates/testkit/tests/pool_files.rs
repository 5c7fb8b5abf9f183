//! A pool's file appears whole or not at all, whichever call of the file system fails while it is made.

use terrace_medium::Shm;
use terrace_medium::files::{Files, SystemFiles};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::simfs::{Fault, Faulty};

fn check(make: impl Fn(Faulty<SystemFiles>) -> Faulty<SystemFiles>) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("new.pool");
    let options = PoolOptions::at(&path).size(1 << 20);
    let names = || SystemFiles.list(directory.path()).unwrap();
    let counting = make(Faulty::counting(SystemFiles));
    drop(options.create_through::<Shm, _>(&counting).unwrap());
    SystemFiles.remove(&path).unwrap();
    let calls = counting.calls();
    assert!(calls >= 5, "{calls}");
    for (nth, fault) in (0..calls).flat_map(|nth| Fault::ALL.map(|fault| (nth, fault))) {
        let faulty = Faulty::failing(SystemFiles, nth, fault);
        let Err(error) = options.create_through::<Shm, _>(&make(faulty)) else {
            panic!("call {nth}: made all the same")
        };
        assert!(error.to_string().contains("new.pool"), "call {nth}: {error}");
        if !names().is_empty() {
            // Only the name was not sure to stay.
            assert_eq!((nth + 1, names()), (calls, vec!["new.pool".into()]), "{error}");
            let pool: Pool<Shm> = options.open().unwrap();
            assert_eq!(pool.size(), 1 << 20);
            drop(pool);
            SystemFiles.remove(&path).unwrap();
        }
    }
}

#[test]
fn in_files_without_names() {
    check(|files| files);
}

#[test]
fn under_temporary_names() {
    check(Faulty::without_unnamed_files);
}
