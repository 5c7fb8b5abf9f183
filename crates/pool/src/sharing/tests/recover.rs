//! Tests of `recover`.

use super::*;
use crate::allocator::zones::{UnitState, UnitUse};
use crate::format::layout::Geometry;
use crate::open::options::PoolOptions;
use crate::pool::Pool;
use crate::sharing::ending::tests::View;
use crate::sharing::liveness::{FileLocks, Liveness};
use crate::sharing::protect::tests::takes_stores;
use crate::tests::fixtures;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Barrier, Mutex, MutexGuard};
use terrace_medium::{Mapping, Protection, Shm};

const SIZE: u64 = 1 << 20;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// Opens `N` more participants of the pool in `directory`.
fn open<M: MappedMedium, const N: usize>(directory: &tempfile::TempDir) -> [Pool<M>; N] {
    fixtures::more_participants(directory, fixtures::geometry())
}

/// Two participants of one pool.
fn two() -> (tempfile::TempDir, Pool<Shm>, Pool<Shm>) {
    let directory = directory();
    let [one, two] = open(&directory);
    (directory, one, two)
}

/// The offset of a free lock that all participants know.
fn new_lock<M: MappedMedium>(pool: &Pool<M>) -> u64 {
    let block = pool.pin().alloc(8).unwrap().fenced_later().into_offset();
    pool.region().at(Offset::<Word>::new(block)).store(pool.medium(), 0, Relaxed);
    block
}

fn lock<M: MappedMedium>(pool: &Pool<M>, at: u64) -> &Lock {
    Lock::of(pool.region().at(Offset::new(at)))
}

/// Dies while pinned, holding the lock.
fn die_with_lock<M: MappedMedium>(pool: Pool<M>, at: u64) {
    let guard = pool.pin();
    std::mem::forget(lock(&pool, at).try_acquire(&guard).expect("the lock is free"));
    std::mem::forget(guard);
    pool.abandon();
}

#[test]
fn superblock_torn_by_the_dead_is_repaired() {
    for torn in [0, 1] {
        let (_directory, dead, survivor) = two();
        std::mem::forget(dead.0.peers.acquire(dead.0.base().superblock_lock()));
        let at = Offset::<Word>::new(torn * crate::format::layout::SUPERBLOCK_STEP + 16);
        dead.region().at(at).store(dead.medium(), 77, Relaxed);
        dead.abandon();
        assert_eq!(survivor.recover_dead(), 1);
        assert_eq!(survivor.verify_superblock_and_roots(), []);
    }
}

#[test]
fn revalidation_begun_by_the_dead_is_resumed() {
    let (directory, one, two) = two();
    // Left in use, so that all units are revalidated again.
    let guard = one.pin();
    let kept: Vec<u64> = (0..200).map(|_| guard.alloc(200).unwrap().persist().into_offset()).collect();
    drop(guard);
    one.abandon();
    two.abandon();
    let [dead, survivor] = open::<Shm, 2>(&directory);
    let unit = survivor.0.units().unit_at(kept[0]).unwrap();
    let state = UnitState(survivor.0.units().unit(unit).state.load(survivor.medium(), Relaxed));
    let revalidating = state.at_open_seq(survivor.0.base().open_seq).with(UnitUse::Revalidating);
    std::mem::forget(dead.pin());
    survivor.0.units().unit(unit).state.store(survivor.medium(), revalidating.0, Relaxed);
    dead.abandon();
    assert_eq!(survivor.0.units().revalidate(unit).usage(), UnitUse::Revalidating);
    assert_eq!(survivor.faults(), 0, "the wait ended with a verdict of damage");
    survivor.recover_dead();
    survivor.collect(&mut |marker| kept.iter().for_each(|&offset| marker.mark(offset, 200)));
    assert_eq!(survivor.verify_memory(), []);
}

