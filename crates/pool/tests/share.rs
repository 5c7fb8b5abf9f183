//! One pool, several participants: what they see of each other, and what a dead one leaves.

mod common;

use common::{argument, child, expect, problem, say, stop};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::fs::File;
use std::io::BufReader;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, Offset, Pmem, Shm, Word};
use terrace_pool::{Geometry, Holder, Lock, Pool, PoolOptions, Problem, Start, Watch, WatchError};

const SIZE: u64 = 4 << 20;

fn options(path: &Path) -> PoolOptions {
    let geometry = Geometry { participants: 4, seats: 16, ..Geometry::for_size(SIZE) };
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
    reason = "the moment of the kill, or that nothing happens, is what is wanted here"
)]
fn pause(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}

/// The root `words`: 16 words that all know.
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

#[test]
fn participants_see_each_other_and_the_last_one_closes_the_pool() {
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
    let alone = options(&path).shared(false).open::<Shm>().unwrap();
    assert_eq!((alone.found(), alone.generation()), (Start::Clean, 2));
    assert_eq!(words(&alone)[3].load(alone.medium(), Acquire), 7);
    assert_eq!((alone.verify_head(), alone.verify_memory(), alone.faults()), (vec![], vec![], 0));
}

#[test]
fn those_who_share_a_file_that_is_open_have_locks_of_their_own() {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    let options = PoolOptions::in_file(file).size(SIZE).shared(true);
    let one = options.create::<Shm>().unwrap();
    let all = [one, options.open().unwrap(), options.open().unwrap()];
    let seen = all.each_ref().map(|pool| (pool.owner().participant, pool.others().len(), pool.generation()));
    assert_eq!(seen, [(0, 2, 1), (1, 2, 1), (2, 2, 1)]);
}

#[test]
fn who_wants_a_pool_for_himself_and_who_shares_it_keep_each_other_out() {
    let (_directory, path) = directory();
    let shared = open::<Shm>(&path);
    assert!(matches!(problem(options(&path).shared(false).open::<Shm>()), Problem::InUse(Some(_))));
    assert!(matches!(problem(options(&path).read_only(true).open::<Shm>()), Problem::InUse(Some(_))));
    shared.close().unwrap();
    let alone = options(&path).shared(false).open::<Shm>().unwrap();
    assert!(matches!(problem(options(&path).open::<Shm>()), Problem::InUse(Some(_))));
    alone.close().unwrap();
    let reader = options(&path).read_only(true).open::<Shm>().unwrap();
    assert!(matches!(problem(options(&path).open::<Shm>()), Problem::InUse(_)));
    drop(reader);
    open::<Shm>(&path).close().unwrap();
}

