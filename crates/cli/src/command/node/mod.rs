//! `node`: a node of a cluster. The memory node has the data; serving nodes answer clients.
//!
//! Each node has a directory (etcd) and a manager. It waits for etcd at its start; later it goes on
//! without it.

mod identity;
mod notify;

use std::{
    collections::BTreeSet,
    io::{self, Write},
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use clap::{Args, ValueEnum};
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use terrace::Store;
use terrace_cluster::{
    arbiter::Incarnation,
    directory::{
        Directory, DirectoryError, Kept, Member, Memory, Registrant, Registration, Sessions, State,
        etcd::{EtcdDirectory, Options, User},
    },
    link::{self, LinkError, Secret},
    manager::{MEMORY, Manager},
    map::Node,
    memory::{self, MemoryNode, OnSessions},
    message::WIRE,
    serving::{self, ServingNode},
};
use terrace_fabric::{Libfabric, Ports};
use terrace_server::{
    config::{Config, Key},
    net::{Listeners, MetricsListener},
    server::Server,
    shared::Shared,
};

use crate::{
    clock,
    environment::{self, PASSWORD_FILE},
    failure::{Failure, Outcome},
    logger, open, serve,
    settings::{OfNode, Settings},
};

use identity::LastStart;
pub(crate) use identity::{create_private, create_private_dir, random_id};

/// How a command finds the directory of a cluster.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// Hosts and ports of etcd's nodes, separated by commas
    #[arg(long, value_name = "ENDPOINTS", default_value = "127.0.0.1:2379")]
    pub(crate) etcd: String,
    /// The cluster's name
    #[arg(long, value_name = "NAME", default_value = "terrace")]
    pub(crate) cluster: String,
    /// File of the certificates that sign those of etcd: it is asked by https
    #[arg(long, value_name = "PATH")]
    pub(crate) etcd_ca: Option<PathBuf>,
    /// File of the certificate that etcd is shown, if it asks for one
    #[arg(long, value_name = "PATH", requires = "etcd_key")]
    pub(crate) etcd_cert: Option<PathBuf>,
    /// File of that certificate's private key
    #[arg(long, value_name = "PATH", requires = "etcd_cert")]
    pub(crate) etcd_key: Option<PathBuf>,
    /// User of etcd, if it has users
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    pub(crate) etcd_user: Option<String>,
    /// File whose first line is the password of that user
    #[arg(long, value_name = "PATH", requires = "etcd_user")]
    pub(crate) etcd_password_file: Option<PathBuf>,
}

