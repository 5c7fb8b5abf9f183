//! The table of settings: one line each.

use super::value::Kind;

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Identifies the setting in code.
    pub key: Key,
    /// Name in CONFIG GET and SET, as in Redis if Redis has it.
    pub name: &'static str,
    /// Name of the flag, without `--`; empty: none.
    pub flag: &'static str,
    /// Name of the environment variable; empty: none.
    pub env: &'static str,
    /// Kind of its value.
    pub kind: Kind,
    /// Default value.
    pub default: &'static str,
    /// Whether CONFIG SET may change it.
    pub is_live: bool,
    /// One line for `--help`.
    pub doc: &'static str,
}

/// Every setting, in the order of [`TABLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table documents each")]
pub enum Key {
    Pool,
    Size,
    MaxSize,
    Index,
    IndexCache,
    IndexDram,
    Engine,
    Dir,
    Memory,
    Dram,
    Durability,
    SyncInterval,
    MergeRate,
    HugePages,
    Salvage,
    Shared,
    Participants,
    EndStopped,
    Threads,
    IoUring,
    Bind,
    Port,
    TcpBacklog,
    UnixSocket,
    UnixSocketPerm,
    Password,
    MetricsPort,
    MetricsBind,
    MaxClients,
    Timeout,
    AuthTimeout,
    TcpKeepalive,
    ProtoMaxBulkLen,
    ClientOutputBuffer,
    LogLevel,
    MaxMemory,
    MaxMemoryPolicy,
    MaxMemorySamples,
    MaxMemoryEvictionTenacity,
    LfuLogFactor,
    LfuDecayTime,
    AppendOnly,
    AppendFsync,
    Save,
    Databases,
    NotifyKeyspaceEvents,
    BusyReplyThreshold,
    ScriptMemory,
    ScriptInstructions,
    TransactionMemory,
    ProtectedMode,
    Daemonize,
    ReplicaOf,
    MinReplicasToWrite,
    MaxMemoryClients,
    SlowLogLogSlowerThan,
    SlowLogMaxLen,
    LatencyMonitorThreshold,
    LatencyTracking,
    ShutdownOnSigint,
    ShutdownOnSigterm,
    HashMaxListpackEntries,
    HashMaxListpackValue,
    ListMaxListpackSize,
    ListCompressDepth,
    SetMaxIntsetEntries,
    SetMaxListpackEntries,
    SetMaxListpackValue,
    ZsetMaxListpackEntries,
    ZsetMaxListpackValue,
    StreamNodeMaxBytes,
    StreamNodeMaxEntries,
    HllSparseMaxBytes,
    LazyfreeLazyEviction,
    LazyfreeLazyExpire,
    LazyfreeLazyServerDel,
    LazyfreeLazyUserDel,
    LazyfreeLazyUserFlush,
    ReplicaServeStaleData,
    ReplicaReadOnly,
    ReplicaPriority,
    ReplicaLazyFlush,
    ReplTimeout,
    ReplPingReplicaPeriod,
    ReplBacklogSize,
    ReplBacklogTtl,
    MinReplicasMaxLag,
}

impl Key {
    /// Whether the setting is about what the store evicts.
    pub fn is_about_eviction(self) -> bool {
        (Key::MaxMemory as usize..=Key::LfuDecayTime as usize).contains(&(self as usize))
    }
}

impl Setting {
    /// Whether `text` is a valid value of this setting; the error says why not.
    pub fn check(&self, text: &str) -> Result<(), String> {
        self.kind.parse(text).map(|_| ())
    }
}

/// The setting called `name`, in any case.
pub fn setting(name: &str) -> Option<&'static Setting> {
    let newer = OLDER_NAMES.iter().find(|(older, _)| name.eq_ignore_ascii_case(older));
    let name = newer.map_or(name, |(_, newer)| newer);
    TABLE.iter().find(|setting| setting.name.eq_ignore_ascii_case(name))
}

const LIVE: bool = true;
const FIXED: bool = false;
const NEVER: u64 = 1 << 31;