#[test]
fn one_more_than_there_is_room_for_is_told_who_is_there() {
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
fn a_pool_of_another_durability_is_not_joined() {
    let (_directory, path) = directory();
    let _one = open::<Pmem>(&path);
    assert!(matches!(problem(options(&path).open::<Shm>()), Problem::OtherDurability { .. }));
}

/// Where a pool says which version of sharing its sharers share: the fourth of the words that they share.
fn terms<M: MappedMedium>(pool: &Pool<M>) -> &Word {
    pool.region().at(Offset::new(pool.layout().shared + 3 * 8))
}

#[test]
fn a_pool_that_another_release_shares_in_another_way_is_not_joined() {
    let (_directory, path) = directory();
    let one = open::<Shm>(&path);
    let word = terms(&one).load(one.medium(), Acquire);
    terms(&one).store(one.medium(), word + (1 << 16), Release);
    let error = options(&path).open::<Shm>().err().unwrap();
    assert!(matches!(error.problem, Problem::OtherSharing { found } if found == (word >> 16) + 1), "{error}");
    assert!(error.to_string().contains("the same release"), "{error}");
    // By its number: of another release whatever is shared may be another.
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
fn those_who_share_a_pool_that_is_deleted_go_on_and_others_make_a_new_one() {
    let (_directory, path) = directory();
    let (one, two) = (open::<Shm>(&path), open::<Shm>(&path));
    let kept = words(&one);
    std::fs::remove_file(&path).unwrap();
    kept[0].store(one.medium(), 5, Release);
    assert_eq!(words(&two)[0].load(two.medium(), Acquire), 5);
    assert!(matches!(problem(options(&path).open::<Shm>()), Problem::Missing));
    let new = open::<Shm>(&path);
    assert_eq!((new.others().len(), one.others().len()), (0, 1));
    assert_ne!(new.uuid(), one.uuid());
    // Who dies in the old one is noticed there.
    two.abandon();
    assert_eq!((one.recover_dead(), new.recover_dead()), (1, 0));
    one.grow(2 * SIZE).unwrap();
    one.close().unwrap();
    new.close().unwrap();
}

#[test]
fn what_all_have_left_is_recovered_by_the_next_one_as_after_any_crash() {
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
fn the_last_one_to_leave_takes_back_what_a_dead_one_left() {
    let (_directory, path) = directory();
    let (one, two) = (open::<Shm>(&path), open::<Shm>(&path));
    words(&two);
    // Its seat has caches by now.
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
    // And the other way.
    two.grow(3 * SIZE).unwrap();
    assert_eq!((one.size(), one.verify_head(), two.verify_head()), (3 * SIZE, vec![], vec![]));
    assert!(two.region().get(Offset::<Word>::new(3 * SIZE)).is_none());
}

#[test]
fn nobody_grows_a_pool_beyond_what_another_participant_has_addresses_for() {
    let (_directory, path) = directory();
    let wide = open::<Shm>(&path);
    let narrow = options(&path).program("the narrow one").max_size(2 * SIZE).open::<Shm>().unwrap();
    assert_eq!(wide.grow(2 * SIZE).unwrap(), 2 * SIZE);
    let refused = wide.grow(3 * SIZE).unwrap_err().to_string();
    for part in ["cannot grow to 12.0 MiB", "8.0 MiB were reserved by", "the narrow one"] {
        assert!(refused.contains(part), "{refused}");
    }
    // Nothing has happened, and the one that would not have reached it goes on.
    assert_eq!((wide.size(), path.metadata().unwrap().len()), (2 * SIZE, 2 * SIZE));
    words(&narrow)[0].store(narrow.medium(), 1, Release);
    // A third one that has more changes nothing; and when those have gone that have less, there is room.
    let third = open::<Shm>(&path);
    assert!(third.grow(3 * SIZE).is_err());
    narrow.close().unwrap();
    assert_eq!(third.grow(3 * SIZE).unwrap(), 3 * SIZE);
    let narrow = options(&path).max_size(2 * SIZE).open::<Shm>().unwrap();
    let last = Offset::<Word>::new(3 * SIZE - 8);
    third.region().at(last).store(third.medium(), 7, Release);
    assert_eq!(narrow.region().at(last).load(narrow.medium(), Acquire), 7);
    // Nobody waits for the dead.
    assert!(wide.grow(4 * SIZE).is_err());
    narrow.abandon();
    assert_eq!(wide.grow(4 * SIZE).unwrap(), 4 * SIZE);
    assert_eq!((wide.verify_head(), third.verify_head()), (vec![], vec![]));
}

#[test]
fn a_pool_that_is_full_is_full_for_all_and_has_room_for_all_when_any_of_them_frees() {
    const BYTES: usize = 1000;
    let (_directory, path) = directory();
    let (one, two) = (open::<Shm>(&path), open::<Shm>(&path));
    let fill = |pool: &Pool<Shm>| -> Vec<u64> {
        let guard = pool.pin();
        std::iter::from_fn(|| Some(guard.alloc(BYTES).ok()?.persist().into_offset())).collect()
    };
    let blocks = fill(&one);
    assert!(blocks.len() > 2000);
    // Some slab that has become free may go from hand to hand; the second one finds no more than that.
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
    // What is unlinked and may be read still is free once nobody is inside. (As many at a time as can be noted without a byte of memory.)
    for few in others.chunks(10) {
        let guard = two.pin();
        few.iter().for_each(|&block| guard.retire(block, BYTES));
        drop(guard);
        two.relieve();
    }
    let at_last = fill(&one);
    assert!(at_last.len() + 200 > others.len(), "{} of {}", at_last.len(), others.len());
    assert_eq!((one.faults(), two.faults()), (0, 0));
}

/// Holds the lock in word 0, then as many as there are arguments of others, until it is killed.
#[test]
#[ignore = "a child of the other tests"]
fn holds_locks() {
    let pool = open::<Shm>(&argument());
    let guard = pool.pin();
    let _held: Vec<_> = words(&pool)[..4].iter().map(|word| Lock::of(word).acquire(&guard)).collect();
    say("held");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn who_waits_for_a_lock_gets_it_when_its_holder_is_killed() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    words(&pool);
    for round in 0..5 {
        let (mut process, mut lines) = child("holds_locks", &path);
        expect(&mut lines, "held");
        let lock = Lock::of(&words(&pool)[1]);
        assert!(lock.try_acquire(&pool.pin()).is_none());
        assert_eq!(pool.recover_dead(), 0, "it is alive");
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| lock.acquire(&pool.pin()).release());
            pause(20);
            assert!(!waiting.is_finished());
            process.kill().unwrap();
            waiting.join().unwrap();
        });
        process.wait().unwrap();
        assert_eq!(pool.recover_dead(), 0, "all of it was recovered, round {round}");
        assert!(words(&pool)[..4].iter().all(|word| !Lock::of(word).is_held(&pool)));
    }
    assert_eq!(pool.space().readers, 0);
}

