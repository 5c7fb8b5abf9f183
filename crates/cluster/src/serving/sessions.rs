//! The session that goes on, and what became of those before it.

use super::logs::unknown;
use super::session::Session;
use crate::lock::lock;
use arc_swap::{ArcSwapOption, Guard};
use std::sync::{Arc, Mutex};
use terrace_engine::WriteError;

/// The sessions of a node, one after the other. Below stands the session itself.
#[derive(Default)]
pub(super) struct Sessions {
    current: ArcSwapOption<Session>,
    /// What became of earlier sessions. Its lock is held when a session ends.
    earlier: Mutex<Earlier>,
}

/// Earlier sessions.
#[derive(Default)]
struct Earlier {
    /// The last ticket: it is no write's.
    ticket: u64,
    /// Tickets of entries of which nobody knows whether they arrived: from behind the first up to
    /// the second.
    lost: Vec<(u64, u64)>,
    /// How many there were.
    count: u64,
}

impl Earlier {
    /// A session has ended: its last tickets that are durable and that were given out.
    fn add(&mut self, (durable, last): (u64, u64)) {
        assert!(durable <= last, "an entry arrives after its ticket was given out");
        assert!(self.ticket <= durable, "the tickets of a session follow those of the one before");
        // One more, so that a ticket tells whether a session has ended since it was given out.
        self.ticket = last + 1;
        self.count += 1;
        if durable < last {
            self.lost.push((durable, last));
        }
    }
}

impl Sessions {
    /// The session, if there is one.
    pub(super) fn current(&self) -> Option<Arc<Session>> {
        self.current.load_full()
    }

    /// As [`Sessions::current`], for a short time.
    pub(super) fn load(&self) -> Guard<Option<Arc<Session>>> {
        self.current.load()
    }

    /// A session begins.
    pub(super) fn begin(&self, session: Session) {
        self.current.store(Some(Arc::new(session)));
    }

    /// The session ends, if there is one.
    pub(super) fn end(&self, why: &str) {
        // Under the lock: a writer that finds no session finds what was lost.
        let mut earlier = lock(&self.earlier);
        if let Some(session) = self.current.swap(None) {
            earlier.add(session.fail(why));
        }
    }

    /// The last ticket that was given out.
    pub(super) fn ticket(&self) -> u64 {
        let earlier = lock(&self.earlier);
        self.current.load().as_ref().map_or(earlier.ticket, |session| session.logs.ticket())
    }

    /// How many have ended.
    pub(super) fn lost(&self) -> u64 {
        lock(&self.earlier).count
    }

    /// Waits until the entries up to this ticket have arrived.
    pub(super) fn settle(&self, ticket: u64) -> Result<(), WriteError> {
        // Without a session, the ticket is of one that has ended, and its entries had arrived.
        let session = self.session_unless(|from, to| from < ticket && ticket <= to)?;
        session.map_or(Ok(()), |session| session.settle(ticket))
    }

    /// Waits until all entries have arrived, unless one was lost after `since` was given out.
    pub(super) fn settle_since(&self, since: u64) -> Result<(), WriteError> {
        let session = self.session_unless(|_, to| since <= to)?;
        session.map_or(Ok(()), |session| session.settle(session.logs.ticket()))
    }

    /// The session, unless entries of these tickets matter that an earlier one has lost.
    fn session_unless(&self, matter: impl Fn(u64, u64) -> bool) -> Result<Option<Arc<Session>>, WriteError> {
        let earlier = lock(&self.earlier);
        match earlier.lost.iter().any(|(from, to)| matter(*from, *to)) {
            true => Err(unknown("the session with the memory node has ended")),
            false => Ok(self.current()),
        }
    }
}
