//! What a write survives, and when.

use super::Store;
use crate::{Durability, Ticket, WriteError};

impl Store {
    /// What a write that has returned survives, unless it asks for more.
    pub fn durability(&self) -> Durability {
        self.inner.engine.durability()
    }

    /// Sets what a write of a store on a disk survives from now on, when it has returned.
    ///
    /// # Errors
    /// [`Durability::None`], more than the store's pool keeps, or the store lies in a pool alone.
    pub fn set_durability(&self, durability: Durability) -> Result<(), WriteError> {
        if durability == Durability::None {
            return Err(WriteError::Durability { asked: durability, most: Durability::Power });
        }
        let most = self.inner.on_disk()?.most();
        if durability > most {
            return Err(WriteError::Durability { asked: durability, most });
        }
        self.inner.on_disk()?.set_durability(durability);
        Ok(())
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

    /// Makes every write so far survive a loss of power, whatever the store's durability.
    ///
    /// # Errors
    /// A file cannot be written, the store lies in a pool, or its pool keeps nothing through a loss
    /// of power.
    pub fn sync(&self) -> Result<(), WriteError> {
        self.inner.on_disk()?.sync()
    }

    /// Writes what is only in memory and in the log to tables. Not needed for durability; the next
    /// open is faster after it.
    ///
    /// # Errors
    /// A file cannot be written, or the store lies in a pool.
    pub fn flush(&self) -> Result<(), WriteError> {
        self.inner.on_disk()?.flush()
    }
}