#[test]
fn a_stopped_process_keeps_its_locks() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    words(&pool);
    let (mut process, mut lines) = child("holds_locks", &path);
    expect(&mut lines, "held");
    let signal = |signal| kill_process(Pid::from_child(&process), signal).unwrap();
    signal(Signal::STOP);
    pause(50);
    assert_eq!(pool.recover_dead(), 0);
    assert!(Lock::of(&words(&pool)[0]).try_acquire(&pool.pin()).is_none());
    signal(Signal::CONT);
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(pool.recover_dead(), 1);
    Lock::of(&words(&pool)[0]).try_acquire(&pool.pin()).unwrap().release();
}

/// Has the pool open until it is told to go.
#[test]
#[ignore = "a child of the other tests"]
fn stays() {
    let pool = open::<Shm>(&argument());
    say("here");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    pool.close().unwrap();
    say("gone");
}

/// A process that does not outlive the test, whatever state it is in.
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

fn stays_at(path: &Path) -> (Kept, BufReader<ChildStdout>) {
    let (process, mut lines) = child("stays", path);
    let process = Kept(process);
    expect(&mut lines, "here");
    (process, lines)
}

#[test]
fn who_stands_still_is_ended_and_nobody_else() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    let [(mut still, _lines), (mut other, mut lines)] = [(), ()].map(|()| stays_at(&path));
    let holder =
        |process: &Kept| pool.others().into_iter().find(|holder| holder.pid == process.pid()).unwrap();
    assert!(!pool.end_stopped(&holder(&still)).unwrap(), "it runs");
    stop(&still.0);
    let (stopped, running) = (holder(&still), holder(&other));
    assert!(stopped.stopped && !running.stopped);
    let since_ms = stopped.since_ms + 1;
    for nobody in [
        running.clone(),
        // What was seen of the one that stands still is of another life, or of another process.
        Holder { since_ms, ..stopped.clone() },
        Holder { pid: running.pid, ..stopped.clone() },
        // No process has such a number.
        Holder { pid: 0, ..stopped.clone() },
        Holder { pid: u32::MAX, ..stopped.clone() },
    ] {
        assert!(!pool.end_stopped(&nobody).unwrap(), "{nobody:?}");
    }
    assert!(pool.end_stopped(&stopped).unwrap());
    assert_eq!(still.0.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert!(!pool.end_stopped(&stopped).unwrap(), "it is gone");
    assert_eq!(pool.recover_dead(), 1);
    // And the other one lives until it is told to go.
    drop(other.0.stdin.take());
    expect(&mut lines, "gone");
}

#[test]
fn one_that_has_run_since_it_was_seen_is_not_ended() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    let (process, _lines) = stays_at(&path);
    stop(&process.0);
    let seen = pool.others().into_iter().next().unwrap();
    assert!(!pool.end_stopped(&Holder { ran_ticks: seen.ran_ticks + 1, ..seen.clone() }).unwrap());
    assert!(pool.end_stopped(&seen).unwrap());
}

/// Has the pool open; one thread waits, another runs.
#[test]
#[ignore = "a child of the other tests"]
fn runs_beside_its_first_thread() {
    let pool = open::<Shm>(&argument());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            say("here");
            loop {
                drop(pool.pin());
                std::thread::yield_now();
            }
        });
    });
}

