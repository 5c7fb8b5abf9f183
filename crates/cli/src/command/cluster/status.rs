//! `cluster status`: a table of the nodes.

use std::{
    fmt::Write as _,
    io::{self, Write},
    process::ExitCode,
};

use clap::Args;
use serde_json::{Value, json};
use terrace_cluster::{
    directory::{Directory, State, ranges_text},
    slot::SLOTS,
};

use super::seen::{seen, short};
use crate::{
    command::node::Place,
    failure::{Failure, Outcome},
};

#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    pub(crate) place: Place,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) fn run(options: &StatusOptions) -> Outcome {
    let state = options.place.directory()?.read().map_err(Failure::new)?;
    require_cluster(&options.place, &state)?;
    let text = match options.json {
        true => format!("{}\n", as_json(&options.place, &state)),
        false => as_text(&options.place, &state),
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses a directory that knows of no cluster.
pub(super) fn require_cluster(place: &Place, state: &State) -> Result<(), Failure> {
    if state.id.is_some() || !state.members.is_empty() {
        return Ok(());
    }
    let Place { etcd, cluster, .. } = place;
    let none = format!("there is no cluster {cluster} in etcd at {etcd}");
    Err(Failure::new(none).hint("name another with --cluster, or start one: terrace cluster up"))
}

fn as_json(place: &Place, state: &State) -> Value {
    let nodes: Vec<Value> = seen(state)
        .into_iter()
        .map(|seen| {
            json!({
                "id": seen.id,
                "role": "serve",
                "address": seen.address(),
                "slots": seen.slots,
                "ranges": ranges_text(state.map.slots_of(&seen.id)),
                "session": seen.has_session,
                "registered": seen.is_registered,
                "drained": seen.is_drained,
            })
        })
        .collect();
    let memory = state.memory.as_ref().map(|memory| {
        json!({
            "role": "memory",
            "address": memory.address,
            "boot": state.sessions.as_ref().map(|sessions| format!("{:016x}", sessions.boot)),
        })
    });
    json!({
        "cluster": place.cluster,
        "id": state.id,
        "epoch": state.epoch,
        "leader": state.leader.as_ref().map(|leader| &leader.name),
        "memory": memory,
        "nodes": nodes,
        "slots_unassigned": unassigned(state),
    })
}

/// Slots that the map gives to no node.
fn unassigned(state: &State) -> usize {
    usize::from(SLOTS) - seen(state).iter().map(|seen| seen.slots).sum::<usize>()
}

fn as_text(place: &Place, state: &State) -> String {
    let leader = state.leader.as_ref().map_or("none", |leader| short(&leader.name));
    let id = state.id.as_deref().map_or("none", short);
    let mut text = format!(
        "cluster {} ({id}) · epoch {} · leader {leader} · etcd {}\n\n",
        place.cluster, state.epoch, place.etcd
    );
    let mut rows = vec![["node", "role", "address", "slots", "session", "drained"].map(String::from)];
    let memory = state.memory.as_ref().map_or("not there", |memory| &memory.address);
    rows.push(["memory", "memory", memory, "", "", ""].map(String::from));
    for seen in seen(state) {
        let session = match (seen.has_session, seen.is_registered) {
            (true, true) => "yes",
            (true, false) => "yes, etcd has not heard of it",
            (false, true) => "no",
            (false, false) => "gone",
        };
        let drained = if seen.is_drained { "yes" } else { "no" };
        let (address, slots) = (seen.address(), seen.slots.to_string());
        rows.push([short(&seen.id), "serve", &address, &slots, session, drained].map(String::from));
    }
    push_table(&mut text, &rows);
    match unassigned(state) {
        0 => {}
        missing => _ = writeln!(text, "\n{missing} of {SLOTS} slots belong to no node"),
    }
    text
}

/// Columns as wide as they have to be; the fourth has numbers.
fn push_table(text: &mut String, rows: &[[String; 6]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = match column {
                3 => write!(line, "{cell:>width$}  "),
                _ => write!(line, "{cell:<width$}  "),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}
