//! Being told of changes: who waits for a key does so without asking again and again, whichever process changes it.
//!
//! ```text
//! word 0      lock: whose watch it is
//!      1      counts changes; who waits sleeps on its lower half
//!      2      whether somebody sleeps (32) | bytes of the prefix (31 to 0)
//!      3..8   the prefix, padded with zeros
//! ```
//!
//! Whoever has changed something looks at one word that says which watches there are, mostly none. A watch counts changes of keys that begin with its prefix and says
//! nothing else about them: who is woken reads what he wanted to know. So nothing is queued, nothing overflows, and one that sleeps for long delays nobody.
//!
//! No change is missed. The watch is there before its owner first reads what he waits for: the word of watches is set, and then every running thread passes a barrier (see
//! `barrier`), so a change that did not see the watch is seen by the owner's reads. One who dies between a change and its telling is made up for by whoever recovers him,
//! who tells every watch. One that is stopped there tells when it goes on.

use crate::barrier;
use crate::fork::Forked;
use crate::lock::Lock;
use crate::pool::{Inner, Pool};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};
use terrace_medium::{MappedMedium, Offset, Persistent, Word, full_barrier};

/// Bytes of a prefix that are compared.
const PREFIX_BYTES: usize = 40;
const SLEEPS: u64 = 1 << 32;
/// Between two looks of a host that shares no kernel with the others.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A watch as it lies in the pool. Only its owner stores to it, but for the count.
#[repr(C, align(64))]
struct WatchRecord {
    owner: Lock,
    changes: Word,
    about: Word,
    prefix: [Word; PREFIX_BYTES / 8],
}

// SAFETY: words and a lock, eight in all; no padding.
unsafe impl Persistent for WatchRecord {}

/// Tells of changes to keys that begin with a prefix. From [`Pool::watch`]; it keeps the pool open.
pub struct Watch<M: MappedMedium> {
    pool: Pool<M>,
    index: u32,
    /// The count when it was last looked at.
    seen: u32,
}

/// There is no watch to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchError {
    /// The pool has its watches already, so many.
    TooMany(u32),
    /// The pool was opened by the process that this one was forked from.
    Forked,
}

impl std::fmt::Display for WatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooMany(count) => write!(
                f,
                "the pool has its {count} watches already, those of all processes counted; one with a shorter prefix can serve for several"
            ),
            Self::Forked => Forked.fmt(f),
        }
    }
}

impl std::error::Error for WatchError {}

impl<M: MappedMedium> Pool<M> {
    /// A watch of the keys that begin with `prefix`. Of the prefix 40 bytes are compared: of a longer one, keys that share these wake it, too.
    pub fn watch(&self, prefix: &[u8]) -> Result<Watch<M>, WatchError> {
        let inner = &*self.0;
        if inner.is_forked_copy() {
            return Err(WatchError::Forked);
        }
        let count = self.layout().watch_count();
        let is_mine = |&index: &u32| match inner.watch(index).owner.try_acquire_in(inner) {
            Some(locked) => {
                std::mem::forget(locked);
                true
            }
            None => false,
        };
        let free = || (0..count).find(is_mine);
        let of_dead = || {
            inner.recover_all_dead();
            free()
        };
        let index = free().or_else(of_dead).ok_or(WatchError::TooMany(count))?;
        let line = inner.watch(index);
        let prefix = &prefix[..prefix.len().min(PREFIX_BYTES)];
        let mut bytes = [0; PREFIX_BYTES];
        bytes[..prefix.len()].copy_from_slice(prefix);
        for (word, piece) in line.prefix.iter().zip(bytes.as_chunks().0) {
            word.store(self.medium(), u64::from_le_bytes(*piece), Relaxed);
        }
        line.about.store(self.medium(), prefix.len() as u64, Relaxed);
        let seen = line.changes.load(self.medium(), Acquire) as u32;
        // ORDER: Release: who sees the bit sees the prefix. The barrier: see above.
        inner.shared().watches_set.fetch_or(self.medium().point("watch.make"), 1 << index, Release);
        inner.barrier_to_pins();
        Ok(Watch { pool: self.clone(), index, seen })
    }

