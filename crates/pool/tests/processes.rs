//! Several processes and one pool: who keeps whom out, and what a killed one leaves.

mod common;

use common::{argument, child, expect, problem, say, tiny};
use std::path::Path;
use terrace_medium::Shm;
use terrace_pool::{Holder, PoolOptions, Problem, Start};

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

fn places() -> [tempfile::TempDir; 2] {
    ["/dev/shm", env!("CARGO_TARGET_TMPDIR")].map(|place| tempfile::tempdir_in(place).unwrap())
}

#[test]
fn the_error_names_the_process_that_has_the_pool() {
    for dir in places() {
        let path = dir.path().join("a.pool");
        let (mut process, mut lines) = child("holds_the_pool", &path);
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
fn the_error_names_a_process_that_only_reads() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("a.pool");
    tiny(&path).create::<Shm>().unwrap().close().unwrap();
    let (mut process, mut lines) = child("reads_the_pool", &path);
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

#[test]
fn a_killed_process_lets_go_at_once_and_leaves_what_it_stored() {
    for dir in places() {
        let path = dir.path().join("a.pool");
        let (mut process, mut lines) = child("holds_the_pool", &path);
        expect(&mut lines, "open");
        process.kill().unwrap();
        process.wait().unwrap();
        let pool = tiny(&path).open::<Shm>().unwrap();
        assert_eq!((pool.found(), pool.generation()), (Start::Unclean, 2));
        assert_eq!(pool.root("child", "test"), Ok(Some(pool.layout().zones + 4096)));
        // The dead one is not named for the living.
        let found = problem(tiny(&path).open::<Shm>());
        assert!(matches!(found, Problem::InUse(Some(Holder { pid, .. })) if pid == std::process::id()));
    }
}

#[test]
fn a_process_killed_at_any_moment_leaves_whole_roots() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("a.pool");
    for round in 0..30 {
        let (mut process, mut lines) = child("sets_roots_for_ever", &path);
        expect(&mut lines, "open");
        wait(round);
        process.kill().unwrap();
        process.wait().unwrap();
        let pool = tiny(&path).open::<Shm>().unwrap();
        assert_eq!(pool.verify_head(), []);
        for name in ["one", "two"] {
            pool.root(name, "test").unwrap();
        }
        pool.abandon();
    }
}

#[test]
fn a_process_killed_while_it_makes_and_grows_pools_leaves_none_that_does_not_open() {
    for (place, dir) in places().iter().enumerate() {
        for round in 0..10 {
            let sub = dir.path().join(round.to_string());
            std::fs::create_dir(&sub).unwrap();
            let (mut process, mut lines) = child("makes_and_grows_pools_for_ever", &sub);
            expect(&mut lines, "open");
            wait(round + place as u64);
            process.kill().unwrap();
            process.wait().unwrap();
            open_all(&sub);
        }
    }
}

/// Spins a little, another time each round.
fn wait(round: u64) {
    for _ in 0..round * 400_000 {
        std::hint::spin_loop();
    }
}

fn open_all(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let pool = PoolOptions::at(&path).open::<Shm>().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(pool.verify_head(), []);
        let size = pool.size();
        assert!(path.metadata().unwrap().len() >= size);
        assert_eq!(pool.grow(size + 4096).unwrap(), size + 4096);
    }
}