/// As one that traces it a system call at a time sees it now and then.
#[test]
fn who_has_one_thread_stopped_of_several_does_not_stand_still() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    let (process, mut lines) = child("runs_beside_its_first_thread", &path);
    let process = Kept(process);
    expect(&mut lines, "here");
    let trace = |request| {
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: both requests take no address of this process's.
        assert_eq!(unsafe { libc::ptrace(request, process.pid() as i32, nothing, nothing) }, 0);
    };
    trace(libc::PTRACE_SEIZE);
    trace(libc::PTRACE_INTERRUPT);
    while state_of(process.pid()) != Some('t') {
        std::thread::yield_now();
    }
    assert!(!pool.others()[0].stopped, "its other thread runs");
    // Now all of it.
    kill_process(Pid::from_child(&process.0), Signal::STOP).unwrap();
    while !pool.others()[0].stopped {
        std::thread::yield_now();
    }
}

#[test]
fn the_number_of_a_process_that_is_not_to_be_seen_from_here_is_not_told_as_one_of_here() {
    let (_directory, path) = directory();
    let (one, two) = (open::<Shm>(&path), open::<Shm>(&path));
    let told = || one.others()[0].to_string();
    assert!(told().starts_with(&format!("process {} (", std::process::id())), "{}", told());
    // The slot of the second one, as if its process had begun at another time.
    let began = Offset::<Word>::new(one.layout().participants + 64 + 8 * 2);
    one.region().at(began).fetch_add(one.medium(), 1, Relaxed);
    let foreign = format!("process {} of another namespace (", std::process::id());
    assert!(told().starts_with(&foreign), "{}", told());
    drop(two);
}

/// Opens the pool, and stays at that: it has the lock of whoever opens or closes it.
#[test]
#[ignore = "a child of the other tests"]
fn stays_at_the_gate() {
    let file = File::options().read(true).write(true).open(argument()).unwrap();
    let (kind, whence) = (libc::F_WRLCK as libc::c_short, libc::SEEK_SET as libc::c_short);
    let mut gate = libc::flock { l_type: kind, l_whence: whence, l_start: 1 << 62, l_len: 1, l_pid: 0 };
    // SAFETY: the command takes such a description.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut gate) }, 0);
    say("at the gate");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a thread that waits for ever must not be waited for")]
fn who_stands_still_while_it_opens_or_closes_a_pool_keeps_nobody_waiting_for_ever() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    words(&pool)[0].store(pool.medium(), 7, Release);
    let (process, mut lines) = child("stays_at_the_gate", &path);
    let process = Kept(process);
    expect(&mut lines, "at the gate");
    stop(&process.0);
    let (say, said) = std::sync::mpsc::channel();
    let copy = path.clone();
    std::thread::spawn(move || {
        let refused = options(&copy).open::<Shm>().err().map(|error| error.to_string());
        say.send((refused, pool.close())).unwrap();
    });
    let (refused, closed) = said.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits for ever");
    let refused = refused.unwrap();
    for part in ["opening or closing", &format!("process {}", process.pid()), "stands still"] {
        assert!(refused.contains(part), "{refused}");
    }
    let closed = closed.unwrap_err().to_string();
    assert!(closed.contains("stands still"), "{closed}");
    drop(process);
    // As after the death of one that had it open.
    let next = open::<Shm>(&path);
    assert_eq!((next.found(), words(&next)[0].load(next.medium(), Acquire)), (Start::Unclean, 7));
}

#[test]
fn a_process_that_only_has_the_number_of_a_sharer_is_not_ended() {
    let (_directory, path) = directory();
    let (one, two) = (open::<Shm>(&path), open::<Shm>(&path));
    let stranger = Kept(Command::new("sleep").arg("600").spawn().unwrap());
    stop(&stranger.0);
    // The slot of the second one, as if it ran where the numbers of processes mean others: its process, and when that started.
    let says = [u64::from(stranger.pid()), field_of(stranger.pid(), 22).unwrap().parse().unwrap()];
    for (nth, word) in (1..).zip(says) {
        let at = Offset::<Word>::new(one.layout().participants + 64 + 8 * nth);
        one.region().at(at).store(one.medium(), word, Release);
    }
    let others = one.others();
    assert!(others.len() == 1 && others[0].pid == stranger.pid() && others[0].stopped, "{others:?}");
    assert!(!one.end_stopped(&others[0]).unwrap());
    drop(two);
}

