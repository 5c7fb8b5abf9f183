//! Runs a serving node.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use terrace::Store;
use terrace_cluster::{
    directory::{Directory, Kept, Member, State},
    link::Secret,
    manager::Manager,
    map::Node,
    message::WIRE,
    serving::{self, ServingNode},
};
use terrace_fabric::Libfabric;
use terrace_server::{
    config::{Config, Key},
    net::Listeners,
    server::{Server, Stopper},
    shared::Shared,
};

use super::{
    address::{announced, fabric_host, resolve},
    identity,
    options::NodeOptions,
    place::{Place, reach},
    ready::say_ready,
    secret::secret,
};
use crate::{
    environment::{self, PASSWORD_FILE},
    failure::{Failure, Outcome},
    password::read_password,
    server::{check_eviction, handle_signals, listen, places},
};

/// A node that has its ports and its id, and has asked no other process yet.
struct Prepared {
    secret: Secret,
    stopper: Arc<OnceLock<Stopper>>,
    listeners: Listeners,
    settings: serving::Settings,
    /// How others reach it.
    me: Node,
}

pub(super) fn run(options: &NodeOptions, config: Config) -> Outcome {
    let secret = secret(&options.key_file)?;
    let file = options.password_file.clone();
    if let Some(path) = file.or_else(|| environment::variable(PASSWORD_FILE).map(PathBuf::from)) {
        read_password(&config, &path)?;
    }
    let stopper = handle_signals()?;
    let listeners = listen(|| Listeners::bind(&config))?;
    let Some(listens) = listeners.tcp_addresses().first().copied() else {
        return Err(Failure::usage("a serving node needs a TCP port: give --port"));
    };
    let host = announced(options, listens, "--bind")?;
    let default = || PathBuf::from(format!("terrace-{}.id", listens.port()));
    let (id, _lock) = identity::of_node(&options.serving.node_id_file.clone().unwrap_or_else(default))?;
    let settings = node_settings(options, &config, &id, fabric_host(options, listens, "--bind")?)?;
    Libfabric::load().map_err(Failure::new)?;
    let me = Node { id, host, port: listens.port() };
    serve(options, config, Prepared { secret, stopper, listeners, settings, me })
}

/// Joins the cluster, and serves until the end.
fn serve(options: &NodeOptions, config: Config, prepared: Prepared) -> Outcome {
    let Prepared { secret, stopper, listeners, settings, me } = prepared;
    let (directory, state) = reach(&options.place)?;
    if state.id.is_none() {
        let Place { etcd, cluster, .. } = &options.place;
        log::warn!("there is no cluster {cluster} in etcd at {etcd} yet: the node waits for its memory node");
    }
    let place = places(&listeners);
    let member = Member { host: me.host.clone(), port: me.port, wire: WIRE };
    let id = me.id.clone();
    let node = Arc::new(ServingNode::start(settings, me, secret)?);
    let store = Store::over(node.engine()).map_err(Failure::new)?;
    check_eviction(&config, &store)?;
    let news = Arc::clone(&node);
    let watch = directory.watch(Box::new(move |state| tell(&news, &state)));
    let shared = Arc::new(Shared::of_node(store, config, node.routing()));
    let told = Arc::downgrade(&shared);
    node.on_size(Box::new(move |size| {
        told.upgrade().iter().for_each(|shared| shared.config.record(Key::Size, size));
    }));
    let server = Server::start(shared, listeners).map_err(Failure::new)?;
    let _ = stopper.set(server.stopper());
    let line = format!("serving node {} of cluster {}  {place}", &id[..8], options.place.cluster);
    let registered = register(&node, Arc::clone(&directory), &id, member, line);
    let manager = Manager::start(Arc::clone(&directory), &id)?;
    let served = server.wait();
    drop((manager, registered, watch));
    // Its end gives the slots back at once.
    drop(node);
    served.map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// Tells clients of the node from its first session on, and says this line then. If the memory node
/// refuses it one, its id may be a copy: then the entry is that of the other process, which writes
/// it anew.
fn register(
    node: &ServingNode,
    directory: Arc<dyn Directory>,
    id: &str,
    member: Member,
    ready: String,
) -> Arc<Mutex<Option<Kept>>> {
    let registered = Arc::<Mutex<Option<Kept>>>::default();
    let (kept, id, said) = (Arc::downgrade(&registered), id.to_owned(), OnceLock::new());
    node.on_session(Box::new(move |has_session| {
        let Some(kept) = kept.upgrade() else { return };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            _ if !has_session => *kept = None,
            Some(kept) => kept.set(member.text()),
            None => *kept = Some(directory.register(&id, &member)),
        }
        if has_session && said.set(()).is_ok() {
            say_ready(&ready);
        }
    }));
    registered
}

/// Settings of a serving node. A thread that serves clients waits for the memory, so there are more
/// of them than cores.
fn node_settings(
    options: &NodeOptions,
    config: &Config,
    id: &str,
    host: String,
) -> Result<serving::Settings, Failure> {
    let cores = cores();
    if config.number(Key::Threads) == 0 {
        config.assign("threads", &(2 * cores).to_string()).map_err(Failure::new)?;
    }
    let or = |given: u16, default: u16| if given == 0 { default } else { given };
    let threads = u16::try_from(config.number(Key::Threads)).unwrap_or(u16::MAX);
    let lanes = or(options.serving.lanes, lanes_of(threads));
    if let Some(ports) = options.fabric_ports.filter(|ports| ports.count() < lanes.into()) {
        return Err(Failure::usage(format!(
            "--fabric-ports {ports} has {} ports, and this node has {lanes} lanes: it needs one for each",
            ports.count()
        ))
        .hint("give a wider range, or fewer --lanes"));
    }
    Ok(serving::Settings {
        id: id.into(),
        shards: or(options.serving.shards, default_shards()),
        lanes,
        cache_bytes: options.serving.cache,
        host,
        fabric_ports: options.fabric_ports,
        patience: serving::Settings::PATIENCE,
        clock: Arc::new(terrace::SystemClock),
    })
}

fn cores() -> u16 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(64)) as u16
}

/// Lanes of a serving node with so many threads that was not told how many.
fn lanes_of(threads: u16) -> u16 {
    threads.min(63) + 1
}

/// Lanes of a serving node that was told nothing of them, nor of threads.
pub(crate) fn default_lanes() -> u16 {
    lanes_of(2 * cores())
}

/// Logs of a serving node that was not told how many.
pub(crate) fn default_shards() -> u16 {
    cores().min(4)
}

/// Tells a serving node where the memory node is, and what the map is.
fn tell(node: &ServingNode, state: &State) {
    match state.memory.as_ref().map(|memory| resolve(&memory.address)) {
        Some(Ok(address)) => node.set_memory(address),
        Some(Err(failure)) => log::error!("{}", failure.one_line()),
        // Either it comes in a moment, or it is known from before.
        None => {}
    }
    if state.epoch > 0 {
        node.set_map(state.told_epoch(), &state.map);
    }
}
