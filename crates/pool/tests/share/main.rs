//! Tests: several participants of one pool, and recovery of a dead one.

#[path = "../common/mod.rs"]
mod common;
mod forked;
mod killed;
mod protected;
mod stopped;

use common::problem;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, Offset, Pmem, Shm, Word};
use terrace_pool::{Geometry, Pool, PoolOptions, Problem, Start};

const SIZE: u64 = 4 << 20;

fn options(path: &Path) -> PoolOptions {
    let geometry = Geometry { participants: 4, thread_slots: 16, ..Geometry::for_size(SIZE) };
    PoolOptions::at(path).size(SIZE).geometry(geometry).assume_persistent(true).shared(true)
}

fn open<M: MappedMedium>(path: &Path) -> Pool<M> {
    options(path).open_or_create::<M>().unwrap_or_else(|error| panic!("{error}"))
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("shared.pool");
    (directory, path)
}

#[allow(
    clippy::disallowed_methods,
    reason = "the time of the kill, or that nothing happens, is what is tested"
)]
fn pause(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}

/// The 16 words of root `words`, which all participants know.
fn words<M: MappedMedium>(pool: &Pool<M>) -> &[Word; 16] {
    let offset = match pool.root("words", "test").unwrap() {
        Some(offset) => offset,
        None => {
            let guard = pool.pin();
            let block = guard.alloc(128).unwrap();
            (0..16).for_each(|at| block.word(8 * at).store(pool.medium(), 0, Relaxed));
            let offset = block.persist().into_offset();
            pool.set_root("words", "test", offset).unwrap();
            offset
        }
    };
    pool.region().at(Offset::new(offset))
}

/// A process that is killed with the test, whatever state it is in.
struct Kept(Child);

impl Kept {
    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Field `number`, from the third on, of /proc/PID/stat, counted as in proc_pid_stat(5).
fn field_of(pid: u32, number: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit(") ").next()?.split_whitespace().nth(number - 3)?.to_string())
}

/// The state letter of a process; `Z` once it has closed its files.
fn state_of(pid: u32) -> Option<char> {
    field_of(pid, 3)?.chars().next()
}

#[test]
fn participants_share_words_and_last_one_closes_pool() {
    let (_directory, path) = directory();
    let one = open::<Shm>(&path);
    let two = open::<Shm>(&path);
    assert_eq!((one.owner().participant, two.owner().participant), (0, 1));
    assert_eq!((one.generation(), two.generation()), (1, 1));
    words(&one)[3].store(one.medium(), 7, Release);
    assert_eq!(words(&two)[3].load(two.medium(), Acquire), 7);
    one.close().unwrap();
    let three = open::<Shm>(&path);
    assert_eq!((three.owner().participant, three.owner().incarnation, three.generation()), (0, 2, 1));
    two.close().unwrap();
    three.close().unwrap();
    let exclusive = options(&path).shared(false).open::<Shm>().unwrap();
    assert_eq!((exclusive.found(), exclusive.generation()), (Start::Clean, 2));
    assert_eq!(words(&exclusive)[3].load(exclusive.medium(), Acquire), 7);
    assert_eq!(
        (exclusive.verify_superblock_and_roots(), exclusive.verify_memory(), exclusive.faults()),
        (vec![], vec![], 0)
    );
}

#[test]
fn sharers_of_an_open_file_have_separate_locks() {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    let options = PoolOptions::in_file(file).size(SIZE).shared(true);
    let one = options.create::<Shm>().unwrap();
    let all = [one, options.open().unwrap(), options.open().unwrap()];
    let seen = all
        .each_ref()
        .map(|pool| (pool.owner().participant, pool.other_participants().len(), pool.generation()));
    assert_eq!(seen, [(0, 2, 1), (1, 2, 1), (2, 2, 1)]);
}

#[test]
fn exclusive_and_shared_opens_exclude_each_other() {
    let (_directory, path) = directory();
    let shared = open::<Shm>(&path);
    assert!(matches!(problem(options(&path).shared(false).open::<Shm>()), Problem::InUse(Some(_))));
    assert!(matches!(problem(options(&path).read_only(true).open::<Shm>()), Problem::InUse(Some(_))));
    shared.close().unwrap();
    let exclusive = options(&path).shared(false).open::<Shm>().unwrap();
    assert!(matches!(problem(options(&path).open::<Shm>()), Problem::InUse(Some(_))));
    exclusive.close().unwrap();
    let reader = options(&path).read_only(true).open::<Shm>().unwrap();
    assert!(matches!(problem(options(&path).open::<Shm>()), Problem::InUse(_)));
    drop(reader);
    open::<Shm>(&path).close().unwrap();
}

