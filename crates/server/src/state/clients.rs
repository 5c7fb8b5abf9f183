//! The registry of connected clients behind CLIENT ID, INFO, LIST and INFO's `clients` section.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
};

use super::{
    multi::Watches,
    stats::{ShownTally, Tally},
};

/// The addresses of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The other end: `127.0.0.1:50112`, or the socket's path and `:0` for a Unix socket.
    pub address: String,
    /// This end: `127.0.0.1:6379`, or the socket's path and `:0`.
    pub local_address: String,
    /// The socket's file descriptor, shown by CLIENT LIST.
    pub fd: i32,
    /// Whether the connection uses a Unix socket.
    pub is_unix: bool,
}

/// The public data of one connection. Its session updates them once per batch of commands.
#[derive(Debug)]
pub struct Client {
    /// Unique since the server started, from 1 on.
    pub id: u64,
    /// Its addresses.
    pub peer: Peer,
    /// Unix milliseconds when it connected.
    pub connected_at_ms: u64,
    /// Unix milliseconds of its last command.
    pub active_at_ms: AtomicU64,
    /// Version of RESP, 2 or 3.
    pub protocol: AtomicU8,
    /// The selected database.
    pub database: AtomicU8,
    /// Commands queued by MULTI, plus one; 0 outside MULTI.
    pub queued: AtomicUsize,
    /// Number of watched keys.
    pub watched: AtomicUsize,
    /// The watched keys as they are stored. SWAPDB changes those of all clients.
    watches: Mutex<Watches>,
    /// Set by CLIENT NO-EVICT.
    pub no_evict: AtomicBool,
    /// Set by CLIENT NO-TOUCH.
    pub no_touch: AtomicBool,
    killed: AtomicBool,
    /// Counts of its commands.
    pub tally: ShownTally,
    names: Mutex<Names>,
    last_command: AtomicUsize,
}

/// Names that a client gave itself.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Set by CLIENT SETNAME.
    pub name: Vec<u8>,
    /// Set by CLIENT SETINFO LIB-NAME.
    pub library: Vec<u8>,
    /// Set by CLIENT SETINFO LIB-VER.
    pub library_version: Vec<u8>,
}

impl Client {
    /// Changes the watched keys.
    pub(crate) fn watch<R>(&self, change: impl FnOnce(&mut Watches) -> R) -> R {
        // Consistent after every statement.
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut watches);
        // ORDER: Relaxed: for CLIENT LIST, and for the client's own thread.
        self.watched.store(watches.len(), Ordering::Relaxed);
        changed
    }

    /// Takes the watched keys: none is watched any more.
    pub(crate) fn take_watches(&self) -> Watches {
        // ORDER: Relaxed: only this client's commands add some.
        match self.watched.load(Ordering::Relaxed) {
            0 => Watches::new(),
            _ => self.watch(std::mem::take),
        }
    }

    /// Reads or changes the names.
    pub fn names<R>(&self, with: impl FnOnce(&mut Names) -> R) -> R {
        // A name is replaced whole, so a panic elsewhere leaves no partial change.
        with(&mut self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether another client has ended the connection.
    pub(crate) fn is_killed(&self) -> bool {
        // ORDER: Acquire: pairs with `kill`.
        self.killed.load(Ordering::Acquire)
    }

    /// Records the last command: its index in the table, and above 16 bits its subcommand's index
    /// plus one.
    pub(crate) fn record_command(&self, command: usize, now_ms: u64) {
        // ORDER: Relaxed, both: for CLIENT LIST only.
        self.last_command.store(command, Ordering::Relaxed);
        self.active_at_ms.store(now_ms, Ordering::Relaxed);
    }

    /// The last command, as in `record_command`; `usize::MAX` if there was none.
    pub(crate) fn last_command(&self) -> usize {
        // ORDER: Relaxed: as in `record_command`.
        self.last_command.load(Ordering::Relaxed)
    }
}

/// Every connection, by id.
#[derive(Debug, Default)]
pub struct Clients {
    next: AtomicU64,
    members: Mutex<Members>,
}

#[derive(Debug, Default)]
struct Members {
    connected: BTreeMap<u64, Arc<Client>>,
    /// Sum of the clients that have disconnected.
    departed: Tally,
    /// Sum of all clients at the last CONFIG RESETSTAT.
    baseline: Tally,
}

impl Members {
    fn tally(&self) -> Tally {
        self.connected.values().fold(self.departed, |sum, client| sum.plus(client.tally.read()))
    }
}

impl Clients {
    /// Adds a new connection.
    pub fn add(&self, peer: Peer, now_ms: u64) -> Arc<Client> {
        // ORDER: Relaxed: only uniqueness is needed.
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(Client {
            id,
            peer,
            connected_at_ms: now_ms,
            active_at_ms: AtomicU64::new(now_ms),
            protocol: AtomicU8::new(2),
            database: AtomicU8::new(0),
            queued: AtomicUsize::new(0),
            watched: AtomicUsize::new(0),
            watches: Mutex::default(),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            tally: ShownTally::default(),
            names: Mutex::default(),
            last_command: AtomicUsize::new(usize::MAX),
        });
        self.lock().connected.insert(id, Arc::clone(&client));
        client
    }

    /// Removes a closed connection, and keeps its counts.
    pub fn remove(&self, client: &Client) {
        let mut members = self.lock();
        if members.connected.remove(&client.id).is_some() {
            members.departed = members.departed.plus(client.tally.read());
        }
    }

    /// Counts of all clients since start or CONFIG RESETSTAT.
    pub fn tally(&self) -> Tally {
        let members = self.lock();
        members.tally().since(members.baseline)
    }

    /// CONFIG RESETSTAT: starts again from zero.
    pub fn reset_tally(&self) {
        let mut members = self.lock();
        members.baseline = members.tally();
    }

    /// Ends a connection: it executes no further command, and its loop closes it soon. Returns
    /// whether it was connected.
    pub(crate) fn kill(&self, client: &Client) -> bool {
        // ORDER: Release: pairs with `is_killed`.
        let was_killed = client.killed.swap(true, Ordering::Release);
        self.remove(client);
        !was_killed
    }

    /// Number of connected clients.
    pub fn len(&self) -> usize {
        self.lock().connected.len()
    }

    /// Whether no client is connected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All connected clients, oldest first.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.lock().connected.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        // Consistent after every statement, so a panic elsewhere leaves no partial change.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
