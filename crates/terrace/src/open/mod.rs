//! Opening: from options to a store.
//!
//! Reading order: `how.rs`, `replace.rs` (a repaired store takes the place of a damaged one),
//! `directory.rs` (engines on files), `engines.rs` (the engine at a path), `start.rs` (an engine
//! and its threads become a store), `salvage.rs`, and the calls of users below.

mod directory;
mod engines;
mod how;
mod replace;
mod salvage;
mod start;

use crate::{OpenError, Options, Store};
use std::path::Path;
use std::sync::Arc;
use terrace_engine::Engine;
use terrace_medium::MappedMedium;

pub(crate) use directory::notice;
#[cfg(test)]
pub(crate) use engines::engine;
pub(crate) use how::How;

impl Store {
    /// Options for creating or opening a store.
    pub fn options() -> Options {
        Options::new()
    }

    /// A store over an engine that the caller has made, such as one without a pool of its own.
    /// Starts threads for the background work that the engine has.
    pub fn over(engine: Arc<dyn Engine>) -> Result<Self, OpenError> {
        start::start(&Options::new(), engine, None)
    }
}

impl Options {
    /// Creates a store.
    ///
    /// # Errors
    /// A file already exists at its path, or the pool could not be created.
    pub fn create(&self) -> Result<Store, OpenError> {
        open(self, How::Create)
    }

    /// Opens an existing store.
    ///
    /// # Errors
    /// There is no pool at the path, another process has it open, or it is damaged.
    pub fn open(&self) -> Result<Store, OpenError> {
        open(self, How::Open)
    }

    /// Opens the store at the path, or creates one.
    ///
    /// # Errors
    /// As [`Options::open`] and [`Options::create`].
    pub fn open_or_create(&self) -> Result<Store, OpenError> {
        open(self, How::OpenOrCreate)
    }

    /// As [`Options::open_or_create`], on a test's medium.
    #[doc(hidden)]
    pub fn open_or_create_on<M: MappedMedium>(&self) -> Result<Store, OpenError> {
        let engine = engines::engine_in_pool::<M>(self, How::OpenOrCreate, terrace_direct::open_over::<M>);
        start::start(self, engine?, None)
    }
}

/// Opens or creates the store. Salvages it first if the options say so and it is damaged.
fn open(options: &Options, how: How) -> Result<Store, OpenError> {
    if !options.salvage || options.read_only {
        return start::store(options, how);
    }
    let is_there = |path: &&Path| !options.anonymous && !matches!(how, How::Create) && path.exists();
    let is_damaged = |path: &&Path| !(path.is_dir() && is_sound(options));
    let damaged = options.path.as_deref().filter(is_there).filter(is_damaged);
    let salvaged = damaged.map(|path| salvage::salvage(options, path)).transpose()?;
    // The pool that is there now can be trusted.
    let trusting = options.clone().salvage(false);
    start::start(&trusting, engines::engine(&trusting, how)?, salvaged)
}

/// Whether the store opens, and all of it is sound: then a salvage has nothing to do.
fn is_sound(options: &Options) -> bool {
    let opened = start::store(&options.clone().salvage(false).read_only(true), How::Open);
    opened.is_ok_and(|store| store.opening().torn_tail().is_none() && store.check(&mut |_, _| {}).is_sound())
}
