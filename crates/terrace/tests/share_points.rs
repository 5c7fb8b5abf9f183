//! A process that shares a store is killed, or stopped, at every line of the product that changes
//! the pool, while another one goes on. Every write that returned is there, nothing else, and no
//! process is held up by the dead one.
//!
//! The lines are found by doing the same in this process first: a line that is added is a point from then on. See `points.rs` for a process that has its store alone.

#[path = "common/writes.rs"]
mod writes;

#[path = "common/watched.rs"]
mod watched;

mod common;

use common::{Draws, Medium, Site, assert_sound, comes_true, contents, shared};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use terrace::{ByteSize, CloseError, Index, Store};
use terrace_medium::{MappedMedium, Pmem, Shm};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::process::{AtPoint, Ended, Ending, Journal, Point, Victim, acknowledge, task};
use watched::watched;
use writes::{Whole, note, op};

const OPERATIONS: u64 = 60;
const SEED: u64 = 5;
const SIZE: ByteSize = ByteSize::mib(16);
/// What the pool grows to while it is written to.
const GROWN: ByteSize = ByteSize::mib(18);
/// Watches of a pool of that size.
const WATCHES: usize = 15;

/// A medium of a shared pool.
trait Under: MappedMedium {
    const MEDIUM: Medium;

    fn options(path: &Path) -> terrace::Options {
        shared(path, Self::MEDIUM).expiry_thread(false).expected_keys(1)
    }

    /// The same store, on a medium on which this process can be ended at a point.
    fn open_at_point(path: &Path) -> Store {
        Self::options(path).open_or_create_on::<AtPoint<Self>>().unwrap()
    }
}

impl Under for Shm {
    const MEDIUM: Medium = Medium::Shm;
}

impl Under for Pmem {
    const MEDIUM: Medium = Medium::Pmem;
}

/// Writes to the pool at `path`, which others share, and says of each operation that it has returned.
fn write<M: Under>(path: &Path, mut returned: impl FnMut(u64)) {
    let store = M::open_at_point(path);
    let mut watch = store.watch(b"thread 0").unwrap();
    let mut draws = Draws(SEED);
    for n in 1..=OPERATIONS {
        // Enough other keys that the table grows in every pool, whatever its hash makes of them.
        (0..10).for_each(|more| store.put(format!("more {n} {more}").as_bytes(), b"").unwrap());
        op(0, &mut draws).run(&store);
        returned(n);
        if n == OPERATIONS / 2 {
            store.grow(GROWN).unwrap();
        }
        if n.is_multiple_of(20) {
            // What has changed has been told; now nothing changes, so it sleeps.
            while watch.has_changed() {}
            watch.wait(Duration::from_millis(1));
        }
    }
    drop(watch);
    store.close().unwrap();
}

/// Takes back what others have left who died.
fn look_after<M: Under>(path: &Path) {
    let store = M::open_at_point(path);
    store.look_after_others();
    store.close().unwrap();
}

/// Not a test by itself: what a victim does.
#[test]
fn victim() {
    let Some(task) = task() else { return };
    let (medium, task) = task.split_once(' ').unwrap();
    match medium {
        "Pmem" => act::<Pmem>(task),
        _ => act::<Shm>(task),
    }
}

fn act<M: Under>(task: &str) {
    match task.split_once(' ').unwrap() {
        ("expire", path) => expire::<M>(path.as_ref()),
        ("write", path) => write::<M>(path.as_ref(), |n| acknowledge(0, n)),
        (_, path) => look_after::<M>(path.as_ref()),
    }
}

fn start<M: Under>(what: &str, path: &Path, point: &Point, ending: Ending) -> Victim {
    let told = point.told(ending);
    let task = format!("{:?} {what} {}", M::MEDIUM, path.display());
    Victim::of_test("victim", &task, &[(Point::VARIABLE, &told)]).unwrap()
}

/// What a process comes by that writes to a pool that others share, or makes it grow: names of accesses, see [`Medium::point`](terrace_medium::Medium::point).
const OF_WRITING: [&str; 14] = [
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

/// A death that leaves something to others.
struct First {
    what: &'static str,
    /// It comes after the access with this name, at this time.
    after: &'static str,
    nth: u64,
    /// What others come by who see to it.
    parts: &'static [&'static str],
}