impl Place {
    /// The directory. It need not answer yet.
    pub(crate) fn directory(&self) -> Result<EtcdDirectory, Failure> {
        if let Some(key) = &self.etcd_key {
            check_private(key, "speak to etcd as this node does")?;
        }
        let user = self.etcd_user.clone().zip(self.etcd_password_file.as_deref());
        let user = user.map(|(name, file)| serve::password_in(file).map(|password| User { name, password }));
        let options = Options {
            ca: self.etcd_ca.clone(),
            identity: self.etcd_cert.clone().zip(self.etcd_key.clone()),
            user: user.transpose()?,
            ..Options::new(&self.etcd, &self.cluster)
        };
        EtcdDirectory::connect(&options).map_err(|error| match error {
            DirectoryError::Settings(why) => Failure::usage(why),
            error => Failure::new(error),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Has the pool; one in a cluster
    Memory,
    /// Serves a part of the keys to Redis clients
    Serve,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A cluster has one memory node and any number of serving nodes, which may come and go at any time:
  terrace node --role memory --pool /dev/shm/shop.pool --key-file key --listen 10.0.0.1:7100
  terrace node --role serve --key-file key --bind 10.0.0.2 --port 7000 --password-file password
`terrace cluster up` starts all of them, and etcd, on one machine.")]
pub(crate) struct NodeOptions {
    /// What the node does
    #[arg(long)]
    pub(crate) role: Role,
    #[command(flatten)]
    pub(crate) place: Place,
    /// File with the cluster's secret, the same at all nodes: a random text of 32 letters or more
    #[arg(long, value_name = "PATH")]
    pub(crate) key_file: PathBuf,
    /// The host that other nodes and clients are told; default: the address that the node listens
    /// on
    #[arg(long, value_name = "HOST")]
    pub(crate) announce_host: Option<String>,
    /// This machine's address in the network of the memory's fabric; default: that of --listen or
    /// --bind
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) host: Option<String>,
    /// Ports that the memory's fabric listens on: at a serving node as many as it has lanes, at the
    /// memory node those of all serving nodes; default: any that are free
    #[arg(long, value_name = "FIRST-LAST")]
    pub(crate) fabric_ports: Option<Ports>,
    #[command(flatten)]
    pub(crate) memory: MemoryOptions,
    #[command(flatten)]
    pub(crate) serving: ServingOptions,
    /// File whose first line is the password that clients must give [env: TERRACE_PASSWORD_FILE]
    #[arg(long, value_name = "PATH", help_heading = "Clients")]
    pub(crate) password_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: Settings<OfNode>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Memory node")]
pub(crate) struct MemoryOptions {
    /// Where serving nodes connect to
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7100")]
    pub(crate) listen: SocketAddr,
    /// How long a serving node may answer without hearing from the memory node; after the death of
    /// one, its keys wait this long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_lease)]
    pub(crate) lease: Duration,
    /// Segments for what serving nodes have written and the index has not yet: 8 MiB each, and in a
    /// pool below 4 GiB about 4
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(4..=65_536))]
    pub(crate) log_segments: u32,
    /// Threads that merge such segments into the index
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) merge_threads: u16,
    /// Take a pool that has keys and was not a cluster's before
    #[arg(long)]
    pub(crate) adopt: bool,
    /// libfabric's provider of access to this memory
    #[arg(long, value_name = "NAME", default_value = "tcp;ofi_rxm")]
    pub(crate) provider: String,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Serving node")]
pub(crate) struct ServingOptions {
    /// File with the node's id, which is made if it does not exist; default: terrace-PORT.id
    #[arg(long, value_name = "PATH")]
    pub(crate) node_id_file: Option<PathBuf>,
    /// Memory for what is read often
    #[arg(long, value_name = "SIZE", default_value = "256mb", value_parser = parse_cache)]
    pub(crate) cache: u64,
    /// Logs that the node writes; 0: one per core, 4 at most
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u16).range(0..=64))]
    pub(crate) shards: u16,
    /// Connections to the memory: one for the logs, the others for as many reads at a time; 0: one
    /// more than threads, 64 at most
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_lanes)]
    pub(crate) lanes: u16,
}

pub(crate) fn parse_lease(text: &str) -> Result<Duration, String> {
    let time = Duration::from_millis(crate::keys::parse_ttl(text)?);
    let is_fine = (Duration::from_millis(100)..=Duration::from_secs(60)).contains(&time);
    is_fine.then_some(time).ok_or_else(|| "a lease has 100ms to 60s".into())
}

pub(crate) fn parse_cache(text: &str) -> Result<u64, String> {
    terrace_server::config::parse_size(text).ok_or_else(|| "it must be a size: 256mb, 2GiB".into())
}

fn parse_lanes(text: &str) -> Result<u16, String> {
    let lanes = text.parse().ok().filter(|lanes| *lanes == 0 || (2..=64).contains(lanes));
    lanes.ok_or_else(|| "it must be 0, or 2 to 64".into())
}

pub(crate) fn run(options: NodeOptions) -> Outcome {
    let config = options.settings.config()?;
    logger::start(config.log_level());
    match options.role {
        Role::Memory => run_memory(&options, &config),
        Role::Serve => run_serving(&options, config),
    }
}

/// The secret in the key file.
fn secret(path: &Path) -> Result<Secret, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read the key file {}: {error}", path.display())))?;
    if text.trim().len() < 32 {
        let short = format!("the key in {} has fewer than 32 letters", path.display());
        return Err(Failure::new(short).hint("to make one: openssl rand -hex 32 > FILE; chmod 600 FILE"));
    }
    check_private(path, "join the cluster with it")?;
    Ok(Secret::new(&text))
}

