//! Environment variables, signals, file size limits, and a pool's file that another process
//! changes.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Stdio},
};

use crate::common::{Place, Run, Served, program, run};
use terrace_server::config::TABLE;

fn client(server: &Served) -> BufReader<TcpStream> {
    BufReader::new(TcpStream::connect(("127.0.0.1", server.port)).unwrap())
}

/// The first line of the answer; empty if the server is gone.
fn ask(client: &mut BufReader<TcpStream>, request: &str) -> String {
    let _ = client.get_mut().write_all(format!("{request}\r\n").as_bytes());
    let mut line = String::new();
    let _ = client.read_line(&mut line);
    line.trim_end().into()
}

/// CONFIG GET of one setting.
fn setting(client: &mut BufReader<TcpStream>, name: &str) -> String {
    assert_eq!(ask(client, &format!("CONFIG GET {name}")), "*2");
    let mut lines = [const { String::new() }; 4];
    for line in &mut lines {
        client.read_line(line).unwrap();
    }
    lines[3].trim_end().into()
}

/// Runs the program with these environment variables.
fn run_in(variables: &[(&str, &str)], arguments: &[&str]) -> Run {
    let mut command = program();
    command.envs(variables.iter().copied()).args(arguments).stdin(Stdio::null());
    let output = command.output().unwrap();
    Run {
        code: output.status.code().unwrap_or(-1),
        out: output.stdout,
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A server that fails after it has read its settings, before it opens a pool.
const NOWHERE: [&str; 3] = ["serve", "--bind", "no.such.host.invalid"];

#[test]
fn kubernetes_variables_are_ignored() {
    let variables = [
        ("TERRACE_PORT", "tcp://10.0.0.1:6379"),
        ("TERRACE_METRICS_PORT", "tcp://10.0.0.1:9121"),
        ("TERRACE_SERVICE_HOST", "10.0.0.1"),
        ("TERRACE_SERVICE_PORT", "6379"),
        ("TERRACE_SERVICE_PORT_REDIS", "6379"),
        ("TERRACE_PORT_6379_TCP", "tcp://10.0.0.1:6379"),
        ("TERRACE_PORT_6379_TCP_PROTO", "tcp"),
        ("TERRACE_PORT_6379_TCP_PORT", "6379"),
        ("TERRACE_PORT_6379_TCP_ADDR", "10.0.0.1"),
    ];
    let said = run_in(&variables, &NOWHERE).fails(1, "is not an address").err;
    assert!(said.contains("ignored TERRACE_PORT=tcp://10.0.0.1:6379, which Kubernetes sets"), "{said}");
    assert!(said.contains("ignored TERRACE_METRICS_PORT=tcp://10.0.0.1:9121"), "{said}");
    assert!(!said.contains("is not a setting"), "{said}");
    let place = Place::new();
    let pool = place.pool();
    drop(Served::start(&pool, &[]));
    let stats = run_in(&variables, &["stats", "--pool", pool.to_str().unwrap()]).ok();
    assert_eq!(stats.err, "");
}

#[test]
fn empty_variables_count_as_unset() {
    let mut variables: Vec<(&str, &str)> =
        TABLE.iter().map(|setting| (setting.env, "")).filter(|(name, _)| !name.is_empty()).collect();
    variables.extend([("TERRACE_PASSWORD_FILE", ""), ("TERRACE_NO_SUCH", "")]);
    assert!(variables.contains(&("TERRACE_SIZE", "")) && variables.contains(&("TERRACE_PORT", "")));
    let said = run_in(&variables, &NOWHERE).fails(1, "is not an address").err;
    assert!(!said.contains("TERRACE_"), "{said}");
    let place = Place::new();
    let pool = place.pool();
    drop(Served::start(&pool, &[]));
    for arguments in [
        &["put", "k", "v"][..],
        &["get", "k"],
        &["stats"],
        &["bench", "--records", "10", "--operations", "10"],
    ] {
        let arguments = [arguments, &["--pool", pool.to_str().unwrap()]].concat();
        assert_eq!(run_in(&variables, &arguments).ok().err, "", "{arguments:?}");
    }
}

#[test]
fn bad_variables_are_named_with_what_is_valid() {
    for (name, value, wanted) in [
        ("TERRACE_PORT", "70000", "a number from 0 to 65535"),
        ("TERRACE_PORT", "10.0.0.1:6379", "a number from 0 to 65535"),
        ("TERRACE_SIZE", "large", "a size, as in 1073741824, 512mb or 4GiB"),
        ("TERRACE_INDEX", "btree", "clht or turbo or rewo or level or art"),
        ("TERRACE_SHARED", "maybe", "yes or no"),
        ("TERRACE_UNIX_PERM", "999", "permissions in octal, as in 700, up to 777"),
        ("TERRACE_INDEX_CACHE", "2mb..1mb", "two sizes, the smaller first"),
        ("TERRACE_INDEX_DRAM", "1mb..2mb", "a size, as in 512mb or 4GiB, or auto"),
        ("TERRACE_INDEX_DRAM", "-1", "a size, as in 512mb or 4GiB, or auto"),
    ] {
        let said = run_in(&[(name, value)], &NOWHERE).fails(2, wanted).err;
        assert!(said.contains(&format!("{name}={value}")), "{said}");
        // A flag overrides the variable.
        if name == "TERRACE_PORT" {
            run_in(&[(name, value)], &[&NOWHERE[..], &["--port", "1"]].concat())
                .fails(1, "is not an address");
        }
    }
    let secret = "s".repeat(600);
    let said = run_in(&[("TERRACE_PASSWORD", &secret)], &NOWHERE).fails(2, "at most 512 bytes").err;
    assert!(said.contains("TERRACE_PASSWORD=") && !said.contains("sss"), "{said}");
    run_in(&[("TERRACE_METRICS_PORT", "x")], &["stats"]).fails(2, "TERRACE_METRICS_PORT=x");
    run_in(&[("TERRACE_THREADS", "x")], &["bench"]).fails(2, "TERRACE_THREADS=x");
    let two = [("TERRACE_PASSWORD", "open"), ("TERRACE_PASSWORD_FILE", "/dev/null")];
    run_in(&two, &NOWHERE).fails(2, "there are two passwords");
}

#[test]
fn unknown_variables_are_warned_about() {
    let place = Place::new();
    drop(Served::start(&place.pool(), &[]));
    let said =
        run_in(&[("TERRACE_POL", "/tmp/x")], &["stats", "--pool", place.pool().to_str().unwrap()]).ok();
    assert!(said.err.starts_with("warning: TERRACE_POL is not a setting"), "{}", said.err);
    let help = run(["serve", "--help"], b"").ok();
    assert!(
        help.text().contains("[env: TERRACE_PORT]") && help.text().contains("[env: TERRACE_PASSWORD_FILE]")
    );
}

#[test]
fn hangup_and_user_signals_do_not_end_the_server() {
    let place = Place::new();
    let mut server = Served::start(&place.pool(), &[]);
    for signal in ["-HUP", "-USR1", "-USR2", "-PIPE", "-XFSZ", "-HUP"] {
        server.signal(signal);
        assert_eq!(ask(&mut client(&server), "PING"), "+PONG", "{signal}");
    }
    server.signal("-TERM");
    let (code, err) = server.end();
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("SIGHUP ignored"), "{err}");
}

/// Creating a pool beyond the file size limit is an error; SIGXFSZ does not kill the process.
#[test]
fn file_size_limit_is_an_error() {
    let place = Place::new();
    let limited = "ulimit -f 10; exec \"$0\" load /dev/null --format jsonl --size 64mb --pool \"$1\"";
    let program = program();
    let mut shell = Command::new("sh");
    shell.args(["-c", limited]).arg(program.get_program()).arg(place.pool());
    let output = shell.output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.starts_with("error: could not reserve space for ") && err.contains("File too large"),
        "{err}"
    );
    assert!(!place.pool().exists());
}