const FIRSTS: [First; 3] = [
    // With the lock of batches, a batch under way, and a watch.
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
    // It is in no cache and in no list: the collector adopts it.
    First {
        what: "a slab that nobody knows",
        after: "slab.make",
        nth: 2,
        parts: &["slab.push", "unit.release"],
    },
];

/// What resizes of the other indexes come by.
const RESIZES: [(Index, &[&str]); 3] = [
    (Index::Turbo, &["turbo.switch"]),
    (Index::Rewo, &["rewo.view", "rewo.resized"]),
    (Index::Level, &["level.state"]),
];

/// The same points, each at one of its times.
fn drawn(points: Vec<Point>, draws: &mut Draws) -> Vec<Point> {
    points.into_iter().map(|point| Point { nth: 1 + draws.below(point.nth), ..point }).collect()
}

/// How often a line is come by differs from run to run, as threads do: one that is missed at its time is tried at its first.
fn tries(point: &Point) -> [Point; 2] {
    [point.clone(), Point { nth: 1, ..point.clone() }]
}

/// A store that others have open, too.
struct Shared<M: Under> {
    site: Site,
    /// Somebody who does nothing, not even look after the dead.
    bystander: Pool<M>,
    /// Somebody who does.
    store: Option<Store>,
}

impl<M: Under> Shared<M> {
    /// With a bystander only.
    fn among_bystanders(index: Index) -> Self {
        let site = Site::new(M::MEDIUM, SIZE);
        M::options(&site.path).index(index).create().unwrap().close().unwrap();
        let bystander = PoolOptions::at(&site.path).shared(true).assume_persistent(true).open().unwrap();
        Self { site, bystander, store: None }
    }

    fn new(index: Index) -> Self {
        let shared = Self::among_bystanders(index);
        let store = Some(M::options(&shared.site.path).open().unwrap());
        Self { store, ..shared }
    }

    /// Those who are left go on, and find what a writer has left that ended so.
    fn judge(mut self, what: &str, ended: &Ended) {
        let returned = ended.returned(0);
        let store = self.store.take().unwrap_or_else(|| M::options(&self.site.path).open().unwrap());
        let mut journal: Journal<Whole> = Journal::default();
        note(&mut journal, 0, &mut Draws(SEED), returned);
        // Whatever the dead one held, others get.
        let mut others = Draws(SEED);
        (0..20).for_each(|_| op(1, &mut others).run(&store));
        store.look_after_others();
        assert_eq!(self.bystander.recover_dead(), 0, "{what}: somebody is still to be recovered");
        assert_eq!(store.grow(GROWN).unwrap(), GROWN, "{what}");
        let watches: Vec<_> = (0..WATCHES).map_while(|_| store.watch(b"").ok()).collect();
        assert_eq!(watches.len(), WATCHES, "{what}: a watch is still the dead one's");
        drop(watches);
        let mut found = contents(&store);
        found.retain(|key, _| key.starts_with(b"thread 0"));
        let judged = journal.settle(&found).and_then(|()| Journal::compare([&journal], &found));
        judged.unwrap_or_else(|wrong| panic!("{what}, {returned} operations returned: {wrong}"));
        store.wait_until_collected();
        // The store's own threads come and go.
        assert!(
            comes_true(|| store.stats().pool.unwrap().readers == 0),
            "{what}: somebody seems to be inside"
        );
        assert_sound(&store);
        store.close().unwrap();
    }
}

/// Where a process is ended that writes.
fn points_of_writing<M: Under>(draws: &mut Draws) -> Vec<Point> {
    let points = points_in::<M>(Index::Clht, draws);
    assert_all_reached(&OF_WRITING, &points);
    points
}

/// Each of these names is that of one of the points.
#[track_caller]
fn assert_all_reached<'p>(names: &[&str], points: impl IntoIterator<Item = &'p Point>) {
    let points: Vec<&Point> = points.into_iter().collect();
    let is_missed = |name: &&&str| !points.iter().any(|point| point.name == Some(**name));
    let missed: Vec<&&str> = names.iter().filter(is_missed).collect();
    assert!(missed.is_empty(), "nobody comes by {missed:?}: {points:?}");
}