#[test]
fn wrong_slot_count_after_crash_leaves_a_slot_free() {
    let (_directory, one, _two) = two();
    let (counted, all_here) = (AtomicUsize::new(0), Barrier::new(4));
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                // A recount after a death may miss a slot that is just being taken.
                one.0.base().shared().slots_taken.store(one.medium(), 0, Relaxed);
                drop(one.pin());
                all_here.wait();
                let held =
                    one.0.base().used_slots().filter(|slot| slot.owner_lock.is_held_in(one.0.base())).count();
                counted.fetch_max(held, Relaxed);
                all_here.wait();
            });
        }
    });
    assert!(counted.into_inner() < 4, "one of four slots stays free for a late thread");
}

#[test]
fn growth_begun_by_the_dead_is_completed() {
    for observed in [false, true] {
        let (_directory, dead, survivor) = two();
        // The dead participant stored the new size in the superblock, or also announced it.
        std::mem::forget(dead.0.peers.acquire(dead.0.base().superblock_lock()));
        dead.medium().mapping().grow(2 * SIZE as usize).unwrap();
        dead.0.units().init_hints(SIZE, 2 * SIZE);
        let mut grown = superblock::load(dead.region()).unwrap().superblock;
        (grown.size, grown.sequence) = (2 * SIZE, grown.sequence + 1);
        grown.store(dead.region(), 0).unwrap();
        if observed {
            dead.0.base().set_size(2 * SIZE);
        }
        dead.abandon();
        assert_eq!(survivor.recover_dead(), 1);
        assert_eq!((survivor.size(), survivor.grow(2 * SIZE).unwrap()), (2 * SIZE, 2 * SIZE));
        let guard = survivor.pin();
        let mut had = 0;
        while let Ok(block) = guard.alloc(4096) {
            block.persist().into_offset();
            had += 4096;
        }
        assert!(had > SIZE + SIZE / 2, "only {had} bytes of the grown pool can be allocated");
        assert_eq!(survivor.verify_superblock_and_roots(), []);
    }
}

#[test]
fn recovery_keeps_slots_and_locks_of_live_participants() {
    let directory = directory();
    let [dead, alive, survivor] = open::<Shm, 3>(&directory);
    let [one, two] = [(); 2].map(|()| new_lock(&survivor));
    assert_eq!(survivor.testing().participants_taken(), 3);
    let guard = alive.pin();
    let held = lock(&alive, one).acquire(&guard);
    let elected = alive.0.peers.acquire(alive.0.base().opening_lock());
    die_with_lock(dead, two);
    assert_eq!(survivor.recover_dead(), 1);
    assert!(lock(&survivor, one).is_held(&survivor) && survivor.0.base().opening_lock().is_held(&survivor));
    assert!(!lock(&survivor, two).is_held(&survivor));
    assert_eq!((survivor.testing().participants_taken(), survivor.space().readers), (2, 1));
    assert!(!survivor.0.base().has_dead_participant() && survivor.recover_dead() == 0);
    drop((held, elected));
    drop(guard);
    assert!(!lock(&survivor, one).is_held(&survivor) && !survivor.0.base().opening_lock().is_held(&survivor));
}

#[test]
fn participant_is_dead_until_recovered() {
    let (_directory, dead, survivor) = two();
    assert!(!survivor.0.base().has_dead_participant());
    dead.abandon();
    assert!(survivor.0.base().has_dead_participant());
    survivor.recover_dead();
    assert!(!survivor.0.base().has_dead_participant());
    let exclusive = Pool::<Shm>::anonymous(SIZE).unwrap();
    assert!(!exclusive.0.base().has_dead_participant() && exclusive.recover_dead() == 0);
}

#[test]
fn earlier_incarnation_of_a_live_slot_is_dead() {
    let (directory, dead, survivor) = two();
    let at = new_lock(&survivor);
    let guard = dead.pin();
    std::mem::forget(lock(&dead, at).acquire(&guard));
    std::mem::forget(guard);
    let old = lock(&dead, at).load_word(dead.medium());
    dead.abandon();
    survivor.recover_dead();
    let [next] = open::<Shm, 1>(&directory);
    let guard = next.pin();
    let held = lock(&next, at).try_acquire(&guard).expect("the lock is free");
    let new = lock(&next, at).load_word(next.medium());
    assert_eq!(holder_of_word(old).0, holder_of_word(new).0, "same entry");
    for pool in [&survivor, &next] {
        assert!(pool.0.base().is_holder_dead(old) && !pool.0.base().is_holder_dead(new));
    }
    drop(held);
}