/// The limit of open files bounds the clients, also those that CONFIG SET allows.
#[test]
fn maxclients_stays_within_the_file_limit() {
    let place = Place::new();
    let limited = |limit: &str| {
        let script = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        Served::start_under(&["sh", "-c", &script], &place.pool(), &[])
    };
    let of = |server: &Served, question: &str| ask(&mut client(server), question);
    let mut server = limited("200");
    let few = setting(&mut client(&server), "maxclients");
    let refused = of(&server, "CONFIG SET maxclients 5000 timeout 7");
    let why = "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able \
               to handle the specified number of clients, try with ";
    let most: u64 = refused.strip_prefix(why).expect(&refused).parse().unwrap();
    assert!((1..200).contains(&most), "{refused}");
    assert_eq!(setting(&mut client(&server), "maxclients"), few);
    assert_eq!(of(&server, &format!("CONFIG SET maxclients {}", most + 1)).find(why), Some(0));
    assert_eq!(of(&server, &format!("CONFIG SET maxclients {most}")), "+OK");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    // The soft limit is raised as far as the hard one allows.
    let server = limited("-S 200");
    assert_eq!(of(&server, "CONFIG SET maxclients 20"), "+OK");
    assert_eq!(of(&server, "CONFIG SET maxclients 400"), "+OK");
}

