//! How long the keys of a process that dies wait.

use super::client::Client;
use super::processes::{LEASE, Processes};
use super::{Outcome, percentile, row};
use crate::plan::{Plan, say};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use terrace_bench::{Bound, Section};

/// Keys of a node that are called until all answer.
const KEYS: usize = 32;
const PATIENCE: Duration = Duration::from_secs(60);

/// Keys by the node that serves them.
fn keys(client: &mut Client) -> Outcome<HashMap<u16, Vec<String>>> {
    let mut keys: HashMap<u16, Vec<String>> = HashMap::new();
    for nth in 0..600 {
        let key = format!("key {nth}");
        client.call(&key, &["SET", &key, "value"], PATIENCE)?;
        keys.entry(client.owner(&key)?).or_default().push(key);
    }
    keys.values_mut().for_each(|keys| keys.truncate(KEYS));
    Ok(keys)
}

/// Calls all keys until each has answered; returns when the last did, in milliseconds.
fn until_all_answer(client: &mut Client, keys: &[String], began: Instant) -> Outcome<f64> {
    for key in keys {
        client.call(key, &["SET", key, "again"], PATIENCE)?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

pub(super) fn section(plan: &Plan) -> Outcome<Section> {
    let cluster = Processes::start(3, "1gb")?;
    let title = "From SIGKILL of a serving node to an answer for each of 32 of its keys; lease of 300 ms";
    let mut section = Section::new(title, "ms", &[]);
    let deaths = if plan.quick { 3 } else { 50 };
    let mut times = Vec::new();
    for nth in 0..deaths {
        let mut client = Client::new(&cluster.ports);
        let owned = keys(&mut client)?;
        let victim = cluster.ports[nth % cluster.ports.len()];
        let Some(owned) = owned.get(&victim) else { return Err("a node serves no key".into()) };
        // A moment of the lease.
        std::thread::sleep(Duration::from_millis(37 * (nth as u64 % 9)));
        let began = Instant::now();
        cluster.kill_serving(victim)?;
        times.push(until_all_answer(&mut client, owned, began)?);
        wait_for_all(&cluster)?;
    }
    say(&format!("  in their order: {times:.0?}"));
    times.sort_by(f64::total_cmp);
    let lease = LEASE.as_secs_f64() * 1e3;
    let beyond: Vec<f64> = times.iter().map(|time| (time - lease).max(0.0)).collect();
    section.rows.push(row(format!("median of {deaths}"), percentile(&times, 50)));
    section.rows.push(row("p99", percentile(&times, 99)).judged(Bound::AtMost(600.0)));
    section.rows.push(row("median beyond the lease", percentile(&beyond, 50)).judged(Bound::AtMost(110.0)));
    section.rows.push(row("etcd killed meanwhile: longest call of 5 s", without_etcd(&cluster)?));
    Ok(section)
}

/// Waits until the node that was killed has slots again.
fn wait_for_all(cluster: &Processes) -> Outcome<()> {
    let began = Instant::now();
    loop {
        let mut client = Client::new(&cluster.ports);
        if keys(&mut client)?.len() == cluster.ports.len() {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err("a node that was killed gets no slots".into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The longest call while etcd is dead, in milliseconds. No call may fail.
fn without_etcd(cluster: &Processes) -> Outcome<f64> {
    let mut client = Client::new(&cluster.ports);
    let all: Vec<String> = keys(&mut client)?.into_values().flatten().collect();
    cluster.kill_etcd()?;
    let (began, mut longest, mut calls) = (Instant::now(), Duration::ZERO, 0_u64);
    while began.elapsed() < Duration::from_secs(5) {
        for key in &all {
            let (took, is_repeated) = client.call(key, &["SET", key, "value"], PATIENCE)?;
            if is_repeated {
                return Err("a call failed while etcd was dead".into());
            }
            (longest, calls) = (longest.max(took), calls + 1);
        }
    }
    say(&format!("  {calls} calls beside the death of etcd, none failed"));
    Ok(longest.as_secs_f64() * 1e3)
}

/// The memory node is killed with many records.
pub(super) fn memory(plan: &Plan) -> Outcome<Section> {
    let records = plan.records();
    let size = format!("{}mb", 600 + records * 160 / (1 << 20));
    let cluster = Processes::start(3, &size)?;
    say(&format!("  loading {records} records"));
    load(&cluster.ports, records)?;
    let title = format!(
        "From SIGKILL of the memory node with {records} records to an answer for a key of each node; it is started again by `cluster up`"
    );
    let mut section = Section::new(&title, "ms", &[]);
    let mut times = Vec::new();
    for _ in 0..if plan.quick { 2 } else { 5 } {
        let mut client = Client::new(&cluster.ports);
        let all: Vec<String> = keys(&mut client)?.into_values().flatten().collect();
        let began = Instant::now();
        cluster.kill_memory()?;
        times.push(until_all_answer(&mut client, &all, began)?);
        // After a shorter life, `cluster up` waits before it starts it again.
        std::thread::sleep(Duration::from_secs(11));
    }
    times.sort_by(f64::total_cmp);
    section.rows.push(
        row(format!("median of {}", times.len()), percentile(&times, 50)).judged(Bound::AtMost(1000.0)),
    );
    section.rows.push(row("longest", percentile(&times, 100)));
    Ok(section)
}

/// Puts records by redis-benchmark, which follows the slots.
fn load(ports: &[u16], records: u64) -> Outcome<()> {
    let mut command = std::process::Command::new("redis-benchmark");
    command.args(["--cluster", "-p", &ports[0].to_string(), "-P", "64", "-c", "30", "-q", "-d", "32"]);
    // Random keys out of so many: about 85% of them differ.
    command.args([
        "-r",
        &(records * 6 / 5).to_string(),
        "-n",
        &(records * 6 / 5).to_string(),
        "SET",
        "key:{tag}:__rand_int__",
        "0123456789abcdef0123456789abcdef",
    ]);
    match command.stdout(std::process::Stdio::null()).status()?.success() {
        true => Ok(()),
        false => Err("redis-benchmark failed".into()),
    }
}
