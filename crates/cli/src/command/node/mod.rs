//! `node`: a node of a cluster. The memory node has the data; serving nodes answer clients.
//!
//! Each node has a directory (etcd) and a manager. It waits for etcd at its start; later it goes on
//! without it.
//!
//! The files in reading order: [`options`] has the command line; [`memory`] and [`serving`] run a
//! node of either role; [`claim`] asks the directory whether a pool is the cluster's. Below them
//! are [`place`], the directory of a cluster; [`secret`], [`identity`] and [`address`], what a
//! node is; and [`ready`], which says that it serves.

mod address;
mod claim;
mod identity;
mod memory;
mod options;
mod place;
mod ready;
mod secret;
mod serving;

use crate::{failure::Outcome, logger};

pub(crate) use identity::{create_private, create_private_dir, random_id};
pub(crate) use options::{NodeOptions, parse_cache, parse_lease};
pub(crate) use place::Place;
pub(crate) use serving::{default_lanes, default_shards};

use options::Role;

pub(crate) fn run(options: NodeOptions) -> Outcome {
    let config = options.settings.config()?;
    logger::start(config.log_level());
    match options.role {
        Role::Memory => memory::run(&options, &config),
        Role::Serve => serving::run(&options, config),
    }
}