const fn line(
    key: Key,
    [name, flag, env]: [&'static str; 3],
    kind: Kind,
    default: &'static str,
    is_live: bool,
    doc: &'static str,
) -> Setting {
    Setting { key, name, flag, env, kind, default, is_live, doc }
}

/// A setting of Redis that has a fixed value in Terrace.
const fn fact(key: Key, name: &'static str, answer: &'static str, why: &'static str) -> Setting {
    line(key, [name, "", ""], Kind::Fixed(why), answer, FIXED, why)
}

/// A setting of Redis that may have any value, since what it is about is not there (types other
/// than strings, and replicas), or since no client can see it (when memory is freed). It is kept
/// and shown, for programs that set it.
const fn idle(key: Key, name: &'static str, kind: Kind, default: &'static str) -> Setting {
    line(key, [name, "", ""], kind, default, LIVE, "Has no effect: see docs/redis.md")
}

const COUNT: Kind = Kind::Number { min: 0, max: i64::MAX as u64 };
const BYTES: Kind = Kind::Size { min: 0 };

/// Names that Redis had before, or has besides, and those of [`TABLE`].
pub(super) const OLDER_NAMES: [(&str, &str); 14] = [
    ("lua-time-limit", "busy-reply-threshold"),
    ("slaveof", "replicaof"),
    ("min-slaves-to-write", "min-replicas-to-write"),
    ("min-slaves-max-lag", "min-replicas-max-lag"),
    ("slave-serve-stale-data", "replica-serve-stale-data"),
    ("slave-read-only", "replica-read-only"),
    ("slave-priority", "replica-priority"),
    ("slave-lazy-flush", "replica-lazy-flush"),
    ("repl-ping-slave-period", "repl-ping-replica-period"),
    ("hash-max-ziplist-entries", "hash-max-listpack-entries"),
    ("hash-max-ziplist-value", "hash-max-listpack-value"),
    ("list-max-ziplist-size", "list-max-listpack-size"),
    ("zset-max-ziplist-entries", "zset-max-listpack-entries"),
    ("zset-max-ziplist-value", "zset-max-listpack-value"),
];

/// All settings.
#[rustfmt::skip]
pub static TABLE: &[Setting] = &[
    line(Key::Pool, ["pool", "pool", "TERRACE_POOL"], Kind::Text, "/dev/shm/terrace/default.pool", FIXED,
        "The pool file"),
    line(Key::Size, ["size", "size", "TERRACE_SIZE"], Kind::Size { min: 0 }, "4gb", LIVE,
        "Size of a new pool (4GiB, 512mb); CONFIG SET size makes it grow"),
    line(Key::MaxSize, ["max-size", "max-size", "TERRACE_MAX_SIZE"], Kind::Size { min: 0 }, "0", FIXED,
        "Size up to which the pool can grow while it is open; reserves only addresses; 0: 16 times its size, at least 64 GiB"),
    line(Key::Index, ["index", "index", "TERRACE_INDEX"], Kind::Choice(&["clht", "turbo", "rewo", "level", "art", "hot", "masstree", "bwtree", "sptree", "ordered"]), "clht", FIXED,
        "Index of a new pool; art, hot, masstree, bwtree and sptree keep keys in order; ordered: art"),
    line(Key::IndexCache, ["index-cache", "index-cache", "TERRACE_INDEX_CACHE"], Kind::Sizes, "0", FIXED,
        "With the index rewo: memory for a cache of its keys, as in 1mb..64mb, between which it grows and shrinks with its use; 0: none. For pools slower than memory"),
    line(Key::IndexDram, ["index-dram", "index-dram", "TERRACE_INDEX_DRAM"], Kind::SizeOrAuto, "auto", FIXED,
        "With the index sptree: memory for its layers above the pool; 0: none; auto: an eighth of the pool on persistent memory (--durability power), none elsewhere"),
    line(Key::Engine, ["engine", "engine", "TERRACE_ENGINE"], Kind::Choice(&["direct", "wip", "tiered"]), "direct", FIXED,
        "Engine of a new store: direct keeps it in a pool; wip in the directory of --dir, ordered, for data larger than memory; tiered in --dram and in that directory, or in the pool of --pool, for point reads and writes"),
    line(Key::Dir, ["dir", "dir", "TERRACE_DIR"], Kind::Text, "", FIXED,
        "The directory of a store on a disk, instead of a pool"),
    line(Key::Memory, ["memory", "memory", "TERRACE_MEMORY"], Kind::Size { min: 4 << 20 }, "256mb", FIXED,
        "With --dir: memory for recent writes and for cached blocks together"),
    line(Key::Dram, ["dram", "dram", "TERRACE_DRAM"], Kind::Size { min: 16 << 20 }, "1gb", FIXED,
        "With the engine tiered: DRAM for the index, for recent writes and for what is read often"),
    line(Key::Durability, ["durability", "durability", "TERRACE_DURABILITY"],
        Kind::Choice(&["process", "interval", "power", "none"]), "process", FIXED,
        "What an answered write survives: a crash of the process, or also a power failure; interval (with --dir): a power failure takes the writes of the last second"),
    line(Key::SyncInterval, ["sync-interval", "sync-interval", "TERRACE_SYNC_INTERVAL"],
        Kind::Number { min: 1, max: 3_600_000 }, "1000", FIXED,
        "With --durability interval: milliseconds between two syncs"),
    line(Key::MergeRate, ["merge-rate", "merge-rate", "TERRACE_MERGE_RATE"], Kind::Size { min: 0 }, "0", FIXED,
        "With --dir: bytes a second that merges read, and write about as many, at most; 0: no limit"),
    line(Key::HugePages, ["huge-pages", "huge-pages", "TERRACE_HUGE_PAGES"], Kind::Switch, "yes", FIXED,
        "Request huge pages from the kernel, which halve the cost of a random read"),
    line(Key::Salvage, ["salvage", "salvage", "TERRACE_SALVAGE"], Kind::Switch, "no", FIXED,
        "Open a damaged pool: keep the records whose checksums are right, and list the others"),
    line(Key::Shared, ["shared", "shared", "TERRACE_SHARED"], Kind::Switch, "no", FIXED,
        "Share the pool with other processes that use this option; if one is killed, the others continue"),
    line(Key::Participants, ["participants", "participants", "TERRACE_PARTICIPANTS"], Kind::Number { min: 0, max: 4096 }, "0", FIXED,
        "Maximum number of processes that share a new pool; 0: 64, or 16 for a pool below 64 MiB, 4 below 1 MiB"),
    line(Key::EndStopped, ["end-stopped", "end-stopped", "TERRACE_END_STOPPED"], Kind::Number { min: 0, max: NEVER }, "0", FIXED,
        "With --shared: seconds that another process may be stopped (SIGSTOP, a debugger) before it is killed; 0: no limit"),
    line(Key::Threads, ["threads", "threads", "TERRACE_THREADS"], Kind::Number { min: 0, max: 1024 }, "0", FIXED,
        "Threads that serve clients; 0: one per core"),
    line(Key::IoUring, ["io-uring", "io-uring", "TERRACE_IO_URING"], Kind::Switch, "yes", FIXED,
        "With the engine tiered: read files by io_uring if the system allows it; otherwise by threads"),
    line(Key::Bind, ["bind", "bind", "TERRACE_BIND"], Kind::Text, "127.0.0.1", FIXED,
        "Addresses to listen on, separated by spaces; any but loopback requires a password"),
    line(Key::Port, ["port", "port", "TERRACE_PORT"], Kind::Number { min: 0, max: 65535 }, "6379", FIXED,
        "TCP port; 0: none"),
    line(Key::TcpBacklog, ["tcp-backlog", "tcp-backlog", "TERRACE_TCP_BACKLOG"],
        Kind::Number { min: 1, max: 65535 }, "511", FIXED,
        "Connections that may wait to be accepted, at most the kernel's net.core.somaxconn"),
    line(Key::UnixSocket, ["unixsocket", "unix", "TERRACE_UNIX"], Kind::Text, "", FIXED,
        "Unix socket to listen on in addition"),
    line(Key::UnixSocketPerm, ["unixsocketperm", "unix-perm", "TERRACE_UNIX_PERM"], Kind::Octal, "700", FIXED,
        "Permissions of the Unix socket"),
    line(Key::Password, ["requirepass", "password", "TERRACE_PASSWORD"], Kind::Password, "", LIVE,
        "Password of clients; set it by environment or file, because other users can see flags"),
    line(Key::MetricsPort, ["metrics-port", "metrics-port", "TERRACE_METRICS_PORT"],
        Kind::Number { min: 0, max: 65535 }, "9121", FIXED,
        "Port of http://127.0.0.1:PORT/metrics; 0: none"),
    line(Key::MetricsBind, ["metrics-bind", "metrics-bind", "TERRACE_METRICS_BIND"], Kind::Text, "127.0.0.1", FIXED,
        "Address of that page, which asks for no password"),
    line(Key::MaxClients, ["maxclients", "maxclients", "TERRACE_MAXCLIENTS"],
        Kind::Number { min: 1, max: 1 << 20 }, "10000", LIVE,
        "Maximum number of clients at a time"),
    line(Key::Timeout, ["timeout", "timeout", "TERRACE_TIMEOUT"], Kind::Number { min: 0, max: NEVER }, "0", LIVE,
        "Seconds after which an idle connection is closed; 0: never"),
    line(Key::AuthTimeout, ["auth-timeout", "auth-timeout", "TERRACE_AUTH_TIMEOUT"],
        Kind::Number { min: 1, max: NEVER }, "10", LIVE,
        "Seconds a client has to give its password"),
    line(Key::TcpKeepalive, ["tcp-keepalive", "tcp-keepalive", "TERRACE_TCP_KEEPALIVE"],
        Kind::Number { min: 0, max: 32767 }, "300", LIVE,
        "Seconds of silence after which the kernel probes a connection; 0: never"),
    line(Key::ProtoMaxBulkLen, ["proto-max-bulk-len", "proto-max-bulk-len", "TERRACE_PROTO_MAX_BULK_LEN"],
        Kind::Size { min: 1 << 20 }, "64mb", LIVE,
        "Maximum length of a value that a client sends"),
    line(Key::ClientOutputBuffer, ["client-output-buffer", "client-output-buffer", "TERRACE_CLIENT_OUTPUT_BUFFER"],
        Kind::Size { min: 1 << 16 }, "256mb", LIVE,
        "Size of unsent replies at which the server stops reading from a client"),
    line(Key::LogLevel, ["loglevel", "log-level", "TERRACE_LOG_LEVEL"],
        Kind::Choice(&["debug", "verbose", "notice", "warning"]), "notice", LIVE,
        "Level of messages on standard error"),
    line(Key::MaxMemory, ["maxmemory", "maxmemory", "TERRACE_MAXMEMORY"], Kind::Size { min: 0 }, "0", LIVE,
        "Memory that the store may use; 0: the whole pool. See maxmemory-policy"),
    line(Key::MaxMemoryPolicy, ["maxmemory-policy", "maxmemory-policy", "TERRACE_MAXMEMORY_POLICY"],
        Kind::Choice(&["noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu",
            "volatile-random", "volatile-ttl"]), "noeviction", LIVE,
        "Keys that a write evicts when the pool is full or maxmemory is reached; volatile: those with an expiry"),
    line(Key::MaxMemorySamples, ["maxmemory-samples", "maxmemory-samples", "TERRACE_MAXMEMORY_SAMPLES"],
        Kind::Number { min: 1, max: 64 }, "5", LIVE,
        "Keys that are compared for each one that is evicted"),
    line(Key::MaxMemoryEvictionTenacity,
        ["maxmemory-eviction-tenacity", "maxmemory-eviction-tenacity", "TERRACE_MAXMEMORY_EVICTION_TENACITY"],
        Kind::Number { min: 0, max: 100 }, "10", LIVE,
        "How much one write evicts when far more than maxmemory is used; 100: all that is above"),
    line(Key::LfuLogFactor, ["lfu-log-factor", "lfu-log-factor", "TERRACE_LFU_LOG_FACTOR"],
        Kind::Number { min: 0, max: i32::MAX as u64 }, "10", LIVE,
        "How slowly the frequency of a key grows with its uses"),
    line(Key::LfuDecayTime, ["lfu-decay-time", "lfu-decay-time", "TERRACE_LFU_DECAY_TIME"],
        Kind::Number { min: 0, max: i32::MAX as u64 }, "1", LIVE,
        "Minutes after which the frequency of a key falls by one; 0: never"),
    fact(Key::AppendOnly, "appendonly", "no",
        "a pool has no append-only file, and a store on a disk always has its log: a write is as durable as --durability says when it is answered"),
    line(Key::AppendFsync, ["appendfsync", "", ""], Kind::Choice(&["always", "everysec", "no"]), "no", LIVE,
        "What an answered write survives, in Redis's words: always is power, everysec is interval, no is process"),
    fact(Key::Save, "save", "",
        "there are no snapshots to schedule: a write is as durable as --durability says when it is answered"),
    fact(Key::Databases, "databases", "16", "there are 16 databases"),
    fact(Key::NotifyKeyspaceEvents, "notify-keyspace-events", "", "there are no keyspace notifications"),
    line(Key::BusyReplyThreshold, ["busy-reply-threshold", "busy-reply-threshold", "TERRACE_BUSY_REPLY_THRESHOLD"],
        Kind::Number { min: 0, max: NEVER }, "5000", LIVE,
        "Milliseconds that writes wait for a script that has to run alone, before they are refused with BUSY; 0: no limit"),
    line(Key::ScriptMemory, ["script-memory", "script-memory", "TERRACE_SCRIPT_MEMORY"], Kind::Size { min: 2 << 20 }, "64mb", LIVE,
        "Memory that a script may use"),
    line(Key::ScriptInstructions, ["script-instructions", "script-instructions", "TERRACE_SCRIPT_INSTRUCTIONS"],
        Kind::Number { min: 0, max: u64::MAX >> 1 }, "0", LIVE,
        "Instructions of Lua that a script may execute; 0: no limit"),
    line(Key::TransactionMemory, ["transaction-memory", "transaction-memory", "TERRACE_TRANSACTION_MEMORY"],
        Kind::Size { min: 1 << 20 }, "1gb", LIVE,
        "Memory that the replies and the writes of a transaction (EXEC) may take"),
    fact(Key::ProtectedMode, "protected-mode", "yes",
        "an address beyond loopback always requires a password: --password-file, or bind to 127.0.0.1"),
    line(Key::Daemonize, ["daemonize", "", ""], Kind::Switch, "no", FIXED,
        "The server stays in the foreground: a service manager runs it"),
    fact(Key::ReplicaOf, "replicaof", "", "there is no replication"),
    fact(Key::MinReplicasToWrite, "min-replicas-to-write", "0", "there are no replicas, so no write can wait for them"),
    fact(Key::MaxMemoryClients, "maxmemory-clients", "0",
        "no client is evicted: client-output-buffer and proto-max-bulk-len limit each one, maxclients their number"),
    fact(Key::SlowLogLogSlowerThan, "slowlog-log-slower-than", "-1", "there is no slow log: see INFO latencystats and /metrics"),
    fact(Key::SlowLogMaxLen, "slowlog-max-len", "0", "there is no slow log: see INFO latencystats and /metrics"),
    fact(Key::LatencyMonitorThreshold, "latency-monitor-threshold", "0",
        "there is no latency monitor: see INFO latencystats and /metrics"),
    line(Key::LatencyTracking, ["latency-tracking", "", ""], Kind::Switch, "yes", LIVE,
        "Whether INFO shows the latencies of commands"),
    fact(Key::ShutdownOnSigint, "shutdown-on-sigint", "default", "a signal closes the store in order: there is nothing to save"),
    fact(Key::ShutdownOnSigterm, "shutdown-on-sigterm", "default", "a signal closes the store in order: there is nothing to save"),
    idle(Key::HashMaxListpackEntries, "hash-max-listpack-entries", COUNT, "512"),
    idle(Key::HashMaxListpackValue, "hash-max-listpack-value", BYTES, "64"),
    idle(Key::ListMaxListpackSize, "list-max-listpack-size", Kind::Signed, "-2"),
    idle(Key::ListCompressDepth, "list-compress-depth", COUNT, "0"),
    idle(Key::SetMaxIntsetEntries, "set-max-intset-entries", COUNT, "512"),
    idle(Key::SetMaxListpackEntries, "set-max-listpack-entries", COUNT, "128"),
    idle(Key::SetMaxListpackValue, "set-max-listpack-value", BYTES, "64"),
    idle(Key::ZsetMaxListpackEntries, "zset-max-listpack-entries", COUNT, "128"),
    idle(Key::ZsetMaxListpackValue, "zset-max-listpack-value", BYTES, "64"),
    idle(Key::StreamNodeMaxBytes, "stream-node-max-bytes", BYTES, "4096"),
    idle(Key::StreamNodeMaxEntries, "stream-node-max-entries", COUNT, "100"),
    idle(Key::HllSparseMaxBytes, "hll-sparse-max-bytes", BYTES, "3000"),
    idle(Key::LazyfreeLazyEviction, "lazyfree-lazy-eviction", Kind::Switch, "no"),
    idle(Key::LazyfreeLazyExpire, "lazyfree-lazy-expire", Kind::Switch, "no"),
    idle(Key::LazyfreeLazyServerDel, "lazyfree-lazy-server-del", Kind::Switch, "no"),
    idle(Key::LazyfreeLazyUserDel, "lazyfree-lazy-user-del", Kind::Switch, "no"),
    idle(Key::LazyfreeLazyUserFlush, "lazyfree-lazy-user-flush", Kind::Switch, "no"),
    idle(Key::ReplicaServeStaleData, "replica-serve-stale-data", Kind::Switch, "yes"),
    idle(Key::ReplicaReadOnly, "replica-read-only", Kind::Switch, "yes"),
    idle(Key::ReplicaPriority, "replica-priority", COUNT, "100"),
    idle(Key::ReplicaLazyFlush, "replica-lazy-flush", Kind::Switch, "no"),
    idle(Key::ReplTimeout, "repl-timeout", COUNT, "60"),
    idle(Key::ReplPingReplicaPeriod, "repl-ping-replica-period", COUNT, "10"),
    idle(Key::ReplBacklogSize, "repl-backlog-size", BYTES, "1048576"),
    idle(Key::ReplBacklogTtl, "repl-backlog-ttl", COUNT, "3600"),
    idle(Key::MinReplicasMaxLag, "min-replicas-max-lag", COUNT, "10"),
];
