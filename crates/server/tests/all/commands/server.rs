//! What a server tells of itself: settings, INFO, COMMAND.

use super::SYNTAX;
use crate::common::{Client, is_on_disk, is_tiered};

/// Settings of Redis about what is not there can have any value; others only the one that holds.
#[test]
fn settings_of_redis_are_kept_or_refused() {
    Client::new().expect(&[
        ("CONFIG SET list-max-ziplist-size -4 hash-max-listpack-entries 7", "+OK"),
        ("CONFIG GET list-max-listpack-size", "*2 $22 list-max-listpack-size $2 -4"),
        ("CONFIG GET hash-max-ziplist-entries", "*2 $24 hash-max-ziplist-entries $1 7"),
        ("CONFIG SET lazyfree-lazy-user-del yes repl-backlog-size 10000002 slave-read-only no", "+OK"),
        ("CONFIG GET repl-backlog-size", "*2 $17 repl-backlog-size $8 10000002"),
        ("CONFIG SET maxmemory-clients 0 slowlog-log-slower-than -1 protected-mode yes", "+OK"),
        (
            "CONFIG SET daemonize yes",
            "-ERR CONFIG SET failed (possibly related to argument 'daemonize') - can't set immutable config",
        ),
        ("CONFIG SET port 6379", "+OK"),
        (
            "CONFIG SET maxmemory-samples 6 maxmemory-samples 7",
            "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-samples') - duplicate parameter",
        ),
    ]);
}

#[test]
fn settings_of_redis_refuse_what_does_not_hold() {
    let mut client = Client::new();
    for refused in [
        "list-max-listpack-size many",
        "min-replicas-to-write 1",
        "min-slaves-to-write 1",
        "maxmemory-clients 3mb",
        "slowlog-log-slower-than 1000",
        "latency-monitor-threshold 100",
        "replicaof \"127.0.0.1 6379\"",
        "protected-mode no",
        "appendonly maybe",
        "repl-timeout -1",
    ] {
        let reply = client.ask(&format!("CONFIG SET {refused}"));
        assert!(
            reply.starts_with("-ERR CONFIG SET failed (possibly related to argument '"),
            "{refused}: {reply}"
        );
    }
}

#[test]
fn settings_are_listed_with_their_other_names() {
    let mut client = Client::new();
    let (all, _) = client.send(b"CONFIG GET *\r\n");
    assert!(all.contains("$9 replicaof") && all.contains("$7 slaveof") && all.contains("lua-time-limit"));
    client.ask("GET k");
    assert!(client.ask("INFO latencystats").contains("latency_percentiles_usec_get"));
    client.expect(&[("CONFIG SET latency-tracking no", "+OK")]);
    assert!(!client.ask("INFO latencystats").contains("usec"));
}

#[test]
fn server_describes_itself() {
    let mut client = Client::new();
    client.ask("SET k v");
    client.ask("GET k");
    client.ask("GET nosuch");
    client.ask("NOSUCH");
    let info = client.ask("INFO");
    for part in [
        "# Server",
        "redis_version:7.2.0",
        "terrace_version:",
        "# Clients",
        "connected_clients:1",
        "# Memory",
        "used_memory:",
        "# Persistence",
        "# Stats",
        "keyspace_hits:1",
        "keyspace_misses:1",
        "total_error_replies:1",
        "# Replication",
        "role:master",
        "# Keyspace",
        "db0:keys=1",
    ] {
        assert!(info.contains(part), "{part} in {info}");
    }
    assert!(!client.ask("INFO replication").contains("# Server"));
    client.expect(&[("CONFIG RESETSTAT", "+OK")]);
    assert!(client.ask("INFO stats").contains("keyspace_hits:0"));
}

#[test]
fn commands_and_settings_describe_themselves() {
    let mut client = Client::new();
    client.expect(&[("CONFIG GET maxmemory-policy", "*2 $16 maxmemory-policy $10 noeviction")]);
    assert!(client.ask("COMMAND DOCS get").starts_with("*2 $3 get *10 $7 summary "));
    assert!(client.ask("COMMAND LIST FILTERBY PATTERN *range").contains("getrange"));
    assert!(client.ask("CLIENT HELP").contains("SETNAME"));
}