fn points_in<M: Under>(index: Index, draws: &mut Draws) -> Vec<Point> {
    let shared = Shared::<M>::new(index);
    drawn(AtPoint::<M>::points(|| write::<M>(&shared.site.path, |_| {})), draws)
}

#[test]
fn who_is_killed_at_a_named_point_holds_nobody_up() {
    kill_at_named_points::<Shm>();
}

#[test]
fn who_is_killed_at_a_named_point_holds_nobody_up_on_pmem() {
    kill_at_named_points::<Pmem>();
}

fn kill_at_named_points<M: Under>() {
    let points = points_of_writing::<M>(&mut Draws(3));
    assert!(points.len() > 60, "{} points", points.len());
    assert_all_reached(&OF_WRITING, kill_at::<M>(Index::Clht, &points));
}

/// Kills a writer at each of these points. Returns those that were reached.
fn kill_at<M: Under>(index: Index, points: &[Point]) -> Vec<&Point> {
    let (progress, mut reached) = (AtomicU64::new(0), Vec::new());
    watched(&progress, || {
        for point in points {
            let is_reached = tries(point).iter().any(|point| {
                let shared = Shared::<M>::new(index);
                let ended = start::<M>("write", &shared.site.path, point, Ending::Kill).wait();
                shared.judge(&point.to_string(), &ended);
                ended.killed
            });
            reached.extend(is_reached.then_some(point));
            progress.fetch_add(1, Relaxed);
        }
    });
    say(&format!("{}: killed", index.name()), reached.len(), points.len());
    assert!(reached.len() * 4 > points.len() * 3, "{} of {} were reached", reached.len(), points.len());
    reached
}

#[test]
fn who_is_killed_over_a_resize_of_any_index_holds_nobody_up() {
    let others = points_in::<Pmem>(Index::Clht, &mut Draws(7));
    for (index, names) in RESIZES {
        let mut points = points_in::<Pmem>(index, &mut Draws(7));
        // What is the index's own.
        points.retain(|point| !others.iter().any(|other| other.is_at(point)));
        assert_all_reached(names, &points);
        kill_at::<Pmem>(index, &points);
    }
}

#[test]
fn who_is_stopped_at_a_named_point_goes_on_where_it_was() {
    stop_at_named_points::<Shm>();
}

#[test]
fn who_is_stopped_at_a_named_point_goes_on_where_it_was_on_pmem() {
    stop_at_named_points::<Pmem>();
}

fn stop_at_named_points<M: Under>() {
    let points = points_of_writing::<M>(&mut Draws(4));
    let (progress, mut reached) = (AtomicU64::new(0), 0);
    watched(&progress, || {
        for point in &points {
            let shared = Shared::<M>::new(Index::Clht);
            let victim = start::<M>("write", &shared.site.path, point, Ending::Stop);
            if victim.wait_until_stopped().unwrap() {
                reached += 1;
                // It is not taken for dead. Others read meanwhile, whatever it holds.
                assert_eq!(shared.bystander.recover_dead(), 0, "{point}: it stands still, and is not dead");
                shared.store.iter().for_each(|store| drop(contents(store)));
                victim.resume().unwrap();
            }
            let ended = victim.wait();
            assert_eq!((ended.returned(0), ended.killed), (OPERATIONS, false), "{point}: it did not go on");
            shared.judge(&format!("{point}, stopped"), &ended);
            progress.fetch_add(1, Relaxed);
        }
    });
    say("stopped", reached, points.len());
    assert!(reached * 4 > points.len() * 3, "{reached} of {} points were reached", points.len());
}

#[test]
fn who_is_killed_over_a_recovery_is_recovered_with_the_first() {
    kill_over_a_recovery::<Shm>();
}

#[test]
fn who_is_killed_over_a_recovery_is_recovered_with_the_first_on_pmem() {
    kill_over_a_recovery::<Pmem>();
}

