//! A running server: starts its threads and waits for their end.

use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    thread::{Builder, JoinHandle},
};

use mio::{Poll, Waker};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::{
    net::{EventLoop, Hub, Listeners, Metrics, MetricsServer, WAKE, Work, Workers},
    state::{
        clock::unix_ms,
        config::Key,
        scripts,
        shared::{Shared, StopFlag},
    },
};

pub use crate::net::StartError;

/// A running server. Dropping it does not stop it.
#[derive(Debug)]
pub struct Server {
    threads: Vec<JoinHandle<()>>,
    stopper: Stopper,
}

/// Stops a server from any thread, for example from a signal handler's thread or a test.
#[derive(Clone)]
pub struct Stopper {
    // Not `Shared`: the store is closed as soon as the loops have ended, even while a thread stops
    // the server.
    stop_flag: Arc<StopFlag>,
    hub: Arc<Hub>,
}

impl Server {
    /// Serves `listeners` until SHUTDOWN or [`Stopper::stop`].
    pub fn start(shared: Arc<Shared>, listeners: Listeners) -> Result<Server, StartError> {
        // ORDER: Relaxed: a statistic.
        shared.stats.started_at_ms.store(unix_ms(), Ordering::Relaxed);
        let threads = thread_count(&shared);
        raise_file_limit(&shared);
        let polls: Vec<Poll> = (0..threads).map(|_| Poll::new()).collect::<Result<_, _>>()?;
        let wakers = polls.iter().map(|poll| Waker::new(poll.registry(), WAKE)).collect::<Result<_, _>>()?;
        let hub = Arc::new(Hub::new(wakers));
        let mut server =
            Server { threads: Vec::new(), stopper: Stopper { stop_flag: shared.stop_flag(), hub } };
        // If one part cannot start, stop those that already run.
        server.start_threads(&shared, polls, listeners).inspect_err(|_| server.stopper.stop())?;
        Ok(server)
    }

    /// A handle that stops the server.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until the server has stopped.
    pub fn wait(self) -> Result<(), ServeError> {
        for thread in self.threads {
            // Threads catch their own panics.
            let _ = thread.join();
        }
        if self.stopper.hub.has_failed() { Err(ServeError) } else { Ok(()) }
    }

    fn start_threads(
        &mut self,
        shared: &Arc<Shared>,
        polls: Vec<Poll>,
        mut listeners: Listeners,
    ) -> Result<(), StartError> {
        let hub = Arc::clone(&self.stopper.hub);
        if let Some(listener) = listeners.take_metrics() {
            let metrics = Metrics::new(Arc::clone(shared), Arc::clone(&hub));
            let stopped = Arc::clone(shared);
            let is_over = Box::new(move || stopped.is_shutting_down());
            let (metrics, waker) = MetricsServer::new(listener, metrics, is_over)?;
            hub.add_waker(waker);
            self.spawn("metrics".into(), || metrics.run())?;
        }
        let workers = [Work::Commands, Work::Scripts]
            .map(|work| Arc::new(Workers::new(work, Arc::clone(shared), polls.len())));
        let event_loop = |(number, poll)| {
            EventLoop::new(number, poll, Arc::clone(shared), Arc::clone(&hub), workers.clone())
        };
        // Create all loops first: workers end when every loop has been dropped.
        let mut event_loops: Vec<EventLoop> = polls.into_iter().enumerate().map(event_loop).collect();
        event_loops[0].accept_from(listeners)?;
        let counts = [worker_count(shared, event_loops.len()), scripts::THREADS];
        for ((workers, count), name) in workers.into_iter().zip(counts).zip(["worker", "script"]) {
            for number in 0..count {
                let (workers, hub) = (Arc::clone(&workers), Arc::clone(&hub));
                self.spawn(format!("{name}-{number}"), move || workers.run(&hub))?;
            }
        }
        for (number, event_loop) in event_loops.into_iter().enumerate() {
            self.spawn(format!("loop-{number}"), || event_loop.run())?;
        }
        Ok(())
    }

