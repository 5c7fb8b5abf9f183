//! What a write survives, and when.

use super::Store;
use crate::{Durability, Ticket, WriteError};

impl Store {
    /// What a write that has returned survives, unless it asks for more.
    pub fn durability(&self) -> Durability {
        self.inner.engine.durability()
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
        self.inner.engine.ticket()
    }

    /// Waits until all writes that `ticket` covers are as durable as the store provides.
    pub fn settle(&self, ticket: Ticket) -> Result<(), WriteError> {
        self.inner.engine.settle(ticket)
    }

    /// Waits until all writes that are visible now are as durable as the store provides. Fails if a
    /// write that this thread has made or seen since it took the ticket `since` may be lost. Only a
    /// serving node of a cluster goes on after such a loss; for it, [`Store::settle`] with a ticket
    /// from after the writes would not do.
    pub fn settle_since(&self, since: Ticket) -> Result<(), WriteError> {
        self.inner.engine.settle_since(since)
    }
}
