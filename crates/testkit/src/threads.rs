//! Small numbers for live threads, for per-thread counters without a map; and work in another
//! thread.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A number that no other live thread has; released when the thread ends.
struct Number(usize);

impl Number {
    fn take() -> Self {
        let free = FREE.lock().map_or(None, |mut free| free.pop());
        Self(free.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        if let Ok(mut free) = FREE.lock() {
            free.push(self.0);
        }
    }
}

thread_local! {
    static MINE: Number = Number::take();
    static IDENTITY: Cell<u64> = Cell::new(new_identity());
}

/// An identity that was never used.
fn new_identity() -> u64 {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    STARTED.fetch_add(1, Ordering::Relaxed)
}

/// This thread's number, as small as the number of live threads allows.
pub(crate) fn number() -> usize {
    MINE.try_with(|number| number.0).unwrap_or(0)
}

/// A number that no other thread of this process ever has.
pub(crate) fn identity() -> u64 {
    IDENTITY.try_with(Cell::get).unwrap_or(u64::MAX)
}

/// Runs `work` under another thread identity, without a new thread. To a medium, fences of `work`
/// do not cover earlier unfenced write-backs of this thread.
pub(crate) fn as_other_thread<R>(work: impl FnOnce() -> R) -> R {
    struct Back(u64);
    impl Drop for Back {
        fn drop(&mut self) {
            IDENTITY.set(self.0);
        }
    }
    let _back = Back(IDENTITY.replace(new_identity()));
    work()
}

/// Runs `work` in another thread and waits for it: fences of this thread do not cover its unfenced
/// write-backs.
pub fn in_other_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    /// A number that no thread of a scheduler has.
    const NUMBER: u32 = 9;
    let number_and_work = || {
        terrace_pool::set_thread_number(NUMBER);
        // Any thread it could wait for is itself waiting for it.
        disable_sleep();
        work()
    };
    let outcome = std::thread::scope(|scope| scope.spawn(number_and_work).join());
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Disables sleeping in waits of this thread. Without other running threads, sleeping is useless; a
/// thread that waits in vain, for example for a leaked lock, soon exceeds the step limit.
pub(crate) fn disable_sleep() {
    terrace_pool::rest_with(|| {});
}
