//! Which participants are alive: what a shared pool asks of whatever its participants have in common.
//!
//! On one machine the kernel answers ([`FileLocks`]): each participant holds a lock on a byte of the pool's file, and the kernel lets go of it when the
//! process dies, whatever it dies of, and not before: a process that is merely stopped still holds it. Hosts without a common kernel will have leases instead. The trait
//! stands between: nothing else in a pool that is open relies on its participants having a kernel in common.

use crate::backoff::{Backoff, rests_in};
use crate::ending::{PROC, has_released_memory, kernel_name, lock_owner};
use crate::fork::ForkSafe;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

/// Tells the participants of a shared pool that are alive from the dead. Each participant has one of its own.
///
/// The contract, on which everything rests that survivors do for the dead:
///
/// - A participant that [`Liveness::is_alive`] denies stores nothing to the pool any more. On one machine that comes by itself: a dead process stores nothing. Who
///   keeps the contract by leases, or believes dead what only does not answer, has to make sure of it: such a participant must notice, before its
///   next store, that it has lost its place (by looking at its lease before each store, with time to spare for the store; or by being cut off from the
///   memory), and must not go on. It opens the pool anew.
/// - It is told dead by all or by none, from some moment on, and until its place is claimed anew. Whoever does not know takes it for alive: that delays,
///   and breaks nothing.
/// - A participant that stands still, and may go on, is alive.
///
/// When the value is dropped, its place and its hold on the gate are given back.
pub trait Liveness: Send + Sync {
    /// Takes the place of participant `index`, for as long as this one lives; false if a living one has it.
    fn claim(&self, index: u32) -> io::Result<bool>;
    /// Gives the place back.
    fn release(&self, index: u32);
    /// Whether somebody alive has the place, other than through `self`.
    fn is_alive(&self, index: u32) -> bool;
    /// Whether somebody who has the place is known not to store anything any more: process `pid`, as the pool says. It counts as dead then for whoever has asked, though [`Liveness::is_alive`] will deny it
    /// later only. No need to know.
    fn is_exiting(&self, _index: u32, _pid: u32) -> bool {
        false
    }
    /// Waits until nobody else is opening or closing the pool, and keeps others from it until [`Liveness::leave`], or death. If that one does not come to an end, as when it stands still: an
    /// error of the kind `TimedOut`, which says what is known of it.
    fn enter(&self) -> io::Result<()>;
    /// See [`Liveness::enter`].
    fn leave(&self);
    /// Whether all participants run under one kernel. Then a barrier in every running thread of all of them is to be had from it, and process numbers mean something.
    fn has_common_kernel(&self) -> bool {
        false
    }
}

/// Byte-range locks of a file that belong to one opening of it (`F_OFD_SETLK`, fcntl(2)). They lie beyond any file's end.
pub(crate) struct FileLocks {
    // Dropped first.
    _fork_safe: ForkSafe,
    file: File,
    /// Where it looks up whether a participant's process is ending.
    proc: PathBuf,
}

/// The bytes that are locked: nobody reads or writes there.
#[derive(Clone, Copy)]
pub(crate) enum LockByte {
    /// By who opens or closes it.
    Gate,
    /// By everyone who shares it.
    Sharers,
    /// By everyone who reads it and relies on nobody writing.
    Readers,
    /// By participant `index`.
    Participant(u32),
}

impl LockByte {
    fn byte(self) -> libc::off_t {
        const BASE: libc::off_t = 1 << 62;
        match self {
            Self::Gate => BASE,
            Self::Sharers => BASE + 1,
            Self::Readers => BASE + 2,
            Self::Participant(index) => BASE + 16 + libc::off_t::from(index),
        }
    }
}

/// Rests of who waits for one that opens or closes the pool, after which it is looked what that one does.
const GATE_PATIENCE: u32 = rests_in(Duration::from_secs(2));
/// The same for one that is not to be seen.
const GATE_PATIENCE_UNSEEN: u32 = rests_in(Duration::from_secs(60));

