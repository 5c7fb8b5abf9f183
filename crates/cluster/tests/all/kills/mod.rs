//! Processes of a cluster that are killed, and stopped past their leases, under writes. What was
//! acknowledged is there, and every key's history has an order.
//!
//! The test is the directory and the manager: it writes a file with the map, which the processes
//! read. Clients speak the Redis protocol with them.

mod client;
mod process;

use crate::history::Call;
use crate::random::Random;
use client::{Client, Reply};
use process::{Children, Kind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use terrace_testkit::linearizability::{Interval, final_states};

const CLUSTERS: usize = 3;
const NODES: usize = 3;
const CLIENTS: usize = 3;
/// Keys of a round, and calls of a client to them.
const KEYS: usize = 6;
const CALLS: usize = 60;

#[derive(Default)]
struct History(Mutex<Vec<(Interval, Call)>>);

/// What a run has met.
#[derive(Default)]
struct Met {
    calls: AtomicU64,
    unknown: AtomicU64,
    /// By their kinds.
    deaths: [AtomicU64; 3],
}

fn kills() -> usize {
    std::env::var("TERRACE_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(60)
}

#[test]
fn process_of_a_cluster() {
    if let Some(task) = terrace_testkit::process::task() {
        process::work(&task);
    }
}

#[test]
fn acknowledged_writes_survive_any_death() {
    // Most of the time, a cluster waits for a lease; so there are several.
    let (each, met) = (kills().div_ceil(CLUSTERS), Met::default());
    let mut waits: Vec<Duration> = std::thread::scope(|scope| {
        let met = &met;
        let running: Vec<_> =
            (0..CLUSTERS as u64).map(|nth| scope.spawn(move || deaths(each, 0x5eed + nth, met))).collect();
        running.into_iter().flat_map(|run| run.join().expect("a cluster that loses nothing")).collect()
    });
    waits.sort_unstable();
    let [killed, stopped, memory] = &met.deaths;
    println!(
        "{} serving nodes killed, {} stopped past their leases, {} memory nodes killed: {} calls, {} without an \
         answer, none lost; longest call of a death: median {:?}, p99 {:?}",
        killed.load(Relaxed),
        stopped.load(Relaxed),
        memory.load(Relaxed),
        met.calls.load(Relaxed),
        met.unknown.load(Relaxed),
        waits[waits.len() / 2],
        waits[waits.len() * 99 / 100],
    );
}

/// Runs a cluster through so many deaths. Returns the longest call of each.
fn deaths(count: usize, seed: u64, met: &Met) -> Vec<Duration> {
    let (mut random, mut children) = (Random(seed), Children::start(NODES));
    let death = |round: usize| {
        let kind = match round % 7 {
            6 => Kind::KillMemory,
            3 | 5 => Kind::StopServing,
            _ => Kind::KillServing,
        };
        met.deaths[kind as usize].fetch_add(1, Relaxed);
        one_round(&mut children, kind, round as u64, &mut random, met)
    };
    (0..count).map(death).collect()
}

/// One death under load. Returns how long the longest call took.
fn one_round(children: &mut Children, kind: Kind, round: u64, random: &mut Random, met: &Met) -> Duration {
    let histories: Arc<Vec<History>> = Arc::new((0..KEYS).map(|_| History::default()).collect());
    let ports = children.ports();
    let (began, longest) = (Instant::now(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (histories, ports, longest) = (Arc::clone(&histories), ports.clone(), &longest);
            let seed = random.below(u64::MAX);
            scope.spawn(move || {
                longest.fetch_max(run_client(client, &ports, round, seed, began, &histories, met), Relaxed)
            });
        }
        std::thread::sleep(random.micros(0..40_000));
        children.strike(kind, random);
    });
    let mut client = Client::new(ports.clone());
    for (key, history) in histories.iter().enumerate() {
        let calls = history.0.lock().unwrap();
        let (intervals, calls): (Vec<Interval>, Vec<Call>) =
            calls.iter().map(|(it, call)| (*it, *call)).unzip();
        let ends = final_states(None, &intervals, |nth, state| calls[nth].apply(*state));
        assert!(
            !ends.is_empty(),
            "round {round}, {kind:?}: no order explains key {key}: {:#?}",
            zipped(&intervals, &calls)
        );
        let now = client.get(&name(round, key));
        assert!(ends.contains(&now), "round {round}, {kind:?}: key {key} has {now:?}, not one of {ends:?}");
    }
    Duration::from_micros(longest.load(Relaxed))
}

fn zipped(intervals: &[Interval], calls: &[Call]) -> Vec<(u64, Option<u64>, Call)> {
    let mut all: Vec<_> =
        intervals.iter().zip(calls).map(|(it, call)| (it.called, it.returned, *call)).collect();
    all.sort_by_key(|(called, ..)| *called);
    all
}

fn name(round: u64, key: usize) -> String {
    format!("{round} {key}")
}

/// Calls a key: reads, puts, increments or deletes it.
fn call_one(connection: &mut Client, kind: u64, name: &str, word: u64) -> Reply {
    match kind {
        0..4 => connection.call(&["GET", name]),
        4..7 => connection.call(&["SET", name, &word.to_string()]),
        7..9 => connection.call(&["INCR", name]),
        _ => connection.call(&["DEL", name]),
    }
}

/// The call as its history has it. A read that was not answered did nothing.
fn noted(kind: u64, word: u64, reply: &Reply) -> Option<Call> {
    match (kind, reply) {
        (0..4, Reply::Unknown) => None,
        (0..4, reply) => Some(Call::Get(reply.word())),
        (4..7, _) => Some(Call::Set(word)),
        (7..9, reply) => Some(Call::Add(reply.word())),
        (_, reply) => Some(Call::Delete(reply.word().map(|count| count == 1))),
    }
}

/// Calls keys, and notes what it did. Returns the longest call, in microseconds.
fn run_client(
    client: usize,
    ports: &[u16],
    round: u64,
    seed: u64,
    began: Instant,
    histories: &[History],
    met: &Met,
) -> u64 {
    let mut longest_us = 0;
    let mut random = Random(seed);
    let mut connection = Client::new(ports.to_vec());
    for nth in 0..CALLS {
        let key = random.below(KEYS as u64) as usize;
        let name = name(round, key);
        let word = ((client * CALLS + nth) as u64) << 20;
        let kind = random.below(10);
        let called = began.elapsed();
        let reply = call_one(&mut connection, kind, &name, word);
        let returned = began.elapsed();
        met.calls.fetch_add(1, Relaxed);
        longest_us = longest_us.max((returned - called).as_micros() as u64);
        let call = noted(kind, word, &reply);
        met.unknown.fetch_add(u64::from(reply == Reply::Unknown), Relaxed);
        let returned = (reply != Reply::Unknown).then_some(returned.as_nanos() as u64);
        if let Some(call) = call {
            let interval = Interval { called: called.as_nanos() as u64, returned };
            histories[key].0.lock().unwrap().push((interval, call));
        }
    }
    longest_us
}