#[test]
fn second_signal_ends_the_server_at_once() {
    let place = Place::new();
    let mut server = Served::start(&place.pool(), &[]);
    assert_eq!(ask(&mut client(&server), &format!("SET k {}", "x".repeat(60_000))), "+OK");
    // A clean shutdown waits for a client that does not read its replies.
    let mut slow = client(&server);
    slow.get_mut().write_all(&b"GET k\r\n".repeat(1000)).unwrap();
    assert_eq!(ask(&mut slow, "PING").as_bytes()[0], b'$');
    server.signal("-TERM");
    let mut said = String::new();
    let mut err = BufReader::new(server.child.stderr.take().unwrap());
    while !said.contains("a second signal exits at once") {
        assert!(err.read_line(&mut said).unwrap() > 0, "{said}");
    }
    server.signal("-INT");
    assert_eq!(server.child.wait().unwrap().code(), Some(1));
}

/// A server cannot continue without the end of its pool's file, but reports why it ends.
#[test]
fn pool_truncated_while_served_is_reported() {
    let place = Place::new();
    let pool = place.pool();
    let mut server = Served::start(&pool, &["--huge-pages=no"]);
    let mut client = client(&server);
    assert_eq!(ask(&mut client, "SET k v"), "+OK");
    File::options().write(true).open(&pool).unwrap().set_len(8192).unwrap();
    // The first commands may succeed in the remaining part of the file.
    let is_noticed = (0..1000).any(|nth| !ask(&mut client, &format!("SET key:{nth} v")).starts_with('+'));
    assert!(is_noticed, "the server serves without a pool");
    let status = server.child.wait().unwrap();
    let (_, err) = server.end();
    assert_eq!(status.signal(), Some(sigbus()), "{err}");
    let said =
        err.lines().find(|line| line.starts_with("error: the pool ")).unwrap_or_else(|| panic!("{err}"));
    assert!(said.contains(pool.to_str().unwrap()), "{said}");
    assert!(said.contains(": its file was cut short to 8192 bytes while it was in use; "), "{said}");
    assert_eq!(err.matches("was cut short").count(), 1, "{err}");
}

/// SIGBUS.
fn sigbus() -> i32 {
    rustix::process::Signal::BUS.as_raw()
}

/// A SIGBUS sent by another process is not about the pool.
#[test]
fn sigbus_from_another_process_is_not_blamed_on_the_pool() {
    let place = Place::new();
    let mut server = Served::start(&place.pool(), &[]);
    server.signal("-BUS");
    // The standard library's handler, which was installed before, ignores the first such signal.
    if ask(&mut client(&server), "PING") == "+PONG" {
        server.signal("-BUS");
    }
    let status = server.child.wait().unwrap();
    assert_eq!(status.signal(), Some(sigbus()));
    assert!(!server.end().1.contains("the pool"));
}

fn make(pool: &Path, settings: &[&str]) {
    let made = [&["load", "-", "--format", "jsonl", "--pool", pool.to_str().unwrap()], settings].concat();
    run(made, b"{\"key\":\"k\",\"value\":\"v\"}\n").ok();
}

/// A store knows its engine: one that was made with another is not what was asked for.
#[test]
fn store_of_another_engine_is_refused() {
    let place = Place::new();
    let (pool, tier) = (place.pool(), place.path("tier.pool"));
    make(&pool, &["--size", "64mb"]);
    // The DRAM is larger than the pool.
    make(&tier, &["--engine", "tiered", "--size", "64mb"]);
    let directory = place.path("db");
    let dir = ["--dir", directory.to_str().unwrap()];
    run([&["put", "k", "v", "--memory", "8mb"][..], &dir].concat(), b"").ok();
    let on = |path: &Path| ["--pool".to_string(), path.to_str().unwrap().to_string()];
    let serve = ["serve", "--port", "0", "--metrics-port", "0", "--unix", "none"];
    let commands = [
        &serve[..],
        &["get", "k"],
        &["put", "k", "v"],
        &["stats"],
        &["check"],
        &["load", "/dev/null", "--format", "csv"],
    ];
    for command in commands {
        let with = |place: &[String], engine: &str| {
            let engine = ["--engine".to_string(), engine.to_string()];
            let words = command.iter().map(|word| word.to_string());
            run(words.chain(place.iter().cloned()).chain(engine), b"")
        };
        with(&on(&pool), "tiered").fails(1, &format!("{} has the engine direct, not tiered", pool.display()));
        with(&on(&tier), "direct").fails(1, &format!("{} has the engine tiered, not direct", tier.display()));
        let refused = with(&dir.map(String::from), "tiered");
        refused.fails(1, &format!("{} has the engine wip, not tiered", directory.display()));
    }
}

