//! Cold reads of a thread that must not wait for them, such as one that serves many connections.
//!
//! An engine has no other form of its operations for such a thread. It runs them within
//! [`ColdReads::run`]. A read of a file that was not made yet fails there with `WouldBlock`, the
//! operation ends without an effect, and the caller makes the reads and runs it again, with their
//! bytes at hand.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use terrace_medium::files::{AlignedBytes, Ring, StoredFile};

/// A file and an offset in it. No two open files have the same number.
pub type FilePlace = (u64, u64);

/// A read that was put off.
pub struct ColdRead {
    place: FilePlace,
    /// The file, open for direct reads.
    pub file: Arc<dyn StoredFile>,
    /// Bytes of it, from the offset of its place on; a multiple of the file's alignment, as that.
    pub len: usize,
}

impl ColdRead {
    /// Bytes from the start of the file.
    pub fn at(&self) -> u64 {
        self.place.1
    }

    fn key(&self) -> Key {
        (self.place, self.len)
    }
}

/// What tells reads apart.
type Key = (FilePlace, usize);

/// The cold reads of a caller: those that it made, and those that it wants.
#[derive(Default)]
pub struct ColdReads {
    wanted: Vec<ColdRead>,
    /// What is wanted.
    keys: HashSet<Key>,
    made: HashMap<Key, AlignedBytes>,
    must_wait: bool,
    has_written: bool,
}

/// Of a thread: none while it may wait.
type Scope = Option<ColdReads>;

thread_local! {
    static SCOPE: RefCell<Scope> = const { RefCell::new(None) };
}

/// Puts the scope back, also when the thread panics.
struct Return<'a>(&'a mut ColdReads, Scope);

impl Drop for Return<'_> {
    fn drop(&mut self) {
        let within = SCOPE.replace(self.1.take());
        *self.0 = within.unwrap_or_default();
    }
}

impl ColdReads {
    /// Runs `run`, in which reads that were not made yet fail. If [`ColdReads::is_stuck`] then, it
    /// has had no effect, what it returned means nothing, and it is to run again after the reads.
    pub fn run<T>(&mut self, run: impl FnOnce() -> T) -> T {
        self.has_written = false;
        let outer = SCOPE.replace(Some(std::mem::take(self)));
        let _return = Return(self, outer);
        run()
    }

    /// Whether the last run wanted a read that was not made.
    pub fn is_stuck(&self) -> bool {
        !self.has_written && (self.must_wait || !self.wanted.is_empty())
    }

    /// Whether the reads cannot be told before: only a thread that may wait can make them.
    pub fn must_wait(&self) -> bool {
        self.must_wait
    }

    /// The reads that the last run wanted.
    pub fn take_wanted(&mut self) -> Vec<ColdRead> {
        self.keys.clear();
        std::mem::take(&mut self.wanted)
    }

    /// Gives the bytes of a read for the next run.
    pub fn give(&mut self, read: ColdRead, bytes: AlignedBytes) {
        self.made.insert(read.key(), bytes);
    }

    /// Makes the reads that the last run wanted, all at once where the system can, and waits for
    /// them. A read that fails is left out: the next run wants it again.
    pub fn make(&mut self) {
        let wanted = self.take_wanted();
        let mut made: Vec<Option<AlignedBytes>> = wanted.iter().map(|_| None).collect();
        if wanted.len() < 2 || !read_together(&wanted, &mut made) {
            for (read, made) in wanted.iter().zip(&mut made) {
                let mut bytes = AlignedBytes::zeroed(read.len);
                *made = read.file.read_exact_at(&mut bytes, read.at()).ok().map(|()| bytes);
            }
        }
        let made = wanted.into_iter().zip(made).filter_map(|(read, made)| Some((read.key(), made?)));
        self.made.extend(made);
    }

    /// Reads that were made.
    pub fn made(&self) -> usize {
        self.made.len()
    }

    /// Forgets all reads: what they were for is done.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Reads that a thread makes at once.
const TOGETHER: u32 = 64;

/// Makes reads by io_uring. Returns false if there is none.
fn read_together(wanted: &[ColdRead], made: &mut [Option<AlignedBytes>]) -> bool {
    thread_local! {
        static RING: RefCell<Option<Ring>> = RefCell::new(Ring::new(TOGETHER).ok());
    }
    RING.with_borrow_mut(|own| {
        let Some(ring) = own else { return false };
        for (nth, read) in wanted.iter().enumerate() {
            ring.read(nth as u64, Arc::clone(&read.file), read.at(), read.len);
        }
        while !ring.is_empty() {
            if ring.wait().is_err_and(|error| error.kind() != ErrorKind::Interrupted) {
                // It ends its reads before it goes.
                *own = None;
                return true;
            }
            while let Some(done) = ring.take() {
                made[done.token as usize] = done.bytes.ok();
            }
        }
        true
    })
}

fn within<T>(with: impl FnOnce(&mut ColdReads) -> T) -> Option<T> {
    SCOPE.with_borrow_mut(|scope| scope.as_mut().filter(|scope| !scope.has_written).map(with))
}

/// Whether the thread must not wait now.
#[inline]
pub fn must_not_wait() -> bool {
    within(|_| ()).is_some()
}

/// Whether the operation that runs is to be given up, since it wants a read.
pub fn is_stuck() -> bool {
    within(|scope| scope.is_stuck()).unwrap_or(false)
}

/// Uses the bytes of a cold read with `with`, unless the thread may wait: then it returns `None`,
/// and the caller reads.
///
/// # Errors
/// `WouldBlock`: the read was not made yet, and is noted.
pub fn put_off<T>(
    place: FilePlace,
    len: usize,
    file: &Arc<dyn StoredFile>,
    with: impl FnOnce(&[u8]) -> T,
) -> Option<io::Result<T>> {
    within(|scope| {
        if let Some(bytes) = scope.made.get(&(place, len)) {
            return Ok(with(bytes));
        }
        if scope.keys.insert((place, len)) {
            let file = Arc::clone(file);
            scope.wanted.push(ColdRead { place, file, len });
        }
        Err(ErrorKind::WouldBlock.into())
    })
}

/// Passes if the thread may wait: for I/O that cannot be told before it is made.
///
/// # Errors
/// `WouldBlock`: it must not.
pub fn may_wait() -> io::Result<()> {
    match within(|scope| scope.must_wait = true) {
        Some(()) => Err(ErrorKind::WouldBlock.into()),
        None => Ok(()),
    }
}

/// Runs `run`, in which the thread waits all the same: it can no longer be given up.
pub fn waiting<T>(run: impl FnOnce() -> T) -> T {
    struct Again(Scope);
    impl Drop for Again {
        fn drop(&mut self) {
            SCOPE.set(self.0.take());
        }
    }
    let _again = Again(SCOPE.take());
    run()
}

/// Runs a part of an operation that has an effect of its own: later parts may be put off all the
/// same. The caller must tell which parts are done.
pub fn part<T>(run: impl FnOnce() -> T) -> T {
    let may_wait = !must_not_wait();
    let done = run();
    SCOPE.with_borrow_mut(|scope| scope.iter_mut().for_each(|scope| scope.has_written = may_wait));
    done
}

/// Notes that the operation has had an effect. From now on it waits.
pub fn has_written() {
    SCOPE.with_borrow_mut(|scope| {
        if let Some(scope) = scope {
            scope.has_written = true;
        }
    });
}
