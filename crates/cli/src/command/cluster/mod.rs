//! `cluster`: runs a cluster on this machine, shows a cluster, and changes it.
//!
//! Each command has its file: [`up`], [`status`], [`change`] and [`backup`]. Below them are
//! [`seen`], the nodes as the directory knows them, [`asking`], what a node says of itself, and
//! [`supervisor`], which keeps the children of `up` running.

mod asking;
mod backup;
mod change;
mod seen;
mod status;
mod supervisor;
mod up;

use clap::Subcommand;

use crate::failure::Outcome;

use backup::BackupOptions;
use change::{DrainOptions, MoveOptions, NodeOption};
use status::StatusOptions;
use supervisor::ChildOptions;
use up::UpOptions;

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
