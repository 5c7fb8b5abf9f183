//! Commands on a pool that a server has open: they go through the server.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::common::{Place, Run, Served, free_port, program, run};
use terrace::Store;

fn connect(served: &Served) -> redis::Connection {
    redis::Client::open(("127.0.0.1", served.port)).unwrap().get_connection().unwrap()
}

/// Runs the program with an environment variable.
fn run_with_variable(name: &str, value: &str, place: &Place, arguments: &[&str]) -> Run {
    let pool = place.pool();
    let output = program().args(arguments).arg("--pool").arg(pool).env(name, value).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    Run { code: output.status.code().unwrap_or(-1), out: output.stdout, err }
}

/// A server with other arguments than those of `Served`; killed when the test ends.
struct Other(Child);

impl Other {
    fn start(command: &mut Command) -> Other {
        let mut other = Other(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        // The start fails if another program has taken the port meanwhile.
        let _ = crate::common::ready(&mut other.0);
        other
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn get_put_del_and_scan_go_through_the_server() {
    let place = Place::new();
    let served = Served::start(&place.pool(), &[]);
    let mut redis = connect(&served);
    place.run(&["put", "greeting", "hello"]).ok();
    assert_eq!(redis::cmd("GET").arg("greeting").query(&mut redis), Ok("hello".to_string()));
    place.run(&["put", "short", "x", "--ttl", "7d"]).ok();
    assert!(redis::cmd("TTL").arg("short").query::<i64>(&mut redis).unwrap() > 600_000);
    let binary: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    place.run_with(&["put", "binary", "-"], &binary).ok();
    assert!(place.run(&["get", "binary"]).ok().out == binary);
    assert_eq!(place.run(&["get", "greeting"]).ok().text(), "hello");
    place.run(&["get", "absent"]).fails(1, "there is no key `absent`");
    assert_eq!(sorted(place.run(&["scan"]).ok().text()), ["binary", "greeting", "short"]);
    assert_eq!(place.run(&["scan", "--prefix", "gr", "--values"]).ok().text(), "greeting\thello\n");
    assert_eq!(place.run(&["scan", "--match", "[gs]*", "--limit", "1"]).ok().text().lines().count(), 1);
    assert!(place.run(&["scan", "--json", "--match", "sh*"]).ok().text().contains("\"expires_at_ms\":"));
    assert_eq!(place.run(&["del", "greeting", "short", "absent"]).ok().text(), "removed 2 keys\n");
    assert_eq!(redis::cmd("DBSIZE").query(&mut redis), Ok(1));
    place.run(&["put", &"k".repeat(70_000), "v"]).fails(1, "key");
}

#[test]
fn value_over_the_servers_limit_is_refused_with_the_setting() {
    let place = Place::new();
    let _served = Served::start(&place.pool(), &["--proto-max-bulk-len", "1mb"]);
    let refused = place.run_with(&["put", "long", "-"], &vec![b'x'; 2 << 20]);
    refused.fails(1, "proto-max-bulk-len");
    place.run_with(&["put", "long", "-"], &vec![b'x'; 1 << 20]).ok();
}

#[test]
fn load_and_dump_go_through_the_server() {
    let place = Place::new();
    let _served = Served::start(&place.pool(), &[]);
    let lines: String = (0..3000).map(|nth| format!("key:{nth},{nth},{}\n", nth % 2 * 86_400)).collect();
    let lines = lines.replace(",0\n", ",\n");
    place.run_with(&["load", "-"], format!("key,value,ttl\n{lines}").as_bytes()).ok();
    place.run_with(&["load", "-"], b"{\"key_base64\":\"/wD+\",\"value_base64\":\"gIE=\"}\n").ok();
    let stream = b"SET a 1\r\nINCRBY a 41\r\nLPUSH l 1\r\nSET b 2\r\n";
    let loaded = place.run_with(&["load", "-", "--format", "resp"], stream);
    assert_eq!(loaded.code, 1, "{}", loaded.err);
    assert!(loaded.err.contains("command 3 of standard input: ERR unknown command"), "{}", loaded.err);
    assert_eq!(place.run(&["get", "a"]).ok().text(), "42");

    let dump = place.run(&["dump"]).ok();
    assert!(dump.err.contains("dumped 3,003 records"), "{}", dump.err);
    assert_eq!(dump.text().matches("expires_at_ms").count(), 1500);
    for format in ["jsonl", "resp"] {
        let (file, other) = (place.path(&format!("dump.{format}")), place.path(&format!("{format}.pool")));
        place.run(&["dump", "--format", format, "-o", file.to_str().unwrap()]).ok();
        place.run_on(&other, &["load", file.to_str().unwrap()], b"").ok();
        let again = place.run_on(&other, &["dump"], b"").ok();
        assert!(sorted(again.text()) == sorted(dump.text()), "{format}");
    }
}

/// Writers change values together with their expiry, and new keys make the index grow.
#[test]
fn dump_of_a_store_in_use_has_each_key_once() {
    const KEYS: u64 = 4000;
    const FAR: u64 = 4_102_444_800_000;
    let place = Place::new();
    let served = Served::start(&place.pool(), &["--threads", "2"]);
    let mut redis = connect(&served);
    let write = |redis: &mut redis::Connection, key: u64, round: u64| {
        let mut set = redis::cmd("SET");
        set.arg(format!("stays:{key}")).arg(round).arg("PXAT").arg(FAR + round).exec(redis).unwrap();
    };
    (0..KEYS).for_each(|key| write(&mut redis, key, 0));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut redis = connect(&served);
            let mut round = 0;
            while !is_over.load(Relaxed) {
                round += 1;
                write(&mut redis, round % 50, round);
                redis::cmd("SET").arg(format!("comes:{round}")).arg("x").exec(&mut redis).unwrap();
            }
        });
        for _ in 0..3 {
            let dump = place.run(&["dump"]).ok();
            let mut seen = BTreeMap::new();
            for line in dump.text().lines() {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                let key = line["key"].as_str().unwrap().to_string();
                if let Some(at) = line.get("expires_at_ms") {
                    let round: u64 = line["value"].as_str().unwrap().parse().unwrap();
                    assert_eq!(at.as_u64(), Some(FAR + round), "{line}");
                }
                assert_eq!(seen.insert(key, ()), None, "{line}");
            }
            assert_eq!(seen.keys().filter(|key| key.starts_with("stays:")).count() as u64, KEYS);
        }
        is_over.store(true, Relaxed);
    });
}

