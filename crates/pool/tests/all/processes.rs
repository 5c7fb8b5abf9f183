//! Tests: several processes and one pool: exclusion, and the state after a kill.

use crate::common::{TINY, argument, child, expect, problem, say, stop, tiny};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{MappedMedium, Mapping, Offset, Protection, Shm, Word};
use terrace_pool::{Holder, Liveness, Pool, PoolOptions, Problem, Start};

#[test]
#[ignore = "a child of the other tests"]
fn holds_the_pool() {
    let pool = tiny(&argument()).program("a child").open_or_create::<Shm>().unwrap();
    pool.set_root("child", "test", pool.layout().zones + 4096).unwrap();
    say("open");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    pool.close().unwrap();
}

#[test]
#[ignore = "a child of the other tests"]
fn reads_the_pool() {
    let _pool = tiny(&argument()).read_only(true).open::<Shm>().unwrap();
    say("open");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
#[ignore = "a child of the other tests"]
fn sets_roots_for_ever() {
    let pool = tiny(&argument()).open_or_create::<Shm>().unwrap();
    say("open");
    for round in 0u64.. {
        for name in ["one", "two"] {
            pool.set_root(name, "test", pool.layout().zones + round % 4096 * 8).unwrap();
        }
    }
}

#[test]
#[ignore = "a child of the other tests"]
fn makes_and_grows_pools_for_ever() {
    let dir = argument();
    say("open");
    for i in 0.. {
        let pool = tiny(&dir.join(format!("{i}.pool"))).create::<Shm>().unwrap();
        for pages in 17..40 {
            pool.grow(pages * 4096).unwrap();
        }
    }
}

#[test]
#[ignore = "a child of the other tests"]
fn shares_the_pool() {
    let _pool = tiny(&argument()).program("a child").shared(true).open_or_create::<Shm>().unwrap();
    say("open");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

fn places() -> [tempfile::TempDir; 2] {
    ["/dev/shm", env!("CARGO_TARGET_TMPDIR")].map(|place| tempfile::tempdir_in(place).unwrap())
}

#[test]
fn error_names_the_process_that_has_the_pool() {
    for dir in places() {
        let path = dir.path().join("a.pool");
        let (mut process, mut lines) = child("processes::holds_the_pool", &path);
        expect(&mut lines, "open");
        let error = tiny(&path).open::<Shm>().err().unwrap();
        let text = format!("in use by process {} (a child, since ", process.id());
        assert!(error.to_string().contains(&text), "{error}");
        assert!(matches!(problem(tiny(&path).read_only(true).open::<Shm>()), Problem::InUse(Some(_))));
        drop(process.stdin.take());
        assert!(process.wait().unwrap().success());
        let pool = tiny(&path).open::<Shm>().unwrap();
        assert_eq!((pool.found(), pool.generation()), (Start::Clean, 2));
    }
}

#[test]
fn error_names_a_process_that_only_reads() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("a.pool");
    tiny(&path).create::<Shm>().unwrap().close().unwrap();
    let (mut process, mut lines) = child("processes::reads_the_pool", &path);
    expect(&mut lines, "open");
    let found = problem(tiny(&path).open::<Shm>());
    let Problem::InUse(Some(Holder { pid, program, .. })) = found else { panic!("{found:?}") };
    assert_eq!(pid, process.id());
    assert!(!program.is_empty());
    tiny(&path).read_only(true).open::<Shm>().unwrap();
    drop(process.stdin.take());
    process.wait().unwrap();
    tiny(&path).open::<Shm>().unwrap();
}

fn end(mut process: Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn error_names_a_stopped_holder() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("a.pool");
    let (process, mut lines) = child("processes::holds_the_pool", &path);
    expect(&mut lines, "open");
    let is_stopped = || match problem(tiny(&path).open::<Shm>()) {
        Problem::InUse(Some(Holder { pid, stopped, .. })) if pid == process.id() => stopped,
        found => panic!("{found:?}"),
    };
    assert!(!is_stopped());
    stop(&process);
    assert!(is_stopped());
    end(process);
}

/// The pids of the other participants, and whether they are stopped.
fn others(pool: &Pool<Shm>) -> Vec<(u32, bool)> {
    pool.other_participants().into_iter().map(|holder| (holder.pid, holder.stopped)).collect()
}

/// A pool that this process shares twice, and a stopped child once, in the entry between the two.
fn shared_with_stopped_process(path: &Path) -> ([Pool<Shm>; 2], Child) {
    let open = || tiny(path).shared(true).open_or_create::<Shm>().unwrap();
    let one = open();
    let (process, mut lines) = child("processes::shares_the_pool", path);
    expect(&mut lines, "open");
    let two = open();
    assert_eq!(others(&one), [(process.id(), false), (std::process::id(), false)]);
    stop(&process);
    ([one, two], process)
}

#[test]
fn stopped_participants_are_reported_as_stopped() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let ([one, two], process) = shared_with_stopped_process(&dir.path().join("a.pool"));
    let (own, it) = ((std::process::id(), false), (process.id(), true));
    assert_eq!((others(&one), others(&two)), (vec![it, own], vec![own, it]));
    end(process);
    assert_eq!(others(&one), [own]);
}