/// Refuses a key file that others than its owner can read, and what they could do then.
fn check_private(path: &Path, what: &str) -> Result<(), Failure> {
    if std::fs::metadata(path).is_ok_and(|file| file.mode() & 0o077 != 0) {
        let open = format!("others can read the key file {}, and {what}", path.display());
        return Err(Failure::new(open).hint(format!("chmod 600 {}", path.display())));
    }
    Ok(())
}

/// The directory, and what it says, once it answers.
fn reach(place: &Place) -> Result<(Arc<dyn Directory>, State), Failure> {
    let directory = Arc::new(place.directory()?);
    loop {
        // The directory has logged an error.
        match directory.read() {
            Ok(state) => return Ok((directory, state)),
            Err(_) => clock::pause(Duration::from_secs(1)),
        }
    }
}

/// The host of an address that others can connect to.
fn announced(options: &NodeOptions, address: SocketAddr, flag: &str) -> Result<String, Failure> {
    match &options.announce_host {
        Some(host) => Ok(host.clone()),
        None if address.ip().is_unspecified() => Err(Failure::usage(format!(
            "{flag} {} is no address that others can connect to: give --announce-host",
            address.ip()
        ))),
        None => Ok(address.ip().to_string()),
    }
}

/// This machine's address in the fabric's network.
fn fabric_host(options: &NodeOptions, address: SocketAddr, flag: &str) -> Result<String, Failure> {
    match &options.host {
        Some(host) => Ok(host.clone()),
        None if address.ip().is_unspecified() => Err(Failure::usage(format!(
            "{flag} {} is no address of the memory's fabric: give one with --host",
            address.ip()
        ))),
        None => Ok(address.ip().to_string()),
    }
}

fn run_memory(options: &NodeOptions, config: &Config) -> Outcome {
    let secret = secret(&options.key_file)?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    announced(options, options.memory.listen, "--listen")?;
    Libfabric::load().map_err(Failure::new)?;
    let metrics = serve::listen(|| MetricsListener::bind(config))?;
    let host = fabric_host(options, options.memory.listen, "--listen")?;
    let fabric = Libfabric::on_ports(&options.memory.provider, &host, options.fabric_ports);
    let fabric = fabric.map_err(Failure::new)?;
    let pool = open::path(config);
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
    let rival = Arc::new(OnceLock::new());
    let key = secret.clone();
    let boot = identity::random_number();
    let published = Arc::new(Mutex::new(Published::default()));
    let node = {
        let published = Arc::clone(&published);
        let publish: OnSessions = Box::new(move |sessions| lock(&published).set(boot, sessions));
        let listen = listen_again(options.memory.listen, before.as_ref());
        let was_used = before.is_some();
        let settings = memory::Options { listen, was_used, ..memory_options(options, config, secret) };
        MemoryNode::start(fabric, settings, publish).map_err(Failure::new)?
    };
    LastStart { cluster: options.place.cluster.clone(), address: node.address() }.note(&pool);
    // Only now: a second memory node, which cannot open the pool, says nothing.
    lock(&published).begin(&*directory, boot);
    let address = node.address();
    let host = announced(options, address, "--listen")?;
    let there = Memory {
        address: format!("{}:{}", bracketed(&host), address.port()),
        pool: identity::of_file(&pool),
    };
    let found = Arc::clone(&rival);
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
    let me = Registrant { cluster: options.place.cluster.clone(), id: id.clone(), memory: there.clone() };
    let registered = Registration::start(Arc::clone(&directory), me, answers, end)?;
    let manager = Manager::start(Arc::clone(&directory), MEMORY)?;
    let metrics = metrics.map(|there| there.serve("memory", node.figures())).transpose();
    let metrics = metrics.map_err(Failure::new)?;
    let page = metrics.as_ref().map(|page| format!(" · {}", serve::metrics_place(page.address())));
    say_ready(&format!(
        "memory node of cluster {}  pool {} · serving nodes connect to {} · lease {}{}",
        options.place.cluster,
        pool.display(),
        there.address,
        crate::text::duration(options.memory.lease),
        page.unwrap_or_default()
    ));
    signals.forever().find(|signal| *signal != SIGHUP);
    log::info!("shutting down: what serving nodes have written is merged first");
    drop((manager, registered, metrics));
    let stopped = node.stop();
    lock(&published).kept = None;
    stopped.map_err(Failure::new)?;
    rival.get().map_or(Ok(ExitCode::SUCCESS), |other| Err(beside_another(&pool, other, options)))
}