#[test]
fn lock_of_an_impossible_holder_can_be_released() {
    let (_directory, one, two) = two();
    let at = new_lock(&one);
    let guard = one.pin();
    std::mem::forget(lock(&one, at).acquire(&guard));
    // Damaged: the highest participant number that a lock word can hold.
    one.region().at(Offset::<Word>::new(at)).fetch_or(one.medium(), 0xfff << 2, Relaxed);
    assert!(
        lock(&two, at).is_held(&two) && two.0.base().is_holder_dead(lock(&two, at).load_word(two.medium()))
    );
    assert!(!two.0.peers.recover_participant(0xfff));
    lock(&two, at).release_if_dead(two.0.base());
    assert!(!lock(&two, at).is_held(&two));
}

/// Waits for a lock as long as a holder that is dead may take, and no longer.
fn is_taken_soon(pool: &Pool<Shm>, at: u64) -> bool {
    let tries = AtomicUsize::new(0);
    pool.0.peers.acquire_until(lock(pool, at), &|| tries.fetch_add(1, Relaxed) > 3).is_some()
}

#[test]
fn waiter_releases_a_lock_that_the_dead_had_not_noted() {
    let (_directory, dead, survivor) = two();
    let at = new_lock(&survivor);
    // As a host leaves it whose last stores to the lock were lost, and the note's were not.
    std::mem::forget(lock(&dead, at).try_acquire_in(dead.0.base()).expect("the lock is free"));
    dead.abandon();
    assert!(is_taken_soon(&survivor, at));
}

#[test]
fn waiter_releases_a_lock_of_an_impossible_holder() {
    let (_directory, one, two) = two();
    let at = new_lock(&one);
    std::mem::forget(lock(&one, at).try_acquire_in(one.0.base()));
    one.region().at(Offset::<Word>::new(at)).fetch_or(one.medium(), 0xfff << 2, Relaxed);
    assert!(is_taken_soon(&two, at));
}

/// A participant died in entry `index` with the lock at `at`. One survivor recovers it, the
/// other watches.
struct Left {
    directory: tempfile::TempDir,
    recoverer: Pool<Shm>,
    survivor: Pool<Shm>,
    at: u64,
    index: u32,
}

impl Left {
    fn new() -> Self {
        let directory = directory();
        let [dead, recoverer, survivor] = open::<Shm, 3>(&directory);
        let (at, index) = (new_lock(&survivor), u32::from(dead.owner().participant));
        die_with_lock(dead, at);
        Self { directory, recoverer, survivor, at, index }
    }

    /// Takes the lock that is held during recovery.
    fn recovery(&self) -> Locked<'_, Shm> {
        let Self { recoverer, index, .. } = self;
        recoverer.0.peers.acquire(participants::recovery(recoverer.region(), recoverer.layout(), *index))
    }
}

#[test]
fn recovery_runs_in_one_participant_at_a_time() {
    let left = Left::new();
    let (recoverer, survivor, at) = (&left.recoverer, &left.survivor, left.at);
    let busy = left.recovery();
    assert_eq!(survivor.recover_dead(), 0);
    assert!(lock(survivor, at).is_held(survivor) && survivor.testing().participants_taken() == 3);
    drop(busy);
    assert_eq!((survivor.recover_dead(), recoverer.recover_dead()), (1, 0));
    assert!(!lock(survivor, at).is_held(survivor));
}

#[test]
fn recovery_cut_off_by_a_death_is_resumed() {
    let left = Left::new();
    std::mem::forget(left.recovery());
    let Left { directory, recoverer, survivor, at, index } = left;
    recoverer.abandon();
    assert_eq!(survivor.recover_dead(), 2);
    assert!(!lock(&survivor, at).is_held(&survivor) && survivor.testing().participants_taken() == 1);
    // A participant that dies next in that entry is recovered, too.
    let [next] = open::<Shm, 1>(&directory);
    assert_eq!(u32::from(next.owner().participant), index);
    die_with_lock(next, at);
    assert_eq!(survivor.recover_dead(), 1);
}