#[test]
fn a_pool_that_was_left_is_free_though_a_process_that_is_being_started_has_its_handle() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    let copy = pool.medium().mapping().as_file().unwrap().try_clone().unwrap();
    drop(pool);
    let alone = options(&path).shared(false).open::<Shm>().unwrap();
    drop((copy, alone));
}

/// Watches whatever it can, until it is killed.
#[test]
#[ignore = "a child of the other tests"]
fn watches() {
    let pool = open::<Shm>(&argument());
    let _watches: Vec<_> = std::iter::from_fn(|| pool.watch(b"dead").ok()).collect();
    say("watching");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn the_watches_of_the_dead_are_free_again_and_those_of_the_living_go_on() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    let mut mine = pool.watch(b"mine").unwrap();
    let (mut process, mut lines) = child("watches", &path);
    expect(&mut lines, "watching");
    assert!(pool.watch(b"new").is_err(), "it has all the others");
    process.kill().unwrap();
    process.wait().unwrap();
    // Who wants one takes them back himself.
    let count = pool.layout().watch_count();
    let mut new: Vec<_> = (1..count).map(|_| pool.watch(b"new").unwrap()).collect();
    assert_eq!(pool.recover_dead(), 0);
    mine.has_changed();
    pool.tell_watches(b"dead");
    assert!(!mine.has_changed() && !new.iter_mut().any(Watch::has_changed));
    pool.tell_watches(b"new");
    assert!(!mine.has_changed() && new.iter_mut().all(Watch::has_changed));
    pool.tell_watches(b"mine");
    assert!(mine.has_changed() && !new.iter_mut().any(Watch::has_changed));
}

#[test]
fn all_who_watch_are_told_when_somebody_has_died_who_may_have_changed_something() {
    let (_directory, path) = directory();
    let (pool, dead) = (open::<Shm>(&path), open::<Shm>(&path));
    let mut watches = [&b""[..], b"a", b"b"].map(|prefix| pool.watch(prefix).unwrap());
    dead.abandon();
    assert!(!watches.iter_mut().any(Watch::has_changed));
    assert_eq!(pool.recover_dead(), 1);
    assert!(watches.iter_mut().all(Watch::has_changed));
}

/// Holds a lock, and has so much memory that the kernel needs a while to take it apart.
#[test]
#[ignore = "a child of the other tests"]
fn holds_a_lock_and_much_memory() {
    let pool = open::<Shm>(&argument());
    let guard = pool.pin();
    let held = Lock::of(&words(&pool)[0]).acquire(&guard);
    let memory = vec![1_u8; 256 << 20];
    say("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    drop(memory);
    held.release();
}

/// A field of /proc/PID/stat from the third one on, counted as in proc_pid_stat(5).
fn field_of(pid: u32, number: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit(") ").next()?.split_whitespace().nth(number - 3)?.to_string())
}

/// The letter for what a process is at; `Z` once it has closed its files.
fn state_of(pid: u32) -> Option<char> {
    field_of(pid, 3)?.chars().next()
}

#[test]
fn nobody_waits_until_the_kernel_has_taken_a_dead_one_apart() {
    const TRIES: u32 = 20;
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    words(&pool);
    let was_early = || {
        let (mut process, mut lines) = child("holds_a_lock_and_much_memory", &path);
        expect(&mut lines, "ready");
        assert_eq!(pool.recover_dead(), 0);
        process.kill().unwrap();
        while pool.recover_dead() == 0 {}
        let state = state_of(process.id());
        Lock::of(&words(&pool)[0]).try_acquire(&pool.pin()).unwrap().release();
        process.wait().unwrap();
        assert_eq!(pool.recover_dead(), 0, "that has been done");
        state != Some('Z')
    };
    assert!((0..TRIES).any(|_| was_early()), "of {TRIES} none was missed before it had closed its files");
}

