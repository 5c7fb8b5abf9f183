//! INFO [section ...]

use std::{
    fmt::Write,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use terrace_protocol::Args;

use super::*;

/// The version of Redis that clients may take this server for. 7.2 is the last whose string commands, replies and errors are
/// all here (CLIENT SETINFO and NO-TOUCH among them); clients that see less fall back to older ways, and from 7.4 on they
/// would expect expiry of hash fields.
pub(super) const REDIS_VERSION: &str = "7.2.0";

pub(super) static INFO: Command = Command {
    flags: flag::LOADING | flag::STALE,
    categories: category::DANGEROUS,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    summary: "What the server is and has done, by section.",
    ..Command::new("info", -1, group::SERVER, Run::General(info))
};

type Section = fn(&mut String, &Context<'_>, &Figures) -> std::fmt::Result;

/// What several sections tell.
struct Figures {
    keys: u64,
    store: terrace::Stats,
}

const SECTIONS: [(&str, Section); 8] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Sharing", sharing),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("Keyspace", keyspace),
];

fn info(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    cx.state.publish(cx.now_ms);
    let all = args.len() == 1
        || ["all", "default", "everything"].iter().any(|word| (1..args.len()).any(|at| args.is(at, word)));
    let figures = Figures { keys: cx.keys.count(), store: cx.shared.store.stats() };
    let mut text = String::new();
    for (name, section) in SECTIONS {
        if all || (1..args.len()).any(|at| args.is(at, name)) {
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

fn server(out: &mut String, cx: &Context<'_>, _: &Figures) -> std::fmt::Result {
    // ORDER: Relaxed: a figure to look at.
    let uptime = cx.now_ms.saturating_sub(cx.shared.stats.started_at_ms.load(Relaxed)) / 1000;
    write!(
        out,
        "redis_version:{REDIS_VERSION}\r\nterrace_version:{}\r\nredis_mode:standalone\r\nos:{} {}\r\narch_bits:{}\r\n\
         process_id:{}\r\ntcp_port:{}\r\nserver_time_usec:{}\r\nuptime_in_seconds:{uptime}\r\nuptime_in_days:{}\r\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
        usize::BITS,
        std::process::id(),
        setting(cx, "port"),
        cx.now_ms * 1000,
        uptime / 86_400,
    )
}

fn clients(out: &mut String, cx: &Context<'_>, _: &Figures) -> std::fmt::Result {
    let clients = cx.shared.clients.all();
    let watching = clients.iter().filter(|client| client.watched.load(Relaxed) > 0).count();
    write!(
        out,
        "connected_clients:{}\r\nmaxclients:{}\r\nblocked_clients:0\r\nwatching_clients:{watching}\r\n",
        clients.len(),
        setting(cx, "maxclients"),
    )
}

fn memory(out: &mut String, _: &Context<'_>, figures: &Figures) -> std::fmt::Result {
    let store = &figures.store;
    let (used, resident) = (store.size_bytes.saturating_sub(store.free_bytes), resident_bytes());
    write!(
        out,
        "used_memory:{used}\r\nused_memory_human:{}\r\nused_memory_rss:{resident}\r\nused_memory_rss_human:{}\r\n\
         used_memory_dataset:{}\r\nused_memory_overhead:{}\r\ntotal_system_memory:{}\r\nmaxmemory:{}\r\nmaxmemory_human:{}\r\n\
         maxmemory_policy:noeviction\r\npool_free_bytes:{}\r\npool_waiting_bytes:{}\r\n",
        human(used),
        human(resident),
        store.data_bytes,
        store.overhead_bytes,
        kibibytes("/proc/meminfo", "MemTotal:"),
        store.size_bytes,
        human(store.size_bytes),
        store.free_bytes,
        store.waiting_bytes,
    )
}

/// Which other processes have the pool open, as in `terrace stats --shared`.
fn sharing(out: &mut String, cx: &Context<'_>, _: &Figures) -> std::fmt::Result {
    let others = cx.shared.store.others();
    let count = |is_so: fn(&terrace::Holder) -> bool| others.iter().filter(|other| is_so(other)).count();
    write!(
        out,
        "pool_shared:{}\r\nsharers:{}\r\nsharers_stopped:{}\r\nsharers_holding_up:{}\r\n",
        u8::from(cx.shared.config.is_on(crate::config::Key::Shared)),
        others.len(),
        count(|other| other.stopped),
        count(|other| other.holds_up),
    )?;
    others.iter().enumerate().try_for_each(|(nth, other)| {
        // It names itself, and is one field among others.
        let program = other.program.replace(|c: char| c == ',' || c.is_control(), "_");
        write!(
            out,
            "sharer{nth}:pid={},here={},program={program},stopped={},holding_up={},reads_only={}\r\n",
            other.pid,
            // If not, the number is one of another namespace.
            u8::from(other.is_here),
            u8::from(other.stopped),
            u8::from(other.holds_up),
            u8::from(other.reads_only),
        )
    })
}

fn persistence(out: &mut String, cx: &Context<'_>, _: &Figures) -> std::fmt::Result {
    // Redis's two ways do not exist here, so both are off; what there is instead is named in Terrace's own lines.
    write!(
        out,
        "loading:0\r\nrdb_bgsave_in_progress:0\r\naof_enabled:0\r\naof_rewrite_in_progress:0\r\nterrace_durability:{}\r\nterrace_pool:{}\r\n",
        setting(cx, "durability"),
        setting(cx, "pool"),
    )
}

fn stats(out: &mut String, cx: &Context<'_>, figures: &Figures) -> std::fmt::Result {
    let stats = &cx.shared.stats;
    // ORDER: Relaxed: a figure to look at.
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    let tally = cx.shared.clients.tally();
    let cache = figures.store.index_cache.unwrap_or_default();
    let counters = [
        ("total_connections_received", read(&stats.connections)),
        ("total_commands_processed", tally.commands),
        ("total_net_input_bytes", read(&stats.bytes_in)),
        ("total_net_output_bytes", read(&stats.bytes_out)),
        ("rejected_connections", read(&stats.connections_rejected)),
        ("expired_keys", figures.store.expired),
        ("keyspace_hits", tally.hits),
        ("keyspace_misses", tally.misses),
        ("total_error_replies", tally.errors),
        // 0: there is none.
        ("index_cache_bytes", cache.bytes),
        ("index_cache_hits", cache.hits),
        ("index_cache_misses", cache.misses),
    ];
    counters.iter().try_for_each(|(name, count)| write!(out, "{name}:{count}\r\n"))?;
    write!(out, "evicted_keys:0\r\n")
}

fn replication(out: &mut String, _: &Context<'_>, _: &Figures) -> std::fmt::Result {
    write!(out, "role:master\r\nconnected_slaves:0\r\nmaster_repl_offset:0\r\n")
}

fn keyspace(out: &mut String, _: &Context<'_>, figures: &Figures) -> std::fmt::Result {
    if figures.keys == 0 {
        return Ok(());
    }
    write!(out, "db0:keys={},expires={},avg_ttl=0\r\n", figures.keys, figures.store.expiring)
}

/// A setting by its name, empty if there is none.
fn setting(cx: &Context<'_>, name: &str) -> String {
    let mut found = String::new();
    cx.shared.config.for_each(&mut |other| other == name, &mut |_, value| found = value.to_string());
    found
}

/// Bytes as Redis writes them for people: `1.50M`.
fn human(bytes: u64) -> String {
    let units = ["B", "K", "M", "G", "T"];
    let power = (0..units.len() - 1).take_while(|power| bytes >> (10 * (power + 1)) > 0).count();
    if power == 0 {
        return format!("{bytes}B");
    }
    format!("{:.2}{}", bytes as f64 / (1u64 << (10 * power)) as f64, units[power])
}

/// Bytes of memory of this process that are in RAM.
fn resident_bytes() -> u64 {
    kibibytes("/proc/self/status", "VmRSS:")
}

/// A figure in KiB from one of the kernel's files, in bytes; 0 where there is no such file.
fn kibibytes(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_for_people() {
        let texts = [0, 1023, 1024, 1536, 3 << 20, 5 << 30].map(super::human);
        assert_eq!(texts, ["0B", "1023B", "1.00K", "1.50K", "3.00M", "5.00G"]);
    }
}
