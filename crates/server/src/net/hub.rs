//! What the loops of one server share: their mailboxes, and what they count together.

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
pub(super) struct Newcomer {
    pub(super) stream: Stream,
    pub(super) peer: Peer,
}

/// One per server.
#[derive(Debug)]
pub(crate) struct Hub {
    mailboxes: Vec<Mailbox>,
    extra: Mutex<Vec<Waker>>,
    open: AtomicUsize,
    failed: AtomicBool,
    pub(crate) counters: Counters,
}

/// Where loop 0 leaves connections for another loop, and workers leave sessions that they have served.
#[derive(Debug)]
struct Mailbox {
    waker: Waker,
    arrived: Mutex<Vec<Newcomer>>,
    served: Mutex<Vec<Job>>,
}

impl Hub {
    /// A hub for as many loops as there are wakers.
    pub(crate) fn new(wakers: Vec<Waker>) -> Hub {
        let mailbox = |waker| Mailbox { waker, arrived: Mutex::default(), served: Mutex::default() };
        Hub {
            mailboxes: wakers.into_iter().map(mailbox).collect(),
            extra: Mutex::default(),
            open: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    /// How many loops there are.
    pub(crate) fn loops(&self) -> usize {
        self.mailboxes.len()
    }

    /// Wakes this one too, when all are woken.
    pub(crate) fn also_wakes(&self, waker: Waker) {
        lock(&self.extra).push(waker);
    }

    /// Hands a connection to a loop.
    pub(super) fn send(&self, to: usize, newcomer: Newcomer) -> io::Result<()> {
        lock(&self.mailboxes[to].arrived).push(newcomer);
        self.mailboxes[to].waker.wake()
    }

    /// What has arrived for a loop.
    pub(super) fn receive(&self, at: usize) -> Vec<Newcomer> {
        std::mem::take(&mut *lock(&self.mailboxes[at].arrived))
    }

    /// Hands a session back to its loop.
    pub(super) fn give_back(&self, job: Job) -> io::Result<()> {
        let mailbox = &self.mailboxes[job.owner.0];
        lock(&mailbox.served).push(job);
        mailbox.waker.wake()
    }

    /// The sessions that workers have handed back to a loop.
    pub(super) fn served(&self, at: usize) -> Vec<Job> {
        std::mem::take(&mut *lock(&self.mailboxes[at].served))
    }

    /// Has every thread look at whether it should end.
    pub(crate) fn wake_all(&self) {
        let extra = lock(&self.extra);
        for waker in self.mailboxes.iter().map(|mailbox| &mailbox.waker).chain(extra.iter()) {
            // A thread that cannot be woken by its eventfd looks again at its next tick.
            let _ = waker.wake();
        }
    }

    /// Counts one more connection, unless there are `most` already.
    pub(super) fn enter(&self, most: usize) -> bool {
        // ORDER: Relaxed, here and below: only the number matters, the connections travel through mailboxes.
        let more = |open| (open < most).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts one less.
    pub(super) fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Connections open now.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Notes that a thread ended by a fault.
    pub(crate) fn fail(&self) {
        // ORDER: Release: pairs with `failed`.
        self.failed.store(true, Ordering::Release);
    }

    /// Whether a thread ended by a fault.
    pub(crate) fn failed(&self) -> bool {
        // ORDER: Acquire: pairs with `fail`.
        self.failed.load(Ordering::Acquire)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Only whole pushes and takes happen under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
