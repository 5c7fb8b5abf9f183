//! Ranges of the server beside those of Redis: a sorted set whose members all have one score is its
//! ordered collection of byte strings.

use super::Outcome;
use super::lines::{Demand, Line, apart};
use super::ours::TREES;
use crate::plan::Plan;
use crate::records::key;
use crate::server::{self, RedisMode, Server, alternate, benchmark, send_each, wait_until_idle};
use std::io::Write;
use terrace::Index;
use terrace_bench::{Bound, Measured, Section};

const PIPELINE: u64 = 16;
const ROW: &str = "range of 50 keys, pipeline 16";
/// redis-benchmark puts a random number of 12 digits there, as [`key`] has it.
const FROM: &str = "[key:__rand_int__";

const REDIS: &str = "redis";

/// Requests a second, and their cost for the server.
pub(super) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let keys = plan.count(1_000_000);
    let title = format!(
        "Server over our trees: X.RANGE [key + LIMIT 0 50 beside Redis's ZRANGE set [key + BYLEX LIMIT 0 50, {keys} keys of 16 bytes, from a random one on; redis-benchmark, 50 clients, \
         loopback; server and client each on a processor of its own"
    );
    let line = |bound: Bound| {
        let demands = TREES.map(|tree| Demand::over(REDIS, tree, bound)).to_vec();
        Line::of_stores(plan, "server", ROW.to_owned(), demands)
    };
    let [rates, costs] = [line(Bound::AtLeast(1.5)), line(Bound::AtMost(0.7))];
    let trees = rates.begin(plan);
    if trees.is_empty() {
        return Ok(Vec::new());
    }
    let measured = measured(plan, &trees, keys)?;
    let section = |title: &str, unit: &str, line: Line, measured: &Measured| {
        let rows = line.rows(plan, &[REDIS], apart(&trees, measured));
        Section { rows, ..Section::new(title, unit, &[REDIS]) }
    };
    let of_costs = "The server's processor time for ranges";
    Ok(vec![
        section(&title, "requests/s", rates, &measured.0),
        section(of_costs, "CPU s a million requests", costs, &measured.1),
    ])
}

/// The rates and costs of servers over these trees, and of Redis's.
fn measured(plan: &Plan, trees: &[&str], keys: u64) -> Outcome<(Measured, Measured)> {
    let redis = server::redis(RedisMode::No)?;
    fill_set(&redis, keys)?;
    let mut servers = Vec::new();
    for tree in trees {
        let server = server::terrace(Index::named(tree).ok_or("there is no such index")?)?;
        server::fill(&server, keys)?;
        servers.push(server);
    }
    servers.push(redis);
    servers.iter().try_for_each(wait_until_idle)?;
    let (requests, random) = (plan.count(400_000), keys.to_string());
    alternate(plan, servers.len(), |nth| {
        let command: &[&str] = match nth < trees.len() {
            true => &["X.RANGE", FROM, "+", "LIMIT", "0", "50"],
            false => &["ZRANGE", SET, FROM, "+", "BYLEX", "LIMIT", "0", "50"],
        };
        benchmark(&servers[nth], PIPELINE, requests, &[&["-r", &random], command].concat())
    })
}

const SET: &str = "set";

/// Adds the keys to a sorted set, all with one score.
fn fill_set(server: &Server, keys: u64) -> Outcome<()> {
    send_each(server, keys, b":1\r\n", |request, number| {
        request.extend_from_slice(b"*4\r\n$4\r\nZADD\r\n$3\r\nset\r\n$1\r\n0\r\n$16\r\n");
        request.extend_from_slice(&key(number));
        request.write_all(b"\r\n")
    })
}
