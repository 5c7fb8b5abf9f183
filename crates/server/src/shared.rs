//! What every connection of one server shares.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use crate::{clients::Clients, config::Config, stats::ServerStats};

/// One per server, behind an `Arc`.
pub struct Shared {
    /// The data.
    pub store: terrace::Store,
    /// Settings, for CONFIG GET and SET.
    pub config: Config,
    /// Who is connected.
    pub clients: Clients,
    /// Counters.
    pub stats: ServerStats,
    /// Commands that workers run now, or that wait for one.
    pub(crate) long_commands: AtomicUsize,
    ending: Arc<Ending>,
    run_id: String,
}

/// Whether the server is to end. Apart from the rest, so that who waits to stop a server holds this and not its store.
#[derive(Debug, Default)]
pub(crate) struct Ending(AtomicBool);

impl Ending {
    pub(crate) fn begin(&self) {
        // ORDER: Release: pairs with `has_begun`; what was answered before is visible to who sees it.
        self.0.store(true, Ordering::Release);
    }

    fn has_begun(&self) -> bool {
        // ORDER: Acquire: pairs with `begin`.
        self.0.load(Ordering::Acquire)
    }
}

impl Shared {
    /// A server's shared part, before anyone has connected.
    pub fn new(store: terrace::Store, config: Config) -> Shared {
        Shared {
            store,
            config,
            clients: Clients::default(),
            stats: ServerStats::default(),
            long_commands: AtomicUsize::new(0),
            ending: Arc::default(),
            run_id: random_id(),
        }
    }

    /// Asks every event loop to finish: SHUTDOWN and the signals call it.
    pub fn shut_down(&self) {
        self.ending.begin();
    }

    /// Whether the server was asked to finish.
    pub fn shutting_down(&self) -> bool {
        self.ending.has_begun()
    }

    /// Forty hexadecimal digits that tell this run of the server from every other.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    pub(crate) fn ending(&self) -> Arc<Ending> {
        Arc::clone(&self.ending)
    }
}

fn random_id() -> String {
    // The hasher's keys come from the system's randomness.
    let random = RandomState::new();
    let digits: String = (0..3).map(|nth| format!("{:016x}", random.hash_one(nth))).collect();
    digits[..40].into()
}