/// The value of a field in INFO.
fn field(client: &mut Client, section: &str, name: &str) -> Option<String> {
    let info = client.ask(&format!("INFO {section}"));
    let found = info.split(' ').find_map(|line| line.strip_prefix(&format!("{name}:")));
    found.map(String::from)
}

/// The fields that dashboards and libraries read.
#[test]
fn info_has_fields_that_clients_read() {
    let mut client = Client::new();
    client.ask("SET k v");
    let info = client.ask("INFO everything");
    for name in [
        "run_id",
        "executable",
        "config_file",
        "multiplexing_api",
        "hz",
        "tracking_clients",
        "used_memory_peak",
        "used_memory_peak_human",
        "used_memory_peak_perc",
        "total_system_memory_human",
        "mem_fragmentation_ratio",
        "rdb_changes_since_last_save",
        "rdb_last_bgsave_status",
        "aof_last_write_status",
        "instantaneous_ops_per_sec",
        "instantaneous_input_kbps",
        "instantaneous_output_kbps",
        "pubsub_channels",
        "latest_fork_usec",
        "master_replid",
        "used_cpu_sys",
        "used_cpu_user",
        "used_cpu_sys_children",
        "used_cpu_user_children",
        "cluster_enabled",
    ] {
        assert!(info.contains(&format!(" {name}:")), "{name} in {info}");
    }
}

