//! What libfabric does where its manual leaves it open. `docs/fabric.md` has the results.
//!
//! `cargo run --release -p terrace-fabric --example experiments`, and one of half, commit, reads,
//! endpoints and words for that one only.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that measures")]

mod commit;
mod endpoints;
#[path = "../../tests/all/half.rs"]
mod half;
mod half_write;
mod reads;
mod words;

use half::{Child, digits, from_digits};
use std::process::Command;
use std::time::{Duration, Instant};
use terrace_fabric::{Libfabric, RegionKey};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => all(),
        ["half"] => half_write::run(),
        ["commit"] => commit::run(),
        ["reads"] => reads::run(),
        ["endpoints"] => endpoints::run(),
        ["words"] => words::run(),
        ["write-and-stop", address, region] => {
            half::write_and_stop(&fabric(), &from_digits(address), key(region));
        }
        ["commit-to", address, region] => commit::write_to(&from_digits(address), key(region)),
        ["read-from", address, region] => reads::read_from(&from_digits(address), key(region)),
        ["read-words", address, region] => words::read_from(&from_digits(address), key(region)),
        ["open", count] => endpoints::open(count.parse().expect("a number")),
        _ => panic!("no such experiment: {arguments:?}; half, commit, reads, endpoints, words"),
    }
}

fn all() {
    for experiment in ["half", "commit", "reads", "endpoints", "words"] {
        let status = child(&[experiment]).status().expect("a process");
        assert!(status.success(), "{experiment}: {status}");
    }
}

fn fabric() -> Libfabric {
    Libfabric::new(Libfabric::TCP, "127.0.0.1").expect("the provider for TCP")
}

fn key(digits: &str) -> RegionKey {
    RegionKey::from_bytes(from_digits(digits).try_into().expect("16 bytes"))
}

/// This program again.
fn child(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(arguments);
    command
}

/// This program as an initiator that connects to an address.
fn initiator(role: &str, address: &[u8], region: RegionKey) -> Child {
    Child::start(&mut child(&[role, &digits(address), &digits(&region.to_bytes())]))
}

/// How long one of `rounds` takes: the median.
fn median(rounds: usize, mut round: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let began = Instant::now();
            round();
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[rounds / 2]
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
