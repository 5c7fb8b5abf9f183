//! The options of a node, of either role.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use terrace_fabric::Ports;

use super::place::Place;
use crate::{
    settings::{OfNode, Settings},
    text::parse_ttl,
};

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
    let time = Duration::from_millis(parse_ttl(text)?);
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
