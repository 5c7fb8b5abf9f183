//! `cluster up`: etcd, a memory node and serving nodes on this machine, as children.

use std::{
    fs,
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use clap::Args;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use terrace_cluster::{memory, slot::SLOTS};
use terrace_fabric::{Libfabric, Ports};

use super::{
    asking::{ask, number},
    supervisor::{Program, Supervised},
};
use crate::{
    clock,
    command::node::{
        create_private, create_private_dir, default_lanes, default_shards, parse_cache, parse_lease,
        random_id,
    },
    failure::{self, Failure, Outcome},
    password::password_in,
};

#[derive(Debug, Args)]
#[command(after_help = "\
Everything listens on loopback. A process that dies is started again. Ctrl-c or SIGTERM ends all of them cleanly; the
same command with the same --dir goes on with the data.")]
pub(crate) struct UpOptions {
    /// Number of serving nodes
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) serve: u16,
    /// Directory for the pool, etcd's data, the cluster's key, ids and logs; in /dev/shm it loses
    /// all at a reboot
    #[arg(long, value_name = "PATH", default_value = "/dev/shm/terrace/cluster")]
    pub(crate) dir: PathBuf,
    /// Port of the first serving node; the others have the next ones
    #[arg(long, value_name = "PORT", default_value = "7000", value_parser = clap::value_parser!(u16).range(1024..=65_000))]
    pub(crate) port: u16,
    /// Port of etcd
    #[arg(long, value_name = "PORT", default_value = "2379", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) etcd_port: u16,
    /// The cluster's name
    #[arg(long, value_name = "NAME", default_value = "terrace")]
    pub(crate) cluster: String,
    /// How long the keys of a serving node that dies wait
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_lease)]
    pub(crate) lease: Duration,
    /// Size of the pool: of a new one, or that one that has less grows to; default: 4gb for a new
    /// one
    #[arg(long, value_name = "SIZE", value_parser = parse_cache)]
    pub(crate) size: Option<u64>,
    /// Memory of each serving node for what is read often
    #[arg(long, value_name = "SIZE", default_value = "256mb", value_parser = parse_cache)]
    pub(crate) cache: u64,
    /// File whose first line is the password that clients must give; default: none
    #[arg(long, value_name = "PATH")]
    pub(crate) password_file: Option<PathBuf>,
    /// Port of the memory node's metrics; those of the serving nodes have the next ones. 0: none
    #[arg(long, value_name = "PORT", default_value = "0", value_parser = clap::value_parser!(u16).range(..=65_000))]
    pub(crate) metrics_port: u16,
    /// Ports that the memory's fabric listens on, for all nodes together: each lane has one at both
    /// ends; default: any that are free
    #[arg(long, value_name = "FIRST-LAST")]
    pub(crate) fabric_ports: Option<Ports>,
}

/// Bytes of a new pool.
const NEW_POOL: u64 = 4 << 30;
/// How often to look at the children.
const TICK: Duration = Duration::from_millis(20);
/// How long nodes may take to get their shares. A node that is drained gets none.
const SHARED: Duration = Duration::from_secs(3);
/// How long a start may take before something is said.
const SLOW: Duration = Duration::from_secs(30);

