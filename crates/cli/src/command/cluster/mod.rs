//! `cluster`: runs a cluster on this machine, shows a cluster, and changes it.

mod asking;
mod backup;
mod change;
mod status;
mod supervisor;
mod up;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use terrace_cluster::{directory::State, map::Node};
use terrace_fabric::Ports;

use crate::{
    args::DumpFormat,
    failure::{Failure, Outcome},
    node::{Place, parse_cache, parse_lease},
};

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Start etcd, a memory node and serving nodes on this machine, and keep them running
    Up(UpOptions),
    /// Show the nodes, their slots and what they are at
    Status(StatusOptions),
    /// Give slots to a node, until it goes
    Move(MoveOptions),
    /// Take all slots from a node, and keep it without any
    Drain(DrainOptions),
    /// Give a drained node slots again
    Undrain(NodeOption),
    /// Copy all keys of a running cluster to a file, for `terrace load`
    Backup(BackupOptions),
    /// Run a program that ends when its parent does
    #[command(hide = true)]
    Child(ChildOptions),
}

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

#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MoveOptions {
    /// The slots: 0-99, or 0-99,200
    pub(crate) slots: String,
    /// The node: the begin of its id, or its host:port
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct NodeOption {
    /// The node: the begin of its id, or its host:port
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, Args)]
pub(crate) struct DrainOptions {
    #[command(flatten)]
    pub(crate) node: NodeOption,
    /// Wait until the node serves no slot any more; it is asked as a client does
    #[arg(long)]
    pub(crate) wait: bool,
    /// With --wait: file whose first line is the password that clients must give
    #[arg(long, value_name = "PATH", requires = "wait")]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The nodes are read as clients read them. Each key that exists throughout is in the copy, with its value and expiry of
one instant; different keys are of different instants. Slots that move meanwhile, or whose node dies, are read again.

Only exit code 0 means that the copy is complete: the last line on standard error gives the number of keys. The file gets
its name when it has the keys of all slots.")]
pub(crate) struct BackupOptions {
    /// The file to write, which must not exist; `-` is standard output
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The format to write
    #[arg(long, default_value = "jsonl")]
    pub(crate) format: DumpFormat,
    #[command(flatten)]
    pub(crate) place: Place,
    /// File whose first line is the password that clients must give
    #[arg(long, value_name = "PATH")]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ChildOptions {
    /// The parent's process
    #[arg(long)]
    pub(crate) parent: u32,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    pub(crate) words: Vec<OsString>,
}

pub(crate) fn run(command: ClusterCommand) -> Outcome {
    match command {
        ClusterCommand::Up(options) => up::run(&options),
        ClusterCommand::Status(options) => status::run(&options),
        ClusterCommand::Move(options) => change::move_slots(&options),
        ClusterCommand::Drain(options) => change::drain(&options),
        ClusterCommand::Undrain(options) => change::undrain(&options),
        ClusterCommand::Backup(options) => backup::run(&options),
        ClusterCommand::Child(options) => Err(supervisor::become_child(&options)),
    }
}

/// A serving node as the directory knows it.
#[derive(Debug)]
struct Seen {
    id: String,
    /// Its host and port, if they are known.
    node: Option<Node>,
    is_registered: bool,
    has_session: bool,
    is_drained: bool,
    slots: usize,
}

impl Seen {
    fn address(&self) -> String {
        self.node.as_ref().map_or_else(|| "?".into(), |node| format!("{}:{}", node.host, node.port))
    }

    /// What a person is told: the begin of the id, and the address.
    fn name(&self) -> String {
        format!("{} ({})", short(&self.id), self.address())
    }

    /// Whether it can have slots.
    fn is_live(&self) -> bool {
        self.has_session && !self.is_drained
    }
}

fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

/// All serving nodes that the directory speaks of, in the order of their addresses.
fn seen(state: &State) -> Vec<Seen> {
    let sessions = state.sessions.iter().flat_map(|sessions| &sessions.nodes);
    let in_map = state.map.nodes.iter().map(|node| &node.id);
    let ids: std::collections::BTreeSet<&String> =
        state.members.keys().chain(&state.drained).chain(sessions).chain(in_map).collect();
    let one = |id: &String| Seen {
        id: id.clone(),
        node: node(state, id),
        is_registered: state.members.contains_key(id),
        has_session: state.sessions.as_ref().is_some_and(|sessions| sessions.nodes.contains(id)),
        is_drained: state.drained.contains(id),
        slots: state.map.slots_of(id).iter().map(|range| range.slots().count()).sum(),
    };
    let mut all: Vec<Seen> = ids.into_iter().map(one).collect();
    all.sort_by_key(|seen| (seen.node.as_ref().map(|node| (node.host.clone(), node.port)), seen.id.clone()));
    all
}

fn node(state: &State, id: &str) -> Option<Node> {
    if let Some(member) = state.members.get(id) {
        return Some(Node { id: id.into(), host: member.host.clone(), port: member.port });
    }
    state.map.nodes.iter().find(|node| node.id == id).cloned()
}

/// The node that a person means.
fn find(state: &State, wanted: &str) -> Result<Seen, Failure> {
    let is_it = |seen: &Seen| seen.address() == wanted || !wanted.is_empty() && seen.id.starts_with(wanted);
    let (mut found, others): (Vec<Seen>, Vec<Seen>) = seen(state).into_iter().partition(is_it);
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let known: Vec<String> = others.iter().map(Seen::name).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            Err(Failure::new(format!("there is no node {wanted}"))
                .hint(format!("the cluster's nodes: {known}")))
        }
        _ => {
            let several: Vec<String> = found.iter().map(Seen::name).collect();
            Err(Failure::new(format!("{wanted} stands for several nodes: {}", several.join(", ")))
                .hint("give more of the id"))
        }
    }
}