    /// Tells whoever watches `key` that it has changed, and that the change is visible and durable.
    #[inline(always)]
    pub fn notify_watches(&self, key: &[u8]) {
        let watches_set = self.0.watches_set();
        if watches_set != 0 {
            self.0.notify_watches_of(watches_set, |line| line.is_of(self.medium(), key));
        }
    }
}

impl<M: MappedMedium> Inner<M> {
    fn watch(&self, index: u32) -> &WatchRecord {
        self.region.at(Offset::new(self.layout.watch(index)))
    }

    /// A bit for each watch.
    #[inline(always)]
    fn watches_set(&self) -> u64 {
        // ORDER: between the change and this load, as in `Inner::set_pin`: a watch that is not seen here sees the change.
        if self.light_pins {
            barrier::light();
        } else {
            full_barrier(self.medium());
        }
        // The load itself is Relaxed: of the two barriers either this one's is later, and all of a watch that is seen is there, or the other's, and it sees the change.
        self.shared().watches_set.load(self.medium(), Relaxed)
    }

    #[cold]
    fn notify_watches_of(&self, watches_set: u64, is_notified: impl Fn(&WatchRecord) -> bool) {
        let indices = (0..self.layout.watch_count()).filter(|index| watches_set >> index & 1 == 1);
        indices
            .map(|index| self.watch(index))
            .filter(|line| is_notified(line))
            .for_each(|line| line.notify(self.medium()));
    }

    /// Tells every watch.
    pub(crate) fn notify_all(&self) {
        self.notify_watches_of(self.watches_set(), |_| true);
    }

    /// Takes back the watches of those who died.
    pub(crate) fn release_watches_of_dead(&self) {
        for index in 0..self.layout.watch_count() {
            let line = self.watch(index);
            if line.owner.take_over_if_dead(self) {
                self.end_watch(index);
            }
        }
    }

    /// Gives the watch back, which is this process's.
    fn end_watch(&self, index: u32) {
        self.shared().watches_set.fetch_and(self.medium().point("watch.end"), !(1 << index), Release);
        self.watch(index).owner.release_in(self);
    }
}

impl WatchRecord {
    /// Whether it is told of `key`. (While it changes hands the answer means nothing, and nobody relies on it.)
    fn is_of<M: MappedMedium>(&self, medium: &M, key: &[u8]) -> bool {
        let mut bytes = [0; PREFIX_BYTES];
        for (piece, word) in bytes.as_chunks_mut().0.iter_mut().zip(&self.prefix) {
            *piece = word.load(medium, Relaxed).to_le_bytes();
        }
        let len = self.about.load(medium, Relaxed) as u32 as usize;
        key.starts_with(&bytes[..len.min(PREFIX_BYTES)])
    }

    fn notify<M: MappedMedium>(&self, medium: &M) {
        // ORDER: either the one who goes to sleep sees the count, or this sees that he sleeps.
        self.changes.fetch_add(medium, 1, SeqCst);
        full_barrier(medium);
        if self.about.load(medium, Relaxed) & SLEEPS != 0 {
            self.changes.wake_all();
        }
    }
}

impl<M: MappedMedium> Watch<M> {
    /// Whether something has changed since the last call, or the last [`Watch::wait`]. Never waits.
    pub fn has_changed(&mut self) -> bool {
        let now = self.line().changes.load(self.pool.medium(), Acquire) as u32;
        std::mem::replace(&mut self.seen, now) != now
    }