#[test]
fn crash_of_a_pinned_participant_requests_collection() {
    for depth in [0, 1, 2] {
        let (_directory, dead, survivor) = two();
        drop(dead.pin());
        (0..depth).for_each(|_| std::mem::forget(dead.pin()));
        dead.abandon();
        assert_eq!(survivor.recover_dead(), 1);
        assert_eq!(survivor.needs_collection(), depth > 0, "pinned {depth} times");
        // It blocks nothing any more.
        assert_eq!((survivor.space().readers, survivor.0.epochs().count_taken_slots()), (0, 0));
        let epoch = survivor.0.epochs().epoch();
        assert_eq!(survivor.0.epochs().try_advance(), epoch + 1);
    }
}

#[test]
fn slots_of_the_dead_are_not_counted() {
    let (_directory, dead, survivor) = two();
    let guard = survivor.pin();
    drop(dead.pin());
    let taken = || survivor.0.base().shared().slots_taken.load(survivor.medium(), Relaxed);
    assert_eq!(taken(), 2);
    dead.abandon();
    survivor.recover_dead();
    assert_eq!((taken(), survivor.0.epochs().count_taken_slots()), (1, 1));
    drop(guard);
}

#[test]
fn crash_during_collection_requests_another() {
    let (_directory, dead, survivor) = two();
    std::mem::forget(dead.0.peers.acquire(&dead.0.base().shared().collector));
    dead.abandon();
    survivor.recover_dead();
    assert!(survivor.needs_collection());
    survivor.collect(&mut |_| {});
    assert!(!survivor.needs_collection());
}

/// The pool's own locks.
fn pool_locks(pool: &Pool<Shm>) -> [&Lock; 6] {
    let (inner, shared, slot) = (&*pool.0, pool.0.base().shared(), pool.0.base().thread_slot(0));
    let own = [inner.base().superblock_lock(), inner.base().roots_lock(), inner.base().opening_lock()];
    [own[0], own[1], own[2], &shared.collector, &shared.vacate, &slot.queue_lock]
}

#[test]
fn pool_locks_of_the_dead_are_released() {
    let (_directory, dead, survivor) = two();
    drop(survivor.pin());
    for lock in pool_locks(&dead) {
        std::mem::forget(dead.0.peers.acquire(lock));
    }
    dead.abandon();
    assert!(pool_locks(&survivor).iter().all(|lock| lock.is_held(&survivor)));
    survivor.recover_dead();
    assert!(!pool_locks(&survivor).iter().any(|lock| lock.is_held(&survivor)));
}

#[test]
fn protected_participant_stores_only_during_recovery() {
    let directory = directory();
    let [dead, reader] = open::<Shm, 2>(&directory);
    let at = new_lock(&dead);
    reader.protect_data().unwrap();
    assert!(!takes_stores(&reader, at));
    // Recovery has a lock to release and a cache to drain.
    die_with_lock(dead, at);
    assert_eq!(reader.recover_dead(), 1);
    assert!(!takes_stores(&reader, at) && !lock(&reader, at).is_held(&reader));
}

/// The simulated state of a participant.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Lives,
    /// Stores nothing any more, but still has its liveness.
    Ending,
}

/// The state of each claimed entry, for a simulated liveness.
#[derive(Clone, Default)]
struct Register(Arc<Mutex<BTreeMap<u32, Fate>>>);

impl Register {
    fn places(&self) -> MutexGuard<'_, BTreeMap<u32, Fate>> {
        self.0.lock().unwrap()
    }
}

/// One participant's view of the register.
struct Member {
    register: Register,
    own: Mutex<Option<u32>>,
}

