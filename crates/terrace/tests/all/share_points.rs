//! Tests: a process that shares a store is killed, or stopped, at every product line that changes
//! the pool, while another process runs. Every write that returned is present, nothing else, and
//! the dead process blocks no other.
//!
//! A run of the same work in this process finds the lines first, so a line that is added is tested,
//! too. See `points.rs` for a process that has its store exclusively.

use crate::common::{Draws, Medium, Site, assert_sound, comes_true, contents, shared};
use crate::watched::watched;
use crate::writes::{Whole, fill_journal, op};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use terrace::{ByteSize, CloseError, Index, Store};
use terrace_medium::{MappedMedium, Pmem, Shm};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::process::{Ended, Journal, Point, PointAction, Victim, acknowledge, points_of, task};
use terrace_testkit::{TappedPmem, TappedShm, stopping};

const OPERATIONS: u64 = 60;
const SEED: u64 = 5;
const SIZE: ByteSize = ByteSize::mib(16);
/// The size that the pool grows to during the writes.
const GROWN: ByteSize = ByteSize::mib(18);
/// Number of watches in a pool of that size.
const WATCHES: usize = 15;

/// A medium of a shared pool.
trait Under: MappedMedium {
    const MEDIUM: Medium;
    /// The medium that can kill or stop this process at a point.
    type Stopping: MappedMedium;

    fn options(path: &Path) -> terrace::Options {
        shared(path, Self::MEDIUM).expiry_thread(false).expected_keys(1)
    }

    /// Opens the same store on [`Under::Stopping`].
    fn open_at_point(path: &Path) -> Store {
        stopping(|| Self::options(path).open_or_create_on::<Self::Stopping>()).unwrap()
    }
}

impl Under for Shm {
    const MEDIUM: Medium = Medium::Shm;
    type Stopping = TappedShm;
}

impl Under for Pmem {
    const MEDIUM: Medium = Medium::Pmem;
    type Stopping = TappedPmem;
}

/// Writes to the shared pool at `path`. Calls `returned` after each operation.
fn write<M: Under>(path: &Path, mut returned: impl FnMut(u64)) {
    let store = M::open_at_point(path);
    let mut watch = store.watch(b"thread 0").unwrap();
    let mut draws = Draws(SEED);
    for n in 1..=OPERATIONS {
        // Enough other keys that the table grows in every pool, whatever its hash seed.
        (0..10).for_each(|more| store.put(format!("more {n} {more}").as_bytes(), b"").unwrap());
        op(0, &mut draws).run(&store);
        returned(n);
        if n == OPERATIONS / 2 {
            store.upkeep().grow(GROWN).unwrap();
        }
        if n.is_multiple_of(20) {
            // After all changes are reported nothing changes, so it sleeps.
            while watch.has_changed() {}
            watch.wait(Duration::from_millis(1));
        }
    }
    drop(watch);
    store.close().unwrap();
}

/// Recovers what dead processes held.
fn recover<M: Under>(path: &Path) {
    let store = M::open_at_point(path);
    store.sharing().recover_dead();
    store.close().unwrap();
}

/// Not a test by itself: the child.
#[test]
fn victim() {
    let Some(task) = task() else { return };
    let (medium, task) = task.split_once(' ').unwrap();
    match medium {
        "Pmem" => run_task::<Pmem>(task),
        _ => run_task::<Shm>(task),
    }
}

fn run_task<M: Under>(task: &str) {
    match task.split_once(' ').unwrap() {
        ("expire", path) => expire::<M>(path.as_ref()),
        ("write", path) => write::<M>(path.as_ref(), |n| acknowledge(0, n)),
        (_, path) => recover::<M>(path.as_ref()),
    }
}

fn start<M: Under>(what: &str, path: &Path, point: &Point, action: PointAction) -> Victim {
    let variable = point.to_variable(action);
    let task = format!("{:?} {what} {}", M::MEDIUM, path.display());
    Victim::of_test("share_points::victim", &task, &[(Point::VARIABLE, &variable)]).unwrap()
}

/// Names of accesses that a process passes when it writes to a shared pool or grows it; see
/// [`Medium::point`](terrace_medium::Medium::point).
const WRITE_POINTS: [&str; 14] = [
    "lock.take",
    "intent.record",
    "slot.claim",
    "slab.take",
    "slab.make",
    "zone.hint",
    "limbo.link",
    "participant.attach",
    "pool.size",
    "superblock.word",
    "watch.make",
    "clht.resize",
    "batch.name",
    "batch.finalize",
];

