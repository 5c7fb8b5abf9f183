//! How event loops wait for the store.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What a loop waits for, and how. It owns what the server knows of that from its start on.
#[derive(Debug)]
pub(crate) struct Pacing {
    defers: bool,
    parks: bool,
    has_ring: AtomicBool,
}

impl Pacing {
    /// Of a server whose store lies on files, or does not.
    pub(super) fn of_store(is_on_files: bool) -> Pacing {
        Pacing { defers: is_on_files, parks: is_on_files, has_ring: AtomicBool::new(false) }
    }

    /// As this one, where the writes of a turn also share their way to a memory node.
    pub(super) fn deferring(self) -> Pacing {
        Pacing { defers: true, ..self }
    }

    /// Whether the writes of many clients are made durable together, before any of their replies.
    pub(crate) fn defers(&self) -> bool {
        self.defers
    }

    /// Whether a command that wants a slower tier waits for it aside, and not on its loop.
    pub(crate) fn parks(&self) -> bool {
        self.parks
    }

    /// Whether io_uring makes the reads of such commands, not workers.
    pub(crate) fn has_ring(&self) -> bool {
        // ORDER: Relaxed: for INFO, and for the thread that has made the loops and starts the
        // workers.
        self.has_ring.load(Relaxed)
    }

    /// Records whether a loop has a ring.
    pub(crate) fn note_ring(&self, has_ring: bool) {
        // ORDER: Relaxed: as in `has_ring`.
        self.has_ring.fetch_or(has_ring, Relaxed);
    }
}
