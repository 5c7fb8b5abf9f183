//! What every connection of one server shares.

use std::sync::atomic::{AtomicBool, Ordering};

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
    shutdown: AtomicBool,
}

impl Shared {
    /// A server's shared part, before anyone has connected.
    pub fn new(store: terrace::Store, config: Config) -> Shared {
        Shared {
            store,
            config,
            clients: Clients::default(),
            stats: ServerStats::default(),
            shutdown: AtomicBool::new(false),
        }
    }

    /// Asks every event loop to finish: SHUTDOWN and the signals call it.
    pub fn shut_down(&self) {
        // ORDER: Release: pairs with `shutting_down`; what was answered before is visible to who sees it.
        self.shutdown.store(true, Ordering::Release);
    }

    /// Whether the server was asked to finish.
    pub fn shutting_down(&self) -> bool {
        // ORDER: Acquire: pairs with `shut_down`.
        self.shutdown.load(Ordering::Acquire)
    }
}
