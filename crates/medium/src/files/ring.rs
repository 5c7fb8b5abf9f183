//! Reads of files that go on while their thread does something else, by io_uring.

use super::{DIRECT_BLOCK, StoredFile};
use io_uring::{IoUring, opcode, squeue::Entry, types};
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

/// Bytes whose first one is aligned for direct reads.
pub struct AlignedBytes {
    memory: Vec<u8>,
    skip: usize,
    len: usize,
}

impl AlignedBytes {
    /// So many zeros.
    pub fn zeroed(len: usize) -> Self {
        let memory = vec![0; len + DIRECT_BLOCK];
        let skip = memory.as_ptr().align_offset(DIRECT_BLOCK);
        Self { memory, skip, len }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.skip..][..self.len]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.skip..][..self.len]
    }
}

/// A read that the kernel does. The memory and the file stay where they are until it is done.
struct Flight {
    token: u64,
    file: Arc<dyn StoredFile>,
    at: u64,
    bytes: AlignedBytes,
}

impl Flight {
    /// Reads, or reads what the kernel has left.
    fn read_here(mut self) -> Done {
        let read = self.file.read_exact_at(&mut self.bytes, self.at);
        Done { token: self.token, bytes: read.map(|()| self.bytes) }
    }
}

/// A read that has ended.
pub struct Done {
    /// What the caller gave to tell it from others.
    pub token: u64,
    /// The bytes, as many as were asked for.
    pub bytes: io::Result<AlignedBytes>,
}

/// Reads of files that go on while the thread does something else.
///
/// Reads are collected by [`Ring::read`], begun together by [`Ring::submit`], and handed out by
/// [`Ring::take`] as they end, in any order. The ring's descriptor is readable while one has ended.
pub struct Ring {
    ring: IoUring,
    flights: Slab<Flight>,
    /// Reads that are not begun yet.
    waiting: VecDeque<Flight>,
    /// Reads of files that are not the system's.
    done: VecDeque<Done>,
    /// Reads that go on at once.
    most: usize,
}

impl Ring {
    /// A ring for so many reads at once, a power of two. More of them wait for their turn.
    ///
    /// # Errors
    /// The system has no io_uring, or forbids it, as containers do.
    pub fn new(most: u32) -> io::Result<Self> {
        let ring = IoUring::new(most)?;
        let most = most as usize;
        Ok(Self { ring, flights: Slab::new(), waiting: VecDeque::new(), done: VecDeque::new(), most })
    }

    /// Adds a read of `len` bytes at `at`, both multiples of [`DIRECT_BLOCK`] if the file is open
    /// for direct reads.
    pub fn read(&mut self, token: u64, file: Arc<dyn StoredFile>, at: u64, len: usize) {
        let file = file.to_read().unwrap_or(file);
        let flight = Flight { token, file, at, bytes: AlignedBytes::zeroed(len) };
        match flight.file.as_system() {
            Some(_) => self.waiting.push_back(flight),
            None => self.done.push_back(flight.read_here()),
        }
    }

    /// Begins the reads that were added, with one system call.
    ///
    /// # Errors
    /// The kernel refuses; the reads wait for the next call.
    pub fn submit(&mut self) -> io::Result<()> {
        while self.flights.len() < self.most
            && let Some(flight) = self.waiting.pop_front()
        {
            let place = self.flights.vacant_entry();
            let key = place.key() as u64;
            let entry = place.insert(flight).entry().user_data(key);
            // SAFETY: the memory and the file of the flight live until the read has ended: a flight
            // leaves `flights` only then, and dropping the ring waits for all.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("a ring has as many entries as there are flights");
        }
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        self.ring.submit().map(drop)
    }

    /// A read that has ended, if there is one.
    pub fn take(&mut self) -> Option<Done> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        let entry = self.ring.completion().next()?;
        let flight = self.flights.remove(entry.user_data() as usize);
        // Errors and short reads are rare: a plain read tells more.
        match usize::try_from(entry.result()).is_ok_and(|read| read == flight.bytes.len()) {
            true => Some(Done { token: flight.token, bytes: Ok(flight.bytes) }),
            false => Some(flight.read_here()),
        }
    }

    /// Waits until a read has ended. Returns at once if none goes on.
    ///
    /// # Errors
    /// As [`Ring::submit`].
    pub fn wait(&mut self) -> io::Result<()> {
        self.submit()?;
        if self.done.is_empty() && !self.flights.is_empty() {
            self.ring.submit_and_wait(1)?;
        }
        Ok(())
    }

    /// Reads that were added and have not been taken.
    pub fn len(&self) -> usize {
        self.flights.len() + self.waiting.len() + self.done.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Flight {
    fn entry(&mut self) -> Entry {
        let file = self.file.as_system().expect("a file of the system");
        let bytes: &mut [u8] = &mut self.bytes;
        let read = opcode::Read::new(types::Fd(file.as_raw_fd()), bytes.as_mut_ptr(), bytes.len() as u32);
        read.offset(self.at).build()
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl Drop for Ring {
    /// Waits for the reads that go on: the kernel writes to their memory.
    fn drop(&mut self) {
        while !self.flights.is_empty() {
            if self.ring.submit_and_wait(1).is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
                // Their memory can never be used again.
                std::mem::forget(std::mem::take(&mut self.flights));
                return;
            }
            let ended: Vec<u64> = self.ring.completion().map(|entry| entry.user_data()).collect();
            ended.into_iter().for_each(|key| drop(self.flights.remove(key as usize)));
        }
    }
}
