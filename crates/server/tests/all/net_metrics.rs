//! The metrics page.

use std::{
    io::Write,
    net::TcpStream,
    process::{Command, Stdio},
};

use crate::common::{Running, ask, free_port, rest};

fn get(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    String::from_utf8(rest(&mut stream)).unwrap()
}

#[test]
fn metrics_are_correct_and_other_requests_fail() {
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
}

/// Connections that say nothing are no queue. One after the other they would take longer than the
/// scraper waits.
#[test]
fn silent_connections_do_not_hold_up_a_scrape() {
    let port = free_port();
    let _server = Running::start(&[("metrics-port", &port.to_string())]);
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    let silent: Vec<_> = (0..200).map(|_| connect()).collect();
    let mut scraper = connect();
    scraper.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    scraper.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    let behind: Vec<_> = (0..200).map(|_| connect()).collect();
    scraper.write_all(b"\r\n").unwrap();
    let page = String::from_utf8(rest(&mut scraper)).unwrap();
    assert!(page.starts_with("HTTP/1.1 200") && page.ends_with("# EOF\n"), "{page}");
    drop((silent, behind));
}

/// Parses the page with Prometheus's client library for Python, which is strict about OpenMetrics,
/// and prints one line per sample.
const PARSE: &str = r#"
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    assert family.documentation, family.name
    assert family.type != "unknown", family.name
    for sample in family.samples:
        print(family.type, sample.name, json.dumps(sample.labels), sample.value, sep="\t")
"#;

fn parsed(page: &str) -> Vec<String> {
    let mut python = Command::new("python3")
        .args(["-c", PARSE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    python.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "python3 with prometheus_client refuses the page:\n{page}");
    String::from_utf8(output.stdout).unwrap().lines().map(String::from).collect()
}

/// A scraper can parse the page: it is complete, each family has type and help, names have their
/// suffixes, labels are escaped, and the histogram has buckets.
#[test]
fn prometheus_parses_the_page() {
    let port = free_port();
    let odd_path = "/a \"pool\" with a \\ and\na line";
    let server = Running::start(&[("metrics-port", &port.to_string()), ("pool", odd_path)]);
    let mut client = server.connect();
    for _ in 0..200 {
        ask(&mut client, b"SET k v\r\n", b"+OK\r\n");
    }
    let page = get(port, "GET /metrics HTTP/1.1\r\n\r\n");
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n")
    );
    assert!(body.ends_with("\n# EOF\n"));
    let samples = parsed(body);
    let value = |begin: &str| -> f64 {
        let found = samples.iter().find_map(|sample| sample.strip_prefix(begin));
        found.unwrap_or_else(|| panic!("no `{begin}` in {samples:#?}")).trim().parse().unwrap()
    };
    let bucket = |le: &str| value(&format!("histogram\tterrace_turn_seconds_bucket\t{{\"le\": \"{le}\"}}\t"));
    let count = value("histogram\tterrace_turn_seconds_count\t{}\t");
    assert!(count >= 3.0);
    assert_eq!((bucket("+Inf"), bucket("2.56e-7")), (count, 0.0));
    assert!(value("histogram\tterrace_turn_seconds_sum\t{}\t") > 0.0);
    assert_eq!(value("counter\tterrace_commands_total\t{\"family\": \"write\"}\t"), 200.0);
    assert_eq!(value("gauge\tterrace_records\t{}\t"), 1.0);
    let pool = r#"{"path": "/a \"pool\" with a \\ and\na line"}"#;
    if crate::common::is_tiered() {
        assert_eq!(value("counter\tterrace_tier_appended_total\t{}\t"), 1.0);
        return;
    }
    if crate::common::is_on_disk() {
        assert_eq!(value("gauge\tterrace_disk_buckets\t{}\t"), 1.0);
        return;
    }
    assert_eq!(value(&format!("info\tterrace_pool_info\t{pool}\t")), 1.0);
}