    /// Starts a thread. If it fails or panics, that is logged and the server stops.
    fn spawn(
        &mut self,
        name: String,
        run: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<(), StartError> {
        let stopper = self.stopper.clone();
        let body = move || {
            let fault = match catch_unwind(AssertUnwindSafe(run)) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "a panic, reported above: a bug in Terrace".into(),
            };
            let thread = std::thread::current();
            log::error!(
                "the thread {} failed: {fault}; stopping the server",
                thread.name().unwrap_or_default()
            );
            stopper.hub.record_failure();
            stopper.stop();
        };
        self.threads.push(Builder::new().name(name).spawn(body)?);
        Ok(())
    }
}

impl Stopper {
    /// Stops the server: it accepts no more connections and answers the requests received so far.
    /// Then [`Server::wait`] returns.
    pub fn stop(&self) {
        self.stop_flag.set();
        self.hub.wake_all();
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopper")
    }
}

/// Event loops per core if reads wait for a disk, or for another machine's memory.
const LOOPS_ON_DISK: usize = 2;

/// Number of event loops: as configured, or one per core; more if reads wait.
fn thread_count(shared: &Shared) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = match usize::try_from(shared.config.number(Key::Threads)) {
        Ok(0) | Err(_) if shared.pacing.defers() => LOOPS_ON_DISK * cores,
        Ok(0) | Err(_) => cores,
        Ok(threads) => threads,
    };
    shared.config.record(Key::Threads, threads as u64);
    threads
}

/// Workers that wait for cold reads, without io_uring.
const READERS: usize = 8;

/// Number of workers for so many loops.
fn worker_count(shared: &Shared, loops: usize) -> usize {
    let waits = shared.pacing.parks() && !shared.pacing.has_ring();
    loops + if waits { READERS } else { 0 }
}

/// File descriptors that the server needs besides those of its clients, those of the
/// metrics page among them.
const OWN_DESCRIPTORS: u64 = 96;

/// Raises the limit of open files to what `maxclients` and the store need, now and when
/// `maxclients` changes. If the system allows fewer, lowers `maxclients` and logs that.
fn raise_file_limit(shared: &Shared) {
    let tables = shared.store.disk().ok().and_then(|disk| disk.open_tables());
    let others = OWN_DESCRIPTORS + tables.unwrap_or(0);
    let clients_within = move |limit: u64| limit.saturating_sub(others).max(1);
    shared.config.set_allow_clients(move |clients| match raise_to(clients + others) {
        limit if clients_within(limit) >= clients => Ok(()),
        limit => Err(format!(
            "The operating system is not able to handle the specified number of clients, try with {}",
            clients_within(limit)
        )),
    });
    let wanted = shared.config.number(Key::MaxClients) + others;
    let limit = raise_to(wanted);
    if limit < wanted {
        let clients = clients_within(limit);
        let of_store = tables.map(|tables| format!(", of which the store keeps {tables} for its tables"));
        log::warn!(
            "only {clients} clients at once: the system allows {limit} open files (ulimit -n){}",
            of_store.unwrap_or_default()
        );
        shared.config.record(Key::MaxClients, clients);
    }
}

/// Raises the limit of open files to `wanted`, or as near to it as the system allows. Returns the
/// limit, at most `wanted`.
fn raise_to(wanted: u64) -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    if let Some(current) = limit.current.filter(|current| *current < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)).max(current));
        if setrlimit(Resource::Nofile, limit).is_err() {
            return current;
        }
        return limit.current.unwrap_or(wanted);
    }
    wanted
}

/// A thread of the server failed or panicked; the log says why. Every answered write is in the
/// pool.
#[derive(Debug)]
pub struct ServeError;

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a thread of the server failed, see the log; every answered write is in the pool")
    }
}

impl std::error::Error for ServeError {}