/// The environment names a store and its engine for all commands.
#[test]
fn engine_of_the_environment_is_for_new_stores() {
    let place = Place::new();
    let pool = place.pool();
    make(&pool, &["--size", "64mb"]);
    let directory = place.path("db");
    let dir = ["--dir", directory.to_str().unwrap()];
    run([&["put", "k", "v", "--memory", "8mb"][..], &dir].concat(), b"").ok();
    let on = |path: &Path| ["--pool".to_string(), path.to_str().unwrap().to_string()];
    // Commands that cannot create a store need no engine.
    let variables = [("TERRACE_ENGINE", "tiered"), ("TERRACE_POOL", pool.to_str().unwrap())];
    assert_eq!(run_in(&variables, &["get", "k"]).ok().text().trim_end(), "v");
    run_in(&variables, &["put", "k", "w"]).fails(1, "has the engine direct, not tiered");
    for command in [&["get", "k"][..], &["scan"], &["stats"], &["check"], &["dump"]] {
        run_in(&[("TERRACE_ENGINE", "wip")], &[command, &dir].concat()).ok();
    }
    let variables = [("TERRACE_DIR", dir[1]), ("TERRACE_POOL", pool.to_str().unwrap())];
    run_in(&variables, &["get", "k"]).fails(2, "TERRACE_POOL and TERRACE_DIR each name a store");
    for place in [&on(&pool).each_ref().map(String::as_str)[..], &dir] {
        assert_eq!(run_in(&variables, &[&["get", "k"][..], place].concat()).ok().text().trim_end(), "v");
    }
    // What else a store was made with is told by all commands.
    for command in [&["get", "k"][..], &["put", "k", "v"], &["scan"], &["check"], &["stats"]] {
        let said = place.run(&[command, &["--index", "turbo"]].concat()).ok().err;
        assert!(said.contains("warning: --index turbo applies only when a pool is created"), "{said}");
    }
    let said = run([&["get", "k", "--dram", "1gb"][..], &dir].concat(), b"").ok().err;
    assert!(said.contains("warning: --dram has no effect with the engine wip"), "{said}");
}

/// A pool keeps the settings of its creation. The server warns of given settings that have no
/// effect, and CONFIG GET returns the effective values.
#[test]
fn settings_without_effect_are_reported() {
    let place = Place::new();
    let pool = place.pool();
    make(&pool, &["--index", "turbo", "--participants", "9", "--size", "128mb"]);
    let others = [
        "--index",
        "clht",
        "--participants",
        "12",
        "--index-cache",
        "1mb",
        "--index-dram",
        "64mb",
        "--end-stopped",
        "5",
        "--unix-perm",
        "777",
    ];
    let mut server = Served::start(&pool, &others);
    let mut client = client(&server);
    for (name, value) in [
        ("index", "turbo"),
        ("participants", "9"),
        ("size", "134217728"),
        ("index-cache", "0"),
        ("index-dram", "0"),
        ("end-stopped", "0"),
        ("tcp-backlog", "511"),
        ("huge-pages", "yes"),
    ] {
        assert_eq!(setting(&mut client, name), value, "{name}");
    }
    assert!(setting(&mut client, "max-size").parse::<u64>().unwrap() >= 64 << 30);
    server.signal("-TERM");
    let (code, err) = server.end();
    assert_eq!(code, Some(0), "{err}");
    for said in [
        "--index clht applies only when a pool is created; this pool has turbo: ",
        "--participants 12 applies only when a pool is created; this pool has 9: ",
        "--size 67108864 (64 MiB) applies only when a pool is created; this pool has 134217728 (128 MiB): a pool cannot shrink",
        "--index-cache has no effect with the index turbo: only rewo has a cache",
        "--index-dram has no effect with the index turbo: only sptree has layers in DRAM",
        "--end-stopped has no effect without --shared",
        "--unix-perm has no effect without --unix",
    ] {
        assert!(err.contains(&format!("warning: {said}")), "no `{said}` in {err}");
    }
}

#[test]
fn settings_that_a_pool_has_are_not_reported() {
    let place = Place::new();
    let pool = place.pool();
    make(&pool, &["--size", "128mb"]);
    let same = Served::start(&place.path("new"), &["--index", "turbo", "--participants", "9"]);
    same.signal("-TERM");
    let mut same = same;
    let (_, err) = same.end();
    assert!(!err.contains("warning"), "{err}");
    let larger = [("TERRACE_SIZE", "256mb"), ("TERRACE_POOL", pool.to_str().unwrap())];
    let said = run_in(&larger, &["load", "/dev/null", "--format", "jsonl"]).ok().err;
    assert!(said.contains("warning: --size 268435456 (256 MiB)") && said.contains("makes it grow"), "{said}");
    assert_eq!(fs::metadata(&pool).unwrap().len(), 128 << 20);
}