    /// Waits until something has changed since the last call, for `time` at most. Whether it has.
    #[allow(clippy::disallowed_methods, reason = "how long to wait is what the caller has asked for")]
    pub fn wait(&mut self, time: Duration) -> bool {
        let end = Instant::now().checked_add(time);
        loop {
            if self.has_changed() {
                return true;
            }
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            self.sleep(left);
        }
    }

    /// Sleeps for `time` at most; less where no kernel tells of what happens elsewhere.
    fn sleep(&self, time: Duration) {
        let time = if self.pool.0.is_multi_host() { time.min(LOOK_AGAIN) } else { time };
        let (line, medium) = (self.line(), self.pool.medium());
        let about = line.about.load(medium, Relaxed);
        line.about.store(medium, about | SLEEPS, Relaxed);
        // ORDER: see `WatchRecord::notify`. The kernel compares the count once more.
        full_barrier(medium);
        line.changes.sleep_while(self.seen, time);
        line.about.store(medium, about, Relaxed);
    }

    fn line(&self) -> &WatchRecord {
        self.pool.0.assert_not_forked();
        self.pool.0.watch(self.index)
    }
}

impl<M: MappedMedium> Drop for Watch<M> {
    fn drop(&mut self) {
        if !self.pool.0.is_forked_copy() {
            self.pool.0.end_watch(self.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolOptions;
    use crate::layout::Geometry;
    use crate::liveness::tests::FixedLiveness;
    use crate::participants::field;
    use crate::small::participants;
    use rustix::thread::{Pid, gettid};
    use std::sync::atomic::AtomicU64;
    use std::sync::{Arc, mpsc};
    use terrace_medium::{Dram, Mapping, Shm};

    const LONG: Duration = Duration::from_secs(60);

    fn pool() -> Pool<Dram> {
        Pool::anonymous_with(128 << 10, Geometry::tiny()).unwrap()
    }

    #[test]
    fn a_watch_is_told_of_keys_with_its_prefix_and_of_no_others() {
        let pool = pool();
        let (mut all, mut some) = (pool.watch(b"").unwrap(), pool.watch(b"job:").unwrap());
        let mut asked = |key: &[u8]| {
            pool.notify_watches(key);
            (all.has_changed(), some.has_changed())
        };
        assert_eq!(asked(b"job:"), (true, true));
        assert_eq!(asked(b"job:7"), (true, true));
        assert_eq!(asked(b"job"), (true, false));
        assert_eq!(asked(b""), (true, false));
        assert_eq!(asked(b"other"), (true, false));
        assert!(!all.has_changed() && !some.has_changed());
    }

    #[test]
    fn long_prefix_is_cut_to_its_first_bytes() {
        let (pool, long) = (pool(), [7; PREFIX_BYTES + 5]);
        let mut watch = pool.watch(&long).unwrap();
        pool.notify_watches(&long[..PREFIX_BYTES - 1]);
        assert!(!watch.has_changed());
        pool.notify_watches(&long[..PREFIX_BYTES]);
        assert!(watch.has_changed());
    }

    #[test]
    fn watches_are_limited_and_dropped_ones_reusable() {
        let pool = pool();
        let count = pool.layout().watch_count();
        let mut watches: Vec<_> = (0..count).map(|_| pool.watch(b"a").unwrap()).collect();
        assert_eq!(pool.watch(b"a").err(), Some(WatchError::TooMany(count)));
        watches.pop();
        // The one before had another prefix, and was told of something that this one is not.
        pool.notify_watches(b"a");
        let mut watch = pool.watch(b"b").unwrap();
        assert!(!watch.has_changed());
        pool.notify_watches(b"a");
        assert!(!watch.has_changed() && watches.iter_mut().all(Watch::has_changed));
        drop((watch, watches));
        assert_eq!(pool.0.watches_set(), 0);
    }

    #[test]
    fn waiting_ends_with_the_change_or_with_the_time() {
        let pool = pool();
        let mut watch = pool.watch(b"k").unwrap();
        assert!(!watch.wait(Duration::ZERO) && !watch.wait(Duration::from_millis(2)));
        pool.notify_watches(b"k");
        assert!(watch.wait(LONG));
        std::thread::scope(|threads| {
            threads.spawn(|| pool.notify_watches(b"k"));
            assert!(watch.wait(LONG));
        });
        assert!(!watch.wait(Duration::ZERO));
    }

    /// How often this thread has gone to sleep so far.
    fn sleeps() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn waiting_watch_sleeps() {
        const WAITS: u64 = 20;
        let pool = pool();
        let mut watch = pool.watch(b"k").unwrap();
        let before = sleeps();
        for _ in 0..WAITS {
            assert!(!watch.wait(Duration::from_millis(2)));
        }
        // The time for one or the other may be over before it has begun to wait.
        assert!(sleeps() - before >= WAITS / 2);
    }

    /// Whether a thread of this process sleeps, or has ended.
    fn is_at_rest(thread: Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero()));
        stat.map_or(true, |stat| field(&stat, 3) == Some("S"))
    }

    #[test]
    fn other_participant_wakes_a_sleeping_watch_of_any_prefix() {
        let (_directory, [mine, other]) = participants::<Shm, 2>(Geometry::tiny());
        let key = [b'k'; PREFIX_BYTES];
        for prefix in [&key[..0], &key[..1], &key] {
            let mut watch = mine.watch(prefix).unwrap();
            let ((send_thread, thread), (send_end, end)) = (mpsc::channel(), mpsc::channel());
            std::thread::scope(|threads| {
                threads.spawn(move || {
                    send_thread.send(gettid()).unwrap();
                    send_end.send(watch.wait(2 * LONG)).unwrap();
                });
                let thread = thread.recv().unwrap();
                while !is_at_rest(thread) {
                    std::thread::yield_now();
                }
                other.notify_watches(&key);
                assert_eq!(end.recv_timeout(LONG), Ok(true));
            });
        }
    }

    #[test]
    fn watch_without_common_kernel_polls_for_changes() {
        let mapping = Mapping::anonymous(128 << 10, 0).unwrap();
        let options = PoolOptions::anonymous().geometry(Geometry::tiny());
        let pool = options.create_shared_on(Shm::new(mapping), Arc::new(FixedLiveness(&[]))).unwrap();
        let mut watch = pool.watch(b"k").unwrap();
        let (pool, index) = (watch.pool.clone(), watch.index);
        let ((send_thread, thread), (send_end, end)) = (mpsc::channel(), mpsc::channel());
        std::thread::scope(|threads| {
            threads.spawn(move || {
                send_thread.send(gettid()).unwrap();
                send_end.send(watch.wait(2 * LONG)).unwrap();
            });
            let thread = thread.recv().unwrap();
            while !is_at_rest(thread) {
                std::thread::yield_now();
            }
            // As a host does whose kernel knows of no sleeper here.
            pool.0.watch(index).changes.fetch_add(pool.medium(), 1, Relaxed);
            assert_eq!(end.recv_timeout(LONG), Ok(true));
        });
    }

    /// Each waits for the other and nothing else: one change that is missed would be waited for in vain.
    #[test]
    fn no_change_is_missed() {
        let (pool, rounds) = (pool(), [AtomicU64::new(0), AtomicU64::new(0)]);
        std::thread::scope(|threads| {
            let watches = [pool.watch(b"1").unwrap(), pool.watch(b"0").unwrap()];
            for (own, mut watch) in watches.into_iter().enumerate() {
                let (pool, rounds) = (&pool, &rounds);
                threads.spawn(move || {
                    for round in 1..=2000 {
                        rounds[own].store(round, Release);
                        pool.notify_watches(&[b'0' + own as u8]);
                        while rounds[1 - own].load(Acquire) < round {
                            assert!(watch.wait(LONG), "round {round}");
                        }
                    }
                });
            }
        });
    }
}
