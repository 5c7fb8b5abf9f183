//! What the memory node has told of its pool.

use crate::lock::lock;
use crate::message::Space;
use std::sync::{Mutex, OnceLock};

/// Is told the size of the memory node's pool.
pub type OnSize = Box<dyn Fn(u64) + Send + Sync>;

/// What was told last, and the one that hears the size. Nothing stands below.
#[derive(Default)]
pub(super) struct PoolSpace {
    space: Mutex<Space>,
    on_size: OnceLock<OnSize>,
}

impl PoolSpace {
    /// Calls back with the size of the memory node's pool, each time that it is told.
    pub(super) fn on_size(&self, listener: OnSize) {
        let _ = self.on_size.set(listener);
    }

    /// The memory node has told of its pool.
    pub(super) fn set(&self, space: Space) {
        *lock(&self.space) = space;
        self.on_size.get().iter().for_each(|listener| listener(space.size));
    }

    /// What the memory node has told last of its pool: zeros if it has not.
    pub(super) fn get(&self) -> Space {
        *lock(&self.space)
    }
}
