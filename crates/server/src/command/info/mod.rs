//! INFO [section ...]
//!
//! Fields and their order are those of Redis. A field about a feature that Terrace lacks (replicas,
//! scripts, forks) is present if clients or dashboards read it and its value is true.

mod commands;
mod fields;
mod memory;
mod stats;
mod system;

use std::{fmt::Write, sync::atomic::Ordering::Relaxed};

use terrace_protocol::Args;

use self::fields::{Figures, Section, fields};
use super::*;
use crate::state::{
    config::Key,
    databases::{Count, DATABASES},
};

/// The Redis version that the server announces. 7.2 is the last version of which Terrace has all
/// string commands, replies and errors, including CLIENT SETINFO and NO-TOUCH. With a lower
/// version, clients fall back to older protocols; from 7.4 on they expect expiry of hash fields.
pub(super) const REDIS_VERSION: &str = "7.2.0";

pub(super) static INFO: Command = Command {
    flags: flag::LOADING | flag::STALE,
    categories: category::DANGEROUS,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    is_long: Some(|shared, state, args| shared.is_of_cluster() || has_many_clients(shared, state, args)),
    summary: "Information and statistics about the server, by section.",
    ..Command::new("info", -1, group::SERVER, Run::General(info))
};

/// The words, besides its own name, that select a section.
#[derive(Clone, Copy, PartialEq, Eq)]
enum In {
    /// No argument, `default`, `all` and `everything`.
    Default,
    /// `all` and `everything`.
    All,
    /// `everything`.
    Everything,
}

const SECTIONS: [(&str, In, Section); 15] = [
    ("Server", In::Default, server),
    ("Clients", In::Default, clients),
    ("Memory", In::Default, memory::memory),
    ("Sharing", In::Default, sharing),
    ("Persistence", In::Default, persistence),
    ("Tier", In::Default, tier),
    ("Stats", In::Default, stats::stats),
    ("Replication", In::Default, replication),
    ("CPU", In::Default, system::cpu),
    ("Modules", In::Everything, |_, _, _| Ok(())),
    ("Commandstats", In::All, commands::calls),
    ("Errorstats", In::Default, commands::errors),
    ("Latencystats", In::All, commands::latencies),
    ("Cluster", In::Default, cluster),
    ("Keyspace", In::Default, keyspace),
];

fn info(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    cx.state.publish(cx.now_ms);
    let figures = Figures { keyspace: keyspace_counts(cx)?, store: cx.shared.store.stats() };
    let mut text = String::new();
    for (name, within, section) in SECTIONS {
        let is_there = name != "Tier" || figures.store.tier.is_some();
        if is_there && is_wanted(args, name, within) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            text.push_str(&format!("# {name}\r\n"));
            section(&mut text, cx, &figures).map_err(|_| Failure::Text("ERR INFO could not be written"))?;
        }
    }
    cx.reply.verbatim(b"txt", text.as_bytes());
    Ok(())
}

fn is_wanted(args: Args<'_>, name: &str, within: In) -> bool {
    let has = |word: &str| (1..args.len()).any(|at| args.is(at, word));
    let by_group = match within {
        In::Default => args.len() == 1 || has("default") || has("all"),
        In::All => has("all"),
        In::Everything => false,
    };
    by_group || has("everything") || has(name)
}

/// How often per second the server checks timeouts and updates rates.
const HZ: u64 = 4;

