//! `cluster move`, `drain` and `undrain`: wishes of the operator, which the manager fulfils.

use std::{
    io::{self, Write},
    net::ToSocketAddrs,
    path::PathBuf,
    process::ExitCode,
    sync::mpsc,
    time::Duration,
};

use clap::Args;
use terrace_cluster::{
    directory::{Directory, State, parse_ranges, ranges_text},
    slot::SlotRange,
};

use super::{
    asking::{ask, number},
    seen::{Seen, find, seen},
};
use crate::{
    clock,
    command::node::Place,
    failure::{Failure, Outcome},
    password::password_in,
};

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

/// How long the manager has to write a map.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn move_slots(options: &MoveOptions) -> Outcome {
    let ranges = parse_ranges(&options.slots).filter(|ranges| !ranges.is_empty()).ok_or_else(|| {
        Failure::usage(format!(
            "{} are no slots: give 0-99, or 0-99,200; there are 0 to 16383",
            options.slots
        ))
    })?;
    let directory = options.place.directory()?;
    let id = loop {
        let state = directory.read().map_err(Failure::new)?;
        let node = find(&state, &options.node)?;
        if node.is_drained {
            return Err(Failure::new(format!("node {} is drained", node.name()))
                .hint(format!("to give it slots again: terrace cluster undrain {}", options.node)));
        }
        if !node.is_live() {
            return Err(Failure::new(format!("node {} has no session with the memory node", node.name()))
                .hint("terrace cluster status shows the nodes that have one"));
        }
        let moves = state.moves.with(&ranges, &node.id);
        // Another operator may have been faster.
        if directory.put_moves(&state.moves, &moves).map_err(Failure::new)?.is_some() {
            break node.id;
        }
    };
    let has_all = |state: &State| {
        let owned = state.map.slots_of(&id);
        ranges.iter().all(|range| owned.iter().any(|has| contains(*has, *range)))
    };
    let state = wait(&directory, has_all)?;
    let name = find(&state, &id)?.name();
    say(&format!("slots {} go to node {name} by epoch {}", ranges_text(&ranges), state.epoch))
}

/// Whether a range is within another one.
fn contains(outer: SlotRange, inner: SlotRange) -> bool {
    outer.first <= inner.first && inner.last <= outer.last
}

pub(super) fn drain(options: &DrainOptions) -> Outcome {
    let DrainOptions { node: options, wait: waits, password_file } = options;
    let password = password_file.as_deref().map(password_in).transpose()?;
    let directory = options.place.directory()?;
    let state = directory.read().map_err(Failure::new)?;
    let node = find(&state, &options.node)?;
    if !seen(&state).iter().any(|other| other.id != node.id && other.is_live()) {
        return Err(Failure::new(format!("no other node could take the slots of node {}", node.name()))
            .hint("start another serving node first, or undrain one"));
    }
    directory.drain(&node.id, true).map_err(Failure::new)?;
    let state = wait(&directory, |state| state.map.slots_of(&node.id).is_empty())?;
    if *waits {
        wait_for_others(&node, password.as_deref())?;
    }
    let (name, slots) = (node.name(), node.slots);
    let go = if *waits { "have gone" } else { "go" };
    say(&format!("node {name} is drained: its {slots} slots {go} to the others by epoch {}", state.epoch))
}

/// Waits until a node says that it serves no slot, and that none is on its way.
fn wait_for_others(node: &Seen, password: Option<&str>) -> Result<(), Failure> {
    let address = node.address();
    let begin = clock::start();
    let mut last = "it was not asked".to_owned();
    while begin.elapsed() < PATIENCE {
        let asked = address.to_socket_addrs().and_then(|mut found| {
            let found = found.next().ok_or_else(|| io::Error::other("the name has no address"))?;
            ask(found, password, "INFO cluster")
        });
        last = match asked {
            Err(error) => error.to_string(),
            Ok(reply) => {
                let slots = |name| number(&reply, name);
                match (slots("cluster_slots_served"), slots("cluster_slots_held")) {
                    (Some(0), Some(0)) => return Ok(()),
                    (Some(served), Some(held)) => {
                        format!("it serves {served} slots, and {held} are on their way")
                    }
                    _ => reply.lines().next().unwrap_or("it said nothing").to_owned(),
                }
            }
        };
        // A password that is wrong or missing.
        if last.starts_with('-') {
            break;
        }
        clock::pause(Duration::from_millis(20));
    }
    Err(Failure::new(format!(
        "the wish is noted, but node {} did not say that its slots have gone: {last}",
        node.name(),
    ))
    .hint("if clients need a password, give --password-file; terrace cluster status shows the node"))
}

pub(super) fn undrain(options: &NodeOption) -> Outcome {
    let directory = options.place.directory()?;
    let state = directory.read().map_err(Failure::new)?;
    let node = find(&state, &options.node)?;
    directory.drain(&node.id, false).map_err(Failure::new)?;
    if !node.has_session {
        return say(&format!("node {} gets its share once it has a session", node.name()));
    }
    let state = wait(&directory, |state| !state.map.slots_of(&node.id).is_empty())?;
    let slots = find(&state, &node.id)?.slots;
    say(&format!("node {} gets {slots} slots by epoch {}", node.name(), state.epoch))
}

/// The first state that is as wanted.
fn wait(directory: &dyn Directory, is_it: impl Fn(&State) -> bool) -> Result<State, Failure> {
    let (give, states) = mpsc::channel();
    let _watch = directory.watch(Box::new(move |state| _ = give.send(state)));
    let begin = clock::start();
    while let Some(left) = PATIENCE.checked_sub(begin.elapsed()) {
        match states.recv_timeout(left) {
            Ok(state) if is_it(&state) => return Ok(state),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Err(Failure::new(format!(
        "the wish is noted, but no manager has fulfilled it within {} s",
        PATIENCE.as_secs()
    ))
    .hint("it is fulfilled once a node of the cluster runs: terrace cluster status"))
}

fn say(line: &str) -> Outcome {
    writeln!(io::stdout().lock(), "{line}")?;
    Ok(ExitCode::SUCCESS)
}
