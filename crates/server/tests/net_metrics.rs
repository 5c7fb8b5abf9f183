//! The metrics page.

mod common;

use std::{io::Write, net::TcpStream};

use common::{Running, ask, free_port, rest};

fn get(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    String::from_utf8(rest(&mut stream)).unwrap()
}

#[test]
fn figures_are_true_and_nothing_else_is_served() {
    let port = free_port();
    let server = Running::start(&[("metrics-port", &port.to_string())]);
    let mut client = server.connect();
    ask(
        &mut client,
        b"SET k v\r\nGET k\r\nGET absent\r\nWRONG\r\n",
        b"+OK\r\n$1\r\nv\r\n$-1\r\n-ERR unknown command",
    );
    let page = get(port, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"), "{page}");
    for line in [
        "terrace_hits_total 1",
        "terrace_misses_total 1",
        "terrace_errors_total 1",
        "terrace_commands_total{family=\"read\"} 2",
        "terrace_commands_total{family=\"write\"} 1",
        "terrace_connections_open 1",
        "terrace_records 1",
        "terrace_faults_total 0",
    ] {
        assert!(page.lines().any(|found| found == line), "no `{line}` in\n{page}");
    }
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405"),
        ("PING\r\n\r\n", "HTTP/1.1 400"),
        (&format!("GET /metrics HTTP/1.1\r\nCookie: {}", "x".repeat(5000)), "HTTP/1.1 431"),
    ] {
        assert!(get(port, request).starts_with(status), "{request}");
    }
    // One that says nothing is not waited for.
    let _silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert!(get(port, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
}