fn server(out: &mut String, cx: &Context<'_>, _: &Figures) -> std::fmt::Result {
    // ORDER: Relaxed: a statistic.
    let uptime = cx.now_ms.saturating_sub(cx.shared.stats.started_at_ms.load(Relaxed)) / 1000;
    fields(
        out,
        &[
            ("redis_version", &REDIS_VERSION),
            ("terrace_version", &env!("CARGO_PKG_VERSION")),
            ("redis_git_sha1", &"00000000"),
            ("redis_git_dirty", &0),
            ("redis_build_id", &0),
            ("redis_mode", &cx.shared.mode()),
            ("os", &system::kernel()),
            ("arch_bits", &usize::BITS),
            ("monotonic_clock", &"POSIX clock_gettime"),
            ("multiplexing_api", &"epoll"),
            ("process_id", &std::process::id()),
            ("process_supervised", &"no"),
            ("run_id", &cx.shared.run_id()),
            ("tcp_port", &cx.shared.config.number(Key::Port)),
            ("server_time_usec", &(cx.now_ms * 1000)),
            ("uptime_in_seconds", &uptime),
            ("uptime_in_days", &(uptime / 86_400)),
            ("hz", &HZ),
            ("configured_hz", &HZ),
            ("lru_clock", &((cx.now_ms / 1000) & 0xff_ffff)),
            ("executable", &system::executable()),
            ("config_file", &""),
            ("io_threads_active", &0),
        ],
    )
}

fn clients(out: &mut String, cx: &Context<'_>, _: &Figures) -> std::fmt::Result {
    let clients = cx.shared.clients.all();
    let watching = clients.iter().filter(|client| client.watched.load(Relaxed) > 0).count();
    fields(
        out,
        &[
            ("connected_clients", &clients.len()),
            ("cluster_connections", &0),
            ("maxclients", &cx.shared.config.number(Key::MaxClients)),
            ("blocked_clients", &0),
            ("tracking_clients", &0),
            ("pubsub_clients", &0),
            ("watching_clients", &watching),
            ("clients_in_timeout_table", &0),
        ],
    )
}

/// The other processes that have the pool open, as in `terrace stats --shared`.
fn sharing(out: &mut String, cx: &Context<'_>, _: &Figures) -> std::fmt::Result {
    let others = cx.shared.store.sharing().other_processes();
    let count = |is_so: fn(&terrace::Holder) -> bool| others.iter().filter(|other| is_so(other)).count();
    write!(
        out,
        "pool_shared:{}\r\nsharers:{}\r\nsharers_stopped:{}\r\nsharers_holding_up:{}\r\n",
        u8::from(cx.shared.config.is_on(Key::Shared)),
        others.len(),
        count(|other| other.stopped),
        count(|other| other.blocks_reclaim),
    )?;
    others.iter().enumerate().try_for_each(|(nth, other)| {
        // A program chooses its own name, which must not break the syntax of this line.
        let program = other.program.replace(|c: char| c == ',' || c.is_control(), "_");
        write!(
            out,
            "sharer{nth}:pid={},here={},program={program},stopped={},holding_up={},reads_only={}\r\n",
            other.pid,
            // 0: the process id belongs to another namespace.
            u8::from(other.is_local),
            u8::from(other.stopped),
            u8::from(other.blocks_reclaim),
            u8::from(other.reads_only),
        )
    })
}

/// The tiers of a store that has some.
fn tier(out: &mut String, cx: &Context<'_>, figures: &Figures) -> std::fmt::Result {
    let Some(tier) = figures.store.tier else { return Ok(()) };
    // ORDER: Relaxed: statistics.
    let io = if cx.shared.pacing.has_ring() { "io_uring" } else { "threads" };
    let parked = cx.shared.stats.parked.load(Relaxed);
    fields(out, &[("tier_io", &io), ("tier_parked_commands", &parked)])?;
    let all = terrace::TierStats::FIGURES.iter();
    all.map(|figure| (figure.name, (figure.get)(&tier)))
        .try_for_each(|(name, value)| write!(out, "tier_{name}:{value}\r\n"))
}

/// The fields about snapshots: there are none but checkpoints of a store on a disk.
fn snapshots(out: &mut String, saved_at: u64, saves: u64) -> std::fmt::Result {
    fields(
        out,
        &[
            ("loading", &0),
            ("async_loading", &0),
            ("current_cow_peak", &0),
            ("current_cow_size", &0),
            ("rdb_changes_since_last_save", &0),
            ("rdb_bgsave_in_progress", &0),
            ("rdb_last_save_time", &saved_at),
            ("rdb_last_bgsave_status", &"ok"),
            ("rdb_last_bgsave_time_sec", &-1),
            ("rdb_current_bgsave_time_sec", &-1),
            ("rdb_saves", &saves),
            ("rdb_last_cow_size", &0),
        ],
    )
}

