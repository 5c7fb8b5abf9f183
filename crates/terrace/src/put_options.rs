//! Options of a single put.

use crate::batch::later;
use crate::{Durability, Store, Ticket, WriteError};
use std::time::Duration;
use terrace_engine::{Count, Durably, Put, ReadError};

/// When an entry expires, and how durable a put is when it returns; for [`Store::put_with`].
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

    /// The put returns once it survives this as well. Fails with [`WriteError::Durability`] if the
    /// store cannot provide it.
    pub fn durable(mut self, durability: Durability) -> Self {
        self.how = Some(Durably::AtLeast(durability));
        self
    }

    /// The put returns once it is visible; [`Store::settle`] makes it durable, together with
    /// others.
    pub fn deferred(mut self) -> Self {
        self.how = Some(Durably::Later);
        self
    }
}

impl Store {
    /// Gives `key` this value, with the expiry and durability of `options`.
    ///
    /// ```
    /// use terrace::{PutOptions, Store};
    ///
    /// let store = Store::options().anonymous().create()?;
    /// let hour = std::time::Duration::from_secs(3600);
    /// store.put_with("session", "42", PutOptions::new().expires_after(hour))?;
    /// assert!(store.get("session")?.unwrap().expires_at().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: PutOptions,
    ) -> Result<(), WriteError> {
        let expires_at = match options.expiry {
            Expiry::Never => None,
            Expiry::After(time) => Some(later(self.now_ms(), time)),
            Expiry::At(unix_ms) => Some(unix_ms),
        };
        let put = Put { key: key.as_ref(), value: value.as_ref(), expires_at };
        self.engine().put(put, options.how.unwrap_or(self.how()))
    }

    /// Removes `key` without reporting whether it was present. On an engine whose data lies on disk
    /// this reads nothing.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<(), WriteError> {
        self.engine().delete(key.as_ref(), self.how())
    }

    /// What a write that has returned survives, unless it asks for more.
    pub fn durability(&self) -> Durability {
        self.engine().durability()
    }

    /// A ticket that covers all writes that any thread has made or seen before this call.
    ///
    /// ```
    /// use terrace::{PutOptions, Store};
    ///
    /// let store = Store::options().anonymous().create()?;
    /// for n in 0..100 {
    ///     store.put_with(format!("key{n}"), "value", PutOptions::new().deferred())?;
    /// }
    /// store.settle(store.ticket())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ticket(&self) -> Ticket {
        self.engine().ticket()
    }

    /// Waits until all writes that `ticket` covers are as durable as the store provides.
    pub fn settle(&self, ticket: Ticket) -> Result<(), WriteError> {
        self.engine().settle(ticket)
    }

    /// Waits until all writes that are visible now are as durable as the store provides. Fails if a
    /// write that this thread has made or seen since it took the ticket `since` may be lost. Only a
    /// serving node of a cluster goes on after such a loss; for it, [`Store::settle`] with a ticket
    /// from after the writes would not do.
    pub fn settle_since(&self, since: Ticket) -> Result<(), WriteError> {
        self.engine().settle_since(since)
    }

    /// Number of keys, including expired ones that were not removed yet, and whether it is exact.
    pub fn count(&self) -> Count {
        self.engine().len()
    }

    /// As [`Store::count`]. A node of a cluster fails if it cannot ask the memory node now, where
    /// `count` gives the last number.
    ///
    /// # Errors
    /// If the store cannot tell now.
    pub fn try_count(&self) -> Result<Count, ReadError> {
        self.engine().count_keys()
    }
}
