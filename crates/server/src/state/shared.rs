//! The state that all connections of one server share.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use terrace::cold;

use super::{
    alone::Alone,
    clients::Clients,
    config::{Config, Key},
    cursors::Cursors,
    databases::{Databases, Map},
    encodings::Encodings,
    lines::Lines,
    multi::Watched,
    pacing::Pacing,
    routing::Routing,
    scripts::Scripts,
    stats::ServerStats,
};

/// The shared state. One per server, behind an `Arc`. It owns its parts, each in a file of its own;
/// what is private here has methods here.
pub struct Shared {
    /// The store. If its writes are deferred, one is durable once [`terrace::Store::settle`] says
    /// so.
    pub store: terrace::Store,
    /// How loops wait for the store.
    pub(crate) pacing: Pacing,
    /// The cluster that the server belongs to.
    routing: Option<Arc<dyn Routing>>,
    /// The commands that wait for slots.
    lines: Arc<Lines>,
    /// The settings, for CONFIG GET and SET.
    pub config: Config,
    /// The connected clients.
    pub clients: Clients,
    /// Counters.
    pub stats: ServerStats,
    /// The places in scans that clients may continue.
    pub(crate) cursors: Cursors,
    /// The databases in the store.
    pub(crate) databases: Databases,
    /// Values that Redis encodes otherwise than their bytes tell.
    pub(crate) encodings: Encodings,
    /// Commands that workers run now, or that wait for a worker.
    long_commands: AtomicUsize,
    /// The scripts that clients may call by name, and those that run.
    pub(crate) scripts: Scripts,
    /// Whether a transaction runs alone.
    pub(crate) alone: Alone,
    stop_flag: Arc<StopFlag>,
    run_id: String,
}

/// Whether the server must stop. Separate from [`Shared`], so that a
/// [`Stopper`](crate::server::Stopper) holds this and not the store.
#[derive(Debug, Default)]
pub(crate) struct StopFlag(AtomicBool);

impl StopFlag {
    pub(crate) fn set(&self) {
        // ORDER: Release: pairs with `is_set`; replies written before are visible to a reader of
        // true.
        self.0.store(true, Ordering::Release);
    }

    fn is_set(&self) -> bool {
        // ORDER: Acquire: pairs with `set`.
        self.0.load(Ordering::Acquire)
    }
}

impl Shared {
    /// The shared state of a server without connections.
    pub fn new(store: terrace::Store, config: Config) -> Shared {
        let databases = Databases::of(&store);
        if let Some(why) = databases.damage() {
            log::error!("{why}");
        }
        connect_size(&store, &config);
        Shared::over(store, config, databases)
    }

    /// As [`Shared::new`], for a node of a cluster, which has one database. The writes of a turn
    /// share their way to the memory.
    pub fn of_node(store: terrace::Store, config: Config, routing: Arc<dyn Routing>) -> Shared {
        let store = store.deferring();
        let shared = Shared::over(store, config, Databases::one());
        Shared { routing: Some(routing), pacing: shared.pacing.deferring(), ..shared }
    }

    fn over(store: terrace::Store, config: Config, databases: Databases) -> Shared {
        let defers = store.is_on_disk();
        connect_eviction(&store, &config);
        Shared {
            store: if defers { store.deferring() } else { store },
            pacing: Pacing::of_store(defers),
            routing: None,
            lines: Arc::default(),
            config,
            clients: Clients::default(),
            stats: ServerStats::default(),
            cursors: Cursors::default(),
            databases,
            encodings: Encodings::default(),
            long_commands: AtomicUsize::new(0),
            scripts: Scripts::default(),
            alone: Alone::default(),
            stop_flag: Arc::default(),
            run_id: random_id(),
        }
    }

    /// Asks every event loop to finish. SHUTDOWN and the signals call it.
    pub fn shut_down(&self) {
        self.stop_flag.set();
    }

    /// Whether [`Shared::shut_down`] was called.
    pub fn is_shutting_down(&self) -> bool {
        self.stop_flag.is_set()
    }

    /// Forty hexadecimal digits that identify this run of the server.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Whether the server belongs to a cluster. Commands about all keys then ask its memory node,
    /// and wait for it.
    pub(crate) fn is_of_cluster(&self) -> bool {
        self.routing.is_some()
    }