fn persistence(out: &mut String, cx: &Context<'_>, _: &Figures) -> std::fmt::Result {
    // A pool needs neither RDB nor AOF, so both are reported as off with nothing to save. The log
    // of a store on a disk is its AOF, and a checkpoint its RDB. The lines `terrace_*` name what
    // Terrace has instead. Before its first save, Redis too reports its start time here.
    // ORDER: Relaxed: statistics.
    let saves = cx.shared.stats.saves.load(Relaxed);
    let saved_at = durability::saved_at_ms(cx.shared) / 1000;
    let is_on_disk = cx.shared.store.is_on_disk();
    let place = match cx.shared.routing() {
        // The memory node has the pool.
        Some(_) => String::new(),
        None => cx.shared.config.text(if is_on_disk { Key::Dir } else { Key::Pool }),
    };
    snapshots(out, saved_at, saves)?;
    fields(
        out,
        &[
            ("aof_enabled", &u8::from(is_on_disk)),
            ("aof_rewrite_in_progress", &0),
            ("aof_rewrite_scheduled", &0),
            ("aof_last_rewrite_time_sec", &-1),
            ("aof_current_rewrite_time_sec", &-1),
            ("aof_last_bgrewrite_status", &"ok"),
            ("aof_last_write_status", &"ok"),
            ("aof_last_cow_size", &0),
            ("module_fork_in_progress", &0),
            ("module_fork_last_cow_size", &0),
            ("terrace_durability", &cx.shared.config.text(Key::Durability)),
            (if is_on_disk { "terrace_dir" } else { "terrace_pool" }, &place),
        ],
    )
}

fn replication(out: &mut String, cx: &Context<'_>, _: &Figures) -> std::fmt::Result {
    fields(
        out,
        &[
            ("role", &"master"),
            ("connected_slaves", &0),
            ("master_failover_state", &"no-failover"),
            ("master_replid", &cx.shared.run_id()),
            ("master_replid2", &"0".repeat(40)),
            ("master_repl_offset", &0),
            ("second_repl_offset", &-1),
            ("repl_backlog_active", &0),
            ("repl_backlog_size", &0),
            ("repl_backlog_first_byte_offset", &0),
            ("repl_backlog_histlen", &0),
        ],
    )
}

fn cluster(out: &mut String, cx: &Context<'_>, _: &Figures) -> std::fmt::Result {
    fields(out, &[("cluster_enabled", &u8::from(cx.shared.is_of_cluster()))])?;
    let figures = cx.shared.routing().into_iter().flat_map(|routing| routing.figures());
    figures.into_iter().try_for_each(|figure| write!(out, "cluster_{}:{}\r\n", figure.name, figure.value))
}

fn keyspace(out: &mut String, _: &Context<'_>, figures: &Figures) -> std::fmt::Result {
    let all = figures.keyspace.iter().enumerate().filter(|(_, count)| count.keys > 0);
    all.into_iter().try_for_each(|(database, count)| {
        write!(out, "db{database}:keys={},expires={},avg_ttl=0\r\n", count.keys, count.expiring)
    })
}

/// The counts of each database that may have keys.
fn keyspace_counts(cx: &mut Context<'_>) -> Result<Vec<Count>, Failure> {
    let shared = cx.shared;
    match cx.state.selection.map().filter(|_| shared.databases.are_several()) {
        Some(map) => {
            let counts = shared.databases.counts(&shared.store)?;
            Ok((0..DATABASES).map(|database| counts[map.place(database).index()]).collect())
        }
        None => Ok(vec![Count { keys: shared.store.len(), expiring: shared.store.stats().expiring }]),
    }
}
