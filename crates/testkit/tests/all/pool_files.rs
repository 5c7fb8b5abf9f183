//! A new pool's file is complete or absent, whichever file system call fails during its creation.

use terrace_medium::Shm;
use terrace_medium::files::{Files, SystemFiles};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::simfs::{Fault, Faulty};

fn check(make: impl Fn(Faulty) -> Faulty) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("new.pool");
    let options = PoolOptions::at(&path).size(1 << 20);
    let names = || SystemFiles.list(directory.path()).unwrap();
    let counting = make(Faulty::counting(SystemFiles));
    drop(options.create_through::<Shm>(&counting).unwrap());
    SystemFiles.remove(&path).unwrap();
    let calls = counting.calls();
    assert!(calls >= 5, "{calls}");
    for (nth, fault) in (0..calls).flat_map(|nth| Fault::ALL.map(|fault| (nth, fault))) {
        let faulty = Faulty::failing(SystemFiles, nth, fault);
        let Err(error) = options.create_through::<Shm>(&make(faulty)) else {
            panic!("call {nth}: created anyway")
        };
        assert!(error.to_string().contains("new.pool"), "call {nth}: {error}");
        if !names().is_empty() {
            // Only the durability of the name was uncertain.
            assert_eq!((nth + 1, names()), (calls, vec!["new.pool".into()]), "{error}");
            let pool: Pool<Shm> = options.open().unwrap();
            assert_eq!(pool.size(), 1 << 20);
            drop(pool);
            SystemFiles.remove(&path).unwrap();
        }
    }
}

#[test]
fn failed_creation_with_unnamed_files_leaves_no_file() {
    check(|files| files);
}

#[test]
fn failed_creation_with_temporary_names_leaves_no_file() {
    check(Faulty::without_unnamed_files);
}
