//! Tests: a stopped participant.

use super::{Kept, directory, field_of, open, options, pause, state_of, words};
use crate::common::{argument, child, expect, say, stop};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::BufReader;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ChildStdout, Command};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{Offset, Shm, Word};
use terrace_pool::{Holder, Lock, Start};

#[test]
fn stopped_process_keeps_its_locks() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    words(&pool);
    let (mut process, mut lines) = child("killed::holds_locks", &path);
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

/// Has the pool open until its standard input is closed.
#[test]
#[ignore = "a child of the other tests"]
fn stays() {
    let pool = open::<Shm>(&argument());
    say("here");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    pool.close().unwrap();
    say("gone");
}

fn stays_at(path: &Path) -> (Kept, BufReader<ChildStdout>) {
    let (process, mut lines) = child("stopped::stays", path);
    let process = Kept(process);
    expect(&mut lines, "here");
    (process, lines)
}

#[test]
fn only_a_stopped_process_is_ended() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    let [(mut still, _lines), (mut other, mut lines)] = [(), ()].map(|()| stays_at(&path));
    let holder = |process: &Kept| {
        pool.other_participants().into_iter().find(|holder| holder.pid == process.pid()).unwrap()
    };
    assert!(!pool.end_stopped(&holder(&still)).unwrap(), "it is running");
    stop(&still.0);
    let (stopped, running) = (holder(&still), holder(&other));
    assert!(stopped.stopped && !running.stopped);
    let since_ms = stopped.since_ms + 1;
    for placeholder in [
        running.clone(),
        // As seen of the stopped process in another incarnation, or of another process.
        Holder { since_ms, ..stopped.clone() },
        Holder { pid: running.pid, ..stopped.clone() },
        // No process has such a pid.
        Holder { pid: 0, ..stopped.clone() },
        Holder { pid: u32::MAX, ..stopped.clone() },
    ] {
        assert!(!pool.end_stopped(&placeholder).unwrap(), "{placeholder:?}");
    }
    assert!(pool.end_stopped(&stopped).unwrap());
    assert_eq!(still.0.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert!(!pool.end_stopped(&stopped).unwrap(), "it is gone");
    assert_eq!(pool.recover_dead(), 1);
    // The other process lives until its standard input is closed.
    drop(other.0.stdin.take());
    expect(&mut lines, "gone");
}

#[test]
fn process_that_ran_since_it_was_seen_is_not_ended() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    let (process, _lines) = stays_at(&path);
    stop(&process.0);
    let seen = pool.other_participants().into_iter().next().unwrap();
    assert!(!pool.end_stopped(&Holder { ran_ticks: seen.ran_ticks + 1, ..seen.clone() }).unwrap());
    assert!(pool.end_stopped(&seen).unwrap());
}

/// Has the pool open; one thread waits, another runs.
#[test]
#[ignore = "a child of the other tests"]
fn second_thread_runs_while_first_waits() {
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

/// As a debugger that steps from system call to system call sees it now and then.
#[test]
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn process_with_one_stopped_thread_is_not_stopped() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    let (process, mut lines) = child("stopped::second_thread_runs_while_first_waits", &path);
    let process = Kept(process);
    expect(&mut lines, "here");
    let trace = |request| {
        let nothing = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: both requests take no address of this process.
        match unsafe { libc::ptrace(request, process.pid() as i32, nothing, nothing) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    match trace(libc::PTRACE_SEIZE) {
        Err(refused) if refused.raw_os_error() == Some(libc::EPERM) => {
            eprintln!("SKIPPED: this system lets no process trace another");
            return;
        }
        seized => seized.unwrap(),
    }
    trace(libc::PTRACE_INTERRUPT).unwrap();
    while state_of(process.pid()) != Some('t') {
        std::thread::yield_now();
    }
    assert!(!pool.other_participants()[0].stopped, "its other thread runs");
    // Now stop all threads.
    kill_process(Pid::from_child(&process.0), Signal::STOP).unwrap();
    while !pool.other_participants()[0].stopped {
        std::thread::yield_now();
    }
}

#[test]
fn invisible_pid_is_not_reported_as_local() {
    let (_directory, path) = directory();
    let (one, two) = (open::<Shm>(&path), open::<Shm>(&path));
    let message = || one.other_participants()[0].to_string();
    assert!(message().starts_with(&format!("process {} (", std::process::id())), "{}", message());
    // Changes the entry of the second participant, as if its process had started at another time.
    let began = Offset::<Word>::new(one.layout().participants + 64 + 8 * 2);
    one.region().at(began).fetch_add(one.medium(), 1, Relaxed);
    let foreign = format!("process {} of another namespace (", std::process::id());
    assert!(message().starts_with(&foreign), "{}", message());
    drop(two);
}

/// Stays in the gate, with the lock of a process that opens or closes the pool.
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
#[allow(clippy::disallowed_methods, reason = "a thread that waits forever must not be joined")]
fn open_times_out_if_a_stopped_process_holds_the_gate() {
    let (_directory, path) = directory();
    let pool = open::<Shm>(&path);
    words(&pool)[0].store(pool.medium(), 7, Release);
    let (process, mut lines) = child("stopped::stays_at_the_gate", &path);
    let process = Kept(process);
    expect(&mut lines, "at the gate");
    stop(&process.0);
    let (say, said) = std::sync::mpsc::channel();
    let copy = path.clone();
    std::thread::spawn(move || {
        let refused = options(&copy).open::<Shm>().err().map(|error| error.to_string());
        say.send((refused, pool.close())).unwrap();
    });
    let (refused, closed) = said.recv_timeout(std::time::Duration::from_secs(60)).expect("it waits forever");
    let refused = refused.unwrap();
    for part in ["opening or closing", &format!("process {}", process.pid()), "is stopped"] {
        assert!(refused.contains(part), "{refused}");
    }
    let closed = closed.unwrap_err().to_string();
    assert!(closed.contains("is stopped"), "{closed}");
    drop(process);
    // As after the crash of a process that had it open.
    let next = open::<Shm>(&path);
    assert_eq!((next.found(), words(&next)[0].load(next.medium(), Acquire)), (Start::Unclean, 7));
}

#[test]
fn process_with_a_participants_pid_is_not_ended() {
    let (_directory, path) = directory();
    let (one, two) = (open::<Shm>(&path), open::<Shm>(&path));
    let stranger = Kept(Command::new("sleep").arg("600").spawn().unwrap());
    stop(&stranger.0);
    // Gives the second participant's entry the pid and start time of the stranger, as if its pid
    // belonged to another namespace.
    let says = [u64::from(stranger.pid()), field_of(stranger.pid(), 22).unwrap().parse().unwrap()];
    for (nth, word) in (1..).zip(says) {
        let at = Offset::<Word>::new(one.layout().participants + 64 + 8 * nth);
        one.region().at(at).store(one.medium(), word, Release);
    }
    let others = one.other_participants();
    assert!(others.len() == 1 && others[0].pid == stranger.pid() && others[0].stopped, "{others:?}");
    assert!(!one.end_stopped(&others[0]).unwrap());
    drop(two);
}
