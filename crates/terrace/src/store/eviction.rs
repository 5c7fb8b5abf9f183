//! A store as a cache: what it evicts, and what it may use.

use super::{Inner, Store};
use crate::{Eviction, KeyUse, ReadError, WriteError};
use terrace_engine::Evicting;

impl Store {
    /// The store as a cache: what it evicts, and which keys it uses.
    pub fn evictor(&self) -> Evictor<'_> {
        Evictor { inner: &self.inner }
    }
}

/// How a store in a pool makes room for new keys; from [`Store::evictor`].
#[derive(Clone, Copy)]
pub struct Evictor<'s> {
    inner: &'s Inner,
}

impl Evictor<'_> {
    /// Makes the store a cache, from now on: how it makes room for new keys, and the memory that it
    /// may use. Each process that shares a pool has its own setting.
    ///
    /// ```
    /// use terrace::{ByteSize, Eviction, First, Policy, Store};
    ///
    /// let store = Store::options().anonymous().size(ByteSize::mib(1)).create()?;
    /// let policy = Some(Policy { only_volatile: false, first: First::LeastRecent });
    /// store.evictor().set(&Eviction { policy, ..Eviction::default() })?;
    /// for n in 0..100_000u32 {
    ///     store.put(n.to_le_bytes(), b"a value")?;
    /// }
    /// assert!(store.evictor().evicted() > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The store does not lie in a pool, or cannot be written.
    pub fn set(&self, eviction: &Eviction) -> Result<(), WriteError> {
        const REFUSED: &str =
            "only a store in a pool of its own evicts; this one has no limit of memory to set";
        match self.inner.engine.evicting() {
            Some(evicting) => evicting.set_eviction(eviction),
            None => Err(WriteError::OverLimit(REFUSED.into())),
        }
    }

    /// Whether [`Evictor::set`] is possible.
    pub fn can_evict(&self) -> bool {
        self.inner.engine.evicting().is_some()
    }

    /// When or how often a key was used, as far as the policy of eviction needs that. Does not
    /// count as a use. `None` if the key is absent.
    pub fn key_use(&self, key: impl AsRef<[u8]>) -> Result<Option<KeyUse>, ReadError> {
        let key = key.as_ref();
        match self.inner.engine.evicting() {
            Some(evicting) => evicting.key_use(key),
            None => Ok(self.inner.engine.token(key)?.map(|_| KeyUse { idle_ms: None, frequency: None })),
        }
    }

    /// Does `read`; what it reads does not count as used.
    pub fn unrecorded<R>(&self, read: impl FnOnce() -> R) -> R {
        self.inner.within(|evicting, read| evicting.unrecorded(read), read)
    }

    /// Does `write` also where the store is above [`Eviction::limit_bytes`]: for a change of an
    /// expiry, a new name, and all else that takes no memory for long.
    pub fn unlimited<R>(&self, write: impl FnOnce() -> R) -> R {
        self.inner.within(|evicting, write| evicting.unlimited(write), write)
    }

    /// Keys that this process has evicted.
    pub fn evicted(&self) -> u64 {
        self.inner.engine.evicting().map_or(0, |evicting| evicting.evicted())
    }

    /// Bytes that count for [`Eviction::limit_bytes`], if the store can evict.
    pub fn used_bytes(&self) -> Option<u64> {
        self.inner.engine.evicting().map(|evicting| evicting.used_bytes())
    }
}

impl Inner {
    /// Does `act` within a call of the engine, if that can evict.
    fn within<R>(&self, call: impl FnOnce(&dyn Evicting, &mut dyn FnMut()), act: impl FnOnce() -> R) -> R {
        let Some(evicting) = self.engine.evicting() else { return act() };
        let (mut act, mut done) = (Some(act), None);
        call(evicting, &mut || done = act.take().map(|act| act()));
        done.expect("the engine has called back")
    }
}

impl std::fmt::Debug for Evictor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Evictor")
    }
}