/// Forks with the pool open twice; the child tries to use it, closes one of them, and opens it for itself; then the parent dies and the child lives on.
#[test]
#[ignore = "a child of the other tests"]
fn forks() {
    let path = argument();
    // In all, more than can be open at a time.
    (0..200).for_each(|_| drop(open::<Shm>(&path)));
    let pool = open::<Shm>(&path);
    let kept = open::<Shm>(&path);
    let parents = [(&pool, words(&pool)), (&kept, words(&kept))];
    let guard = pool.pin();
    let held = Lock::of(&words(&pool)[0]).acquire(&guard);
    // SAFETY: this process has one thread more, which only waits for this one; what the child calls is safe after that.
    match unsafe { libc::fork() } {
        0 => {
            let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(pool.pin())));
            assert!(refused.is_err() && pool.try_pin().is_err(), "the pool is the parent's");
            assert_eq!(pool.watch(b"").err(), Some(WatchError::Forked));
            // What it held in the parent can be stored to, and is memory of the child's own.
            for (pool, words) in parents {
                assert!(words.iter().all(|word| word.load(pool.medium(), Acquire) == 0));
                words[2].store(pool.medium(), 9, Release);
            }
            let own = open::<Shm>(&path);
            assert_eq!(own.owner().participant, 3);
            words(&own)[1].store(own.medium(), 5, Release);
            std::mem::forget(held);
            std::mem::forget(guard);
            drop(pool);
            say("forked");
            // Until the other end of the pipe is closed.
            std::io::stdin().read_line(&mut String::new()).unwrap();
            drop(kept);
            std::process::exit(0);
        }
        // It ends if its child fails, and has been killed otherwise.
        child => _ = waitpid(Pid::from_raw(child), WaitOptions::empty()),
    }
}

#[test]
fn a_forked_child_neither_uses_its_parent_s_pool_nor_keeps_it_alive() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    words(&pool);
    let (mut process, mut lines) = child("forks", &path);
    expect(&mut lines, "forked");
    assert_eq!(words(&pool)[1].load(pool.medium(), Acquire), 5);
    assert_eq!(words(&pool)[2].load(pool.medium(), Acquire), 0, "nothing arrives of what the child stores");
    assert_eq!(pool.recover_dead(), 0);
    // The child lives as long as this end of the pipe, which waiting would close.
    let _open = process.stdin.take();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(pool.recover_dead(), 2, "the parent is dead, though its child lives");
    Lock::of(&words(&pool)[0]).try_acquire(&pool.pin()).unwrap().release();
}

fn open_handles() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Forks after a pool was closed and a file opened, which has the handle that the pool had.
#[test]
#[ignore = "a child of the other tests"]
fn forks_after_closing() {
    let path = argument();
    drop(open::<Shm>(&path));
    let before = open_handles();
    let files: Vec<_> = (0..4).map(|_| std::fs::File::open(&path).unwrap()).collect();
    assert_eq!(open_handles(), before + files.len());
    // SAFETY: as above.
    match unsafe { libc::fork() } {
        0 => {
            assert_eq!(open_handles(), before + files.len());
            let sizes = files.iter().map(|file| file.metadata().unwrap().len());
            assert_eq!(sizes.collect::<Vec<_>>(), vec![SIZE; files.len()]);
            say("has its files");
            std::process::exit(0);
        }
        child => _ = waitpid(Pid::from_raw(child), WaitOptions::empty()).unwrap(),
    }
}

#[test]
fn a_forked_child_keeps_what_is_not_a_pool_s_any_more() {
    let (_directory, path) = directory();
    let _pool = open::<Shm>(&path);
    let (mut process, mut lines) = child("forks_after_closing", &path);
    expect(&mut lines, "has its files");
    assert!(process.wait().unwrap().success());
}

/// Reads, then stores to what it has no business to store to.
#[test]
#[ignore = "a child of the other tests"]
fn only_reads() {
    let pool = open::<Shm>(&argument());
    let words = words(&pool);
    pool.protect_data().unwrap();
    assert_eq!(words[0].load(pool.medium(), Acquire), 7);
    // Twice: the second one does nothing. And what the dead have left is taken back nevertheless.
    pool.protect_data().unwrap();
    pool.recover_dead();
    drop(pool.pin());
    say("has read");
    words[0].store(pool.medium(), 8, Release);
    say("has stored");
}

#[test]
fn a_participant_whose_data_is_protected_reads_and_dies_of_its_first_store() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    words(&pool)[0].store(pool.medium(), 7, Release);
    let (mut process, mut lines) = child("only_reads", &path);
    expect(&mut lines, "has read");
    let status = process.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGSEGV));
    assert_eq!(words(&pool)[0].load(pool.medium(), Acquire), 7);
    assert_eq!(pool.recover_dead(), 1);
}