#[test]
fn stats_of_a_served_pool_need_no_port() {
    let place = Place::new();
    let _served = Served::start(&place.pool(), &[]);
    place.run(&["put", "a", "1"]).ok();
    let stats = place.run(&["stats"]).ok();
    assert!(
        stats.text().contains("latency") && stats.text().starts_with("records             1 "),
        "{}",
        stats.text()
    );
}

#[test]
fn stats_of_a_server_without_metrics_fail_with_the_reason() {
    let place = Place::new();
    let _other =
        Other::start(
            program()
                .args(["serve", "--size", "16mb", "--metrics-port", "0", "--port", "0", "--unix"])
                .args([place.path("socket").as_path(), "--pool".as_ref(), place.pool().as_path()]),
        );
    place.run(&["stats"]).fails(1, "shows no metrics");
}

#[test]
fn unix_socket_and_another_directory_are_found() {
    let place = Place::new();
    let socket = place.path("a socket");
    let _other = Other::start(
        program()
            .current_dir(place.directory.path())
            .args(["serve", "--size", "16mb", "--port", "0", "--metrics-port", &free_port().to_string()])
            .args(["--unix", "a socket", "--pool", "test.pool"]),
    );
    assert!(socket.exists());
    place.run(&["put", "k", "v"]).ok();
    assert_eq!(place.run(&["get", "k"]).ok().text(), "v");
    assert!(place.run(&["stats"]).ok().text().contains("latency"));
}

#[test]
fn password_is_taken_from_flag_environment_and_file() {
    let place = Place::new();
    let _served = Served::start(&place.pool(), &["--password", "open sesame"]);
    let refused = place.run(&["put", "k", "v"]).fails(1, "requires a password").err;
    assert!(refused.contains("TERRACE_PASSWORD") && refused.contains("REDISCLI_AUTH"), "{refused}");
    place.run(&["put", "k", "v", "--password", "open says me"]).fails(1, "rejected the password");
    place.run(&["put", "k", "v", "--password", "open sesame"]).ok();
    for name in ["TERRACE_PASSWORD", "REDISCLI_AUTH"] {
        assert_eq!(run_with_variable(name, "open sesame", &place, &["get", "k"]).ok().text(), "v", "{name}");
    }
    let file = place.path("password");
    std::fs::write(&file, "open sesame\n").unwrap();
    assert_eq!(place.run(&["get", "k", "--password-file", file.to_str().unwrap()]).ok().text(), "v");
    assert!(place.run(&["dump", "--password", "open sesame"]).ok().text().contains("\"k\""));
}

