//! The state that all loops of one server share: mailboxes and counters.

use std::{
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use mio::Waker;

use super::{counters::Counters, job::Job, stream::Stream};
use crate::state::clients::Peer;

/// A connection just accepted.
#[derive(Debug)]
pub(super) struct NewConnection {
    pub(super) stream: Stream,
    pub(super) peer: Peer,
    /// [`Routing::arrivals`](crate::state::routing::Routing::arrivals) when it was accepted.
    pub(super) arrivals: u64,
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
    /// Connections that the loop has, or will find in the mailbox.
    open: AtomicUsize,
    /// The last round of arrivals for which loop 0 waits, and the last one that the loop has let
    /// go on: see [`Acceptor`](super::accept::Acceptor).
    asked: AtomicU64,
    answered: AtomicU64,
}

impl Hub {
    /// A hub with one loop for each waker.
    pub(crate) fn new(wakers: Vec<Waker>) -> Hub {
        let mailbox = |waker| {
            let (accepted, served, open, asked, answered) = Default::default();
            Mailbox { waker, accepted, served, open, asked, answered }
        };
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

    /// Counts a connection for a loop.
    pub(super) fn assign(&self, to: usize) {
        // ORDER: Relaxed: only loop 0 adds, and only it asks whether there is one.
        self.mailboxes[to].open.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends a connection to a loop, for which it was counted.
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

    /// Counts one connection of a loop less.
    pub(super) fn remove_connection(&self, of: usize) {
        let open = self.open.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(open > 0, "each connection that is removed was added");
        // ORDER: Release: pairs with `ask_all`: what the connection has sent is executed.
        self.mailboxes[of].open.fetch_sub(1, Ordering::Release);
    }

    /// Asks all loops with connections to say by [`Hub::answer`] when they have executed what had
    /// arrived before this call. Returns the loops.
    pub(super) fn ask_all(&self, round: u64) -> Vec<usize> {
        let mut asked = Vec::new();
        for (nth, mailbox) in self.mailboxes.iter().enumerate() {
            // ORDER: Acquire: pairs with `remove_connection`.
            if mailbox.open.load(Ordering::Acquire) == 0 {
                continue;
            }
            // ORDER: Release: pairs with `asked`: a poll behind that sees what has arrived by now.
            mailbox.asked.store(round, Ordering::Release);
            asked.push(nth);
            // Loop 0 calls this. A thread whose eventfd fails looks at its next tick.
            if nth != 0 {
                let _ = mailbox.waker.wake();
            }
        }
        asked
    }

    /// The last round about which a loop was asked.
    pub(super) fn asked(&self, at: usize) -> u64 {
        // ORDER: Acquire: pairs with `ask_all`.
        self.mailboxes[at].asked.load(Ordering::Acquire)
    }

    /// A loop has executed what had arrived when it was asked about this round.
    pub(super) fn answer(&self, at: usize, round: u64) {
        // ORDER: Release: pairs with `has_answered`: what comes in then finds the effects.
        self.mailboxes[at].answered.store(round, Ordering::Release);
        if at != 0 {
            // As in `ask_all`.
            let _ = self.mailboxes[0].waker.wake();
        }
    }

    /// Whether a loop has answered about a round.
    pub(super) fn has_answered(&self, at: usize, round: u64) -> bool {
        // ORDER: Acquire: pairs with `answer`.
        self.mailboxes[at].answered.load(Ordering::Acquire) >= round
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
