//! Options of a single put.

use crate::Durability;
use crate::clock::later;
use std::time::Duration;
use terrace_engine::Durably;

/// When an entry expires, and how durable a put is when it returns; for
/// [`Store::put_with`](crate::Store::put_with).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    expiry: Expiry,
    /// `None`: as the store's handle.
    how: Option<Durably>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expiry {
    #[default]
    Never,
    After(Duration),
    At(u64),
}

impl PutOptions {
    /// No expiry, and durable as the store promises.
    pub fn new() -> Self {
        Self::default()
    }

    /// The entry expires `time` from now.
    pub fn expires_after(mut self, time: Duration) -> Self {
        self.expiry = Expiry::After(time);
        self
    }

    /// The entry expires at this time, in unix milliseconds, or never (`None`). A time in the past
    /// is allowed: the key is absent then.
    pub fn expires_at(mut self, unix_ms: impl Into<Option<u64>>) -> Self {
        self.expiry = unix_ms.into().map_or(Expiry::Never, Expiry::At);
        self
    }

    /// The put returns once it survives this as well. Fails with
    /// [`WriteError::Durability`](crate::WriteError::Durability) if the store cannot provide it.
    pub fn durable(mut self, durability: Durability) -> Self {
        self.how = Some(Durably::AtLeast(durability));
        self
    }

    /// The put returns once it is visible; [`Store::settle`](crate::Store::settle) makes it
    /// durable, together with others.
    pub fn deferred(mut self) -> Self {
        self.how = Some(Durably::Later);
        self
    }

    /// When the entry expires, in unix milliseconds.
    pub(crate) fn expires_ms(self, now_ms: impl FnOnce() -> u64) -> Option<u64> {
        match self.expiry {
            Expiry::Never => None,
            Expiry::After(time) => Some(later(now_ms(), time)),
            Expiry::At(unix_ms) => Some(unix_ms),
        }
    }

    /// How durable the put is when it returns: as `usual`, unless these options say so.
    pub(crate) fn how(self, usual: Durably) -> Durably {
        self.how.unwrap_or(usual)
    }
}