/// Waits until the directory agrees that the pool is the cluster's. If it is away, a pool that was
/// the cluster's before is taken at once. `false`: a signal asks for the end.
fn agree(
    directory: &dyn Directory,
    (pool, id): (&Path, &str),
    options: &NodeOptions,
    was_before: bool,
    signals: &mut Signals,
) -> Result<bool, Failure> {
    const PAUSE: Duration = Duration::from_millis(200);
    /// After so many pauses, what a memory node that has died had in the directory is gone.
    const PAUSES: u32 = 60;
    let (file, mut pauses) = (identity::of_file(pool), 0);
    let look = || {
        let theirs = directory.identify(id)?;
        let state = directory.read()?;
        let rival = state.memory.filter(|memory| memory.is_rival_of(&file));
        Ok((theirs, rival.map(|memory| (memory, state.memory_is_kept))))
    };
    loop {
        match look() {
            Ok((theirs, _)) if theirs != id => return Err(of_another_cluster((pool, id), &theirs, options)),
            Ok((_, None)) => return Ok(true),
            Ok((_, Some((other, false)))) => {
                log::error!(
                    "etcd names a memory node of cluster {} at {}, on another pool, and no memory node has written \
                     that: its key has no lease. This memory node goes on, and writes its own entry",
                    options.place.cluster,
                    other.address
                );
                return Ok(true);
            }
            Ok((_, Some((other, true)))) => {
                if pauses == PAUSES {
                    return Err(beside_another(pool, &other, options));
                }
                if pauses == 0 {
                    log::warn!(
                        "waits {} s at most: etcd names a memory node of cluster {} at {}, on another pool. If \
                         that one is dead, its entry ends with its lease in etcd, which has 10 s",
                        (PAUSE * PAUSES).as_secs(),
                        options.place.cluster,
                        other.address
                    );
                }
                pauses += 1;
            }
            Err(DirectoryError::Away { .. }) if was_before => {
                log::warn!(
                    "starts without etcd: the pool was that of cluster {} before. Serving nodes look \
                     for the memory node where it was",
                    options.place.cluster
                );
                return Ok(true);
            }
            // The directory has logged an error.
            Err(_) => {}
        }
        if signals.pending().any(|signal| signal != SIGHUP) {
            log::info!("shutting down: etcd has not answered yet, and nothing was opened");
            return Ok(false);
        }
        clock::pause(PAUSE);
    }
}

/// Where to listen. If any port will do, the one of the last start, so that nodes find it.
fn listen_again(listen: SocketAddr, before: Option<&LastStart>) -> SocketAddr {
    let address = before.map(|before| before.address).filter(|before| {
        listen.port() == 0 && before.ip() == listen.ip() && TcpListener::bind(before).is_ok()
    });
    address.unwrap_or(listen)
}

fn memory_options(options: &NodeOptions, config: &Config, secret: Secret) -> memory::Options {
    let (given, pool_bytes) = (&options.memory, config.number(Key::Size));
    memory::Options {
        pool_bytes,
        grows: options.settings.is_given(Key::Size),
        adopt: given.adopt,
        log_segments: given.log_segments.into(),
        lease: given.lease,
        merge_threads: given.merge_threads.into(),
        ..memory::Options::new(open::path(config), given.listen, secret, &given.provider)
    }
}

/// What the directory is told about sessions.
#[derive(Default)]
struct Published {
    nodes: BTreeSet<String>,
    kept: Option<Kept>,
}

impl Published {
    fn begin(&mut self, directory: &dyn Directory, boot: u64) {
        self.kept = Some(directory.publish(&Sessions { boot, nodes: self.nodes.clone() }));
    }

