//! The server on a directory beside Redis, when an answered write survives a loss of power.

use super::NAME;
use super::tables::Tables;
use crate::files::{Place, rounds};
use crate::plan::Plan;
use crate::server::{RedisMode, alternate, benchmark, redis_in, terrace_in};
use terrace_bench::Bound;

const SET: &str = "server SET, power";

pub(super) fn measure(
    plan: &Plan,
    place: &Place,
    tables: &mut Tables,
) -> Result<(), Box<dyn std::error::Error>> {
    if !plan.begins(NAME, SET) {
        return Ok(());
    }
    let fresh = || place.fresh().map_err(|error| -> Box<dyn std::error::Error> { error });
    let servers = [terrace_in(fresh()?)?, redis_in(RedisMode::Always, fresh()?)?];
    let requests = plan.count(1_000_000).max(50_000);
    let drive =
        |nth: usize| benchmark(&servers[nth], 16, requests, &["-r", "1000000", "-d", "64", "-t", "set"]);
    let (rates, _) = alternate(plan, servers.len(), drive)?;
    tables.server.rows.push(rounds(SET.into(), rates, Some(Bound::AtLeast(2.0))));
    Ok(())
}
