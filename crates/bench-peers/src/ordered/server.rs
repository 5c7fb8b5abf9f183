//! Ranges of the server beside those of Redis: a sorted set whose members all have one score is its
//! ordered collection of byte strings.

use super::{NAME, Outcome};
use crate::plan::Plan;
use crate::records::key;
use crate::server::{self, RedisMode, Server, alternate, benchmark, send_each, wait_until_idle};
use std::io::Write;
use terrace::Index;
use terrace_bench::{Bound, Row, Section};

const PIPELINE: u64 = 16;
const ROW: &str = "range of 50 keys, pipeline 16";
/// redis-benchmark puts a random number of 12 digits there, as [`key`] has it.
const FROM: &str = "[key:__rand_int__";

/// Requests a second, and their cost for the server.
pub(super) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let keys = plan.count(1_000_000);
    let title = format!(
        "Server over ART: X.RANGE [key + LIMIT 0 50 beside Redis's ZRANGE set [key + BYLEX LIMIT 0 50, {keys} keys of 16 bytes, from a random one on; redis-benchmark, 50 clients, \
         loopback; server and client each on a processor of its own"
    );
    let mut rates = Section::new(&title, "requests/s", &["redis"]);
    let mut costs =
        Section::new("The server's processor time for ranges", "CPU s a million requests", &["redis"]);
    if !plan.begins(NAME, &format!("server: {ROW}")) {
        return Ok(Vec::new());
    }
    let servers = [server::terrace(Index::Art)?, server::redis(RedisMode::No)?];
    server::fill(&servers[0], keys)?;
    fill_set(&servers[1], keys)?;
    servers.iter().try_for_each(wait_until_idle)?;
    let commands: [&[&str]; 2] = [
        &["X.RANGE", FROM, "+", "LIMIT", "0", "50"],
        &["ZRANGE", SET, FROM, "+", "BYLEX", "LIMIT", "0", "50"],
    ];
    let (requests, random) = (plan.count(400_000), keys.to_string());
    let drive = |nth: usize| {
        let arguments = [&["-r", &random], commands[nth]].concat();
        benchmark(&servers[nth], PIPELINE, requests, &arguments)
    };
    let (rate, cost) = alternate(plan, servers.len(), drive)?;
    rates.rows.push(Row::from_measured(ROW, rate).against(0, Bound::AtLeast(1.5)));
    costs.rows.push(Row::from_measured(ROW, cost).against(0, Bound::AtMost(0.7)));
    Ok(vec![rates, costs])
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
