//! The lab's histories cover what they are made for: resizes, also after a recovery, garbage
//! collection of deleted slots, and each change of a tree's structure.

use terrace_lab::targets::{
    ArtBytes, ArtU64, ClhtBytes, ClhtU64, HotBytes, HotU64, LevelBytes, LevelU64, Resized, RewoBytes,
    RewoU64, Roots, TurboBytes, TurboU64,
};
use terrace_lab::{RunSeed, suite};
use terrace_testkit::crash::{Memory, Op, Plan, Profile, Subject, Target};

/// Size of a Rewo-Hash bucket in bytes.
const BLOCK: u64 = 256;

type Store<T> = <T as Target>::Subject<Memory<true>>;

/// The plans of the first runs of a target.
fn plans<T: Target>(runs: u64) -> impl Iterator<Item = Plan> {
    let (place, suite) = suite(T::NAME).expect("a target");
    (0..runs).map(move |number| suite.plan(RunSeed::new(place, Profile::Shm, 0x5eed, number).run))
}

/// The store of a run, after its history. Calls `each` after every operation.
fn after_history<T: Target>(plan: &Plan, mut each: impl FnMut(&Store<T>)) -> Store<T> {
    let memory = Memory::zeroed(T::BYTES.0, T::BYTES.1).expect("memory for a run");
    let store = Store::<T>::create(memory, plan);
    for op in plan.before.iter().chain(&plan.ops) {
        store.apply(op);
        each(&store);
    }
    store
}

/// Does the operations that follow a recovery.
fn apply_after<T: Target>(store: &Store<T>, plan: &Plan) {
    (0..plan.keys).step_by(2).for_each(|key| _ = store.apply(&Op::Remove(key)));
    plan.after.iter().for_each(|op| _ = store.apply(op));
}

/// The number of runs of a hundred in which the operations after a recovery resize the table.
fn resized_after<T: Target>() -> usize
where
    Store<T>: Resized,
{
    let is_resized = |plan: &Plan| {
        let store = after_history::<T>(plan, |_| ());
        let before = store.resizes();
        apply_after::<T>(&store, plan);
        store.resizes() != before
    };
    plans::<T>(100).filter(is_resized).count()
}

/// The number of times that TurboHash rebuilds a table at the same size, in `runs` runs.
fn collections_of_garbage<T: Target>(runs: u64) -> usize
where
    Store<T>: Resized,
{
    let mut collections = 0;
    for plan in plans::<T>(runs) {
        let mut before = (0, 0);
        after_history::<T>(&plan, |store| {
            let now = store.resizes();
            collections += usize::from(now.0 == before.0 + 1 && now.1 == before.1);
            before = now;
        });
    }
    collections
}

/// Numbers of Rewo-Hash runs that take a spare table, leave it partly cleared after an operation,
/// use it to grow, and use it to shrink, all within the part of the history that may crash.
#[derive(Debug, Default)]
struct Spares {
    taken: usize,
    partly_cleared: usize,
    grown: usize,
    shrunk: usize,
}

fn spares<T: Target>(runs: u64) -> Spares
where
    Store<T>: Resized,
{
    let mut spares = Spares::default();
    for plan in plans::<T>(runs) {
        let (mut done, mut had) = (0, Spares::default());
        // Buckets of the spare, and of the table while there was last a spare.
        let (mut spare, mut others) = (0, 0);
        after_history::<T>(&plan, |store| {
            let now = store.stats();
            let is_counted = done >= plan.before.len();
            let count = |what: &mut usize, is_so: bool| *what |= usize::from(is_counted && is_so);
            // The root and the view take one block each, the stripes less than one.
            let buckets = now.bytes / BLOCK - 2 - now.buckets;
            count(&mut had.taken, buckets != spare && buckets != 0);
            count(&mut had.partly_cleared, buckets != 0 && now.resizing);
            count(&mut had.grown, others != 0 && buckets == 0 && now.buckets > others);
            count(&mut had.shrunk, buckets == 0 && now.buckets < others);
            (spare, done) = (buckets, done + 1);
            others = if buckets != 0 { now.buckets } else { others };
        });
        spares.taken += had.taken;
        spares.partly_cleared += had.partly_cleared;
        spares.grown += had.grown;
        spares.shrunk += had.shrunk;
    }
    spares
}

#[test]
fn rewo_runs_use_spare_tables() {
    for spares in [spares::<RewoU64>(200), spares::<RewoBytes>(200)] {
        let Spares { taken, partly_cleared, grown, shrunk } = spares;
        assert!(
            [taken, partly_cleared, grown, shrunk].into_iter().all(|runs| runs >= 5),
            "{spares:?} of 200"
        );
    }
}