/// How a byte is locked.
#[derive(Clone, Copy)]
pub(crate) enum LockKind {
    /// Together with others.
    Shared,
    /// By one alone.
    Exclusive,
    /// Not any more.
    Unlocked,
}

impl FileLocks {
    /// The locks of `file`, which was opened for them: whoever has a copy of the same opening has the same locks.
    pub(crate) fn new(file: File) -> Self {
        Self { _fork_safe: ForkSafe::new(&file), file, proc: PathBuf::from(PROC) }
    }

    /// The same, with another view of the processes: a directory laid out like /proc. For tests.
    #[cfg(test)]
    pub(crate) fn seeing(self, proc: &std::path::Path) -> Self {
        Self { proc: proc.into(), ..self }
    }

    fn call(&self, command: libc::c_int, hold: LockKind, place: LockByte) -> io::Result<libc::flock> {
        let kind = match hold {
            LockKind::Shared => libc::F_RDLCK,
            LockKind::Exclusive => libc::F_WRLCK,
            LockKind::Unlocked => libc::F_UNLCK,
        };
        let mut lock = bytes(kind, place.byte(), 1);
        loop {
            // SAFETY: the descriptor is open as long as `self`, and `lock` is what these commands take.
            if unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut lock) } == 0 {
                return Ok(lock);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Takes a lock if it is to be had at once.
    pub(crate) fn try_hold(&self, hold: LockKind, place: LockByte) -> io::Result<bool> {
        match self.call(libc::F_OFD_SETLK, hold, place) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// An error if who is at the gate stands still; or, after a long time, if it is not to be seen what it does. `turn` counts the rests that this one has waited.
    fn check_gate(&self, turn: u32) -> io::Result<()> {
        let there = kernel_name(&self.file).and_then(|file| lock_owner(&file, LockByte::Gate.byte()));
        let why = match there {
            Some(holder) if holder.stopped => format!("{holder}, is opening or closing it"),
            None if turn >= GATE_PATIENCE_UNSEEN => {
                "somebody whom this process cannot see has been opening or closing it for a minute"
                    .to_string()
            }
            _ => return Ok(()),
        };
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }

    /// Whether somebody else has a lock there.
    pub(crate) fn is_held(&self, place: LockByte) -> io::Result<bool> {
        let found = self.call(libc::F_OFD_GETLK, LockKind::Exclusive, place)?;
        Ok(found.l_type != libc::F_UNLCK as libc::c_short)
    }
}

/// `len` bytes from `start` on, 0 for all to the end, as the system wants them named.
fn bytes(kind: libc::c_int, start: libc::off_t, len: libc::off_t) -> libc::flock {
    let (kind, from) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    libc::flock { l_type: kind, l_whence: from, l_start: start, l_len: len, l_pid: 0 }
}

/// Gives up every lock that this opening of `file` has.
pub(crate) fn release_all(file: &File) {
    let mut all = bytes(libc::F_UNLCK, 0, 0);
    // SAFETY: the descriptor is open, and `all` is what the command takes. (It cannot fail in a way that matters: the file is about to be closed.)
    let _ = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut all) };
}

