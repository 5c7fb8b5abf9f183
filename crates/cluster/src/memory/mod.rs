//! The memory node: one process opens the pool, takes links of serving nodes, merges their logs.
//!
//! ```text
//!   links ─▶ Control: Arbiter, sessions, segments ─▶ endpoints, opened and closed by threads
//!                 │ MergeAll, Progress                              │ one-sided
//!                 ▼                                                 ▼
//!             Queue ─▶ merge threads ─▶ the pool ◀── reads     segments of the log area ◀── writes
//! ```
//! - `area`, `ledger`, `segments`: the file beside the pool, which outlives the process as well.
//! - `node`: the arbiter under a lock, and what its effects do. Nothing blocks under it but a
//!   registration of memory. What takes long has a thread: endpoints, merges, requests, messages.
//! - `logs`, `merge`, `data`: what is merged, how, and into what.
//! - `pins`: what keeps memory for one-sided readers. `requests`: reads on their behalf.
//!
//! The pool is a file of shared memory. It grows at a start only: serving nodes read all of it, as
//! it was when their sessions began. Entries
//! survive the death of any process, not that of the machine.

mod adopt;
mod age;
mod area;
mod data;
mod error;
mod figures;
mod ledger;
mod links;
mod logs;
mod merge;
mod node;
mod pins;
mod requests;
mod segments;
mod unmerged;

pub use adopt::check_adoption;
pub use error::MemoryError;
pub use unmerged::unmerged;

use crate::arbiter::{Incarnation, Leases};
use crate::entry::ENTRY_MAX;
use crate::link::Secret;
use crate::log::SEGMENT_BYTES;
use area::Area;
use data::{Data, log_path};
use ledger::AreaLedger;
use node::Node;
use segments::Segments;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use terrace_fabric::Fabric;
use terrace_pool::Start;

/// Threads that answer requests.
const REQUEST_THREADS: usize = 2;
/// How long a stop waits until all is merged.
const PATIENCE: Duration = Duration::from_secs(60);

/// A pool of fewer bytes has [`SMALL_SEGMENT_BYTES`] in a segment.
const SMALL_POOL: u64 = 4 << 30;
/// Bytes of a segment of a small pool: room for the longest entry.
const SMALL_SEGMENT_BYTES: u64 = ENTRY_MAX as u64 + (128 << 10);

/// Bytes of a segment that suit a pool of this size. For each that is granted, the pool keeps room.
fn segment_bytes(pool_bytes: u64) -> u64 {
    if pool_bytes < SMALL_POOL { SMALL_SEGMENT_BYTES } else { SEGMENT_BYTES }
}

/// Bytes that a pool keeps free for what serving nodes with so many logs together may have written.
pub fn kept_bytes(pool_bytes: u64, shards: u64) -> u64 {
    node::kept(u64::from(node::AHEAD) * shards + 1, segment_bytes(pool_bytes))
}

/// Called with the sessions that serve, and their nodes, whenever these change.
pub type OnSessions = Box<dyn FnMut(&[(Incarnation, String)]) + Send>;

/// Settings of a memory node.
#[derive(Clone)]
pub struct Options {
    /// The pool's file. The log area is beside it, with `.log` behind its name.
    pub pool: PathBuf,
    /// Bytes of a pool that is created.
    pub pool_bytes: u64,
    /// About how many keys a pool that is created will have.
    pub expected_keys: u64,
    /// Whether to take a pool with keys and without a log area, which no memory node has used
    /// before; or a pool and a log area of different times.
    pub adopt: bool,
    /// Whether something beside the pool tells that a memory node has used it. Then it needs its
    /// log area, although it has no keys.
    pub was_used: bool,
    /// Segments of a log area that is created.
    pub log_segments: u64,
    /// Bytes of each; 0: as suits the pool.
    pub segment_bytes: u64,
    /// Where serving nodes connect to; port 0 for any.
    pub listen: SocketAddr,
    /// The key of the control channel.
    pub secret: Secret,
    /// The fabric's provider, as serving nodes are told.
    pub provider: String,
    /// How long a node may answer after a renewal.
    pub lease: Duration,
    /// How many millionths a clock may go too slowly, beside another one.
    pub drift_ppm: u32,
    /// Threads that merge.
    pub merge_threads: usize,
    /// Whether a pool of fewer than `pool_bytes` grows to them.
    pub grows: bool,
}