/// Numbers of runs of a tree in whose part that may crash a leaf or prefix is split, a path is
/// merged, and nodes grow and shrink, by their kinds.
#[derive(Debug, Default)]
struct Reshaped {
    split: usize,
    merged: usize,
    grown: [usize; 3],
    shrunk: [usize; 3],
}

fn reshaped<T: Target>(runs: u64) -> Reshaped
where
    Store<T>: Resized,
{
    let mut reshaped = Reshaped::default();
    for plan in plans::<T>(runs) {
        let (mut done, mut before, mut had) = (0, [0; 4], Reshaped::default());
        after_history::<T>(&plan, |store| {
            let (now, sum) = (store.stats().nodes, |nodes: [u64; 4]| nodes.iter().sum::<u64>());
            let is_counted = done >= plan.before.len();
            let count = |what: &mut usize, is_so: bool| *what |= usize::from(is_counted && is_so);
            count(&mut had.split, sum(now) > sum(before));
            count(&mut had.merged, sum(now) < sum(before));
            for kind in 0..3 {
                count(&mut had.grown[kind], now[kind] < before[kind] && now[kind + 1] > before[kind + 1]);
                count(&mut had.shrunk[kind], now[kind] > before[kind] && now[kind + 1] < before[kind + 1]);
            }
            (before, done) = (now, done + 1);
        });
        reshaped.split += had.split;
        reshaped.merged += had.merged;
        (0..3).for_each(|kind| reshaped.grown[kind] += had.grown[kind]);
        (0..3).for_each(|kind| reshaped.shrunk[kind] += had.shrunk[kind]);
    }
    reshaped
}

#[test]
fn art_runs_change_the_structure() {
    for reshaped in [reshaped::<ArtU64>(200), reshaped::<ArtBytes>(200)] {
        let Reshaped { split, merged, grown, shrunk } = reshaped;
        assert!(split >= 50 && merged >= 50, "{reshaped:?} of 200");
        assert!(grown.into_iter().chain(shrunk).all(|runs| runs >= 5), "{reshaped:?} of 200");
    }
}

/// The numbers of runs of a tree in whose part that may crash nodes are split, go, and are replaced
/// with as many left.
fn replaced<T: Target>(runs: u64) -> [usize; 3]
where
    Store<T>: Resized,
{
    let mut all = [0; 3];
    for plan in plans::<T>(runs) {
        let (mut done, mut before, mut had) = (0, (0, 0), [false; 3]);
        after_history::<T>(&plan, |store| {
            let (replaced, _) = store.resizes();
            let now = (store.stats().nodes.iter().sum::<u64>(), replaced);
            let kinds = [now.0 > before.0, now.0 < before.0, now.0 == before.0 && now.1 > before.1];
            if done >= plan.before.len() {
                had.iter_mut().zip(kinds).for_each(|(had, is_so)| *had |= is_so);
            }
            (before, done) = (now, done + 1);
        });
        all.iter_mut().zip(had).for_each(|(all, had)| *all += usize::from(had));
    }
    all
}

#[test]
fn hot_runs_change_the_structure() {
    for replaced in [replaced::<HotU64>(200), replaced::<HotBytes>(200)] {
        assert!(replaced.into_iter().all(|runs| runs >= 100), "{replaced:?} of 200");
    }
}

#[test]
fn turbo_runs_collect_deleted_slots() {
    let found = [collections_of_garbage::<TurboU64>(100), collections_of_garbage::<TurboBytes>(100)];
    assert!(found.into_iter().all(|found| found > 1), "{found:?}");
}

#[test]
fn tables_are_resized_after_a_recovery() {
    let shares = [
        resized_after::<ClhtU64>(),
        resized_after::<ClhtBytes>(),
        resized_after::<TurboU64>(),
        resized_after::<TurboBytes>(),
        resized_after::<RewoU64>(),
        resized_after::<RewoBytes>(),
        resized_after::<LevelU64>(),
        resized_after::<LevelBytes>(),
        resized_after::<ArtU64>(),
        resized_after::<ArtBytes>(),
        resized_after::<HotU64>(),
        resized_after::<HotBytes>(),
    ];
    assert!(shares.into_iter().all(|share| share >= 25), "{shares:?} of 100");
}

#[test]
fn pool_grows_after_a_recovery() {
    let grows = |plan: &Plan| {
        let store = after_history::<Roots>(plan, |_| ());
        let before = store.pool().size();
        apply_after::<Roots>(&store, plan);
        store.pool().size() > before
    };
    let share = plans::<Roots>(100).filter(grows).count();
    assert!(share >= 5, "{share} of 100");
}