#[test]
fn process_with_another_start_time_is_no_participant() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let ([pool, _two], process) = shared_with_stopped_process(&dir.path().join("a.pool"));
    // As if the pid belonged to another namespace: the third word of the entry is the start time of
    // its process.
    let began: Offset<Word> = Offset::new(pool.layout().participants + 64 + 2 * 8);
    pool.region().at(began).fetch_add(pool.medium(), 1, Relaxed);
    assert_eq!(others(&pool), [(process.id(), false), (std::process::id(), false)]);
    end(process);
}

/// A fixed liveness: the first two participants are alive. Knows no kernel.
struct FixedLiveness;

impl Liveness for FixedLiveness {
    fn claim(&self, index: u32) -> std::io::Result<bool> {
        Ok(index > 1)
    }
    fn release(&self, _: u32) {}
    fn is_alive(&self, index: u32) -> bool {
        index < 2
    }
    fn enter(&self) -> std::io::Result<()> {
        Ok(())
    }
    fn leave(&self) {}
}

#[test]
fn custom_liveness_matches_no_local_process() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("a.pool");
    let ([_one, two], process) = shared_with_stopped_process(&path);
    two.close().unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let mapping = Mapping::file(file, TINY as usize, TINY as usize, Protection::ReadWrite).unwrap();
    let far = tiny(&path).shared(true).share_on(Shm::new(mapping), Arc::new(FixedLiveness)).unwrap();
    assert_eq!(others(&far), [(std::process::id(), false), (process.id(), false)]);
    end(process);
}

#[test]
fn killed_process_releases_pool_and_leaves_its_stores() {
    for dir in places() {
        let path = dir.path().join("a.pool");
        let (mut process, mut lines) = child("processes::holds_the_pool", &path);
        expect(&mut lines, "open");
        process.kill().unwrap();
        process.wait().unwrap();
        let pool = tiny(&path).open::<Shm>().unwrap();
        assert_eq!((pool.found(), pool.generation()), (Start::Unclean, 2));
        assert_eq!(pool.root("child", "test"), Ok(Some(pool.layout().zones + 4096)));
        // The dead process is not reported in place of the live one.
        let found = problem(tiny(&path).open::<Shm>());
        assert!(matches!(found, Problem::InUse(Some(Holder { pid, .. })) if pid == std::process::id()));
    }
}

#[test]
fn kill_at_any_moment_leaves_intact_roots() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("a.pool");
    for round in 0..30 {
        let (mut process, mut lines) = child("processes::sets_roots_for_ever", &path);
        expect(&mut lines, "open");
        wait(round);
        process.kill().unwrap();
        process.wait().unwrap();
        let pool = tiny(&path).open::<Shm>().unwrap();
        assert_eq!(pool.verify_superblock_and_roots(), []);
        for name in ["one", "two"] {
            pool.root(name, "test").unwrap();
        }
        pool.abandon();
    }
}

#[test]
fn kill_during_create_or_grow_leaves_openable_pools() {
    for (place, dir) in places().iter().enumerate() {
        for round in 0..10 {
            let sub = dir.path().join(round.to_string());
            std::fs::create_dir(&sub).unwrap();
            let (mut process, mut lines) = child("processes::makes_and_grows_pools_for_ever", &sub);
            expect(&mut lines, "open");
            wait(round + place as u64);
            process.kill().unwrap();
            process.wait().unwrap();
            open_all(&sub);
        }
    }
}

/// Spins a little, for a different time each round.
fn wait(round: u64) {
    for _ in 0..round * 400_000 {
        std::hint::spin_loop();
    }
}

fn open_all(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let pool = PoolOptions::at(&path).open::<Shm>().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(pool.verify_superblock_and_roots(), []);
        let size = pool.size();
        assert!(path.metadata().unwrap().len() >= size);
        assert_eq!(pool.grow(size + 4096).unwrap(), size + 4096);
    }
}
