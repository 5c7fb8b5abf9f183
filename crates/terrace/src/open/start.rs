//! From an engine to a store: starts the threads that the engine needs.

use super::engines::engine;
use super::how::How;
use crate::background::{Background, Work};
use crate::salvaged::Salvaged;
use crate::{ByteSize, OpenError, Options, Store};
use std::sync::Arc;
use terrace_engine::{Chore, Engine};

/// Opens or creates the store that the options name, and salvages nothing.
pub(super) fn store(options: &Options, how: How) -> Result<Store, OpenError> {
    start(options, engine(options, how)?, None)
}

/// Starts the store's threads.
pub(super) fn start(
    options: &Options,
    engine: Arc<dyn Engine>,
    salvaged: Option<Salvaged>,
) -> Result<Store, OpenError> {
    let writes = !options.read_only;
    let work = Work {
        collect: writes && engine.pooled().is_some_and(|pool| pool.needs_collection()),
        // A read-only process leaves recovery to the writers: no reader waits for a dead process.
        recover_dead: writes && options.shared,
        end_stopped: options.end_stopped_after.filter(|_| options.shared),
        sweep: writes && options.expiry_thread && engine.chores().contains(&Chore::Sweep),
        huge_pages: options.huge_pages && writes && engine.pooled().is_some(),
        disk: writes && engine.on_disk().is_some(),
        merge_rate: options.merge_rate.map(ByteSize::as_bytes),
    };
    let background = Background::start(&engine, work).map_err(OpenError::Thread)?;
    let path = if options.anonymous { None } else { options.path.clone() };
    Ok(Store::new(engine, background, path, salvaged))
}
