//! serve: its first lines, its shutdown, and errors at its start.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    os::unix::net::UnixListener,
};

use crate::common::{Place, Served, free_port, run};

fn client(server: &Served) -> BufReader<TcpStream> {
    BufReader::new(TcpStream::connect(("127.0.0.1", server.port)).unwrap())
}

fn ask(client: &mut BufReader<TcpStream>, request: &str) -> String {
    client.get_mut().write_all(format!("{request}\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    client.read_line(&mut line).unwrap();
    line.trim_end().into()
}

#[test]
fn first_lines_show_durability_and_addresses() {
    let place = Place::new();
    let server = Served::start(&place.pool(), &["--threads", "2"]);
    let lines: Vec<&str> = server.heading.lines().collect();
    assert!(lines[0].starts_with(&format!(
        "terrace {}  pool {}",
        env!("CARGO_PKG_VERSION"),
        place.pool().display()
    )));
    assert!(lines[0].contains("through a crash of the process, not of the machine"), "{}", lines[0]);
    let places = format!(
        "index clht · 2 threads · redis://127.0.0.1:{} · metrics http://127.0.0.1:{}/metrics",
        server.port, server.metrics_port
    );
    assert_eq!(lines[1].trim(), places);
    assert_eq!(lines[2].trim(), "created a new pool");
    assert_eq!(lines[3..], ["ready"]);
}

#[test]
fn restart_after_a_kill_recovers_all_records() {
    let place = Place::new();
    let mut server = Served::start(&place.pool(), &[]);
    for nth in 0..100 {
        assert_eq!(ask(&mut client(&server), &format!("SET key:{nth} {nth}")), "+OK");
    }
    server.signal("-KILL");
    assert_eq!(server.end().0, None);
    let server = Served::start(&place.pool(), &[]);
    assert!(server.heading.contains("recovered 100 records in"), "{}", server.heading);
    assert!(server.heading.contains("after an unclean stop"), "{}", server.heading);
    let mut client = client(&server);
    assert_eq!(ask(&mut client, "DBSIZE"), ":100");
    assert_eq!(ask(&mut client, "EXISTS key:99"), ":1");
}

#[test]
fn signal_shuts_down_cleanly() {
    let place = Place::new();
    for signal in ["-TERM", "-INT"] {
        let mut server = Served::start(&place.pool(), &[]);
        let mut client = client(&server);
        assert_eq!(ask(&mut client, "INCR n").chars().next(), Some(':'));
        // Commands received before the signal are answered; the client reads the replies later.
        client.get_mut().write_all(&b"INCR n\r\n".repeat(100)).unwrap();
        assert_eq!(
            ask(&mut BufReader::new(TcpStream::connect(("127.0.0.1", server.port)).unwrap()), "PING"),
            "+PONG"
        );
        server.signal(signal);
        let (code, err) = server.end();
        assert_eq!(code, Some(0), "{err}");
        assert!(err.contains("shutting down"), "{err}");
        let mut answers = String::new();
        client.read_to_string(&mut answers).unwrap();
        assert_eq!(answers.lines().count(), 100);
    }
    assert_eq!(place.run(&["get", "n"]).ok().out, b"202");
    let server = Served::start(&place.pool(), &[]);
    assert!(server.heading.contains("opened 1 record in"), "{}", server.heading);
}

#[test]
fn shutdown_command_ends_the_server_cleanly() {
    let place = Place::new();
    let mut server = Served::start(&place.pool(), &[]);
    assert_eq!(ask(&mut client(&server), "SHUTDOWN"), "");
    assert_eq!(server.end().0, Some(0));
}

/// A killed server keeps its ports until the kernel has released its memory.
#[test]
fn start_waits_for_a_port_in_use() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut child = crate::common::program()
        .args(["serve", "--size", "16mb", "--metrics-port", "0", "--port", &port, "--pool"])
        .arg(place.pool())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // Once the process runs the program, it finds the port taken within the 200 ms below.
    let pid = child.id();
    let is_running =
        || std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "terrace");
    while !is_running() {
        std::thread::yield_now();
    }
    std::thread::park_timeout(std::time::Duration::from_millis(200));
    drop(taken);
    let is_ready = crate::common::ready(&mut child).is_some();
    let _ = child.kill();
    let _ = child.wait();
    assert!(is_ready, "the server did not wait for the port");
}

#[test]
fn port_in_use_is_reported() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let refused = place.run(&["serve", "--port", &port, "--metrics-port", "0"]);
    let refused = refused.fails(1, &format!("port {port} of 127.0.0.1 is in use by another program")).err;
    assert!(refused.contains("\n  to use another port: --port PORT\n"), "{refused}");
    let (socket, none) = (place.path("socket"), "0");
    let socket = socket.to_str().unwrap();
    let refused = place.run(&["serve", "--unix", socket, "--port", none, "--metrics-port", &port]);
    assert!(refused.fails(1, "is in use").err.contains("--metrics-port PORT"));
    assert!(!place.pool().exists());
}

#[test]
fn public_address_requires_a_password() {
    let place = Place::new();
    let port = free_port().to_string();
    let refused = place.run(&["serve", "--bind", "0.0.0.0", "--port", &port, "--metrics-port", "0"]);
    let refused = refused.fails(1, "0.0.0.0, which is not loopback, without a password");
    assert!(refused.err.contains("--bind 127.0.0.1"));
    let password = place.path("password");
    fs::write(&password, "open sesame\n").unwrap();
    let server =
        Served::start(&place.pool(), &["--bind", "0.0.0.0", "--password-file", password.to_str().unwrap()]);
    let mut client = client(&server);
    assert_eq!(ask(&mut client, "PING"), "-NOAUTH Authentication required.");
    assert_eq!(ask(&mut client, "AUTH \"open sesame\""), "+OK");
    fs::write(&password, "\n").unwrap();
    let arguments = ["serve", "--port", "0", "--password-file", password.to_str().unwrap()];
    place.run(&arguments).fails(1, "its first line is empty");
}

