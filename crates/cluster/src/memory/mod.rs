//! The memory node: one process opens the pool, takes links of serving nodes, merges their logs.
//!
//! ```text
//!   links ─▶ Sessions: Arbiter, table, grants ─▶ endpoints, opened and closed by threads
//!                 │ finish, arrived                                 │ one-sided
//!                 ▼                                                 ▼
//!             Merging: queue ─▶ the pool ◀── reads          segments of the log area ◀── writes
//! ```
//! Each part knows only those below it; from the bottom up:
//! - `format`, `area`, `ledger`, `segments`: the file beside the pool, which outlives the process
//!   as well. `data`: the pool, and the store in it. `base`: both.
//! - `threads`: how threads start and end. What takes long has one: endpoints, merges, requests,
//!   messages.
//! - `logs`, `merge`, `merging`: what is merged, how, and by which threads.
//! - `pins`: what keeps memory for one-sided readers. `requests`: reads on their behalf.
//! - `session`, `peer`: what each session and each link has.
//! - `grants`, `readers`, `admission`: which shard gets a segment, which readers hold back too
//!   much, which node gets a session.
//! - `sessions`: the arbiter under a lock, and what its effects do. `links`: what nodes say.
//! - `node`: all of them together.
//!
//! The pool is a file of shared memory. It grows at a start only: serving nodes read all of it, as
//! it was when their sessions began. Entries survive the death of any process, not that of the
//! machine.

mod admission;
mod adopt;
mod age;
mod area;
mod base;
mod clearing;
mod counting;
mod data;
mod error;
mod figures;
mod format;
mod grants;
mod lanes;
mod ledger;
mod links;
mod logs;
mod merge;
mod merging;
mod node;
mod options;
mod peer;
mod pins;
mod readers;
mod requests;
mod segments;
mod session;
mod sessions;
mod stats;
#[cfg(test)]
mod tests;
mod threads;
mod unmerged;

pub use adopt::check_adoption;
pub use error::MemoryError;
pub use options::Options;
pub use sessions::OnSessions;
pub use stats::Stats;
pub use unmerged::unmerged;

use crate::arbiter::Incarnation;
use area::{Area, log_path};
use base::Base;
use data::Data;
use ledger::AreaLedger;
use node::{Node, Start};
use options::segment_bytes;
use segments::Segments;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use terrace_fabric::Fabric;

/// How long a stop waits until all is merged.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that a pool keeps free for what serving nodes with so many logs together may have written.
pub fn kept_bytes(pool_bytes: u64, shards: u64) -> u64 {
    grants::kept(u64::from(session::AHEAD) * shards + 1, segment_bytes(pool_bytes))
}

/// A memory node that runs. To drop it is to stop it.
pub struct MemoryNode<F>
where
    F: Fabric<Endpoint: Send + 'static> + Send + Sync + 'static,
{
    /// `None` once it was stopped.
    node: Option<Arc<Node<F>>>,
    pool: PathBuf,
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
        area.set(format::USE, format::IN_USE);
        let (tell, told) = mpsc::channel();
        let (merge_threads, secret) = (options.merge_threads, options.secret.clone());
        let node = Node::new((fabric, &options), Base { data, area }, (segments, found), tell);
        let this = Self { node: Some(Arc::new(node)), pool: options.pool, address };
        let start = Start { merge_threads, on_sessions, told, listener, secret };
        this.node().start(start)?;
        Ok(this)
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
        let pool = self.pool.clone();
        let failed = |what: String| MemoryError::Pool { pool: pool.clone(), what };
        let parts = Arc::into_inner(node).and_then(Node::into_parts);
        let (data, area) = parts.ok_or_else(|| failed("a thread still has it".into()))?;
        data.close().map_err(&failed)?;
        if left > 0 {
            return Err(MemoryError::NotMerged(left));
        }
        area.set(format::USE, format::CLOSED);
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
    let was_used = options.was_used && data.pool().found() != terrace_pool::Start::Created;
    if (was_used || !data.is_new()) && !options.adopt {
        return Err(MemoryError::Missing { pool: options.pool.clone(), log: path });
    }
    let bytes = match options.segment_bytes {
        0 => segment_bytes(data.pool().size()),
        bytes => bytes,
    };
    Area::create(&path, data.id(), options.log_segments, bytes)
}