pub(super) fn run(options: &UpOptions) -> Outcome {
    let mut asked = Asked { signals: Signals::new([SIGTERM, SIGINT])?, times: 0 };
    let last = options.port.checked_add(options.serve - 1);
    if last.is_none() {
        return Err(Failure::usage("there are not so many ports: give a lower --port"));
    }
    let password = options.password_file.as_deref().map(password_in).transpose()?;
    require_room(options)?;
    require_fabric_ports(options)?;
    require_etcd()?;
    Libfabric::load().map_err(Failure::new)?;
    create_private_dir(&options.dir).map_err(|error| {
        Failure::new(format!("cannot make the directory {}: {error}", options.dir.display()))
    })?;
    let dir = fs::canonicalize(&options.dir)?;
    let _lock = lock(&dir)?;
    require_ports(options)?;
    create_private_dir(&dir.join("logs"))?;
    let key = dir.join("key");
    if !key.exists() {
        create_private(&key, &format!("{}{}", random_id(), random_id()))?;
    }
    let mut children = Vec::new();
    for program in programs(options, &dir)? {
        children.push(Supervised::start(program)?);
    }
    let outcome = supervise(options, password.as_deref(), &mut children, &mut asked);
    end(children, &mut asked);
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Signals that ask for the end.
struct Asked {
    signals: Signals,
    times: usize,
}

impl Asked {
    fn times(&mut self) -> usize {
        self.times += self.signals.pending().count();
        self.times
    }
}

/// Bytes of the pool. It never shrinks.
fn pool_bytes(options: &UpOptions) -> u64 {
    let before = fs::metadata(options.dir.join("pool")).map_or(0, |file| file.len());
    options.size.unwrap_or(if before == 0 { NEW_POOL } else { before }).max(before)
}

/// Bytes of the pool that are kept free for the logs of the serving nodes, with so many each.
fn kept_bytes(options: &UpOptions, shards: u16) -> u64 {
    memory::kept_bytes(pool_bytes(options), u64::from(options.serve) * u64::from(shards))
}

/// Logs of each serving node: one, if with more of them over a quarter of the pool was kept free.
fn shards(options: &UpOptions) -> u16 {
    if kept_bytes(options, default_shards()) > pool_bytes(options) / 4 { 1 } else { default_shards() }
}

/// Refuses a pool that would be full while it is empty.
fn require_room(options: &UpOptions) -> Result<(), Failure> {
    let kept = kept_bytes(options, shards(options));
    // A fifth for the data, at least.
    let least = (kept + kept / 4) >> 20;
    let size = pool_bytes(options) >> 20;
    if size >= least {
        return Ok(());
    }
    let serve = options.serve;
    Err(Failure::usage(format!(
        "a pool of {size} MiB is too small for {serve} serving nodes: it keeps {} MiB free for their logs",
        kept >> 20
    ))
    .hint(format!("give --size {least}mb or more, or a lower --serve")))
}

/// Refuses fewer ports than all nodes need: each lane has one at both ends.
fn require_fabric_ports(options: &UpOptions) -> Result<(), Failure> {
    let (lanes, serve) = (default_lanes(), options.serve);
    let needed = 2 * u32::from(lanes) * u32::from(serve);
    let Some(ports) = options.fabric_ports.filter(|ports| ports.count() < needed) else { return Ok(()) };
    Err(Failure::usage(format!(
        "--fabric-ports {ports} has {} ports, and {serve} serving nodes with {lanes} lanes need {needed}: each lane has \
         one at both ends",
        ports.count()
    ))
    .hint("give a wider range, or a lower --serve"))
}

fn require_etcd() -> Result<(), Failure> {
    let run = Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match run {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::new(format!("cannot run etcd, which keeps the cluster's map: {error}"))
            .hint("to install it on Debian or Ubuntu: apt-get install etcd-server")),
    }
}

/// Held while the cluster runs: a second one in the directory is refused.
fn lock(dir: &Path) -> Result<fs::File, Failure> {
    let mut options = fs::File::options();
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(dir.join("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => Err(Failure::new(format!("a cluster runs in {} already", dir.display()))
            .hint("terrace cluster status shows it; for another one, give --dir, --port and --etcd-port")),
    }
}

/// Refuses ports that others have: the nodes would talk to a foreign etcd.
fn require_ports(options: &UpOptions) -> Result<(), Failure> {
    let serving = ports(options).map(|port| (port, "--port"));
    let first = options.metrics_port;
    let metrics = (0..=options.serve).filter(|_| first > 0).map(|nth| (first + nth, "--metrics-port"));
    for (port, flag) in serving.chain(metrics).chain([(options.etcd_port, "--etcd-port")]) {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
            Failure::new(format!("cannot listen on 127.0.0.1:{port}: {error}"))
                .hint(format!("another program may have the port: give another {flag}"))
        })?;
    }
    Ok(())
}

/// What is to run, in the order in which it starts.
fn programs(options: &UpOptions, dir: &Path) -> Result<Vec<Program>, Failure> {
    let log = |name: &str| dir.join("logs").join(name);
    let (quick, slow) = (Duration::from_secs(10), Duration::from_secs(60));
    let terrace = text(&std::env::current_exe()?)?;
    let of_all = words_of_all(options, dir)?;
    let (etcd, memory) = (words_of_etcd(options, dir)?, words_of_memory(options, dir, &terrace)?);
    let memory = [memory, of_all.clone()].concat();
    let mut programs = vec![
        Program { name: "etcd".into(), words: etcd, log: log("etcd"), patience: quick },
        Program { name: "the memory node".into(), words: memory, log: log("memory"), patience: slow },
    ];
    for (port, nth) in ports(options).zip(1..) {
        let node = words_of_serving(options, dir, &terrace, (port, nth))?;
        let (name, log) = (format!("the serving node at {port}"), log(&format!("node-{port}")));
        programs.push(Program { name, words: [node, of_all.clone()].concat(), log, patience: quick });
    }
    Ok(programs)
}

fn words_of_etcd(options: &UpOptions, dir: &Path) -> Result<Vec<String>, Failure> {
    let client = format!("http://127.0.0.1:{}", options.etcd_port);
    // There is no other member: any free port does.
    let peer = "http://127.0.0.1:0";
    Ok(words(&[
        "etcd",
        "--name",
        "terrace",
        "--data-dir",
        &text(&dir.join("etcd"))?,
        "--listen-client-urls",
        &client,
        "--advertise-client-urls",
        &client,
        "--listen-peer-urls",
        peer,
        "--initial-advertise-peer-urls",
        peer,
        "--initial-cluster",
        &format!("terrace={peer}"),
        "--logger",
        "zap",
    ]))
}

