//! A process that shares a store is killed, or stopped, at every line of lock, allocation, resize, batch and recovery that changes the pool, while another one goes on. Every write that
//! returned is there, nothing else, and nobody is held up by the dead.
//!
//! The lines are found by doing the same in this process first: a line that is added is a point from then on. See `points.rs` for a process that has its store alone.

#[path = "common/writes.rs"]
mod writes;

#[path = "common/watched.rs"]
mod watched;

mod common;

use common::{Draws, Medium, Site, assert_sound, contents, shared};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use terrace::{ByteSize, Index, Store};
use terrace_medium::{MappedMedium, Pmem, Shm};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::process::{AtPoint, Ended, Ending, Journal, Point, Victim, acknowledge, task};
use watched::watched;
use writes::{Whole, note, op};

const OPERATIONS: u64 = 60;
const SEED: u64 = 5;

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
    let mut draws = Draws(SEED);
    for n in 1..=OPERATIONS {
        // Enough other keys that the table grows in every pool, whatever its hash makes of them.
        (0..10).for_each(|more| store.put(format!("more {n} {more}").as_bytes(), b"").unwrap());
        op(0, &mut draws).run(&store);
        returned(n);
    }
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
        ("write", path) => write::<M>(path.as_ref(), |n| acknowledge(0, n)),
        (_, path) => look_after::<M>(path.as_ref()),
    }
}

fn start<M: Under>(what: &str, path: &Path, point: &Point, ending: Ending) -> Victim {
    let told = point.told(ending);
    let task = format!("{:?} {what} {}", M::MEDIUM, path.display());
    Victim::of_test("victim", &task, &[(Point::VARIABLE, &told)]).unwrap()
}

/// The files that this is about.
const PARTS: [&str; 10] = [
    "lock.rs",
    "seats.rs",
    "slabs.rs",
    "pages.rs",
    "limbo.rs",
    "recover.rs",
    "participants.rs",
    "resize.rs",
    "root.rs",
    "flight.rs",
];

/// What a resize is made of in the other indexes.
const RESIZES: [(Index, [&str; 2]); 3] = [
    (Index::Turbo, ["turbo/rehash.rs", "turbo/directory.rs"]),
    (Index::Rewo, ["rewo/resize.rs", "rewo/view.rs"]),
    (Index::Level, ["level/resize.rs", "level/root.rs"]),
];

/// The stores of which each is a moment at which a resize begins, ends, or has happened.
const TURNS: [(Index, &str, &str); 4] = [
    (Index::Turbo, "turbo/directory.rs", "self.0.0[VERSION].store("),
    (Index::Rewo, "rewo/resize.rs", "self.root[1].0[VIEW].store(medium, view.offset(), Release)"),
    (Index::Rewo, "rewo/resize.rs", "self.root[1].0[VIEW].store(medium, directory.after, Release)"),
    (Index::Level, "level/root.rs", "root[0].0[STATE].store("),
];

/// Of the points, those in these files, each at one of its times.
fn named(points: Vec<Point>, parts: &[&str], draws: &mut Draws) -> Vec<Point> {
    let is_named = |point: &Point| parts.iter().any(|part| point.file.ends_with(part));
    let points = points.into_iter().filter(is_named);
    points.map(|point| Point { nth: 1 + draws.below(point.nth), ..point }).collect()
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
        let site = Site::new(M::MEDIUM, ByteSize::mib(16));
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
        let mut found = contents(&store);
        found.retain(|key, _| key.starts_with(b"thread 0"));
        let judged = journal.settle(&found).and_then(|()| Journal::compare([&journal], &found));
        judged.unwrap_or_else(|wrong| panic!("{what}, {returned} operations returned: {wrong}"));
        store.wait_until_collected();
        assert_eq!(store.stats().readers, 0, "{what}: somebody seems to be inside");
        assert_sound(&store);
        store.close().unwrap();
    }
}