#[test]
fn crowded_pool_is_refused_with_a_list_of_holders() {
    let (_directory, path) = directory();
    let all: Vec<_> = (0..4).map(|_| open::<Shm>(&path)).collect();
    let error = options(&path).open::<Shm>().err().unwrap();
    assert!(matches!(&error.problem, Problem::Crowded(holders) if holders.len() == 4));
    let text = error.to_string();
    assert_eq!(text.matches(&format!("process {}", std::process::id())).count(), 4, "{text}");
    drop(all);
    open::<Shm>(&path);
}

#[test]
fn pool_of_another_durability_is_not_joined() {
    let (_directory, path) = directory();
    let _one = open::<Pmem>(&path);
    assert!(matches!(problem(options(&path).open::<Shm>()), Problem::OtherDurability { .. }));
}

/// The word with the sharing version: the fourth of the pool's shared words.
fn terms<M: MappedMedium>(pool: &Pool<M>) -> &Word {
    pool.region().at(Offset::new(pool.layout().shared + 3 * 8))
}

#[test]
fn pool_shared_by_another_release_is_not_joined() {
    let (_directory, path) = directory();
    let one = open::<Shm>(&path);
    let word = terms(&one).load(one.medium(), Acquire);
    terms(&one).store(one.medium(), word + (1 << 16), Release);
    let error = options(&path).open::<Shm>().err().unwrap();
    assert!(matches!(error.problem, Problem::OtherSharing { found } if found == (word >> 16) + 1), "{error}");
    assert!(error.to_string().contains("the same release"), "{error}");
    // Another release number is refused, too: it may share other structures.
    let known = [1u64 << 32, 1 << 44, 1 << 56].map(|one_more| word + one_more);
    for (other, part) in known.iter().zip(["patch", "minor", "major"]) {
        terms(&one).store(one.medium(), *other, Release);
        let error = options(&path).open::<Shm>().err().unwrap();
        assert!(matches!(error.problem, Problem::OtherSharing { found } if found == other >> 16), "{part}");
    }
    let mut numbers = env!("CARGO_PKG_VERSION").split('.');
    let major: u32 = numbers.next().unwrap().parse().unwrap();
    let other = [&(major + 1).to_string(), numbers.next().unwrap(), numbers.next().unwrap()]
        .map(|s| s.to_string())
        .join(".");
    assert!(
        options(&path)
            .open::<Shm>()
            .err()
            .unwrap()
            .to_string()
            .contains(&format!("release {other} of terrace"))
    );
    terms(&one).store(one.medium(), word, Release);
    open::<Shm>(&path);
}

#[test]
fn deleted_pool_stays_shared_and_is_created_anew() {
    let (_directory, path) = directory();
    let (one, two) = (open::<Shm>(&path), open::<Shm>(&path));
    let kept = words(&one);
    std::fs::remove_file(&path).unwrap();
    kept[0].store(one.medium(), 5, Release);
    assert_eq!(words(&two)[0].load(two.medium(), Acquire), 5);
    assert!(matches!(problem(options(&path).open::<Shm>()), Problem::Missing));
    let new = open::<Shm>(&path);
    assert_eq!((new.other_participants().len(), one.other_participants().len()), (0, 1));
    assert_ne!(new.uuid(), one.uuid());
    // A death in the old pool is observed there.
    two.abandon();
    assert_eq!((one.recover_dead(), new.recover_dead()), (1, 0));
    one.grow(2 * SIZE).unwrap();
    one.close().unwrap();
    new.close().unwrap();
}

#[test]
fn pool_left_by_all_is_recovered_at_the_next_open() {
    let (_directory, path) = directory();
    let (one, two) = (open::<Shm>(&path), open::<Shm>(&path));
    words(&one)[0].store(one.medium(), 5, Release);
    one.abandon();
    two.abandon();
    let next = open::<Shm>(&path);
    assert_eq!((next.found(), next.generation(), next.owner().participant), (Start::Unclean, 2, 0));
    assert_eq!(words(&next)[0].load(next.medium(), Acquire), 5);
}

#[test]
fn last_participant_to_close_recovers_the_dead() {
    let (_directory, path) = directory();
    let (one, two) = (open::<Shm>(&path), open::<Shm>(&path));
    words(&two);
    // Its thread slot has caches by now.
    two.abandon();
    one.close().unwrap();
    let next = open::<Shm>(&path);
    assert_eq!(next.found(), Start::Clean);
    assert_eq!(next.verify_memory(), []);
}