impl Liveness for FileLocks {
    fn claim(&self, index: u32) -> io::Result<bool> {
        self.try_hold(LockKind::Exclusive, LockByte::Participant(index))
    }
    fn release(&self, index: u32) {
        let _ = self.try_hold(LockKind::Unlocked, LockByte::Participant(index));
    }
    fn is_alive(&self, index: u32) -> bool {
        // Where the kernel does not say, nobody is taken for dead.
        self.is_held(LockByte::Participant(index)).unwrap_or(true)
    }
    fn is_exiting(&self, index: u32, pid: u32) -> bool {
        let byte = LockByte::Participant(index).byte();
        kernel_name(&self.file).is_some_and(|file| has_released_memory(&self.proc, pid, &file, byte))
    }
    fn enter(&self) -> io::Result<()> {
        let mut backoff = Backoff::new();
        for turn in 1u32.. {
            if self.try_hold(LockKind::Exclusive, LockByte::Gate)? {
                return Ok(());
            }
            backoff.rest();
            if turn.is_multiple_of(GATE_PATIENCE) {
                self.check_gate(turn)?;
            }
        }
        unreachable!("it has waited for months")
    }
    fn leave(&self) {
        let _ = self.try_hold(LockKind::Unlocked, LockByte::Gate);
    }
    fn has_common_kernel(&self) -> bool {
        true
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn two() -> [FileLocks; 2] {
        let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        [(), ()].map(|()| FileLocks::new(File::options().read(true).write(true).open(file.path()).unwrap()))
    }

    #[test]
    fn a_place_is_held_by_one_until_it_gives_it_back_or_is_gone() {
        let [one, two] = two();
        assert!(one.claim(3).unwrap() && !two.claim(3).unwrap() && two.claim(4).unwrap());
        assert!(two.is_alive(3) && one.is_alive(4) && !one.is_alive(5));
        one.release(3);
        assert!(!two.is_alive(3) && two.claim(3).unwrap());
        drop(two);
        // A child that another test forks just now may have a copy of the handle, for a moment.
        let are_gone = |_| {
            std::thread::yield_now();
            !one.is_alive(3) && !one.is_alive(4)
        };
        assert!((0..100_000).any(are_gone));
    }

    #[test]
    fn another_process_looks_at_the_same_bytes() {
        let places = [
            LockByte::Gate,
            LockByte::Sharers,
            LockByte::Readers,
            LockByte::Participant(0),
            LockByte::Participant(7),
        ];
        assert_eq!(places.map(|place| place.byte() - (1 << 62)), [0, 1, 2, 16, 23]);
    }

    /// Knows who is alive, for somebody has said so, and nothing else.
    pub(crate) struct FixedLiveness(pub(crate) &'static [u32]);

    impl Liveness for FixedLiveness {
        fn claim(&self, index: u32) -> io::Result<bool> {
            Ok(!self.is_alive(index))
        }
        fn release(&self, _: u32) {}
        fn is_alive(&self, index: u32) -> bool {
            self.0.contains(&index)
        }
        fn enter(&self) -> io::Result<()> {
            Ok(())
        }
        fn leave(&self) {}
    }

    #[test]
    fn default_liveness_knows_no_exit_and_no_common_kernel() {
        let hearsay = FixedLiveness(&[0]);
        assert!(!hearsay.is_exiting(0, std::process::id()) && !hearsay.has_common_kernel());
    }

    #[test]
    fn release_all_frees_locks_despite_duplicated_handle() {
        let [one, two] = two();
        let copy = one.file.try_clone().unwrap();
        let places = [LockByte::Gate, LockByte::Sharers, LockByte::Participant(3)];
        assert!(places.iter().all(|&place| one.try_hold(LockKind::Exclusive, place).unwrap()));
        release_all(&one.file);
        drop(one);
        assert!(places.iter().all(|&place| !two.is_held(place).unwrap()));
        drop(copy);
    }

    #[test]
    fn sharers_do_not_keep_each_other_out() {
        let [one, two] = two();
        assert!(one.try_hold(LockKind::Shared, LockByte::Sharers).unwrap());
        assert!(two.try_hold(LockKind::Shared, LockByte::Sharers).unwrap());
        assert!(two.is_held(LockByte::Sharers).unwrap() && !two.is_held(LockByte::Readers).unwrap());
    }

    #[test]
    fn the_gate_lets_one_in_at_a_time() {
        let [one, two] = two();
        one.enter().unwrap();
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| two.enter().unwrap());
            std::thread::yield_now();
            assert!(!waiting.is_finished());
            one.leave();
        });
        assert!(one.is_held(LockByte::Gate).unwrap());
    }
}