#[test]
fn unix_socket_is_private_and_replaces_a_stale_one() {
    let place = Place::new();
    let socket = place.path("socket");
    drop(UnixListener::bind(&socket).unwrap());
    let path = socket.to_str().unwrap();
    let mut server = Served::start(&place.pool(), &["--unix", path]);
    assert!(server.heading.contains(&format!("unix://{path}")));
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o700);
    let refused = place.run_on(
        &place.path("other"),
        &["serve", "--port", "0", "--metrics-port", "0", "--unix", path],
        b"",
    );
    refused.fails(1, "is in use by a running server");
    server.signal("-TERM");
    server.end();
    assert!(!socket.exists());
    fs::write(&socket, "data").unwrap();
    let refused = place.run(&["serve", "--port", "0", "--metrics-port", "0", "--unix", path]);
    refused.fails(1, "exists and is not a socket");
    let nowhere = place.path("no/such/socket");
    let refused =
        place.run(&["serve", "--port", "0", "--metrics-port", "0", "--unix", nowhere.to_str().unwrap()]);
    assert!(refused.fails(1, "cannot listen on").err.contains("must exist"));
}

#[test]
fn settings_are_checked_before_anything_starts() {
    for (arguments, why) in [
        (["serve", "--port", "65536"], "from 0 to 65535"),
        (["serve", "--threads", "many"], "a number from 0 to 1024"),
        (["serve", "--maxclients", "0"], "a number from 1 to"),
        (["serve", "--unix-perm", "999"], "octal"),
        (["serve", "--index", "btree"], "clht"),
        (["serve", "--size", "large"], "it must be a size, as in"),
        (["serve", "--size", ""], "it must be a size, as in"),
    ] {
        let refused = run(arguments, b"");
        assert_eq!(refused.code, 2);
        assert!(refused.err.contains(why), "{}", refused.err);
    }
    let port = free_port().to_string();
    run(["serve", "--port", "0", "--metrics-port", &port], b"").fails(1, "nothing to listen on");
}

#[test]
fn log_level_can_be_changed() {
    let place = Place::new();
    for (level, is_logged) in [("warning", false), ("notice", true)] {
        let mut server = Served::start(&place.pool(), &["--log-level", "warning"]);
        assert_eq!(ask(&mut client(&server), &format!("CONFIG SET loglevel {level}")), "+OK");
        assert!(ask(&mut client(&server), "CONFIG SET loglevel loud").starts_with("-ERR CONFIG SET failed"));
        server.signal("-TERM");
        let (code, err) = server.end();
        assert_eq!((code, err.contains("shutting down")), (Some(0), is_logged), "{err}");
    }
}

#[test]
fn config_get_shows_settings_and_config_set_size_grows() {
    let place = Place::new();
    let server = Served::start(&place.pool(), &["--maxclients", "77"]);
    let mut client = client(&server);
    let shown = |client: &mut BufReader<TcpStream>, name: &str| {
        let lines: Vec<String> = (0..4).map(|_| String::new()).collect();
        assert_eq!(ask(client, &format!("CONFIG GET {name}")), "*2");
        let lines = lines.into_iter().map(|mut line| {
            client.read_line(&mut line).unwrap();
            line.trim_end().to_string()
        });
        lines.last().unwrap()
    };
    assert_eq!(shown(&mut client, "maxclients"), "77");
    assert_eq!(shown(&mut client, "port"), server.port.to_string());
    assert_eq!(shown(&mut client, "size"), (64 << 20).to_string());
    assert_eq!(ask(&mut client, "CONFIG SET size 128mb"), "+OK");
    assert_eq!(shown(&mut client, "size"), (128 << 20).to_string());
    assert_eq!(shown(&mut client, "maxmemory"), (128 << 20).to_string());
    assert!(fs::metadata(place.pool()).unwrap().len() >= 128 << 20);
    let refused = ask(&mut client, "CONFIG SET size 1mb");
    assert!(refused.contains("cannot shrink"), "{refused}");
    assert!(ask(&mut client, "CONFIG SET appendonly yes").starts_with("-ERR CONFIG SET failed"));
    assert!(ask(&mut client, "CONFIG SET port 1").contains("can't set immutable config"));
}

/// A server shuts down cleanly and logs no error, even during a collection, while it sets up huge
/// pages or accepts its first connections.
#[test]
fn signal_at_any_moment_shuts_down_cleanly() {
    let place = Place::new();
    for nth in 0..30u64 {
        let mut server = Served::start(&place.pool(), &["--threads", "2"]);
        if nth % 3 == 0 {
            ask(&mut client(&server), &format!("SET key:{nth} {nth}"));
            server.signal("-KILL");
            server.end();
            server = Served::start(&place.pool(), &[]);
        }
        // The test varies the time of the signal.
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(std::time::Duration::from_millis(nth * nth / 9));
        server.signal("-TERM");
        let (code, err) = server.end();
        assert!(code == Some(0) && !err.contains("error"), "after {} ms: {err}", nth * nth / 9);
    }
    let server = Served::start(&place.pool(), &[]);
    assert!(server.heading.contains("opened 10 records in"), "{}", server.heading);
}
