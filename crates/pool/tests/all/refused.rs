//! Tests: system calls refused by a file system, a kernel or a container. The error says so, and
//! nothing is created or changed.

use crate::common::{argument, child, expect, say};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use terrace_medium::files::{Files, SystemFiles};
use terrace_medium::{MappedMedium, Mapping, Protection, Shm};
use terrace_pool::{Geometry, Liveness, OpenError, Pool, PoolOptions};

/// A system call, and optionally the value of its nth argument, counted from 0, that is refused.
type Call = (libc::c_long, Option<(u8, u64)>);

const OFD_LOCK: Call = (libc::SYS_fcntl, Some((1, libc::F_OFD_SETLK as u64)));
const OFD_WAIT: Call = (libc::SYS_fcntl, Some((1, libc::F_OFD_SETLKW as u64)));
const OFD_QUERY: Call = (libc::SYS_fcntl, Some((1, libc::F_OFD_GETLK as u64)));
const FLOCK: Call = (libc::SYS_flock, None);
const MEMBARRIER: Call = (libc::SYS_membarrier, None);
const REGISTRATION: Call =
    (libc::SYS_membarrier, Some((0, libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED as u64)));
const BARRIER: Call = (libc::SYS_membarrier, Some((0, libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED as u64)));

/// Runs `work` in a thread for which the system refuses `call` with `errno`.
fn without<R: Send>(call: Call, errno: i32, work: impl FnOnce() -> R + Send) -> R {
    let is =
        |(nth, value)| SeccompCondition::new(nth, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value).unwrap();
    let rules = call.1.map(|argument| SeccompRule::new(vec![is(argument)]).unwrap());
    let filter = SeccompFilter::new(
        [(call.0, rules.into_iter().collect())].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    let refused = || {
        seccompiler::apply_filter(&program).unwrap();
        work()
    };
    std::thread::scope(|threads| threads.spawn(refused).join().unwrap())
}

fn options(path: &Path) -> PoolOptions {
    PoolOptions::at(path).size(1 << 20).geometry(Geometry::tiny()).shared(true)
}

/// The message of a refused open, with the path replaced by `POOL`.
fn message(opened: Result<Pool<Shm>, OpenError>, path: &Path) -> String {
    let error = opened.map(drop).expect_err("it was refused");
    error.to_string().replace(&path.display().to_string(), "POOL")
}

const NO_LOCKS: &str = "the pool POOL cannot be opened: its file cannot be locked (No locks available (os error 37)), and \
                        without its locks two processes could write at once without knowing of each other\n  put it \
                        on a file system that has file locks, such as /dev/shm or a local disk";

#[test]
fn file_system_without_any_one_lock_call_is_refused() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("pool");
    options(&path).create::<Shm>().unwrap();
    let before = std::fs::read(&path).unwrap();
    for call in [OFD_LOCK, OFD_QUERY, FLOCK] {
        let opened = without(call, libc::ENOLCK, || options(&path).open::<Shm>());
        assert_eq!(message(opened, &path), NO_LOCKS, "{call:?}");
        assert!(std::fs::read(&path).unwrap() == before, "{call:?}: it was changed");
    }
    // No process blocks in the kernel for a lock, since its holder may be stopped.
    without(OFD_WAIT, libc::ENOLCK, || options(&path).open::<Shm>().map(drop)).unwrap();
}

/// A liveness whose gate refuses with this error.
struct NoEntry(fn() -> Error);

impl Liveness for NoEntry {
    fn claim(&self, _: u32) -> std::io::Result<bool> {
        unreachable!("the gate comes first")
    }
    fn release(&self, _: u32) {}
    fn is_alive(&self, _: u32) -> bool {
        unreachable!("as above")
    }
    fn enter(&self) -> std::io::Result<()> {
        Err((self.0)())
    }
    fn leave(&self) {}
}

