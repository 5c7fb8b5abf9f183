//! The state that all loops of one server share: mailboxes and counters.

use std::{
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use mio::Waker;

use super::{counters::Counters, stream::Stream, workers::Job};
use crate::session::Peer;

/// A connection just accepted.
#[derive(Debug)]
pub(super) struct NewConnection {
    pub(super) stream: Stream,
    pub(super) peer: Peer,
}

/// The loops' shared state. One per server.
#[derive(Debug)]
pub(crate) struct Hub {
    mailboxes: Vec<Mailbox>,
    extra_wakers: Mutex<Vec<Waker>>,
    open: AtomicUsize,
    failed: AtomicBool,
    pub(crate) counters: Counters,
}

/// A loop's mailbox: loop 0 puts new connections there, workers the sessions that they have served.
#[derive(Debug)]
struct Mailbox {
    waker: Waker,
    accepted: Mutex<Vec<NewConnection>>,
    served: Mutex<Vec<Job>>,
}

impl Hub {
    /// A hub with one loop for each waker.
    pub(crate) fn new(wakers: Vec<Waker>) -> Hub {
        let mailbox = |waker| Mailbox { waker, accepted: Mutex::default(), served: Mutex::default() };
        Hub {
            mailboxes: wakers.into_iter().map(mailbox).collect(),
            extra_wakers: Mutex::default(),
            open: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    /// Number of loops.
    pub(crate) fn loop_count(&self) -> usize {
        self.mailboxes.len()
    }

    /// Adds a waker that [`Hub::wake_all`] wakes too.
    pub(crate) fn add_waker(&self, waker: Waker) {
        lock(&self.extra_wakers).push(waker);
    }

    /// Sends a connection to a loop.
    pub(super) fn send(&self, to: usize, new: NewConnection) -> io::Result<()> {
        lock(&self.mailboxes[to].accepted).push(new);
        self.mailboxes[to].waker.wake()
    }

    /// Takes the new connections of a loop.
    pub(super) fn receive(&self, at: usize) -> Vec<NewConnection> {
        std::mem::take(&mut *lock(&self.mailboxes[at].accepted))
    }

    /// Sends a session back to its loop.
    pub(super) fn send_back(&self, job: Job) -> io::Result<()> {
        let mailbox = &self.mailboxes[job.owner.0];
        lock(&mailbox.served).push(job);
        mailbox.waker.wake()
    }

    /// Takes the sessions that workers have sent back to a loop.
    pub(super) fn take_served(&self, at: usize) -> Vec<Job> {
        std::mem::take(&mut *lock(&self.mailboxes[at].served))
    }

    /// Wakes all threads, so that they check whether the server stops.
    pub(crate) fn wake_all(&self) {
        let extra_wakers = lock(&self.extra_wakers);
        for waker in self.mailboxes.iter().map(|mailbox| &mailbox.waker).chain(extra_wakers.iter()) {
            // A thread whose eventfd fails checks at its next tick.
            let _ = waker.wake();
        }
    }

    /// Counts one more connection, unless there are `most` already.
    pub(super) fn try_add_connection(&self, most: usize) -> bool {
        // ORDER: Relaxed, here and below: only the number matters; mutexes publish the connections.
        let more = |open| (open < most).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts one connection less.
    pub(super) fn remove_connection(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Records that a thread failed or panicked.
    pub(crate) fn record_failure(&self) {
        // ORDER: Release: pairs with `has_failed`.
        self.failed.store(true, Ordering::Release);
    }

    /// Whether a thread failed or panicked.
    pub(crate) fn has_failed(&self) -> bool {
        // ORDER: Acquire: pairs with `record_failure`.
        self.failed.load(Ordering::Acquire)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The vectors are pushed to and taken whole, so a panic elsewhere leaves no partial change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
