//! Runs the memory node.

use std::{
    collections::BTreeSet,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use rustix::process::{Signal, getpid, kill_process};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use terrace_cluster::{
    arbiter::Incarnation,
    directory::{Directory, Kept, Memory, Registrant, Registration, Sessions},
    link::{self, LinkError, Secret},
    manager::{MEMORY, Manager},
    memory::{self, MemoryNode, OnSessions},
};
use terrace_fabric::Libfabric;
use terrace_server::{
    config::{Config, Key},
    net::MetricsListener,
};

use super::{
    address::{announced, bracketed, fabric_host, resolve},
    claim::{agree, beside_another},
    identity::{self, LastStart},
    options::NodeOptions,
    ready::say_ready,
    secret::secret,
};
use crate::{
    failure::{Failure, Outcome},
    location::path,
    server::{listen, metrics_place},
    text::duration,
};

pub(super) fn run(options: &NodeOptions, config: &Config) -> Outcome {
    let secret = secret(&options.key_file)?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    announced(options, options.memory.listen, "--listen")?;
    Libfabric::load().map_err(Failure::new)?;
    let metrics = listen(|| MetricsListener::bind(config))?;
    let host = fabric_host(options, options.memory.listen, "--listen")?;
    let fabric = Libfabric::on_ports(&options.memory.provider, &host, options.fabric_ports);
    let fabric = fabric.map_err(Failure::new)?;
    let pool = path(config);
    if options.memory.adopt {
        // Before the cluster's name is taken for this pool.
        memory::check_adoption(&pool).map_err(Failure::new)?;
    }
    let id = identity::of_pool(&pool)?;
    let before = LastStart::of(&pool).filter(|before| before.cluster == options.place.cluster);
    let directory: Arc<dyn Directory> = Arc::new(options.place.directory()?);
    if !agree(&*directory, (&pool, &id), options, before.is_some(), &mut signals)? {
        return Ok(ExitCode::SUCCESS);
    }
    serve(options, config, Claimed { secret, fabric, metrics, pool, id, before, directory }, signals)
}

/// A pool that the directory knows as the cluster's, and what the node serves it with.
struct Claimed {
    secret: Secret,
    fabric: Libfabric,
    metrics: Option<MetricsListener>,
    pool: PathBuf,
    /// The cluster's id.
    id: String,
    /// The last start on the pool, for this cluster.
    before: Option<LastStart>,
    directory: Arc<dyn Directory>,
}

/// Opens the pool, and serves it until the end.
fn serve(options: &NodeOptions, config: &Config, claimed: Claimed, mut signals: Signals) -> Outcome {
    let Claimed { secret, fabric, metrics, pool, id, before, directory } = claimed;
    let published = Publisher::new();
    let settings = settings(options, config, secret.clone(), before.as_ref());
    let node = MemoryNode::start(fabric, settings, published.on_sessions()).map_err(Failure::new)?;
    LastStart { cluster: options.place.cluster.clone(), address: node.address() }.note(&pool);
    // Only now: a second memory node, which cannot open the pool, says nothing.
    published.begin(&*directory);
    let rival = Arc::new(OnceLock::new());
    let there = entry(options, node.address(), &pool)?;
    let me = Registrant { cluster: options.place.cluster.clone(), id, memory: there.clone() };
    let registered = register(&directory, me, secret, &rival)?;
    let manager = Manager::start(Arc::clone(&directory), MEMORY)?;
    let metrics = metrics.map(|there| there.serve("memory", node.figures())).transpose();
    let metrics = metrics.map_err(Failure::new)?;
    say_ready(&line(options, &pool, &there, metrics.as_ref().map(|page| page.address())));
    signals.forever().find(|signal| *signal != SIGHUP);
    log::info!("shutting down: what serving nodes have written is merged first");
    drop((manager, registered, metrics));
    let stopped = node.stop();
    published.end();
    stopped.map_err(Failure::new)?;
    rival.get().map_or(Ok(ExitCode::SUCCESS), |other| Err(beside_another(&pool, other, options)))
}

/// Where to listen. If any port will do, the one of the last start, so that nodes find it.
fn listen_again(listen: SocketAddr, before: Option<&LastStart>) -> SocketAddr {
    let address = before.map(|before| before.address).filter(|before| {
        listen.port() == 0 && before.ip() == listen.ip() && TcpListener::bind(before).is_ok()
    });
    address.unwrap_or(listen)
}

fn settings(
    options: &NodeOptions,
    config: &Config,
    secret: Secret,
    before: Option<&LastStart>,
) -> memory::Options {
    let (given, pool_bytes) = (&options.memory, config.number(Key::Size));
    memory::Options {
        listen: listen_again(given.listen, before),
        was_used: before.is_some(),
        pool_bytes,
        grows: options.settings.is_given(Key::Size),
        adopt: given.adopt,
        log_segments: given.log_segments.into(),
        lease: given.lease,
        merge_threads: given.merge_threads.into(),
        ..memory::Options::new(path(config), given.listen, secret, &given.provider)
    }
}

/// The entry in the directory of the node that listens here.
fn entry(options: &NodeOptions, address: SocketAddr, pool: &Path) -> Result<Memory, Failure> {
    let host = announced(options, address, "--listen")?;
    let address = format!("{}:{}", bracketed(&host), address.port());
    Ok(Memory { address, pool: identity::of_file(pool) })
}

/// Keeps the entry in the directory. Ends this process if another memory node has one and answers,
/// which is noted as the rival.
fn register(
    directory: &Arc<dyn Directory>,
    me: Registrant,
    key: Secret,
    rival: &Arc<OnceLock<Memory>>,
) -> Result<Registration, Failure> {
    let found = Arc::clone(rival);
    let end = Box::new(move |other| {
        let _ = found.set(other);
        let _ = kill_process(getpid(), Signal::TERM);
    });
    // One that speaks another version, or has another key, is a memory node as well.
    let answers =
        Box::new(move |other: &Memory| match resolve(&other.address).map(|at| link::dial(at, &key)) {
            Ok(Ok((sender, _))) => {
                sender.close();
                true
            }
            Ok(Err(error)) => matches!(error, LinkError::Version { .. } | LinkError::WrongKey(_)),
            Err(_) => false,
        });
    Ok(Registration::start(Arc::clone(directory), me, answers, end)?)
}

/// The line that says what the node is.
fn line(options: &NodeOptions, pool: &Path, there: &Memory, metrics: Option<SocketAddr>) -> String {
    let page = metrics.map(|address| format!(" · {}", metrics_place(address)));
    format!(
        "memory node of cluster {}  pool {} · serving nodes connect to {} · lease {}{}",
        options.place.cluster,
        pool.display(),
        there.address,
        duration(options.memory.lease),
        page.unwrap_or_default()
    )
}

/// Tells the directory of the sessions. The node's threads and this one share it.
#[derive(Clone)]
struct Publisher {
    /// The number of this start.
    boot: u64,
    told: Arc<Mutex<Told>>,
}

/// What the directory is told about sessions.
#[derive(Default)]
struct Told {
    nodes: BTreeSet<String>,
    /// The entry, once there is one.
    kept: Option<Kept>,
}

impl Publisher {
    fn new() -> Publisher {
        Publisher { boot: identity::random_number(), told: Arc::default() }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the node calls with all its sessions.
    fn on_sessions(&self) -> OnSessions {
        let publisher = self.clone();
        Box::new(move |sessions| publisher.set(sessions))
    }

    fn set(&self, sessions: &[(Incarnation, String)]) {
        let mut told = self.told();
        told.nodes = sessions.iter().map(|(_, node)| node.clone()).collect();
        if let Some(kept) = &told.kept {
            kept.set(Sessions { boot: self.boot, nodes: told.nodes.clone() }.text());
        }
    }

    fn begin(&self, directory: &dyn Directory) {
        let mut told = self.told();
        told.kept = Some(directory.publish(&Sessions { boot: self.boot, nodes: told.nodes.clone() }));
    }

    fn end(&self) {
        self.told().kept = None;
    }
}