#[test]
fn growth_by_one_is_seen_by_all() {
    let (_directory, path) = directory();
    let (one, two) = (open::<Shm>(&path), open::<Shm>(&path));
    let kept = words(&two);
    one.grow(2 * SIZE).unwrap();
    assert_eq!(two.size(), 2 * SIZE);
    // More than there was before.
    let guard = two.pin();
    for _ in 0..2 {
        let block = guard.alloc(SIZE as usize / 4 * 3).unwrap();
        block.write(0, &[7; 100]);
        let offset = block.persist().into_offset();
        assert_eq!(one.pin().bytes(offset, 100), Some(&[7; 100][..]));
    }
    kept[0].store(two.medium(), 1, Release);
    // The other direction.
    two.grow(3 * SIZE).unwrap();
    assert_eq!(
        (one.size(), one.verify_superblock_and_roots(), two.verify_superblock_and_roots()),
        (3 * SIZE, vec![], vec![])
    );
    assert!(two.region().get(Offset::<Word>::new(3 * SIZE)).is_none());
}

#[test]
fn growth_is_limited_by_every_participants_addresses() {
    let (_directory, path) = directory();
    let wide = open::<Shm>(&path);
    let narrow = options(&path).program("the narrow one").max_size(2 * SIZE).open::<Shm>().unwrap();
    assert_eq!(wide.grow(2 * SIZE).unwrap(), 2 * SIZE);
    let refused = wide.grow(3 * SIZE).unwrap_err().to_string();
    for part in ["cannot grow to 12.0 MiB", "8.0 MiB were reserved by", "the narrow one"] {
        assert!(refused.contains(part), "{refused}");
    }
    // Nothing has changed, and the limiting participant continues.
    assert_eq!((wide.size(), path.metadata().unwrap().len()), (2 * SIZE, 2 * SIZE));
    words(&narrow)[0].store(narrow.medium(), 1, Release);
    // A third one with more addresses changes nothing. Once the limiting one has closed the pool,
    // it can grow.
    let third = open::<Shm>(&path);
    assert!(third.grow(3 * SIZE).is_err());
    narrow.close().unwrap();
    assert_eq!(third.grow(3 * SIZE).unwrap(), 3 * SIZE);
    let narrow = options(&path).max_size(2 * SIZE).open::<Shm>().unwrap();
    let last = Offset::<Word>::new(3 * SIZE - 8);
    third.region().at(last).store(third.medium(), 7, Release);
    assert_eq!(narrow.region().at(last).load(narrow.medium(), Acquire), 7);
    // A dead participant limits nothing.
    assert!(wide.grow(4 * SIZE).is_err());
    narrow.abandon();
    assert_eq!(wide.grow(4 * SIZE).unwrap(), 4 * SIZE);
    assert_eq!((wide.verify_superblock_and_roots(), third.verify_superblock_and_roots()), (vec![], vec![]));
}

#[test]
fn full_and_freed_memory_is_common_to_participants() {
    const BYTES: usize = 1000;
    let (_directory, path) = directory();
    let (one, two) = (open::<Shm>(&path), open::<Shm>(&path));
    let fill = |pool: &Pool<Shm>| -> Vec<u64> {
        let guard = pool.pin();
        std::iter::from_fn(|| Some(guard.alloc(BYTES).ok()?.persist().into_offset())).collect()
    };
    let blocks = fill(&one);
    assert!(blocks.len() > 2000);
    // A slab that becomes free may move between participants; the second one finds no more than
    // that.
    let rest = fill(&two);
    assert!(rest.len() < 200, "{} after {}", rest.len(), blocks.len());
    let refused = two.pin().alloc(BYTES).err().unwrap();
    assert!(refused.to_string().contains("has no room for 1000 more"), "{refused}");
    let (some, others) = blocks.split_at(blocks.len() / 2);
    let guard = one.pin();
    some.iter().for_each(|&block| guard.free(block, BYTES));
    drop(guard);
    let again = fill(&two);
    assert!(again.len() + 200 > some.len(), "{} of {}", again.len(), some.len());
    // Unlinked blocks are free once no thread is pinned. (As many at a time as can be retired
    // without memory for a chunk.)
    for few in others.chunks(10) {
        let guard = two.pin();
        few.iter().for_each(|&block| guard.retire(block, BYTES));
        drop(guard);
        two.reclaim_blocking();
    }
    let at_last = fill(&one);
    assert!(at_last.len() + 200 > others.len(), "{} of {}", at_last.len(), others.len());
    assert_eq!((one.faults(), two.faults()), (0, 0));
}