#[test]
fn info_identifies_the_run_and_measures_memory() {
    let mut client = Client::new();
    let run_id = field(&mut client, "server", "run_id").unwrap();
    assert!(run_id.len() == 40 && run_id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{run_id}");
    assert_eq!(field(&mut client.another(), "server", "run_id"), Some(run_id.clone()));
    assert_ne!(field(&mut Client::new(), "server", "run_id"), Some(run_id));
    assert_eq!(field(&mut client, "cluster", "cluster_enabled").as_deref(), Some("0"));
    let [used, peak] = ["used_memory", "used_memory_peak"]
        .map(|name| field(&mut client, "memory", name).unwrap().parse::<u64>());
    assert!(peak.unwrap() >= used.unwrap());
}

#[test]
fn info_sections_can_be_chosen() {
    let mut client = Client::new();
    let mut sections = |words: &str| -> Vec<String> {
        let info = client.ask(&format!("INFO {words}"));
        let names = info.split("# ").skip(1).filter_map(|section| section.split(' ').next());
        names.map(String::from).collect()
    };
    let default = sections("");
    let tier = if is_tiered() { " Tier" } else { "" };
    assert_eq!(
        default.join(" "),
        format!(
            "Server Clients Memory Sharing Persistence{tier} Stats Replication CPU Errorstats Cluster Keyspace"
        )
    );
    assert_eq!(sections("default"), default);
    assert_eq!(sections("all").len(), default.len() + 2);
    assert_eq!(sections("everything").len(), default.len() + 3);
    assert_eq!(sections("keyspace CPU nosuch cpu"), ["CPU", "Keyspace"]);
    assert_eq!(sections("default commandstats").len(), default.len() + 1);
    assert!(sections("nosuch").is_empty());
}

#[test]
fn info_counts_calls_errors_and_times() {
    let mut client = Client::new();
    client.send(&b"SET k v\r\nGET k\r\nGET k\r\nGET none\r\nTTL k\r\n".repeat(40));
    for line in ["INCR k", "GET", "NOSUCH", "CONFIG GET port", "CONFIG GET", "AUTH x", "EXEC"] {
        client.ask(line);
    }
    client.expect(&[
        ("MULTI", "+OK"),
        ("GET k", "+QUEUED"),
        ("SHUTDOWN", "-ERR Command not allowed inside a transaction"),
    ]);
    assert!(client.ask("EXEC").starts_with("-EXECABORT"));
    let stats = client.ask("INFO commandstats");
    let of = |name: &str| -> Vec<String> {
        let line = stats.split(' ').find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:")));
        let line = line.unwrap_or_else(|| panic!("{name} in {stats}"));
        line.split(',').map(|part| part.split('=').nth(1).unwrap().to_string()).collect()
    };
    let calls = |name: &str| [0, 3, 4].map(|nth| of(name)[nth].parse::<u64>().unwrap());
    assert_eq!(calls("get"), [120, 1, 0]);
    assert_eq!(calls("set"), [40, 0, 0]);
    assert_eq!(calls("ttl"), [40, 0, 0]);
    assert_eq!(calls("incr"), [1, 0, 1]);
    assert_eq!(calls("config|get"), [1, 1, 0]);
    assert_eq!(calls("exec"), [2, 0, 2]);
    assert_eq!(calls("shutdown"), [0, 1, 0]);
    assert!(of("config|get")[2].parse::<f64>().unwrap() > 0.0);
    assert_eq!(field(&mut client, "errorstats", "errorstat_ERR").as_deref(), Some("count=7"));
    assert_eq!(field(&mut client, "errorstats", "errorstat_EXECABORT").as_deref(), Some("count=1"));
    assert_eq!(field(&mut client, "stats", "total_error_replies").as_deref(), Some("8"));
    let latency = field(&mut client, "latencystats", "latency_percentiles_usec_get").unwrap();
    assert!(
        latency.starts_with("p50=") && latency.contains(",p99=") && latency.contains(",p99.9="),
        "{latency}"
    );
}

#[test]
fn resetstat_resets_counts_of_commands() {
    let mut client = Client::new();
    client.ask("GET k");
    client.ask("NOSUCH");
    client.expect(&[("CONFIG RESETSTAT", "+OK")]);
    assert_eq!(field(&mut client, "commandstats", "cmdstat_get"), None);
    assert_eq!(field(&mut client, "errorstats", "errorstat_ERR"), None);
    assert_eq!(field(&mut client, "latencystats", "latency_percentiles_usec_get"), None);
    // The counts of a closed connection are kept.
    client.another().ask("GET k");
    assert!(field(&mut client, "commandstats", "cmdstat_get").unwrap().starts_with("calls=1,"));
}

#[test]
fn resetstat_resets_counts_of_the_store() {
    if is_on_disk() {
        // Merges remove what has expired, some time.
        return;
    }
    let mut client = Client::new();
    client.ask("SET k v PX 10");
    client.clock.advance(11);
    client.shared.store.upkeep().sweep_expired(1000);
    assert_eq!(field(&mut client, "stats", "expired_keys").as_deref(), Some("1"));
    client.ask("CONFIG RESETSTAT");
    assert_eq!(field(&mut client, "stats", "expired_keys").as_deref(), Some("0"));
}

#[test]
fn commands_describe_their_arguments() {
    let mut client = Client::new();
    let docs = client.ask("COMMAND DOCS getrange");
    assert!(
        docs.ends_with(
            "$9 arguments *3 *6 $4 name $3 key $4 type $3 key $14 key_spec_index :0 \
             *4 $4 name $5 start $4 type $7 integer *4 $4 name $3 end $4 type $7 integer"
        ),
        "{docs}"
    );
    assert_eq!(client.ask("COMMAND DOCS nosuch"), "*0");
    let count = client.ask("COMMAND COUNT").strip_prefix(':').unwrap().parse::<usize>().unwrap();
    assert!(client.ask("COMMAND DOCS").starts_with(&format!("*{} ", 2 * count)));
    assert!(client.ask("COMMAND LIST").contains("client|list"));
    client.expect(&[
        ("COMMAND LIST FILTERBY PATTERN client|se*", "*2 $14 client|setname $14 client|setinfo"),
        ("COMMAND LIST FILTERBY COLOUR red", SYNTAX),
        ("COMMAND GETKEYS MSET a 1 b 2", "*2 $1 a $1 b"),
        ("COMMAND GETKEYS MEMORY USAGE k", "*1 $1 k"),
        ("COMMAND GETKEYS GET", "-ERR wrong number of arguments for 'command|getkeys' command"),
        ("COMMAND GETKEYSANDFLAGS SET k v", "*1 *2 $1 k *2 +OW +update"),
        ("COMMAND GETKEYSANDFLAGS SET k v GET", "*1 *2 $1 k *3 +RW +access +update"),
    ]);
}

/// The time that a caller passes is that of the first command alone: it may take long.
#[test]
fn each_command_has_its_own_time() {
    let mut client = Client::new();
    let mut input = b"CLIENT ID\r\nSET key v PX 500\r\nPTTL key\r\nGET key\r\n".to_vec();
    let mut output = Vec::new();
    client.session.process(&mut input, &mut output, 1);
    let output = String::from_utf8(output).unwrap();
    assert!(output.ends_with("+OK\r\n:500\r\n$1\r\nv\r\n"), "{output}");
}