fn kill_over_a_recovery<M: Under>() {
    let points = points_of_writing::<M>(&mut Draws(3));
    for first in &FIRSTS {
        let at = points
            .iter()
            .find(|point| point.name == Some(first.after))
            .unwrap_or_else(|| panic!("nothing leaves {}", first.what));
        kill_over_a_recovery_of::<M>(first, &Point { nth: first.nth, ..at.clone() });
    }
}

/// Kills one who recovers another that died at the point `at`, at each of the points that it comes by.
fn kill_over_a_recovery_of<M: Under>(first: &First, at: &Point) {
    let dead = |shared: &Shared<M>| start::<M>("write", &shared.site.path, at, Ending::Kill).wait();
    let list = || {
        let shared = Shared::<M>::among_bystanders(Index::Clht);
        dead(&shared);
        AtPoint::<M>::points(|| look_after::<M>(&shared.site.path))
    };
    // A thread of the store may come by more, if it is there before the end.
    let (mut points, again) = (list(), list());
    points.retain(|point| again.iter().any(|other| other.is_at(point)));
    let points = drawn(points, &mut Draws(6));
    assert_all_reached(first.parts, &points);
    let (progress, mut reached) = (AtomicU64::new(0), Vec::new());
    watched(&progress, || {
        for point in &points {
            let is_reached = tries(point).iter().any(|point| {
                let shared = Shared::<M>::among_bystanders(Index::Clht);
                let ended = dead(&shared);
                let second = start::<M>("look-after", &shared.site.path, point, Ending::Kill).wait();
                shared.judge(&format!("{point}, over a recovery of {}", first.what), &ended);
                second.killed
            });
            reached.extend(is_reached.then_some(point));
            progress.fetch_add(1, Relaxed);
        }
    });
    say(&format!("killed over a recovery of {}", first.what), reached.len(), points.len());
    assert!(reached.len() * 4 > points.len() * 3, "{} of {} were reached", reached.len(), points.len());
    assert_all_reached(first.parts, reached);
}

/// Not a test by itself: makes an entry that has expired by the time that it stands still, with the lock of its bucket.
fn expire<M: Under>(path: &Path) {
    let store = M::open_at_point(path);
    store.put_expiring(b"due", b"", Duration::from_millis(1)).unwrap();
    store.close().unwrap();
}

#[test]
fn who_cannot_close_for_one_that_stands_still_with_a_lock_is_told_which_and_checks_all_the_same() {
    let shared = Shared::<Shm>::among_bystanders(Index::Clht);
    let path = &shared.site.path;
    let points = AtPoint::<Shm>::points(|| expire::<Shm>(path));
    // Where the entry gets into its bucket.
    let at = points.into_iter().find(|point| point.name == Some("clht.slot")).unwrap();
    let victim = start::<Shm>("expire", path, &at, Ending::Stop);
    assert!(victim.wait_until_stopped().unwrap());
    let progress = AtomicU64::new(0);
    watched(&progress, || {
        // Until its thread that sweeps has come by.
        let refused = loop {
            let store = Shm::options(path).expiry_thread(true).open().unwrap();
            pause(Duration::from_millis(300));
            let report = store.check(&mut |_, _| {});
            assert!(report.is_sound() && report.beside_others, "{:#?}", report.findings);
            if let Err(error) = store.close() {
                break error;
            }
        };
        let CloseError::HeldUp(holder) = &refused else { panic!("{refused}") };
        assert_eq!((holder.pid, holder.stopped), (victim.pid(), true));
        let who = format!("waits for process {} (share_points", victim.pid());
        assert!(refused.to_string().contains(&who), "{refused}");
        victim.resume().unwrap();
        assert!(!victim.wait().killed);
        // What could not be closed closes by itself.
        while !shared.bystander.other_participants().is_empty() {
            pause(Duration::from_millis(1));
        }
    });
    shared.judge("a close that was held up", &Ended { acknowledged: Default::default(), killed: false });
}

#[allow(clippy::disallowed_methods, reason = "others need the time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[allow(clippy::print_stderr, reason = "the counts are the test's evidence")]
fn say(what: &str, reached: usize, points: usize) {
    eprintln!("{what} at {reached} of {points} points");
}
