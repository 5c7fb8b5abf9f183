//! Tests: a process is killed at every source line that changes the pool, and stopped at some.
//! Every write that returned is present, and nothing else.
//!
//! A run of the same writes in this process finds the lines first. So a line that is added to the
//! engine is tested, too.

use crate::common::{Draws, Medium, Site, assert_sound, contents};
use crate::writes::{fill_journal, op};
use std::path::Path;
use terrace::{ByteSize, Store};
use terrace_medium::MappedMedium;
use terrace_testkit::process::{Journal, Point, PointAction, Victim, acknowledge, points_of, task};
use terrace_testkit::{TappedPmem, TappedShm, stopping};

const OPERATIONS: u64 = 120;
const SEED: u64 = 5;

fn options(path: &Path) -> terrace::Options {
    Store::options()
        .path(path)
        .size(ByteSize::mib(16))
        .huge_pages(false)
        .expiry_thread(false)
        .expected_keys(1)
}

/// Opens or creates the pool at `path` and writes to it. Calls `returned` after each operation.
fn write<M: MappedMedium>(path: &Path, mut returned: impl FnMut(u64)) {
    let store = stopping(|| options(path).assume_persistent(true).open_or_create_on::<M>()).unwrap();
    let mut draws = Draws(SEED);
    for n in 1..=OPERATIONS {
        op(0, &mut draws).run(&store);
        returned(n);
    }
    store.close().unwrap();
}

/// Not a test by itself: the child.
#[test]
fn victim() {
    let Some(task) = task() else { return };
    let (medium, path) = task.split_once(' ').unwrap();
    match medium {
        "pmem" => write::<TappedPmem>(path.as_ref(), |n| acknowledge(0, n)),
        _ => write::<TappedShm>(path.as_ref(), |n| acknowledge(0, n)),
    }
}

fn start(medium: &str, path: &Path, point: &Point, action: PointAction) -> Victim {
    let variables = [(Point::VARIABLE, point.to_variable(action))];
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Victim::of_test("points::victim", &format!("{medium} {}", path.display()), &variables).unwrap()
}

/// Checks that the store at `path` holds what a child that acknowledged `returned` operations may
/// have left.
fn assert_valid(medium: Medium, path: &Path, point: &Point, returned: u64) {
    let options = match medium {
        Medium::Pmem => options(path).durability(terrace::Durability::Power).assume_persistent(true),
        _ => options(path),
    };
    let store = match options.open() {
        Ok(store) => store,
        // It died while it created the pool.
        Err(_) if returned == 0 && !path.exists() => return,
        Err(error) => panic!("{point}: {error}"),
    };
    let found = contents(&store);
    let mut journal = Journal::default();
    fill_journal(&mut journal, 0, &mut Draws(SEED), returned);
    let judged = journal.resolve(&found).and_then(|()| Journal::compare([&journal], &found));
    judged.unwrap_or_else(|wrong| panic!("{medium:?}, {point}, {returned} operations returned: {wrong}"));
    store.upkeep().wait_until_collected();
    assert_sound(&store);
}

/// The lines, each at a random one of the times that it is reached.
fn points<M: MappedMedium>() -> Vec<Point> {
    let site = Site::new(Medium::Shm, ByteSize::mib(16));
    let mut draws = Draws(3);
    let points = points_of(|| write::<M>(&site.path, |_| {}));
    points.into_iter().map(|point| Point { nth: 1 + draws.below(point.nth), ..point }).collect()
}

fn kill_at_each<M: MappedMedium>(medium: Medium, name: &str) {
    let points = points::<M>();
    assert!(points.len() > 40, "{medium:?}: {} lines", points.len());
    let mut reached = 0;
    for point in &points {
        let site = Site::new(medium, ByteSize::mib(16));
        let ended = start(name, &site.path, point, PointAction::Kill).wait();
        assert_valid(medium, &site.path, point, ended.returned(0));
        reached += usize::from(ended.killed);
    }
    // Lines that depend on background threads are not reached in each run. That most were reached
    // shows that the points are real.
    assert!(reached * 3 > points.len() * 2, "{medium:?}: {reached} of {} points were reached", points.len());
}

#[test]
fn kill_at_any_line_keeps_acknowledged_writes() {
    kill_at_each::<TappedShm>(Medium::Shm, "shm");
}

#[test]
fn kill_at_any_line_keeps_acknowledged_writes_on_pmem() {
    kill_at_each::<TappedPmem>(Medium::Pmem, "pmem");
}

#[test]
fn stopped_writer_holds_its_pool_and_continues() {
    let engine: Vec<Point> =
        points::<TappedShm>().into_iter().filter(|point| point.file.contains("direct/src")).collect();
    for point in engine.iter().step_by(3) {
        let site = Site::new(Medium::Shm, ByteSize::mib(16));
        let victim = start("shm", &site.path, point, PointAction::Stop);
        if victim.wait_until_stopped().unwrap() {
            let refused =
                options(&site.path).open().map(drop).expect_err(&format!("{point}: the pool is in use"));
            assert!(refused.is_in_use(), "{point}: {refused}");
            victim.resume().unwrap();
        }
        let ended = victim.wait();
        assert_eq!((ended.returned(0), ended.killed), (OPERATIONS, false), "{point}: it did not continue");
        assert_valid(Medium::Shm, &site.path, point, OPERATIONS);
    }
}