    /// Whether the store is above `maxmemory`, and makes no room.
    pub(crate) fn is_above_limit(&self) -> bool {
        // Most servers have none: scripts and queued writes ask each time.
        if self.config.number(Key::MaxMemory) == 0 {
            return false;
        }
        let eviction = self.config.eviction();
        eviction.policy.is_none() && self.store.evictor().used_bytes().unwrap_or(0) > eviction.limit_bytes
    }

    /// The cluster that the server belongs to, if it does.
    pub(crate) fn routing(&self) -> Option<&Arc<dyn Routing>> {
        self.routing.as_ref()
    }

    /// The commands that wait for slots.
    pub(crate) fn lines(&self) -> &Arc<Lines> {
        &self.lines
    }

    /// A worker is to run a command that takes long.
    pub(crate) fn begin_long_command(&self) {
        // ORDER: Relaxed: see `runs_long_commands`.
        self.long_commands.fetch_add(1, Ordering::Relaxed);
    }

    /// A worker has run a command that takes long.
    pub(crate) fn end_long_command(&self) {
        // ORDER: Relaxed: see `runs_long_commands`.
        let before = self.long_commands.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "each command that ends has begun");
    }

    /// Whether workers run commands that take long, or will in a moment.
    pub(crate) fn runs_long_commands(&self) -> bool {
        // ORDER: Relaxed: if the value is a moment old, one command waits on its loop.
        self.long_commands.load(Ordering::Relaxed) > 0
    }

    /// Redis's word for whether the server belongs to a cluster.
    pub(crate) fn mode(&self) -> &'static str {
        if self.is_of_cluster() { "cluster" } else { "standalone" }
    }

    /// Publishes the map of a SWAPDB that has committed; no other command runs. The keys that
    /// clients watch follow it.
    pub(crate) fn publish_swap(&self, map: Map) {
        let maps = [self.databases.map(), map];
        self.databases.publish(map);
        let follow = |(stored, watched): (Vec<u8>, Watched)| watched.follow(stored, &self.store, maps);
        // ORDER: Relaxed: the gate orders it.
        for client in self.clients.all().iter().filter(|client| client.watched.load(Ordering::Relaxed) > 0) {
            // It has happened, so a tier is waited for.
            cold::waiting(|| {
                client.watch(|watches| *watches = std::mem::take(watches).into_iter().map(follow).collect());
            });
        }
    }

    pub(crate) fn stop_flag(&self) -> Arc<StopFlag> {
        Arc::clone(&self.stop_flag)
    }
}

/// Makes the store evict as the settings say, now and when they change.
fn connect_eviction(store: &terrace::Store, config: &Config) {
    if let Err(why) = apply_eviction(store, config) {
        log::error!("maxmemory and maxmemory-policy have no effect: {why}");
    }
    // Not a handle, which would keep the store open.
    let store = store.downgrade();
    config.set_evict(move |config| {
        store.upgrade().map_or(Ok(()), |store| apply_eviction(&store, config)).map_err(|why| why.to_string())
    });
}

/// Makes the settings show the size that the pool has, as other processes may make it grow. A store
/// on files has no size. (A node of a cluster is told that of its pool.)
fn connect_size(store: &terrace::Store, config: &Config) {
    let store = store.downgrade();
    config.set_measure(move || {
        let store = store.upgrade()?;
        if store.is_on_disk() { Some(0) } else { store.stats().pool.map(|pool| pool.size_bytes) }
    });
}

/// Makes the store evict as the settings say, if they say anything or it can.
///
/// # Errors
/// They say something that the store cannot do.
pub fn apply_eviction(store: &terrace::Store, config: &Config) -> Result<(), terrace::WriteError> {
    let eviction = config.eviction();
    let is_wanted = eviction.policy.is_some() || eviction.limit_bytes != 0;
    if is_wanted || store.evictor().can_evict() { store.evictor().set(&eviction) } else { Ok(()) }
}

fn random_id() -> String {
    // The hasher's keys come from the system's random number generator.
    let random = RandomState::new();
    let digits: String = (0..3).map(|nth| format!("{:016x}", random.hash_one(nth))).collect();
    digits[..40].into()
}
