//! Test: a process is killed at random moments while it writes. Every write that returned is
//! present afterwards, and nothing else.
//!
//! The child runs this test binary again. Each of its threads owns its keys and acknowledges its
//! operations, which follow from a seed, so the parent knows them. The interrupted operation may
//! have happened or not: a batch as a whole, puts of a pipeline up to any one of them.

#[path = "common/writes.rs"]
mod writes;

mod common;

use common::{Draws, Medium, Site, assert_sound, contents};
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace::{ByteSize, Store};
use terrace_testkit::process::{Journal, Victim, task};
use writes::{Whole, fill_journal, write_until_killed};

const THREADS: u64 = 2;
/// Average number of operations that must return before a kill; fewer would show little.
const EACH: u64 = 100;

fn seed(round: u64, thread: u64) -> Draws {
    Draws(round * 1000 + thread)
}

fn site(path: &Path, medium: Medium) -> terrace::Options {
    let options = Store::options().path(path).size(ByteSize::mib(32)).huge_pages(false);
    match medium {
        Medium::Pmem => options.durability(terrace::Durability::Power).assume_persistent(true),
        _ => options,
    }
}

/// The file by which the child reports that it has opened the pool.
fn opened(path: &Path) -> PathBuf {
    path.with_extension("opened")
}

/// Not a test by itself: the child, until it is killed.
#[test]
fn child() {
    let Some(task) = task() else { return };
    let mut parts = task.splitn(3, ' ');
    let round: u64 = parts.next().unwrap().parse().unwrap();
    let medium = if parts.next() == Some("pmem") { Medium::Pmem } else { Medium::Shm };
    let path = Path::new(parts.next().unwrap());
    let store = site(path, medium).open().unwrap();
    std::fs::write(opened(path), []).unwrap();
    write_until_killed(&store, 0..THREADS, |thread| seed(round, thread));
}

#[allow(clippy::disallowed_methods, reason = "the moment of the kill is what is random here")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Runs the child for a while, kills it, and returns how many operations of each thread returned.
/// In some rounds, it is first stopped and continued.
fn run_and_kill(round: u64, medium: Medium, path: &Path, after: Duration) -> Vec<u64> {
    let name = if medium == Medium::Pmem { "pmem" } else { "shm" };
    let victim = Victim::of_test("child", &format!("{round} {name} {}", path.display()), &[]).unwrap();
    // On a busy machine or in an emulator, its start takes longer than the pause. One round in five
    // may kill it during its start.
    while round % 5 != 3 && !opened(path).exists() {
        assert!(victim.ended().unwrap().is_none(), "the child ended before it had the pool");
        pause(Duration::from_millis(1));
    }
    pause(after / 2);
    if round % 5 == 4 {
        victim.stop().unwrap();
        pause(after / 4);
        // A stopped process still holds the pool.
        let refused = site(path, medium).open().map(drop).expect_err("the pool is in use");
        assert!(refused.is_in_use(), "{refused}");
        victim.resume().unwrap();
    }
    pause(after / 2);
    let ended = victim.kill();
    // It may have been killed before it created the file.
    let _ = std::fs::remove_file(opened(path));
    (0..THREADS as usize).map(|thread| ended.returned(thread)).collect()
}

/// Kills `rounds` times, and more often if the machine is so slow that few operations return in
/// between.
fn kill_often(medium: Medium, rounds: u64) -> (u64, u64, u64) {
    let site_of_pool = Site::new(medium, ByteSize::mib(32));
    let path = &site_of_pool.path;
    site(path, medium).create().unwrap().close().unwrap();
    let mut journals: Vec<Journal<Whole>> = (0..THREADS).map(|_| Journal::default()).collect();
    let (mut kills, mut operations, mut batches_cut) = (0, 0, 0);
    let mut draws = Draws(77);
    while kills < rounds || (operations <= EACH * rounds && kills < rounds * 20) {
        let round = kills;
        kills += 1;
        let done = run_and_kill(round, medium, path, Duration::from_millis(20 + draws.below(80)));
        let store = site(path, medium).open().unwrap();
        batches_cut += u64::from(store.stats().pool.unwrap().batch_finished.is_some());
        let found = contents(&store);
        for (thread, journal) in journals.iter_mut().enumerate() {
            let returned = done[thread];
            fill_journal(journal, thread as u64, &mut seed(round, thread as u64), returned);
            if let Err(disagreement) = journal.resolve(&found) {
                panic!(
                    "{medium:?}, round {round}, thread {thread}, {returned} operations returned: {disagreement}"
                );
            }
            operations += returned;
        }
        if let Err(disagreement) = Journal::compare(&journals, &found) {
            panic!("{medium:?}, round {round}: {disagreement}");
        }
        if round % 3 == 0 {
            store.upkeep().wait_until_collected();
            assert_sound(&store);
        }
        if round % 4 == 0 {
            store.close().unwrap();
        } else {
            drop(store);
        }
    }
    (kills, operations, batches_cut)
}

#[test]
fn completed_writes_survive_a_kill() {
    let rounds = std::env::var("TERRACE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    for medium in [Medium::Shm, Medium::Pmem] {
        let (kills, operations, batches_cut) = kill_often(medium, rounds / 2);
        assert!(operations > EACH * (rounds / 2), "{medium:?}: only {operations} operations");
        eprintln_counts(medium, kills, operations, batches_cut);
    }
}

#[allow(clippy::print_stderr, reason = "the counts are the test's evidence")]
fn eprintln_counts(medium: Medium, kills: u64, operations: u64, batches_cut: u64) {
    eprintln!(
        "{medium:?}: {kills} kills, {operations} operations had returned, {batches_cut} batches were cut off"
    );
}

/// Memory is freed as well: a store whose process is killed repeatedly does not fill up.
#[test]
fn kills_leak_no_memory() {
    let site_of_pool = Site::new(Medium::Shm, ByteSize::mib(32));
    let path = &site_of_pool.path;
    site(path, Medium::Shm).create().unwrap().close().unwrap();
    let mut used = Vec::new();
    for round in 0..4 {
        run_and_kill(round, Medium::Shm, path, Duration::from_millis(60));
        let store = site(path, Medium::Shm).open().unwrap();
        store.upkeep().wait_until_collected();
        let data = contents(&store);
        store.clear().unwrap();
        drop(data);
        assert_sound(&store);
        used.push(store.stats().overhead_bytes);
        assert_eq!(store.stats().data_bytes, 0);
    }
    assert!(used.iter().max() < Some(&(used[0] + (1 << 20))), "{used:?}");
}
