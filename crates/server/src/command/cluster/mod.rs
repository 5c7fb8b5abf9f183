//! CLUSTER COUNT-FAILURE-REPORTS | COUNTKEYSINSLOT | GETKEYSINSLOT | INFO | KEYSLOT | LINKS | MYID
//! | MYSHARDID | NODES | REPLICAS | SHARDS | SLOTS

mod shape;

use std::{collections::BTreeSet, sync::Arc};

use terrace::Cursor;
use terrace_protocol::{Args, SLOTS, slot};

use super::*;
use crate::state::{
    routing::{Node, Routing},
    session_state::State,
    shared::Shared,
};

pub(super) static CLUSTER: Command = Command {
    since: "3.0.0",
    complexity: "Depends on subcommand.",
    summary: "Commands about the cluster.",
    is_long: Some(visits_many_keys),
    subcommands: &SUBCOMMANDS,
    ..Command::new("cluster", -2, group::CLUSTER, Run::Container)
};

static SUBCOMMANDS: [Command; 13] = [
    Command {
        flags: flag::ADMIN | flag::STALE,
        tips: UNSTEADY,
        summary: "0: nodes do not report failures to each other.",
        ..own("count-failure-reports", 3, count_failure_reports)
    },
    Command {
        complexity: "O(N) where N is the number of keys of this node",
        is_long: Some(has_many_keys),
        summary: "The number of keys in a slot of this node.",
        ..own("countkeysinslot", 3, count_keys_in_slot)
    },
    Command {
        tips: UNSTEADY,
        complexity: "O(N) where N is the number of keys of this node",
        is_long: Some(has_many_keys),
        summary: "Some keys in a slot of this node.",
        ..own("getkeysinslot", 4, get_keys_in_slot)
    },
    help::help(group::CLUSTER, 0),
    Command { tips: UNSTEADY, summary: "The state of the cluster.", ..own("info", 2, shape::info) },
    Command {
        complexity: "O(N) where N is the length of the key",
        summary: "The slot of a key.",
        ..own("keyslot", 3, key_slot)
    },
    Command {
        tips: UNSTEADY,
        since: "7.0.0",
        summary: "An empty array: nodes have no links to each other.",
        ..own("links", 2, links)
    },
    Command { summary: "The id of this node.", ..own("myid", 2, my_id) },
    Command {
        tips: UNSTEADY,
        since: "7.2.0",
        summary: "The id of this node's shard: that of the node.",
        ..own("myshardid", 2, my_id)
    },
    Command {
        tips: UNSTEADY,
        complexity: "O(N) where N is the number of nodes and their ranges of slots",
        summary: "The nodes, with the slots that each serves, as text.",
        ..own("nodes", 2, shape::nodes)
    },
    Command {
        flags: flag::ADMIN | flag::STALE,
        tips: UNSTEADY,
        since: "5.0.0",
        summary: "An empty array: no node has replicas.",
        ..own("replicas", 3, replicas)
    },
    Command {
        tips: UNSTEADY,
        since: "7.0.0",
        complexity: "O(N) where N is the number of nodes and their ranges of slots",
        summary: "The nodes, with the slots that each serves.",
        ..own("shards", 2, shape::shards)
    },
    Command {
        tips: UNSTEADY,
        complexity: "O(N) where N is the number of ranges of slots",
        summary: "The ranges of slots, with the node that serves each.",
        ..own("slots", 2, shape::slots)
    },
];

const UNSTEADY: &[&str] = &["nondeterministic_output"];

const fn own(name: &'static str, arity: i32, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        flags: flag::STALE,
        since: "3.0.0",
        ..Command::new(name, arity, group::CLUSTER, Run::General(run))
    }
}

/// The cluster that the server belongs to.
pub(super) fn routing(cx: &Context<'_>) -> Result<Arc<dyn Routing>, Failure> {
    cx.shared.routing().cloned().ok_or(Failure::Text("ERR This instance has cluster support disabled"))
}

/// Whether the subcommand visits the keys of this node, and there are many.
fn visits_many_keys(shared: &Shared, state: &State, args: Args<'_>) -> bool {
    (args.is(1, "countkeysinslot") || args.is(1, "getkeysinslot"))
        && shared.is_of_cluster()
        && has_many_keys(shared, state, args)
}

fn key_slot(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    cx.reply.integer(slot(args.at(2)).into());
    Ok(())
}

fn my_id(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    cx.reply.bulk(routing(cx)?.shape().me().id.as_bytes());
    Ok(())
}

fn links(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    routing(cx)?;
    cx.reply.array(0);
    Ok(())
}

fn replicas(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check_node(cx, args.at(2))?;
    cx.reply.array(0);
    Ok(())
}

fn count_failure_reports(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check_node(cx, args.at(2))?;
    cx.reply.integer(0);
    Ok(())
}

/// Refuses the id of a node that does not exist.
fn check_node(cx: &Context<'_>, id: &[u8]) -> Outcome {
    let is_it = |node: &Arc<Node>| node.id.as_bytes() == id;
    match routing(cx)?.shape().nodes().iter().any(is_it) {
        true => Ok(()),
        false => Err(Failure::of(&[b"ERR Unknown node ", Failure::printed(id)])),
    }
}

fn count_keys_in_slot(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    routing(cx)?;
    let slot = slot_number(parse::integer(args.at(2))?).ok_or(Failure::Text("ERR Invalid slot"))?;
    let keys = keys_in_slot(cx, slot, usize::MAX)?;
    cx.reply.count(keys.len());
    Ok(())
}

fn get_keys_in_slot(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    routing(cx)?;
    let (slot, most) = (parse::integer(args.at(2))?, parse::integer(args.at(3))?);
    let (Some(slot), Ok(most)) = (slot_number(slot), usize::try_from(most)) else {
        return Err(Failure::Text("ERR Invalid slot or number of keys"));
    };
    let keys = keys_in_slot(cx, slot, most)?;
    cx.reply.array(keys.len());
    keys.iter().for_each(|key| cx.reply.bulk(key));
    Ok(())
}

fn slot_number(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|slot| *slot < SLOTS)
}

/// Keys per call of the store.
const STEP: usize = 1024;

/// At most so many of this node's keys in a slot. Visits all keys of the node: a store keeps no
/// index by slot.
fn keys_in_slot(cx: &mut Context<'_>, wanted: u16, most: usize) -> Result<BTreeSet<Vec<u8>>, Failure> {
    let (mut found, mut cursor) = (BTreeSet::new(), Cursor::START);
    while !cursor.is_end() && found.len() < most {
        let mut each = |key: &[u8]| {
            if slot(key) == wanted && found.len() < most {
                found.insert(key.to_vec());
            }
        };
        cursor = walk::step(cx.keys, &cx.shared.store, &cursor, b"", STEP, &mut each)?;
    }
    Ok(found)
}