/// The crash of a process that leaves something to recover.
struct First {
    what: &'static str,
    /// It crashes after the `nth` access with this name.
    after: &'static str,
    nth: u64,
    /// Names of accesses that its recovery passes.
    parts: &'static [&'static str],
}

const FIRSTS: [First; 3] = [
    // With the lock of batches, a running batch, and a watch.
    First {
        what: "a batch",
        after: "batch.name",
        nth: 3,
        parts: &[
            "lock.take-over",
            "lock.release-dead",
            "slot.count",
            "limbo.queue",
            "participant.release",
            "intent.clear-all",
            "space.count",
            "collection.complete",
            "watch.end",
            "batch.name",
        ],
    },
    // One copy of the superblock is torn.
    First { what: "a growth", after: "superblock.word", nth: 10, parts: &["superblock.word", "pool.size"] },
    // The slab is in no cache and in no list: the collector adopts it.
    First { what: "an unlisted slab", after: "slab.make", nth: 2, parts: &["slab.push", "unit.release"] },
];

/// Names of accesses that a change of the other indexes' structure passes.
const CHANGES_OF_STRUCTURE: [(Index, &[&str]); 8] = [
    (Index::Turbo, &["turbo.switch"]),
    (Index::Rewo, &["rewo.view", "rewo.resized"]),
    (Index::Level, &["level.state"]),
    (Index::Art, &["tree.link", "art.prefix"]),
    (Index::Hot, &["tree.link"]),
    (Index::Masstree, &["masstree.next", "masstree.permutation", "masstree.root"]),
    (Index::BwTree, &["bw.claim", "bw.swap"]),
    (Index::SpTree, &["sptree.state", "sptree.next", "sptree.high", "sptree.bitmap", "sptree.checks"]),
];

/// The same points, each at a random one of its times.
fn pick_times(points: Vec<Point>, draws: &mut Draws) -> Vec<Point> {
    points.into_iter().map(|point| Point { nth: 1 + draws.below(point.nth), ..point }).collect()
}

/// How often a line is reached differs between runs. If it is not reached at its time, it is tried
/// at its first.
fn tries(point: &Point) -> [Point; 2] {
    [point.clone(), Point { nth: 1, ..point.clone() }]
}

/// A store that other processes have open.
struct Shared<M: Under> {
    site: Site,
    /// A participant that does nothing, not even recovery.
    idle: Pool<M>,
    /// A participant that does.
    store: Option<Store>,
}

impl<M: Under> Shared<M> {
    /// With the idle participant only.
    fn with_idle_participant(index: Index) -> Self {
        let site = Site::new(M::MEDIUM, SIZE);
        M::options(&site.path).index(index).create().unwrap().close().unwrap();
        let idle = PoolOptions::at(&site.path).shared(true).assume_persistent(true).open().unwrap();
        Self { site, idle, store: None }
    }

    fn new(index: Index) -> Self {
        let shared = Self::with_idle_participant(index);
        let store = Some(M::options(&shared.site.path).open().unwrap());
        Self { store, ..shared }
    }

    /// Checks that the survivors continue, and that they find what the ended writer has left.
    fn check_survivors(mut self, what: &str, ended: &Ended) {
        let returned = ended.returned(0);
        let store = self.store.take().unwrap_or_else(|| M::options(&self.site.path).open().unwrap());
        let mut journal: Journal<Whole> = Journal::default();
        fill_journal(&mut journal, 0, &mut Draws(SEED), returned);
        // Other processes get everything that the dead one held.
        let mut others = Draws(SEED);
        (0..20).for_each(|_| op(1, &mut others).run(&store));
        store.sharing().recover_dead();
        assert_eq!(self.idle.recover_dead(), 0, "{what}: a dead process is not recovered");
        assert_eq!(store.upkeep().grow(GROWN).unwrap(), GROWN, "{what}");
        let watches: Vec<_> = (0..WATCHES).map_while(|_| store.watch(b"").ok()).collect();
        assert_eq!(watches.len(), WATCHES, "{what}: a watch still belongs to the dead process");
        drop(watches);
        let mut found = contents(&store);
        found.retain(|key, _| key.starts_with(b"thread 0"));
        let judged = journal.resolve(&found).and_then(|()| Journal::compare([&journal], &found));
        judged.unwrap_or_else(|wrong| panic!("{what}, {returned} operations returned: {wrong}"));
        store.upkeep().wait_until_collected();
        // The store's own threads are readers at times.
        assert!(
            comes_true(|| store.stats().pool.unwrap().readers == 0),
            "{what}: a reader seems to be pinned"
        );
        assert_sound(&store);
        store.close().unwrap();
    }
}