/// As [`only_reads`], but stores to what the pool has grown by since.
#[test]
#[ignore = "a child of the other tests"]
fn only_reads_what_is_new() {
    let pool = open::<Shm>(&argument());
    pool.protect_data().unwrap();
    say("protected");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let last = pool.region().at(Offset::<Word>::new(pool.size() - 8));
    assert_eq!((pool.size(), last.load(pool.medium(), Acquire)), (2 * SIZE, 7));
    say("has read");
    last.store(pool.medium(), 8, Release);
    say("has stored");
}

#[test]
fn what_others_let_a_pool_grow_by_is_protected_too() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    let (process, mut lines) = child("only_reads_what_is_new", &path);
    let mut process = Kept(process);
    expect(&mut lines, "protected");
    pool.grow(2 * SIZE).unwrap();
    let last = pool.region().at(Offset::<Word>::new(2 * SIZE - 8));
    last.store(pool.medium(), 7, Release);
    drop(process.0.stdin.take());
    expect(&mut lines, "has read");
    assert_eq!(process.0.wait().unwrap().signal(), Some(libc::SIGSEGV));
    assert_eq!(last.load(pool.medium(), Acquire), 7);
}

#[test]
fn others_are_said_to_only_read_and_to_hold_memory_up() {
    let (_directory, path) = directory();
    let (one, two) = (open::<Shm>(&path), open::<Shm>(&path));
    let of_two =
        || one.others().into_iter().map(|holder| (holder.reads_only, holder.holds_up)).next().unwrap();
    assert_eq!(of_two(), (false, false));
    two.protect_data().unwrap();
    assert_eq!(of_two(), (true, false));
    let kept = words(&one);
    let guard = two.pin();
    assert_eq!(of_two(), (true, false), "nothing has been given back since");
    let mine = one.pin();
    mine.retire(mine.alloc(100).unwrap().persist().into_offset(), 100);
    drop(mine);
    one.tidy();
    assert_eq!(of_two(), (true, true));
    assert!(one.others()[0].to_string().ends_with(", which only reads and holds up memory"));
    drop(guard);
    assert_eq!((of_two(), kept[0].load(one.medium(), Acquire)), ((true, false), 0));
    // It says so for itself alone.
    assert!(two.others().iter().all(|holder| !holder.reads_only && !holder.holds_up));
}

/// Adds one to words 8 to 15 under the locks in words 0 to 7, in a row, until it is killed; and allocates, links, unlinks and frees meanwhile.
#[test]
#[ignore = "a child of the other tests"]
fn works() {
    let pool = open::<Shm>(&argument());
    let words = words(&pool);
    say("working");
    for round in 0usize.. {
        let guard = pool.pin();
        let held = Lock::of(&words[round % 8]).acquire(&guard);
        let count = &words[8 + round % 8];
        count.store(pool.medium(), count.load(pool.medium(), Relaxed) + 1, Relaxed);
        held.release();
        if let Ok(block) = guard.alloc(64 + round % 2000) {
            let len = block.len();
            let offset = block.persist().into_offset();
            guard.retire(offset, len);
        }
    }
}

#[test]
fn the_others_go_on_whoever_is_killed() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    let all = words(&pool);
    let mut processes: Vec<_> = (0..2).map(|_| child("works", &path)).collect();
    for round in 0..30 {
        let (process, lines) = &mut processes[round % 2];
        expect(lines, "working");
        pause(7);
        process.kill().unwrap();
        // None of the locks is lost, and the other one goes on.
        let guard = pool.pin();
        for word in &all[..8] {
            Lock::of(word).acquire(&guard).release();
        }
        drop(guard);
        process.wait().unwrap();
        pool.recover_dead();
        processes[round % 2] = child("works", &path);
    }
    for (process, lines) in &mut processes {
        expect(lines, "working");
        process.kill().unwrap();
        process.wait().unwrap();
    }
    assert!(pool.recover_dead() <= 2);
    assert!(all[8..].iter().all(|count| count.load(pool.medium(), Acquire) > 0));
    assert_eq!((pool.faults(), pool.space().readers), (0, 0));
    // What was in the hands of the dead is collected.
    let root = pool.root("words", "test").unwrap().unwrap();
    pool.collect(&mut |marker| marker.mark(root, 128));
    assert_eq!(pool.verify_memory(), []);
    pool.close().unwrap();
}
