//! That the histories of the lab come by what they are made for: resizes, also in what is done after a recovery, and the collection of what was deleted.

use terrace_lab::targets::{
    ClhtBytes, ClhtU64, LevelBytes, LevelU64, Resized, RewoBytes, RewoU64, Roots, TurboBytes, TurboU64,
};
use terrace_lab::{RunSeed, suite};
use terrace_testkit::crash::{Memory, Op, Plan, Profile, Subject, Target};

type Store<T> = <T as Target>::Subject<Memory<false>>;

/// The plans of the first runs of a target.
fn plans<T: Target>(runs: u64) -> impl Iterator<Item = Plan> {
    let (place, suite) = suite(T::NAME).expect("a target");
    (0..runs).map(move |number| suite.plan(RunSeed::new(place, Profile::Shm, 0x5eed, number).run))
}

/// The store of a run, after its history.
fn after_history<T: Target>(plan: &Plan, mut each: impl FnMut(&Store<T>)) -> Store<T> {
    let memory = Memory::zeroed(T::BYTES.0, T::BYTES.1).expect("memory for a run");
    let store = Store::<T>::create(memory, plan);
    for op in plan.before.iter().chain(&plan.ops) {
        store.apply(op);
        each(&store);
    }
    store
}

/// Does what is done after each recovery.
fn go_on<T: Target>(store: &Store<T>, plan: &Plan) {
    (0..plan.keys).step_by(2).for_each(|key| _ = store.apply(&Op::Remove(key)));
    plan.after.iter().for_each(|op| _ = store.apply(op));
}

/// In how many of a hundred runs the table is resized by what is done after a recovery.
fn resized_after<T: Target>() -> usize
where
    Store<T>: Resized,
{
    let is_resized = |plan: &Plan| {
        let store = after_history::<T>(plan, |_| ());
        let before = store.resizes();
        go_on::<T>(&store, plan);
        store.resizes() != before
    };
    plans::<T>(100).filter(is_resized).count()
}

/// How often a table of TurboHash is drawn anew as large as it was, in so many runs.
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

#[test]
fn turbo_collects_what_was_deleted() {
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
    ];
    assert!(shares.into_iter().all(|share| share >= 25), "{shares:?} of 100");
}

#[test]
fn a_pool_grows_after_a_recovery() {
    let grows = |plan: &Plan| {
        let store = after_history::<Roots>(plan, |_| ());
        let before = store.pool().size();
        go_on::<Roots>(&store, plan);
        store.pool().size() > before
    };
    let share = plans::<Roots>(100).filter(grows).count();
    assert!(share >= 5, "{share} of 100");
}