#[test]
fn password_for_a_server_without_one_is_ignored() {
    let place = Place::new();
    let _served = Served::start(&place.pool(), &[]);
    place.run(&["put", "k", "v", "--password", "any"]).ok();
}

/// The address of a killed server stays in the pool, while another server may have its port.
#[test]
fn address_of_a_killed_server_is_not_trusted() {
    let place = Place::new();
    let mut served = Served::start(&place.pool(), &[]);
    place.run(&["put", "k", "first"]).ok();
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    let other = Other::start(
        program()
            .args(["serve", "--size", "16mb", "--metrics-port", "0", "--port", &served.port.to_string()])
            .arg("--pool")
            .arg(place.path("other.pool")),
    );
    place.run(&["put", "k", "second"]).ok();
    assert_eq!(place.run(&["get", "k"]).ok().text(), "second");
    drop(other);
    let other = place.path("other.pool");
    place.run_on(&other, &["get", "k"], b"").fails(1, "there is no");
}

/// A pool served in another container, whose address belongs to another server in this namespace.
#[test]
fn other_server_at_the_address_is_not_written_to() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let other = Served::start(&elsewhere.pool(), &[]);
    let store = Store::options().path(place.pool()).size(terrace::ByteSize::mib(16)).create().unwrap();
    assert!(store.sharing().post_notice(&format!("run {}\ntcp 127.0.0.1:{}\n", "0".repeat(40), other.port)));
    place.run(&["put", "k", "v"]).fails(1, "is in use by process");
    assert_eq!(redis::cmd("DBSIZE").query(&mut connect(&other)), Ok(0));
}

#[test]
fn other_protocol_at_the_address_is_an_error() {
    let place = Place::new();
    let store = Store::options().path(place.pool()).size(terrace::ByteSize::mib(16)).create().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(store.sharing().post_notice(&format!("run 1\ntcp {}\n", listener.local_addr().unwrap())));
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 100]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        });
        place.run(&["get", "k"])
    });
    refused.fails(1, "not the Redis protocol");
}

#[test]
fn error_names_the_program_that_has_the_pool_open() {
    let place = Place::new();
    let options = Store::options().path(place.pool()).size(terrace::ByteSize::mib(16)).program("a program");
    let _store = options.create().unwrap();
    let refused = place.run(&["get", "k"]).fails(1, "is in use by process").err;
    assert!(refused.contains("(a program, since "), "{refused}");
}

#[test]
fn check_beside_an_unshared_server_fails_with_a_hint() {
    let place = Place::new();
    let _served = Served::start(&place.pool(), &[]);
    let refused = place.run(&["check"]).fails(1, "is in use by process").err;
    assert!(refused.contains("--shared") && refused.contains("stopped first"), "{refused}");
}

#[test]
fn user_without_write_permission_goes_through_the_server() {
    let place = Place::new();
    let _served = Served::start(&place.pool(), &[]);
    let script = r#"chmod 755 "$2" && chmod 644 "$1" && cp "$0" "$2/terrace" && chmod 755 "$2/terrace" &&
        setpriv --reuid 65534 --regid 65534 --clear-groups "$2/terrace" put --pool "$1" k v"#;
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_terrace")])
        .args([place.pool().as_path(), place.directory.path()])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("setpriv") {
        return skipped(&error);
    }
    assert!(output.status.success(), "{error}");
    assert_eq!(place.run(&["get", "k"]).ok().text(), "v");
}

#[allow(clippy::print_stderr, reason = "a test that was skipped says so")]
fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
}

#[test]
fn pool_may_be_named_before_the_command() {
    let place = Place::new();
    let pool = place.pool();
    let pool = pool.to_str().unwrap();
    run(["--pool", pool, "put", "--size", "16mb", "k", "v"], b"").ok();
    assert_eq!(run(["--pool", pool, "get", "k"], b"").ok().text(), "v");
    assert_eq!(run_with_variable("TERRACE_POOL", "/nowhere", &place, &["get", "k"]).ok().text(), "v");
    let twice = run(["--pool", pool, "get", "k", "--pool", pool], b"");
    twice.fails(2, "given twice");
    run(["--pool", pool, "report", "x"], b"").fails(2, "has no meaning for report");
}
