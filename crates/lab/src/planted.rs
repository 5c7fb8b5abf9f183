//! Bugs of the engine and of the pool: how each is planted, and which target is to find it.

use std::fmt;
use terrace_engine::Bug as OfEngine;
use terrace_pool::Bug as OfPool;

/// A bug below or above the indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreBug {
    /// Of `engine::direct`.
    Engine(OfEngine),
    /// Of the pool's memory, roots and growth.
    Pool(OfPool),
}

impl StoreBug {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        OfEngine::ALL.into_iter().map(Self::Engine).chain(OfPool::OF_MEMORY.into_iter().map(Self::Pool))
    }

    /// Plants it into every store of this process, or takes it out.
    pub fn plant(self, is_planted: bool) {
        match self {
            Self::Engine(bug) => terrace_engine::plant(is_planted.then_some(bug)),
            Self::Pool(bug) => terrace_pool::plant(is_planted.then_some(bug)),
        }
    }

    /// The target that is to find it.
    pub fn target(self) -> &'static str {
        match self {
            Self::Engine(_) => "direct",
            // Who does not know of memory misses it in a full pool.
            Self::Pool(OfPool::SizeBeforeHints | OfPool::ReserveForgotten) => "full",
            Self::Pool(_) => "pool",
        }
    }
}

impl fmt::Display for StoreBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(bug) => f.pad(&format!("{bug:?}")),
            Self::Pool(bug) => f.pad(&format!("{bug:?}")),
        }
    }
}