/// The points at which a writer is ended.
fn write_points<M: Under>(draws: &mut Draws) -> Vec<Point> {
    let points = points_in::<M>(Index::Clht, draws);
    assert_all_reached(&WRITE_POINTS, &points);
    points
}

/// Asserts that each of these names is that of a point.
#[track_caller]
fn assert_all_reached<'p>(names: &[&str], points: impl IntoIterator<Item = &'p Point>) {
    let points: Vec<&Point> = points.into_iter().collect();
    let is_missed = |name: &&&str| !points.iter().any(|point| point.name == Some(**name));
    let missed: Vec<&&str> = names.iter().filter(is_missed).collect();
    assert!(missed.is_empty(), "no point is at {missed:?}: {points:?}");
}

fn points_in<M: Under>(index: Index, draws: &mut Draws) -> Vec<Point> {
    let shared = Shared::<M>::new(index);
    pick_times(points_of(|| write::<M>(&shared.site.path, |_| {})), draws)
}

#[test]
fn kill_at_a_point_blocks_no_process() {
    kill_at_named_points::<Shm>();
}

#[test]
fn kill_at_a_point_blocks_no_process_on_pmem() {
    kill_at_named_points::<Pmem>();
}

fn kill_at_named_points<M: Under>() {
    let points = write_points::<M>(&mut Draws(3));
    assert!(points.len() > 60, "{} points", points.len());
    assert_all_reached(&WRITE_POINTS, kill_at::<M>(Index::Clht, &points));
}

/// Kills a writer at each of these points. Returns those that were reached.
fn kill_at<M: Under>(index: Index, points: &[Point]) -> Vec<&Point> {
    let (progress, mut reached) = (AtomicU64::new(0), Vec::new());
    watched(&progress, || {
        for point in points {
            let is_reached = tries(point).iter().any(|point| {
                let shared = Shared::<M>::new(index);
                let ended = start::<M>("write", &shared.site.path, point, PointAction::Kill).wait();
                shared.check_survivors(&point.to_string(), &ended);
                ended.killed
            });
            reached.extend(is_reached.then_some(point));
            progress.fetch_add(1, Relaxed);
        }
    });
    print_counts(&format!("{}: killed", index.name()), reached.len(), points.len());
    assert!(reached.len() * 4 > points.len() * 3, "{} of {} were reached", reached.len(), points.len());
    reached
}

#[test]
fn kill_during_a_change_of_structure_blocks_no_process() {
    let others = points_in::<Pmem>(Index::Clht, &mut Draws(7));
    for (index, names) in CHANGES_OF_STRUCTURE {
        let mut points = points_in::<Pmem>(index, &mut Draws(7));
        // Only the points of the index itself.
        points.retain(|point| !others.iter().any(|other| other.is_at(point)));
        assert_all_reached(names, &points);
        kill_at::<Pmem>(index, &points);
    }
}

#[test]
fn process_stopped_at_a_point_continues() {
    stop_at_named_points::<Shm>();
}

#[test]
fn process_stopped_at_a_point_continues_on_pmem() {
    stop_at_named_points::<Pmem>();
}

fn stop_at_named_points<M: Under>() {
    let points = write_points::<M>(&mut Draws(4));
    let (progress, mut reached) = (AtomicU64::new(0), 0);
    watched(&progress, || {
        for point in &points {
            let shared = Shared::<M>::new(Index::Clht);
            let victim = start::<M>("write", &shared.site.path, point, PointAction::Stop);
            if victim.wait_until_stopped().unwrap() {
                reached += 1;
                // It is not treated as dead. Others can read, whatever it holds.
                assert_eq!(shared.idle.recover_dead(), 0, "{point}: it is stopped, not dead");
                shared.store.iter().for_each(|store| drop(contents(store)));
                victim.resume().unwrap();
            }
            let ended = victim.wait();
            assert_eq!(
                (ended.returned(0), ended.killed),
                (OPERATIONS, false),
                "{point}: it did not continue"
            );
            shared.check_survivors(&format!("{point}, stopped"), &ended);
            progress.fetch_add(1, Relaxed);
        }
    });
    print_counts("stopped", reached, points.len());
    assert!(reached * 4 > points.len() * 3, "{reached} of {} points were reached", points.len());
}

