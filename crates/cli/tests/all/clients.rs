//! Real clients drive the program: redis-cli, redis-benchmark, redis-py, the Rust `redis` crate,
//! go-redis, php-redis.
//!
//! A client that is not installed is skipped, with a message; `./test` installs those that Debian
//! has. With `TERRACE_CLIENTS=all`, a missing client is a failure.

#![allow(clippy::print_stderr, reason = "a skipped test must print a message")]

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use crate::common::{Place, Served, without_settings};
use redis::{Commands, ConnectionLike, RedisResult, Value};

const PASSWORD: &str = "open sesame";

/// A server with a password, and its directory, which must be dropped last.
fn served() -> (Served, Place) {
    served_with(&[])
}

fn served_with(arguments: &[&str]) -> (Served, Place) {
    let place = Place::new();
    let password = place.path("password");
    std::fs::write(&password, PASSWORD).unwrap();
    let arguments = [&["--password-file", password.to_str().unwrap()], arguments].concat();
    (Served::start(&place.pool(), &arguments), place)
}

/// Whether a program runs on this machine; if not, the test is skipped.
pub(crate) fn have(program: &str, arguments: &[&str]) -> bool {
    let found = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let have = found.is_ok_and(|status| status.success());
    assert!(have || std::env::var("TERRACE_CLIENTS").as_deref() != Ok("all"), "{program} is missing");
    if !have {
        eprintln!("SKIPPED: {program} {} does not run on this machine", arguments.join(" "));
    }
    have
}

/// Runs a client, which must succeed; returns its output.
pub(crate) fn output(command: &mut Command, input: &str) -> String {
    without_settings(command);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{command:?}: {err}{out}");
    out.into_owned()
}

fn cli(server: &Served) -> Command {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.port.to_string(), "--no-auth-warning", "-a", PASSWORD]);
    command
}

#[test]
fn redis_cli() {
    if !have("redis-cli", &["--version"]) {
        return;
    }
    let (server, _place) = served();
    let ask = |arguments: &[&str]| output(cli(&server).args(arguments), "");
    assert_eq!(ask(&["set", "greeting", "hello"]), "OK\n");
    assert_eq!(ask(&["get", "greeting"]), "hello\n");
    assert_eq!(ask(&["-3", "mget", "greeting", "absent"]), "hello\n\n");
    assert_eq!(output(cli(&server).args(["-x", "set", "piped"]), "from stdin"), "OK\n");
    assert_eq!(ask(&["getrange", "piped", "0", "3"]), "from\n");
    assert!(ask(&["lpush", "list", "1"]).contains("ERR unknown command"));
    let commands: String = (0..1000).map(|nth| format!("SET key:{nth} {nth}\r\n")).collect();
    assert!(output(cli(&server).arg("--pipe"), &commands).contains("errors: 0, replies: 1000"));
    assert_eq!(ask(&["--scan", "--pattern", "key:99?"]).lines().count(), 10);
    assert_eq!(ask(&["dbsize"]), "1002\n");
    let mut alone = Command::new("redis-cli");
    let refused = output(alone.args(["-p", &server.port.to_string(), "get", "greeting"]), "");
    assert_eq!(refused, "NOAUTH Authentication required.\n\n");
}

#[test]
fn redis_cli_reads_ranges() {
    if !have("redis-cli", &["--version"]) {
        return;
    }
    let (server, _place) = served_with(&["--index", "ordered"]);
    let ask = |line: &str| output(cli(&server).args(line.split(' ')), "");
    assert_eq!(ask("mset user:1 Ada user:2 Bob user:30 Cy v 1"), "OK\n");
    assert_eq!(ask("x.range - +"), "user:1\nuser:2\nuser:30\nv\n");
    assert_eq!(ask("x.range [user:2 (v"), "user:2\nuser:30\n");
    assert_eq!(ask("X.RANGE (v - REV LIMIT 1 1 WITHVALUES"), "user:2\nBob\n");
    assert_eq!(
        ask("-3 --json x.prefix user: WITHVALUES LIMIT 0 2"),
        "{\"user:1\":\"Ada\",\"user:2\":\"Bob\"}\n"
    );
    assert_eq!(ask("x.count [user: [v LIMIT 100"), "4\n");
    assert_eq!(ask("x.next user:2"), "user:30\nCy\n");
    assert_eq!(ask("x.prev user:1"), "\n");
    assert_eq!(ask("x.delprefix user: LIMIT 1"), "1\n[user:2\n");
    assert_eq!(ask("x.delrange [user:2 + LIMIT 10"), "3\n\n");
    assert!(ask("x.range a b").starts_with("ERR min or max"));
    let queued = "MULTI\nSET a 1\nX.RANGE - + WITHVALUES\nEXEC\n";
    assert_eq!(output(&mut cli(&server), queued), "OK\nQUEUED\nQUEUED\nOK\na\n1\n");
}

