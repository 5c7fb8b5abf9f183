//! Tests: places where a pool cannot be created or grow: a missing directory, no space, no write
//! permission.
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

use crate::common::{TINY, argument, problem, say, tiny};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{MappedMedium, Offset, Shm, Word};
use terrace_pool::{GrowError, PoolOptions, Problem, Start};

#[test]
fn error_names_the_missing_directory() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("no/such");
    let path = missing.join("a.pool");
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for (path, parent) in [(path, missing), (file.join("a.pool"), file)] {
        for outcome in
            [tiny(&path).create::<Shm>(), tiny(&path).open::<Shm>(), tiny(&path).open_or_create::<Shm>()]
        {
            let error = outcome.err().unwrap();
            assert!(matches!(&error.problem, Problem::NoDirectory(dir) if *dir == parent), "{error}");
            assert!(error.to_string().contains(&format!("mkdir -p {}", parent.display())), "{error}");
        }
    }
}

#[test]
fn relative_path_needs_no_directory() {
    let name = format!("relative-{}.pool", std::process::id());
    tiny(name.as_ref()).create::<Shm>().unwrap().close().unwrap();
    std::fs::remove_file(name).unwrap();
}

#[test]
fn pool_larger_than_the_file_system_is_refused() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("a.pool");
    let error = PoolOptions::at(&path).size(8 << 40).create::<Shm>().err().unwrap();
    assert!(error.to_string().starts_with("no room for 8.0 TiB on the file system of"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn pool_grows_in_place_and_keeps_its_size() {
    for place in ["/dev/shm", env!("CARGO_TARGET_TMPDIR")] {
        let dir = tempfile::tempdir_in(place).unwrap();
        let path = dir.path().join("a.pool");
        let pool = tiny(&path).max_size(4 << 20).create::<Shm>().unwrap();
        let base = pool.region().medium();
        let before = terrace_medium::Medium::base(base);
        assert_eq!(pool.grow(1 << 20).unwrap(), 1 << 20);
        assert_eq!(terrace_medium::Medium::base(base), before);
        assert_eq!(path.metadata().unwrap().len(), 1 << 20);
        assert!(path.metadata().unwrap().blocks() * 512 >= 1 << 20);
        assert!(matches!(pool.grow(5 << 20), Err(GrowError::Reserved { .. })));
        assert!(matches!(pool.grow(TINY), Err(GrowError::Smaller { .. })));
        assert_eq!(pool.verify_superblock_and_roots(), []);
        pool.abandon();
        let pool = tiny(&path).open::<Shm>().unwrap();
        assert_eq!((pool.size(), pool.found()), (1 << 20, Start::Unclean));
        assert_eq!(pool.grow(8 << 20).unwrap(), 8 << 20);
    }
}

#[test]
fn interrupted_growth_has_no_effect() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("a.pool");
    tiny(&path).create::<Shm>().unwrap().abandon();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0xaa; 5000], TINY).unwrap();
    let pool = tiny(&path).open::<Shm>().unwrap();
    assert_eq!(pool.size(), TINY);
    assert_eq!(pool.grow(2 * TINY).unwrap(), 2 * TINY);
}

/// Runs the ignored test `name` in a mount namespace of its own, after `script` has prepared the
/// directory that is its argument. Returns false, with a message, where the system does not permit
/// that.
fn in_own_mounts(name: &str, script: &str) -> bool {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let own = "mount -t tmpfs -o size=1m none \"$TERRACE_TEST\"";
    let run = format!(
        "{own} || exit 77; {script}; exec {:?} --exact places::{name} --ignored --nocapture --test-threads=1",
        std::env::current_exe().unwrap()
    );
    let unshare = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let mut command = Command::new("unshare");
    command.args([unshare, "sh", "-c", &run]).env("TERRACE_TEST", dir.path()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        eprintln!("SKIPPED {name}: there is no unshare command");
        return false;
    };
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    if !status.success() && !said.contains("running 1 test") {
        eprintln!("SKIPPED {name}: this system does not let a test mount a file system of its own");
        return false;
    }
    assert!(status.success() && said.contains("came to its end"), "{name}: {said}");
    true
}

#[test]
fn full_file_system_refuses_new_and_growing_pools() {
    in_own_mounts("full", "true");
}

#[test]
#[ignore = "runs in its own mount namespace"]
fn full() {
    let dir = argument();
    let path = dir.join("a.pool");
    let large = PoolOptions::at(&path).size(2 << 20);
    let error = large.create::<Shm>().err().unwrap();
    assert!(error.to_string().starts_with("no room for 2.0 MiB on the file system of"), "{error}");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    let pool = tiny(&path).create::<Shm>().unwrap();
    let error = pool.grow(4 << 20).unwrap_err();
    assert!(error.to_string().contains("its file system is full"), "{error}");
    assert_eq!((pool.size(), path.metadata().unwrap().len()), (TINY, TINY));
    assert_eq!(pool.verify_superblock_and_roots(), []);
    assert_eq!(pool.grow(512 << 10).unwrap(), 512 << 10);
    pool.set_root("one", "test", 400 << 10).unwrap();
    pool.close().unwrap();
    holes_on_a_full_file_system(&dir);
    say("came to its end");
}