impl Options {
    /// The defaults, for a pool at this path.
    pub fn new(pool: PathBuf, listen: SocketAddr, secret: Secret, provider: &str) -> Self {
        Self {
            pool,
            pool_bytes: 1 << 30,
            expected_keys: 1000,
            adopt: false,
            was_used: false,
            log_segments: 64,
            segment_bytes: 0,
            listen,
            secret,
            provider: provider.into(),
            lease: Duration::from_secs(1),
            drift_ppm: 1000,
            merge_threads: 2,
            grows: false,
        }
    }

    fn leases(&self) -> Leases {
        Leases { time: self.lease, drift_ppm: self.drift_ppm }
    }

    fn check(&self) -> Result<(), MemoryError> {
        let is_sound = |sound: bool, what: &str| match sound {
            true => Ok(()),
            false => Err(MemoryError::Setting(what.into())),
        };
        let lease = Duration::from_millis(50)..=Duration::from_secs(60);
        is_sound(lease.contains(&self.lease), "a lease has 50 milliseconds to a minute")?;
        is_sound((1..=64).contains(&self.merge_threads), "a memory node has 1 to 64 threads that merge")?;
        is_sound(self.drift_ppm <= 100_000, "a clock that drifts by a tenth or more is broken")
    }
}

/// Numbers about a memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Sessions, also those that end.
    pub sessions: usize,
    /// Sessions that serve.
    pub serving: usize,
    /// Segments that are free.
    pub segments_free: u64,
    /// Segments that sessions have.
    pub segments_granted: u64,
    /// Those of them that are not merged to their ends.
    pub segments_unmerged: u64,
    /// Entries that were merged since the start.
    pub merged_entries: u64,
    /// Their bytes.
    pub merged_bytes: u64,
    /// Changes that were not made: of slots that were not their writer's, or that no store takes.
    pub refused_changes: u64,
    /// Pins that are held.
    pub pins: usize,
    /// The newest pin.
    pub newest_pin: u64,
    /// Requests that were answered since the start.
    pub requests: u64,
    /// Requests that wait.
    pub requests_waiting: usize,
    /// Whether the index is growing.
    pub is_resizing: bool,
}

/// A memory node that runs. To drop it is to stop it.
pub struct MemoryNode<F>
where
    F: Fabric<Endpoint: Send + 'static> + Send + Sync + 'static,
{
    /// `None` once it was stopped.
    node: Option<Arc<Node<F>>>,
    address: SocketAddr,
}

