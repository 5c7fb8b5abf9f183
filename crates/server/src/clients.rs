//! Who is connected: the registry behind CLIENT ID, INFO, LIST and INFO's `clients` section.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
};

use crate::{
    command::table::{self, TABLE},
    stats::{ShownTally, Tally},
};

/// Where a connection comes from, as its socket says.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The other end: `127.0.0.1:50112`, or the socket's path and `:0` for a Unix socket.
    pub address: String,
    /// This end: `127.0.0.1:6379`, or the socket's path and `:0`.
    pub local_address: String,
    /// The socket's file descriptor, shown by CLIENT LIST.
    pub fd: i32,
    /// Whether it came over a Unix socket.
    pub unix: bool,
}

/// What others may see of one connection. The session writes it once a batch of commands.
#[derive(Debug)]
pub struct Client {
    /// Unique since the server started; 1 is the first.
    pub id: u64,
    /// Its addresses.
    pub peer: Peer,
    /// Unix milliseconds when it connected.
    pub connected_at_ms: u64,
    /// Unix milliseconds of its last command.
    pub active_at_ms: AtomicU64,
    /// 2 or 3.
    pub protocol: AtomicU8,
    /// Commands queued by MULTI, plus one; 0: not in MULTI.
    pub queued: AtomicUsize,
    /// Keys watched.
    pub watched: AtomicUsize,
    /// CLIENT NO-EVICT.
    pub no_evict: AtomicBool,
    /// CLIENT NO-TOUCH.
    pub no_touch: AtomicBool,
    /// What it has done.
    pub tally: ShownTally,
    names: Mutex<Names>,
    last_command: AtomicUsize,
}

/// Names that a client gives itself.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub library: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: Vec<u8>,
}

impl Client {
    /// Reads or changes the names.
    pub fn names<R>(&self, with: impl FnOnce(&mut Names) -> R) -> R {
        // A name is replaced whole, so a panic elsewhere leaves nothing half done.
        with(&mut self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes the last command: its place in the table, and its subcommand's place plus one above 16 bits.
    pub(crate) fn ran(&self, command: usize, now_ms: u64) {
        // ORDER: Relaxed, both: figures for CLIENT LIST.
        self.last_command.store(command, Ordering::Relaxed);
        self.active_at_ms.store(now_ms, Ordering::Relaxed);
    }

    /// The full name of the last command, `client|list`; `NULL` if there was none, as Redis has it.
    pub fn last_command(&self) -> String {
        // ORDER: Relaxed: as in `ran`.
        let last = self.last_command.load(Ordering::Relaxed);
        if last & 0xffff < TABLE.len() { table::full_name(last) } else { "NULL".into() }
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
    /// What those did who have left.
    left: Tally,
    /// What everyone had done at the last CONFIG RESETSTAT.
    forgotten: Tally,
}

impl Members {
    fn tally(&self) -> Tally {
        self.connected.values().fold(self.left, |sum, client| sum.plus(client.tally.read()))
    }
}

impl Clients {
    /// Enters a new connection.
    pub fn enter(&self, peer: Peer, now_ms: u64) -> Arc<Client> {
        // ORDER: Relaxed: only uniqueness is needed.
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(Client {
            id,
            peer,
            connected_at_ms: now_ms,
            active_at_ms: AtomicU64::new(now_ms),
            protocol: AtomicU8::new(2),
            queued: AtomicUsize::new(0),
            watched: AtomicUsize::new(0),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            tally: ShownTally::default(),
            names: Mutex::default(),
            last_command: AtomicUsize::new(usize::MAX),
        });
        self.lock().connected.insert(id, Arc::clone(&client));
        client
    }

    /// Forgets a connection that closed, but not what it did.
    pub fn leave(&self, client: &Client) {
        let mut members = self.lock();
        if members.connected.remove(&client.id).is_some() {
            members.left = members.left.plus(client.tally.read());
        }
    }

    /// What all clients have done since start, or CONFIG RESETSTAT.
    pub fn tally(&self) -> Tally {
        let members = self.lock();
        members.tally().since(members.forgotten)
    }

    /// CONFIG RESETSTAT: begins to count at zero.
    pub fn forget_tally(&self) {
        let mut members = self.lock();
        members.forgotten = members.tally();
    }

    /// How many are connected.
    pub fn len(&self) -> usize {
        self.lock().connected.len()
    }

    /// Whether no one is connected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everyone connected now, oldest first.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.lock().connected.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        // It is whole after every statement, so a panic elsewhere leaves nothing half done.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