/// Opening a pool with holes is refused, since a store to a hole would fault.
fn holes_on_a_full_file_system(dir: &Path) {
    let (whole, holes) = (dir.join("a.pool"), dir.join("holes.pool"));
    let image = std::fs::read(&whole).unwrap();
    let file = std::fs::File::create(&holes).unwrap();
    file.write_all_at(&image[..20480], 0).unwrap();
    file.set_len(512 << 10).unwrap();
    let rest = vec![1; 1 << 20];
    let _ = std::fs::write(dir.join("rest"), rest);
    let error = PoolOptions::at(&holes).open::<Shm>().err().unwrap();
    assert!(matches!(error.problem, Problem::Map(terrace_medium::MapError::NoSpace { .. })), "{error}");
    let error = PoolOptions::at(&holes).read_only(true).open::<Shm>().err().unwrap();
    assert!(matches!(error.problem, Problem::Map(terrace_medium::MapError::NoSpace { .. })), "{error}");
    // A pool without holes needs no space.
    assert_eq!(PoolOptions::at(&whole).read_only(true).open::<Shm>().unwrap().roots().len(), 1);
    std::fs::remove_file(dir.join("rest")).unwrap();
    assert_eq!(PoolOptions::at(&holes).read_only(true).open::<Shm>().unwrap().roots().len(), 1);
    PoolOptions::at(&whole).open::<Shm>().unwrap();
}

#[test]
fn unlimited_file_system_has_room_for_holes() {
    in_own_mounts("unlimited", "mount -t tmpfs -o size=0 none \"$TERRACE_TEST\"");
}

#[test]
#[ignore = "runs in its own mount namespace"]
fn unlimited() {
    let path = argument().join("a.pool");
    tiny(&path).create::<Shm>().unwrap().close().unwrap();
    let image = std::fs::read(&path).unwrap();
    let holes = argument().join("holes.pool");
    let file = std::fs::File::create(&holes).unwrap();
    file.write_all_at(&image[..20480], 0).unwrap();
    file.set_len(TINY).unwrap();
    assert_eq!(PoolOptions::at(&holes).read_only(true).open::<Shm>().unwrap().size(), TINY);
    say("came to its end");
}

#[test]
fn read_only_file_system_permits_only_reading() {
    let test = format!("{:?}", std::env::current_exe().unwrap());
    let make = format!("{test} --exact places::makes_a_pool --ignored >/dev/null");
    in_own_mounts("read_only", &format!("{make}; mount -o remount,ro \"$TERRACE_TEST\""));
}

#[test]
#[ignore = "prepares another test"]
fn makes_a_pool() {
    tiny(&argument().join("a.pool")).create::<Shm>().unwrap().close().unwrap();
}

#[test]
#[ignore = "runs in its own mount namespace"]
fn read_only() {
    let dir = argument();
    let error = tiny(&dir.join("a.pool")).open::<Shm>().err().unwrap();
    assert!(matches!(error.problem, Problem::ReadOnlyFileSystem), "{error}");
    assert!(error.to_string().contains("mounted read-only"), "{error}");
    assert!(matches!(problem(tiny(&dir.join("b.pool")).create::<Shm>()), Problem::ReadOnlyFileSystem));
    // A shared open stores to the participant table, even for reading only.
    let error = tiny(&dir.join("a.pool")).shared(true).open::<Shm>().err().unwrap();
    assert!(matches!(error.problem, Problem::ReadOnlyFileSystem), "{error}");
    tiny(&dir.join("a.pool")).read_only(true).open::<Shm>().unwrap();
    say("came to its end");
}

#[test]
fn missing_write_permission_is_reported() {
    in_own_mounts("denied", "chmod 0555 \"$TERRACE_TEST\"; touch \"$TERRACE_TEST/mine\" 2>/dev/null");
}

#[test]
#[ignore = "runs in its own mount namespace"]
fn denied() {
    let dir = argument();
    // Root bypasses permissions, so become nobody: 65534 everywhere.
    if rustix::process::geteuid().is_root() {
        // SAFETY: this process has one test thread and ends with it.
        if unsafe { libc::setuid(65534) } != 0 {
            eprintln!("SKIPPED denied: this user namespace has nobody but root");
            return say("came to its end");
        }
    }
    let error = tiny(&dir.join("a.pool")).create::<Shm>().err().unwrap();
    assert!(matches!(error.problem, Problem::Denied(_)), "{error}");
    assert!(error.to_string().contains("check who owns it"), "{error}");
    say("came to its end");
}