    fn set(&mut self, boot: u64, sessions: &[(Incarnation, String)]) {
        self.nodes = sessions.iter().map(|(_, node)| node.clone()).collect();
        if let Some(kept) = &self.kept {
            kept.set(Sessions { boot, nodes: self.nodes.clone() }.text());
        }
    }
}

fn lock(published: &Mutex<Published>) -> MutexGuard<'_, Published> {
    published.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An IPv6 address in brackets.
fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// The pool is of another cluster, or the cluster is of another pool.
fn of_another_cluster((pool, id): (&Path, &str), theirs: &str, options: &NodeOptions) -> Failure {
    let Place { etcd, cluster, .. } = &options.place;
    let failure = Failure::new(format!(
        "the pool {} is not that of the cluster {cluster} in etcd at {etcd}: its cluster has the id {id}, and not {theirs}",
        pool.display(),
    ));
    failure.hint("for another cluster: give it another name with --cluster".to_owned()).hint(format!(
        "if the pool of {cluster} is gone, and this one shall take its place: \
             ETCDCTL_API=3 etcdctl --endpoints {etcd} del --prefix /terrace/{cluster}/"
    ))
}

/// Another memory node serves the cluster, on another pool.
fn beside_another(pool: &Path, other: &Memory, options: &NodeOptions) -> Failure {
    let Place { etcd, cluster, .. } = &options.place;
    let failure = Failure::new(format!(
        "the cluster {cluster} in etcd at {etcd} has a memory node at {}, and its pool is not {}: two of them would \
         give clients different data",
        other.address,
        pool.display(),
    ));
    failure
        .hint(
            "if this pool shall take its place: stop that memory node first, and start this one then"
                .to_owned(),
        )
        .hint(format!(
            "if no memory node is there, and the entry stays: ETCDCTL_API=3 etcdctl --endpoints {etcd} del \
             /terrace/{cluster}/memory"
        ))
}

fn say_ready(line: &str) {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let mut out = io::stdout().lock();
    // The reader of the output may be gone; the node runs nevertheless.
    let _ = writeln!(out, "terrace {VERSION}  {line}\nready").and_then(|()| out.flush());
    notify::ready();
}

fn run_serving(options: &NodeOptions, config: Config) -> Outcome {
    let secret = secret(&options.key_file)?;
    let file = options.password_file.clone();
    if let Some(path) = file.or_else(|| environment::variable(PASSWORD_FILE).map(PathBuf::from)) {
        serve::read_password(&config, &path)?;
    }
    let stopper = serve::handle_signals()?;
    let listeners = serve::listen(|| Listeners::bind(&config))?;
    let Some(listens) = listeners.tcp_addresses().first().copied() else {
        return Err(Failure::usage("a serving node needs a TCP port: give --port"));
    };
    let host = announced(options, listens, "--bind")?;
    let default = || PathBuf::from(format!("terrace-{}.id", listens.port()));
    let (id, _lock) = identity::of_node(&options.serving.node_id_file.clone().unwrap_or_else(default))?;
    let settings = node_settings(options, &config, &id, fabric_host(options, listens, "--bind")?)?;
    Libfabric::load().map_err(Failure::new)?;
    let (directory, state) = reach(&options.place)?;
    if state.id.is_none() {
        let Place { etcd, cluster, .. } = &options.place;
        log::warn!("there is no cluster {cluster} in etcd at {etcd} yet: the node waits for its memory node");
    }
    let place = serve::places(&listeners);
    let member = Member { host, port: listens.port(), wire: WIRE };
    let me = Node { id: id.clone(), host: member.host.clone(), port: member.port };
    let node = Arc::new(ServingNode::start(settings, me, secret)?);
    let store = Store::over(node.engine()).map_err(Failure::new)?;
    serve::check_eviction(&config, &store)?;
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

fn resolve(address: &str) -> Result<SocketAddr, Failure> {
    let failed =
        |why: String| Failure::new(format!("the memory node's address {address} is not known: {why}"));
    let mut found = address.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    found.next().ok_or_else(|| failed("the name has no address".into()))
}