impl<F> MemoryNode<F>
where
    F: Fabric<Endpoint: Send + 'static> + Send + Sync + 'static,
{
    /// Opens the pool and its log area, or creates them, and begins to serve.
    ///
    /// # Errors
    /// If another process has the pool, it or its log area is damaged, or the system refuses.
    pub fn start(fabric: F, options: Options, on_sessions: OnSessions) -> Result<Self, MemoryError> {
        options.check()?;
        if options.adopt {
            check_adoption(&options.pool)?;
        }
        age::count_open(&log_path(&options.pool))?;
        let (pool_bytes, grows) = (options.pool_bytes, options.grows);
        let data = Data::open(&options.pool, (pool_bytes, grows), options.expected_keys)?;
        let area = Arc::new(open_area(&options, &data)?);
        let ledger = AreaLedger(area.clone());
        ledger.check()?;
        let sessions: Vec<Incarnation> =
            crate::arbiter::Ledger::sessions(&ledger).into_iter().map(|(id, ..)| id).collect();
        let (segments, found) = Segments::open(&area, &sessions)?;
        let listen = |error| MemoryError::Listen { address: options.listen.to_string(), error };
        let listener = TcpListener::bind(options.listen).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        if options.adopt {
            adopt::adopt(data.store(), &options.pool)?;
        }
        // Before anything comes into it.
        age::check(&area, &data, &options.pool, options.adopt)?;
        area.set(area::USE, area::IN_USE);
        let (tell, told) = mpsc::channel();
        let merge_threads = options.merge_threads;
        let secret = options.secret.clone();
        let node = Node::new((fabric, options), data, (area, segments), found, tell);
        let this = Self { node: Some(Arc::new(node)), address };
        this.start_threads(merge_threads, on_sessions, told, (listener, secret))?;
        Ok(this)
    }

    fn start_threads(
        &self,
        merge_threads: usize,
        mut on_sessions: OnSessions,
        told: mpsc::Receiver<Vec<(Incarnation, String)>>,
        (listener, secret): (TcpListener, Secret),
    ) -> Result<(), MemoryError> {
        let spawn = |name: &'static str, work: Box<dyn FnOnce(Arc<Node<F>>) + Send>| {
            let node = self.node().clone();
            match self.node().spawn(name, move || work(node)) {
                true => Ok(()),
                false => Err(MemoryError::Thread(std::io::ErrorKind::OutOfMemory.into())),
            }
        };
        spawn("terrace-told", Box::new(move |_| told.iter().for_each(|sessions| on_sessions(&sessions))))?;
        for nth in 0..pins::THREADS {
            spawn("terrace-pin", Box::new(move |node| node.pins.run(nth, node.data.pool(), &node::now)))?;
        }
        self.node().pins.wait_for_first();
        for _ in 0..merge_threads {
            spawn("terrace-merge", Box::new(|node| node.merge()))?;
        }
        for _ in 0..REQUEST_THREADS {
            let answer = |node: Arc<Node<F>>| node.requests.run(&node.data, &node.area, &node::now);
            spawn("terrace-request", Box::new(answer))?;
        }
        let count = |node: Arc<Node<F>>| {
            node.data.count_keys(&|| node.is_stopping());
            node.requests.progressed();
        };
        spawn("terrace-count", Box::new(count))?;
        spawn("terrace-tick", Box::new(|node| node.tick()))?;
        spawn("terrace-listen", Box::new(move |node| links::listen(&node, &listener, &secret)))
    }

    fn node(&self) -> &Arc<Node<F>> {
        self.node.as_ref().expect("it was not stopped")
    }

    /// Where serving nodes connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Numbers about it.
    pub fn stats(&self) -> Stats {
        self.node().stats()
    }

    /// Reads what it is at, for operators. Once it was stopped there are no figures.
    pub fn figures(&self) -> impl Fn() -> Vec<terrace_server::routing::Figure> + Send + Sync + use<F> {
        figures::reader(self.node())
    }

    /// Ends all sessions, merges their logs, and closes the pool.
    ///
    /// # Errors
    /// If the logs were not merged in time, or the pool was not closed cleanly. The next start
    /// makes up for both.
    pub fn stop(mut self) -> Result<(), MemoryError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), MemoryError> {
        let Some(node) = self.node.take() else { return Ok(()) };
        let left = node.end_sessions(PATIENCE);
        node.end_threads();
        // So that the thread that listens wakes up.
        drop(TcpStream::connect_timeout(&self.address, Duration::from_secs(1)));
        node.join();
        let pool = node.pool_path();
        let failed = |what: String| MemoryError::Pool { pool: pool.clone(), what };
        let node = Arc::into_inner(node).ok_or_else(|| failed("a thread still has it".into()))?;
        let (data, area) = node.into_parts();
        data.close().map_err(&failed)?;
        if left > 0 {
            return Err(MemoryError::NotMerged(left));
        }
        area.set(area::USE, area::CLOSED);
        Ok(())
    }
}

impl<F> Drop for MemoryNode<F>
where
    F: Fabric<Endpoint: Send + 'static> + Send + Sync + 'static,
{
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            log::error!("{error}");
        }
    }
}

/// Opens the log area of the pool. Creates it if the pool is new.
fn open_area(options: &Options, data: &Data) -> Result<Area, MemoryError> {
    let path = log_path(&options.pool);
    if path.exists() {
        return Area::open(&path, &options.pool, data.id());
    }
    let was_used = options.was_used && data.pool().found() != Start::Created;
    if (was_used || !data.is_new()) && !options.adopt {
        return Err(MemoryError::Missing { pool: options.pool.clone(), log: path });
    }
    let bytes = match options.segment_bytes {
        0 => segment_bytes(data.pool().size()),
        bytes => bytes,
    };
    Area::create(&path, data.id(), options.log_segments, bytes)
}
