//! The bound of what one-sided readers hold back: pins are renewed in time, and a session that
//! confirms its reads too slowly ends.

use super::pins::{Pins, Taken};
use super::threads::AGAIN;
use crate::clock::now;
use std::sync::Arc;
use std::time::Duration;
use terrace_medium::Shm;
use terrace_pool::Pool;

/// The part of the pool that may wait for readers of old pins.
const WAITING_SHARE: u64 = 8;

/// When the pins were renewed, and for which readers. Below stand the pins.
pub(crate) struct Readers {
    pins: Arc<Pins>,
    lease: Duration,
    renewed: Duration,
    /// The oldest pin that a session relied on then.
    oldest: Option<u64>,
}

/// How short memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// Writers wait for memory that readers or merges have now.
    pub(crate) is_short: bool,
    /// Puts are refused.
    pub(crate) is_full: bool,
}

impl Readers {
    pub(crate) fn new(pins: Arc<Pins>, lease: Duration) -> Self {
        let (renewed, oldest) = Default::default();
        Self { pins, lease, renewed, oldest }
    }

    /// The newest pin.
    pub(crate) fn newest(&self) -> u64 {
        self.pins.newest()
    }

    /// Renews the pins if it is time. `oldest` is the oldest one that a session relies on. Returns
    /// whether these sessions hold back too much.
    pub(crate) fn renew(&mut self, pool: &Pool<Shm>, oldest: Option<u64>, need: Need) -> bool {
        let pause = if need.is_short { AGAIN } else { self.lease / 6 };
        if oldest == self.oldest && now() < self.renewed + pause {
            return false;
        }
        (self.renewed, self.oldest) = (now(), oldest);
        self.pins.renew(oldest);
        // Otherwise a later pin is on its way, and what is retired now waits for that one.
        let last = self.pins.oldest_of_all();
        last.is_some_and(|taken| self.is_too_much(pool, taken, need.is_full))
    }

    /// Whether too much memory waits for the oldest pin.
    fn is_too_much(&self, pool: &Pool<Shm>, taken: Taken, is_full: bool) -> bool {
        // What was retired before it may be in limbo as well, but does not wait for it.
        let waiting = pool.waiting_bytes().min(pool.retired_bytes().wrapping_sub(taken.retired));
        let age = now().saturating_sub(taken.at);
        holds_too_much((waiting, pool.size()), (age, self.lease), is_full)
    }
}

/// Whether the sessions that rely on a pin of this age are to end, which holds back so many bytes
/// of the pool's. A node that stops for a part of its lease falls behind, and is healthy.
pub(super) fn holds_too_much(
    (waiting, size): (u64, u64),
    (age, lease): (Duration, Duration),
    is_full: bool,
) -> bool {
    waiting > size / WAITING_SHARE && age > if is_full { lease / 2 } else { lease }
}
