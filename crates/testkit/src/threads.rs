//! Small numbers for the threads that are alive, so that counters can be kept a thread without a map; and work done in another thread.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A number that no other living thread has; given back when the thread ends.
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
    static IDENTITY: Cell<u64> = Cell::new(another());
}

/// An identity that nobody has had.
fn another() -> u64 {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    STARTED.fetch_add(1, Ordering::Relaxed)
}

/// This thread's number: as small as the number of threads alive at once allows.
pub(crate) fn number() -> usize {
    MINE.try_with(|number| number.0).unwrap_or(0)
}

/// A number that no other thread of this process ever has.
pub(crate) fn identity() -> u64 {
    IDENTITY.try_with(Cell::get).unwrap_or(u64::MAX)
}

/// Does something as another thread would, as far as a medium can tell: what this one has written back and not fenced, no fence of `work` covers. Costs no thread.
pub(crate) fn as_another<R>(work: impl FnOnce() -> R) -> R {
    struct Back(u64);
    impl Drop for Back {
        fn drop(&mut self) {
            IDENTITY.set(self.0);
        }
    }
    let _back = Back(IDENTITY.replace(another()));
    work()
}

/// Does something in another thread, to its end: what it has written back and not fenced, no fence of this one covers.
pub fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    /// No thread of a stage has it.
    const NUMBER: u32 = 9;
    let number_and_work = || {
        terrace_pool::set_thread_number(NUMBER);
        // Who could be waited for waits for this.
        never_rest();
        work()
    };
    let outcome = std::thread::scope(|scope| scope.spawn(number_and_work).join());
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// From now on this thread does not sleep where it waits: nobody else runs, so nothing comes of it, and who waits in vain, as where a lock is left held, soon has done more steps than anything takes.
pub(crate) fn never_rest() {
    terrace_pool::rest_with(|| {});
}