/// Where a process is ended that writes.
fn points_of_writing<M: Under>(draws: &mut Draws) -> Vec<Point> {
    let points = points_in::<M>(Index::Clht, &PARTS, draws);
    for part in ["lock.rs", "slabs.rs", "pages.rs", "limbo.rs", "resize.rs", "flight.rs"] {
        assert!(points.iter().any(|point| point.file.ends_with(part)), "no point in {part}");
    }
    points
}

fn points_in<M: Under>(index: Index, parts: &[&str], draws: &mut Draws) -> Vec<Point> {
    let shared = Shared::<M>::new(index);
    named(AtPoint::<M>::points(|| write::<M>(&shared.site.path, |_| {})), parts, draws)
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
    assert!(points.len() > 40, "{} points", points.len());
    kill_at::<M>(Index::Clht, &points);
}

/// Kills a writer at each of these points.
fn kill_at<M: Under>(index: Index, points: &[Point]) {
    let (progress, mut reached) = (AtomicU64::new(0), 0);
    watched(&progress, || {
        for point in points {
            let shared = Shared::<M>::new(index);
            let ended = start::<M>("write", &shared.site.path, point, Ending::Kill).wait();
            shared.judge(&point.to_string(), &ended);
            reached += usize::from(ended.killed);
            progress.fetch_add(1, Relaxed);
        }
    });
    say(&format!("{}: killed", index.name()), reached, points.len());
    assert!(reached * 4 > points.len() * 3, "{reached} of {} points were reached", points.len());
}

#[test]
fn who_is_killed_over_a_resize_of_any_index_holds_nobody_up() {
    for (index, parts) in RESIZES {
        let points = points_in::<Pmem>(index, &parts, &mut Draws(7));
        for (_, file, code) in TURNS.iter().filter(|turn| turn.0 == index) {
            let is_met =
                points.iter().any(|point| point.file.ends_with(file) && source(point).contains(code));
            assert!(is_met, "nothing comes by `{code}` of {file}: {points:?}");
        }
        kill_at::<Pmem>(index, &points);
    }
}

/// The line of a point.
fn source(point: &Point) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(&point.file)).unwrap();
    text.lines().nth(point.line as usize - 1).unwrap_or_default().to_string()
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

/// Somebody has died in the middle of a batch; returns how.
fn dead_in_a_batch<M: Under>(shared: &Shared<M>, at: &Point) -> Ended {
    start::<M>("write", &shared.site.path, at, Ending::Kill).wait()
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
    let batch = points_of_writing::<M>(&mut Draws(3));
    // It holds the lock of batches and has a batch under way.
    let batch =
        batch.into_iter().find(|point| point.file.ends_with("direct/root.rs")).expect("a batch is announced");
    let batch = Point { nth: 3, ..batch };
    let shared = Shared::<M>::among_bystanders(Index::Clht);
    dead_in_a_batch(&shared, &batch);
    let points = AtPoint::<M>::points(|| look_after::<M>(&shared.site.path));
    let points = named(points, &PARTS, &mut Draws(6));
    assert!(points.len() > 20 && points.iter().any(|point| point.file.ends_with("recover.rs")), "{points:?}");
    let (progress, mut reached) = (AtomicU64::new(0), 0);
    watched(&progress, || {
        for point in &points {
            let shared = Shared::<M>::among_bystanders(Index::Clht);
            let ended = dead_in_a_batch(&shared, &batch);
            let second = start::<M>("look-after", &shared.site.path, point, Ending::Kill).wait();
            shared.judge(&format!("{point}, over a recovery"), &ended);
            reached += usize::from(second.killed);
            progress.fetch_add(1, Relaxed);
        }
    });
    say("killed over a recovery", reached, points.len());
    assert!(reached * 4 > points.len() * 3, "{reached} of {} points were reached", points.len());
}

#[allow(clippy::print_stderr, reason = "the counts are the test's evidence")]
fn say(what: &str, reached: usize, points: usize) {
    eprintln!("{what} at {reached} of {points} points");
}