#[test]
fn kill_during_a_recovery_is_recovered() {
    kill_during_a_recovery::<Shm>();
}

#[test]
fn kill_during_a_recovery_is_recovered_on_pmem() {
    kill_during_a_recovery::<Pmem>();
}

fn kill_during_a_recovery<M: Under>() {
    let points = write_points::<M>(&mut Draws(3));
    for first in &FIRSTS {
        let at = points
            .iter()
            .find(|point| point.name == Some(first.after))
            .unwrap_or_else(|| panic!("nothing leaves {}", first.what));
        kill_during_recovery_of::<M>(first, &Point { nth: first.nth, ..at.clone() });
    }
}

/// A process dies at the point `at`. Kills the process that recovers it, at each point that the
/// recovery passes.
fn kill_during_recovery_of<M: Under>(first: &First, at: &Point) {
    let dead = |shared: &Shared<M>| start::<M>("write", &shared.site.path, at, PointAction::Kill).wait();
    let list = || {
        let shared = Shared::<M>::with_idle_participant(Index::Clht);
        dead(&shared);
        points_of(|| recover::<M>(&shared.site.path))
    };
    // A background thread of the store may pass more points, if it runs before the end.
    let (mut points, again) = (list(), list());
    points.retain(|point| again.iter().any(|other| other.is_at(point)));
    let points = pick_times(points, &mut Draws(6));
    assert_all_reached(first.parts, &points);
    let (progress, mut reached) = (AtomicU64::new(0), Vec::new());
    watched(&progress, || {
        for point in &points {
            let is_reached = tries(point).iter().any(|point| {
                let shared = Shared::<M>::with_idle_participant(Index::Clht);
                let ended = dead(&shared);
                let second = start::<M>("recover", &shared.site.path, point, PointAction::Kill).wait();
                shared.check_survivors(&format!("{point}, during a recovery of {}", first.what), &ended);
                second.killed
            });
            reached.extend(is_reached.then_some(point));
            progress.fetch_add(1, Relaxed);
        }
    });
    print_counts(&format!("killed during a recovery of {}", first.what), reached.len(), points.len());
    assert!(reached.len() * 4 > points.len() * 3, "{} of {} were reached", reached.len(), points.len());
    assert_all_reached(first.parts, reached);
}

/// Not a test by itself: adds an expired entry, so that the process can be stopped with the lock of
/// its bucket.
fn expire<M: Under>(path: &Path) {
    let store = M::open_at_point(path);
    store.put_expiring(b"due", b"", Duration::from_millis(1)).unwrap();
    store.close().unwrap();
}

#[test]
fn stopped_process_with_lock_is_named_by_close() {
    let shared = Shared::<Shm>::with_idle_participant(Index::Clht);
    let path = &shared.site.path;
    let points = points_of(|| expire::<Shm>(path));
    // The point at which the entry is put into its bucket.
    let at = points.into_iter().find(|point| point.name == Some("clht.slot")).unwrap();
    let victim = start::<Shm>("expire", path, &at, PointAction::Stop);
    assert!(victim.wait_until_stopped().unwrap());
    let progress = AtomicU64::new(0);
    watched(&progress, || {
        // Until the store's own thread has swept.
        let refused = loop {
            let store = Shm::options(path).expiry_thread(true).open().unwrap();
            pause(Duration::from_millis(300));
            let report = store.check(&mut |_, _| {});
            assert!(report.is_sound() && report.concurrent, "{:#?}", report.findings);
            if let Err(error) = store.close() {
                break error;
            }
        };
        let CloseError::BlockedBy(holder) = &refused else { panic!("{refused}") };
        assert_eq!((holder.pid, holder.stopped), (victim.pid(), true));
        let who = format!("waits for process {} (all-", victim.pid());
        assert!(refused.to_string().contains(&who), "{refused}");
        victim.resume().unwrap();
        assert!(!victim.wait().killed);
        // The store that could not be closed closes by itself.
        while !shared.idle.other_participants().is_empty() {
            pause(Duration::from_millis(1));
        }
    });
    shared.check_survivors("a blocked close", &Ended { acknowledged: Default::default(), killed: false });
}

#[allow(clippy::disallowed_methods, reason = "other processes need the time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[allow(clippy::print_stderr, reason = "the counts are the test's evidence")]
fn print_counts(what: &str, reached: usize, points: usize) {
    eprintln!("{what} at {reached} of {points} points");
}