/// The number of free huge pages of 2 MiB. To run these tests, set /proc/sys/vm/nr_hugepages.
fn free_huge_pages() -> u64 {
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    free.ok().and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[test]
fn pools_lie_on_huge_pages() {
    if free_huge_pages() < 12 {
        eprintln!(
            "SKIPPED pools_lie_on_huge_pages: fewer than 12 free ones (echo 12 > /proc/sys/vm/nr_hugepages)"
        );
        return;
    }
    // Limited, so that 800 MiB are too many on a machine with more pages, too.
    let mount = "mount -t hugetlbfs -o pagesize=2M,size=24M none \"$TERRACE_TEST\"";
    in_own_mounts("huge", mount);
}

#[test]
#[ignore = "runs in its own mount namespace"]
fn huge() {
    let path = argument().join("a.pool");
    let pool = tiny(&path).create::<Shm>().unwrap();
    assert_eq!(pool.size(), 2 << 20);
    assert_eq!(pool.grow(8 << 20).unwrap(), 8 << 20);
    for _ in 0..3 {
        let error = pool.grow(800 << 20).unwrap_err();
        assert!(error.to_string().contains("its file system is full"), "{error}");
        assert_eq!(path.metadata().unwrap().blocks() * 512, 8 << 20, "a failed growth keeps no page");
    }
    pool.set_root("one", "test", 7 << 20).unwrap();
    assert!(pool.medium().mapping().huge_pages().unwrap().huge > 0);
    pool.abandon();
    assert!(matches!(problem(tiny(&path).read_only(true).open::<Shm>()), Problem::NotReadable));
    let pool = tiny(&path).open::<Shm>().unwrap();
    assert_eq!((pool.size(), pool.root("one", "test")), (8 << 20, Ok(Some(7 << 20))));
    assert_eq!(pool.grow(16 << 20).unwrap(), 16 << 20);
    drop(pool);
    std::fs::remove_file(&path).unwrap();
    shared_on_huge_pages(&path);
    say("came to its end");
}

fn shared_on_huge_pages(path: &Path) {
    let options = tiny(path).shared(true);
    let [one, other] = [(); 2].map(|()| options.open_or_create::<Shm>().unwrap());
    assert_eq!(one.grow(8 << 20).unwrap(), 8 << 20);
    assert_eq!((other.size(), other.other_participants().len()), (8 << 20, 1));
    let guard = one.pin();
    // A pool created this small has zones of 1 MiB.
    let block = guard.alloc(900 << 10).unwrap().fenced_later().into_offset();
    let word = Offset::<Word>::new(block);
    one.region().at(word).store(one.medium(), 77, Relaxed);
    assert_eq!(other.region().at(word).load(other.medium(), Relaxed), 77);
    // It dies while pinned.
    std::mem::forget(guard);
    one.abandon();
    assert_eq!((other.recover_dead(), other.other_participants().len()), (1, 0));
    other.collect(&mut |_| {});
    assert_eq!((other.space().readers, other.verify_memory()), (0, Vec::new()));
    other.close().unwrap();
    assert_eq!(options.open::<Shm>().unwrap().size(), 8 << 20);
}

#[test]
fn collapsing_to_huge_pages_ends_and_changes_nothing() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = PoolOptions::at(dir.path().join("a.pool")).size(40 << 20).huge_pages(true);
    let pool = options.create::<Shm>().unwrap();
    pool.set_root("one", "test", 20 << 20).unwrap();
    let (mut from, mut steps) = (0, 0);
    while let Some(next) = pool.collapse_step(from) {
        assert!(next > from);
        (from, steps) = (next, steps + 1);
    }
    assert_eq!(steps, 3);
    assert_eq!(pool.root("one", "test"), Ok(Some(20 << 20)));
    assert_eq!(pool.verify_superblock_and_roots(), []);
}

#[test]
fn pool_reserves_few_addresses_under_a_limit() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let run = format!(
        "ulimit -v 4000000 && exec {:?} --exact places::few_addresses --ignored --nocapture --test-threads=1",
        std::env::current_exe().unwrap()
    );
    let child = Command::new("sh").args(["-c", &run]).env("TERRACE_TEST", dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && said.contains("came to its end"), "{said}");
}

#[test]
#[ignore = "runs with few addresses"]
fn few_addresses() {
    let path = argument().join("a.pool");
    for _ in 0..2 {
        // First created, then opened.
        let pool = tiny(&path).open_or_create::<Shm>().unwrap();
        let error = pool.grow(4 << 20).unwrap_err();
        // One huge page.
        assert!(error.to_string().contains("2.0 MiB were reserved"), "{error}");
    }
    say("came to its end");
}