impl Liveness for Member {
    fn claim(&self, index: u32) -> std::io::Result<bool> {
        let is_free = !self.is_alive(index);
        if is_free {
            self.register.places().insert(index, Fate::Lives);
            *self.own.lock().unwrap() = Some(index);
        }
        Ok(is_free)
    }
    fn release(&self, index: u32) {
        self.register.places().remove(&index);
    }
    fn is_alive(&self, index: u32) -> bool {
        *self.own.lock().unwrap() != Some(index) && self.register.places().contains_key(&index)
    }
    fn is_exiting(&self, index: u32, pid: u32) -> bool {
        assert_eq!(pid, std::process::id(), "the pid of the participant table");
        self.register.places().get(&index) == Some(&Fate::Ending)
    }
    fn enter(&self) -> std::io::Result<()> {
        Ok(())
    }
    fn leave(&self) {}
}

/// The kernel releases a dying process's memory first, then closes its files and releases their
/// locks.
#[test]
fn ending_process_is_recovered_while_its_locks_are_held() {
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    Mapping::allocate(file.as_file(), SIZE).unwrap();
    let opened = || File::options().read(true).write(true).open(file.path()).unwrap();
    let medium =
        || Shm::new(Mapping::file(opened(), SIZE as usize, SIZE as usize, Protection::ReadWrite).unwrap());
    let (options, view) =
        (PoolOptions::anonymous().geometry(Geometry::tiny()).shared(true), View::of(std::process::id()));
    let dying = options.create_shared_on(medium(), Arc::new(FileLocks::new(opened()))).unwrap();
    let locks = Arc::new(FileLocks::new(opened()).seeing(view.proc()));
    let survivor = options.share_on(medium(), locks.clone()).unwrap();
    let (at, index) = (new_lock(&survivor), u32::from(dying.owner().participant));
    let guard = dying.pin();
    std::mem::forget(lock(&dying, at).acquire(&guard));
    let held = lock(&survivor, at);
    view.has_files_of_this_process();
    view.maps(&[4096]);
    assert!(survivor.recover_dead() == 0 && held.is_held(&survivor));
    view.maps(&[0]);
    assert!(locks.is_alive(index), "its liveness is still held");
    assert!(survivor.recover_dead() == 1 && !held.is_held(&survivor));
    assert!(locks.is_alive(index) && survivor.recover_dead() == 0);
    std::mem::forget(guard);
    dying.abandon();
}

#[test]
fn exiting_participant_is_dead_until_its_slot_is_reused() {
    let (file, register) = (tempfile::tempfile_in("/dev/shm").unwrap(), Register::default());
    Mapping::allocate(&file, SIZE).unwrap();
    let medium = || {
        let file = file.try_clone().unwrap();
        Shm::new(Mapping::file(file, SIZE as usize, SIZE as usize, Protection::ReadWrite).unwrap())
    };
    let member = || Arc::new(Member { register: register.clone(), own: Mutex::default() });
    let options = PoolOptions::anonymous().geometry(Geometry::tiny()).shared(true);
    let dying = options.create_shared_on(medium(), member()).unwrap();
    let survivor = options.share_on(medium(), member()).unwrap();
    let (at, index) = (new_lock(&survivor), u32::from(dying.owner().participant));
    die_with_lock(dying, at);
    let held = lock(&survivor, at);
    let word = held.load_word(survivor.medium());
    // The kernel does not report yet that it is exiting.
    assert!(
        !survivor.0.base().is_holder_dead(word) && survivor.recover_dead() == 0 && held.is_held(&survivor)
    );
    register.places().insert(index, Fate::Ending);
    assert!(survivor.0.base().is_holder_dead(word));
    // The exit is not visible any more, but a recovery that has begun continues.
    register.places().insert(index, Fate::Lives);
    assert!(
        survivor.0.base().is_holder_dead(word) && survivor.recover_dead() == 1 && !held.is_held(&survivor)
    );
    register.places().remove(&index);
    let next = options.share_on(medium(), member()).unwrap();
    assert_eq!(u32::from(next.owner().participant), index);
    let guard = next.pin();
    let kept = lock(&next, at).try_acquire(&guard).expect("the lock is free");
    assert!(survivor.recover_dead() == 0 && held.is_held(&survivor));
    drop(kept);
}