#[test]
fn refused_open_distinguishes_no_locks_from_barred() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("pool");
    options(&path).create::<Shm>().unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = |why| {
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let mapping = Mapping::file(file, before.len(), before.len(), Protection::ReadWrite).unwrap();
        message(options(&path).share_on(Shm::new(mapping), Arc::new(NoEntry(why))), &path)
    };
    assert_eq!(refused(|| Error::from_raw_os_error(libc::ENOLCK)), NO_LOCKS);
    let barred =
        refused(|| Error::new(ErrorKind::TimedOut, "process 7, which is stopped, is opening or closing it"));
    assert_eq!(
        barred,
        "the pool POOL cannot be opened: process 7, which is stopped, is opening or closing it\n  let that process \
         continue, or end it: the others then recover what it held"
    );
    assert!(std::fs::read(&path).unwrap() == before, "it was changed");
}

#[test]
fn pool_is_not_created_where_it_cannot_be_locked() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    for (nth, call) in [OFD_LOCK, FLOCK].into_iter().enumerate() {
        let path = directory.path().join(format!("pool {nth}"));
        let made = without(call, libc::ENOLCK, || options(&path).create::<Shm>());
        assert_eq!(message(made, &path), NO_LOCKS, "{call:?}");
        assert!(
            std::fs::read_dir(&directory).unwrap().next().is_none(),
            "{call:?}: something was left there"
        );
    }
}

#[test]
#[ignore = "a child of the other tests: a process registers only once"]
fn shares_without_a_barrier() {
    shares_without(MEMBARRIER);
}

#[test]
#[ignore = "as above"]
fn shares_without_registration() {
    shares_without(REGISTRATION);
}

#[test]
#[ignore = "as above"]
fn shares_where_no_barrier_follows_the_registration() {
    shares_without(BARRIER);
}

fn shares_without(call: Call) {
    let path = argument();
    match without(call, libc::EPERM, || options(&path).open_or_create::<Shm>()) {
        Ok(_pool) => {
            say("open");
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
        Err(error) => say(&error.to_string().replace('\n', "|").replace(&path.display().to_string(), "POOL")),
    }
}

#[test]
fn no_barrier_no_join_with_light_pins() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("pool");
    let _first = options(&path).create::<Shm>().unwrap();
    for name in [
        "shares_without_a_barrier",
        "shares_without_registration",
        "shares_where_no_barrier_follows_the_registration",
    ] {
        let (mut late, mut lines) = child(&format!("refused::{name}"), &path);
        // A child that can join would end at once.
        drop(late.stdin.take());
        expect(
            &mut lines,
            "the pool POOL cannot be shared by this process: the others rely on membarrier(2), which the system refuses \
             here|  allow that system call (a container's seccomp profile may forbid it), or start this process first",
        );
        late.wait().unwrap();
    }
}

#[test]
fn no_barrier_first_process_shares_with_all() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("pool");
    let (mut first, mut lines) = child("refused::shares_without_a_barrier", &path);
    expect(&mut lines, "open");
    let second = options(&path).open::<Shm>().unwrap();
    drop(second.pin().alloc(24).unwrap());
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(second.recover_dead(), 1);
}

#[test]
fn no_barrier_joins_heavy_pins() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("pool");
    let both = [(); 2].map(|()| {
        let (process, mut lines) = child("refused::shares_without_a_barrier", &path);
        expect(&mut lines, "open");
        (process, lines)
    });
    for (mut process, _lines) in both {
        drop(process.stdin.take());
        process.wait().unwrap();
    }
}

#[test]
fn file_without_fallocate_gets_zeros_behind_its_end() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("file");
    let file = SystemFiles.create(&path).unwrap();
    file.write_at(b"kept", 0).unwrap();
    without((libc::SYS_fallocate, None), libc::EOPNOTSUPP, || file.allocate(200_000).unwrap());
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!((bytes.len(), &bytes[..4]), (200_000, &b"kept"[..]));
    assert!(bytes[4..].iter().all(|&byte| byte == 0));
    let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap());
    assert!(blocks * 512 >= 200_000, "storage for all of it, not a hole: {blocks} blocks");
}