#[test]
fn redis_benchmark() {
    if !have("redis-benchmark", &["--version"]) {
        return;
    }
    let (server, _place) = served();
    for pipeline in ["1", "16"] {
        let mut bench = Command::new("redis-benchmark");
        bench.args([
            "-p",
            &server.port.to_string(),
            "-a",
            PASSWORD,
            "-n",
            "20000",
            "-r",
            "1000",
            "-P",
            pipeline,
        ]);
        let shown = output(bench.args(["-t", "ping,set,get,incr,mset", "--csv"]), "");
        for test in ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "MSET (10 keys)"] {
            assert!(shown.contains(&format!("\"{test}\"")), "{shown}");
        }
        assert!(!shown.to_lowercase().contains("error"), "{shown}");
    }
}

#[test]
fn redis_py() {
    if !have("python3", &["-c", "import redis"]) {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/drive.py");
    for index in ["clht", "art", "hot", "masstree", "bwtree", "sptree"] {
        let (server, _place) = served_with(&["--index", index]);
        let mut drive = Command::new("python3");
        drive.arg(&script).args([&server.port.to_string(), PASSWORD, index]);
        let shown = output(&mut drive, "");
        assert!(shown.contains("passed"), "{index}: {shown}");
    }
}

/// php-redis holds cursors in a double, which must not change them.
#[test]
fn php_redis() {
    let is_loaded = "exit(extension_loaded('redis') ? 0 : 1);";
    if !have("php", &["-r", is_loaded]) {
        return;
    }
    let (server, _place) = served();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/scan.php");
    let shown = output(Command::new("php").arg(script).args([&server.port.to_string(), PASSWORD]), "");
    assert!(shown.contains("php-redis passed"), "{shown}");
}

#[test]
fn go_redis() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/go");
    let directory = directory.to_str().unwrap();
    if !have("go", &["-C", directory, "build", "-o", "/dev/null", "."]) {
        return;
    }
    let (server, _place) = served();
    let run = ["-C", directory, "run", ".", &server.port.to_string(), PASSWORD];
    assert!(output(Command::new("go").args(run), "").contains("passed"));
}

#[test]
fn redis_crate() {
    let (server, _place) = served();
    for query in ["", "?protocol=resp3"] {
        let address = format!("redis://:open%20sesame@127.0.0.1:{}/{query}", server.port);
        let client = redis::Client::open(address).unwrap();
        let mut connection = client.get_connection().unwrap();
        assert!(connection.check_connection());
        strings(&mut connection).unwrap();
        transaction(&client);
        let refused: RedisResult<i64> = connection.lpush("rs:list", 1);
        assert!(refused.unwrap_err().to_string().to_lowercase().contains("unknown command"));
        let () = connection.flushall().unwrap();
    }
}

fn strings(connection: &mut redis::Connection) -> RedisResult<()> {
    let () = connection.set("rs:key", b"\x00\xffAda")?;
    assert_eq!(connection.get::<_, Vec<u8>>("rs:key")?, b"\x00\xffAda");
    assert_eq!(connection.get::<_, Option<String>>("rs:absent")?, None);
    assert_eq!(connection.incr::<_, _, i64>("rs:n", 42)?, 42);
    let () = connection.set_ex("rs:short", "x", 1000)?;
    assert!((900..=1000).contains(&connection.ttl::<_, i64>("rs:short")?));
    let values: Vec<Option<i64>> = connection.mget(&["rs:n", "rs:absent"])?;
    assert_eq!(values, [Some(42), None]);
    let mut pipe = redis::pipe();
    (0..5000).for_each(|nth| _ = pipe.set(format!("rs:pipe:{nth}"), nth).ignore());
    let () = pipe.query(connection)?;
    let keys: std::collections::BTreeSet<String> =
        connection.scan_match("rs:pipe:*")?.collect::<RedisResult<_>>()?;
    assert_eq!(keys.len(), 5000);
    Ok(())
}

/// Increments with WATCH, GET, MULTI, SET, EXEC from four connections at once; none may be lost.
fn transaction(client: &redis::Client) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut connection = client.get_connection().unwrap();
                let mut done = 0;
                while done < 25 {
                    let () = redis::cmd("WATCH").arg("rs:watched").query(&mut connection).unwrap();
                    let n: Option<i64> = connection.get("rs:watched").unwrap();
                    let mut pipe = redis::pipe();
                    pipe.atomic().set("rs:watched", n.unwrap_or(0) + 1);
                    let set: Value = pipe.query(&mut connection).unwrap();
                    done += i32::from(set != Value::Nil);
                }
            });
        }
    });
    assert_eq!(client.get_connection().unwrap().get::<_, i64>("rs:watched").unwrap(), 100);
}
