//! Waiting for a word to change, also by another process (futex(2)). Hosts that share memory but no
//! kernel poll the word instead.

use crate::Word;
use std::time::Duration;

/// Interval between two looks at a word that the kernel cannot wait for, as on a device.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

impl Word {
    #[allow(
        clippy::disallowed_methods,
        reason = "only where the kernel cannot wait for the event
    # itself"
    )]
    /// Waits until [`Word::wake_all`], at most for `time`, while the lower half of the word is
    /// `low`. May return early without a reason.
    pub fn sleep_while(&self, low: u32, time: Duration) {
        let time = libc::timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        let outcome = self.futex(libc::FUTEX_WAIT, low, &raw const time);
        if outcome < 0 {
            let error = std::io::Error::last_os_error().raw_os_error();
            if !matches!(error, Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT)) {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }

    /// Wakes every thread that waits in [`Word::sleep_while`], in any process that maps this
    /// memory.
    pub fn wake_all(&self) {
        self.futex(libc::FUTEX_WAKE, i32::MAX as u32, std::ptr::null());
    }

    fn futex(&self, what: libc::c_int, value: u32, time: *const libc::timespec) -> libc::c_long {
        const LOWER_HALF: usize = if cfg!(target_endian = "big") { 4 } else { 0 };
        // SAFETY: the address is that of 4 aligned bytes that live as long as `self`. The kernel
        // compares them and does not change them. `time` is null or lives through the call.
        unsafe { libc::syscall(libc::SYS_futex, self.at().add(LOWER_HALF), what, value, time) }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Dram, MappedMedium, Mapping, Offset, Region};
    use std::sync::atomic::Ordering::{Acquire, Release};
    use std::time::{Duration, Instant};

    #[test]
    fn wake_all_wakes_a_sleeping_thread() {
        let region = Region::new(Dram::new(Mapping::anonymous(4096, 0).unwrap()));
        let word: &crate::Word = region.at(Offset::new(64));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while word.load(region.medium(), Acquire) == 0 {
                    word.sleep_while(0, Duration::MAX);
                }
            });
            word.store(region.medium(), 1, Release);
            word.wake_all();
        });
    }

    #[test]
    fn two_threads_wake_each_other_in_turn() {
        const ROUNDS: u64 = 2000;
        let region = Region::new(Dram::new(Mapping::anonymous(4096, 0).unwrap()));
        let word: &crate::Word = region.at(Offset::new(64));
        // The thread that finds its own number increments it.
        let go = |own: u64| loop {
            match word.load(region.medium(), Acquire) {
                number if number >= ROUNDS => return,
                number if number % 2 == own => {
                    word.store(region.medium(), number + 1, Release);
                    word.wake_all();
                }
                number => word.sleep_while(number as u32, Duration::MAX),
            }
        };
        std::thread::scope(|threads| {
            threads.spawn(|| go(1));
            go(0);
        });
    }

    #[allow(clippy::disallowed_methods, reason = "whether it waits at all")]
    #[test]
    fn sleep_ends_on_another_value_or_timeout() {
        let region = Region::new(Dram::new(Mapping::anonymous(4096, 0).unwrap()));
        let word: &crate::Word = region.at(Offset::new(64));
        word.sleep_while(7, Duration::MAX);
        // A signal may end one of the waits early, but not all of them.
        let long = (0..3).any(|_| {
            let start = Instant::now();
            word.sleep_while(0, Duration::from_millis(5));
            start.elapsed() >= Duration::from_millis(5)
        });
        assert!(long, "it waits for the time that it was given");
    }

    #[allow(clippy::disallowed_methods, reason = "whether it waits at all")]
    #[test]
    fn sleep_polls_where_the_kernel_cannot_wait() {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(4096).unwrap();
        let mapping =
            Mapping::file(file.try_clone().unwrap(), 4096, 0, crate::Protection::ReadWrite).unwrap();
        let region = Region::new(Dram::new(mapping));
        let word: &crate::Word = region.at(Offset::new(64));
        // The file ends before the word now, so the kernel cannot compare it.
        file.set_len(0).unwrap();
        let start = Instant::now();
        word.sleep_while(0, Duration::MAX);
        assert!(start.elapsed() >= super::POLL_INTERVAL);
    }
}
