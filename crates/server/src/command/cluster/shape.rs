//! Replies that describe the whole cluster, in the forms of Redis 7.

use std::{fmt::Write, sync::Arc};

use terrace_protocol::{Args, Reply, SLOTS};

use super::{Context, Failure, Node, Outcome, routing};
use crate::state::routing::{Place, Shape};

pub(super) fn slots(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let shape = routing(cx)?.shape();
    shape.encoded_slots(cx.reply.resp3()).write(&mut cx.reply, cx.state.client.id);
    Ok(())
}

pub(super) fn shards(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let shape = routing(cx)?.shape();
    let reply = &mut cx.reply;
    reply.array(shape.nodes().len());
    for node in shape.nodes() {
        reply.map(2);
        reply.bulk(b"slots");
        reply.array(2 * node.slots.len());
        for range in &node.slots {
            reply.integer((*range.start()).into());
            reply.integer((*range.end()).into());
        }
        reply.bulk(b"nodes");
        reply.array(1);
        shard(reply, node);
    }
    Ok(())
}

fn shard(reply: &mut Reply<'_>, node: &Node) {
    let (endpoint, address) = (node.endpoint(), node.address.to_string());
    let health = if node.is_online { "online" } else { "failed" };
    reply.map(7 + usize::from(node.host.is_some()));
    reply.bulk(b"id");
    reply.bulk(node.id.as_bytes());
    reply.bulk(b"port");
    reply.integer(node.port.into());
    let names = [("ip", Some(&address)), ("endpoint", Some(&endpoint)), ("hostname", node.host.as_ref())];
    for (name, value) in names.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"replication-offset");
    reply.integer(0);
    reply.bulk(b"health");
    reply.bulk(health.as_bytes());
}

pub(super) fn nodes(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let shape = routing(cx)?.shape();
    let mut text = String::new();
    for node in shape.nodes() {
        line(&mut text, &shape, node).map_err(|_| UNWRITTEN)?;
    }
    cx.reply.verbatim(b"txt", text.as_bytes());
    Ok(())
}

const UNWRITTEN: Failure = Failure::Text("ERR the cluster could not be described");

/// A node in CLUSTER NODES. It has no port of a cluster bus, and 0 in its place.
fn line(out: &mut String, shape: &Shape, node: &Arc<Node>) -> std::fmt::Result {
    let me = if Arc::ptr_eq(node, shape.me()) { "myself," } else { "" };
    let (failed, link) = if node.is_online { ("", "connected") } else { (",fail", "disconnected") };
    write!(out, "{} {}:{}@0", node.id, node.address, node.port)?;
    if let Some(host) = &node.host {
        write!(out, ",{host}")?;
    }
    write!(out, " {me}master{failed} - 0 0 {} {link}", shape.epoch())?;
    for range in &node.slots {
        match (range.start(), range.end()) {
            (start, end) if start == end => write!(out, " {start}")?,
            (start, end) => write!(out, " {start}-{end}")?,
        }
    }
    writeln!(out)
}

pub(super) fn info(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let routing = routing(cx)?;
    let shape = routing.shape();
    let count = |wanted: fn(&Node) -> bool| -> usize {
        shape.nodes().iter().filter(|node| wanted(node)).map(|node| node.slot_count()).sum()
    };
    let (assigned, ok) = (count(|_| true), count(|node| node.is_online));
    // Slots of this node that it does not serve yet.
    let mine = shape.me().slots.iter().cloned().flatten();
    let held = mine.filter(|slot| matches!(routing.place(*slot, false), Place::Held)).count();
    let serving = shape.nodes().iter().filter(|node| !node.slots.is_empty()).count();
    // A node that serves none of its slots has lost the memory node.
    let is_cut_off = held > 0 && held == shape.me().slot_count();
    let state = if ok == usize::from(SLOTS) && !is_cut_off { "ok" } else { "fail" };
    let mut text = format!("cluster_state:{state}\r\n");
    for (name, value) in [
        ("slots_assigned", assigned as u64),
        ("slots_ok", ok.saturating_sub(held) as u64),
        ("slots_pfail", held as u64),
        ("slots_fail", (assigned - ok) as u64),
        ("known_nodes", shape.nodes().len() as u64),
        ("size", serving as u64),
        ("current_epoch", shape.epoch()),
        ("my_epoch", shape.epoch()),
        ("stats_messages_sent", 0),
        ("stats_messages_received", 0),
    ] {
        write!(text, "cluster_{name}:{value}\r\n").map_err(|_| UNWRITTEN)?;
    }
    text.push_str("total_cluster_links_buffer_limit_exceeded:0\r\n");
    cx.reply.verbatim(b"txt", text.as_bytes());
    Ok(())
}