/// The last words of each node: how it finds the others.
fn words_of_all(options: &UpOptions, dir: &Path) -> Result<Vec<String>, Failure> {
    let etcd = format!("127.0.0.1:{}", options.etcd_port);
    let key = text(&dir.join("key"))?;
    let mut all = words(&["--etcd", &etcd, "--cluster", &options.cluster, "--key-file", &key]);
    all.extend(options.fabric_ports.iter().flat_map(|ports| ["--fabric-ports".into(), ports.to_string()]));
    Ok(all)
}

fn words_of_memory(options: &UpOptions, dir: &Path, terrace: &str) -> Result<Vec<String>, Failure> {
    let pool = text(&dir.join("pool"))?;
    Ok(words(&[
        terrace,
        "node",
        "--role",
        "memory",
        "--pool",
        &pool,
        "--size",
        &pool_bytes(options).to_string(),
        "--listen",
        "127.0.0.1:0",
        "--lease",
        &format!("{}ms", options.lease.as_millis()),
        "--metrics-port",
        &options.metrics_port.to_string(),
    ]))
}

/// The first words of a serving node, the `nth` from 1 on.
fn words_of_serving(
    options: &UpOptions,
    dir: &Path,
    terrace: &str,
    (port, nth): (u16, u16),
) -> Result<Vec<String>, Failure> {
    let metrics = if options.metrics_port == 0 { 0 } else { options.metrics_port + nth };
    let (file, port) = (text(&dir.join(format!("node-{port}.id")))?, port.to_string());
    let mut node = words(&[terrace, "node", "--role", "serve", "--bind", "127.0.0.1", "--port", &port]);
    node.extend(words(&["--metrics-port", &metrics.to_string(), "--node-id-file", &file, "--cache"]));
    node.extend([options.cache.to_string(), "--shards".into(), shards(options).to_string()]);
    if let Some(password) = &options.password_file {
        node.extend(["--password-file".into(), text(&fs::canonicalize(password)?)?]);
    }
    Ok(node)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn text(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Failure::usage(format!("the path {} is not UTF-8", path.display())))
}

/// Looks after the children until a signal asks for the end. Says when all slots are served.
fn supervise(
    options: &UpOptions,
    password: Option<&str>,
    children: &mut [Supervised],
    asked: &mut Asked,
) -> Result<(), Failure> {
    let (begin, mut is_ready, mut is_slow) = (clock::start(), false, false);
    let mut served_since = None;
    while asked.times() == 0 {
        for child in &mut *children {
            if let Some(line) = child.look()? {
                failure::say(&line);
            }
        }
        if !is_ready {
            let all = ports(options).map(|port| nodes_with_slots(port, password));
            let fewest = all.map(|nodes| nodes.unwrap_or(0)).min().unwrap_or(0);
            if fewest > 0 {
                served_since.get_or_insert_with(clock::start);
            }
            let is_late = served_since.is_some_and(|since| since.elapsed() > SHARED);
            is_ready = fewest == options.serve || fewest > 0 && is_late;
            if is_ready {
                announce(options)?;
            } else if !is_slow && begin.elapsed() > SLOW {
                is_slow = true;
                let logs: Vec<String> =
                    children.iter().map(|child| child.log().display().to_string()).collect();
                failure::say(&format!("the slots are not all served yet; what happens: {}", logs.join(", ")));
            }
        }
        clock::pause(TICK);
    }
    Ok(())
}

fn ports(options: &UpOptions) -> impl Iterator<Item = u16> {
    options.port..=options.port + (options.serve - 1)
}

fn announce(options: &UpOptions) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let line = writeln!(
        out,
        "{} serving nodes have all slots: redis-cli -c -p {}   (terrace cluster status --etcd 127.0.0.1:{} --cluster {})",
        options.serve, options.port, options.etcd_port, options.cluster,
    );
    match line.and_then(|()| out.flush()) {
        // The reader may be gone; the cluster runs nevertheless.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// How many nodes have slots, if the node at a port serves its own, and knows whose all others are.
fn nodes_with_slots(port: u16, password: Option<&str>) -> Option<u16> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let reply = ask(address, password, "CLUSTER INFO").ok()?;
    let is_whole = number(&reply, "cluster_slots_ok") == Some(SLOTS.into());
    number(&reply, "cluster_size").filter(|_| is_whole)?.try_into().ok()
}

/// Ends the children: the serving nodes, then the memory node, which merges what they wrote, then
/// etcd. A second signal ends them at once.
fn end(mut children: Vec<Supervised>, asked: &mut Asked) {
    let mut is_urgent = || asked.times() > 1;
    let serving = children.split_off(children.len().min(2));
    serving.iter().for_each(Supervised::ask_to_end);
    let say = |line: Option<String>| line.iter().for_each(|line| failure::say(line));
    serving.into_iter().for_each(|child| say(child.wait(&mut is_urgent)));
    while let Some(child) = children.pop() {
        child.ask_to_end();
        say(child.wait(&mut is_urgent));
    }
}
