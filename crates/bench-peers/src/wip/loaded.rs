//! A pair of stores, loaded with all records, and what is measured on it.

use super::tables::Tables;
use super::{NAME, SETUP, beside as beside_writes, mixes, read, records};
use crate::files::{
    By, Load, Outcome, Pair, Place, Plot, Series, Side, alone, beside, load_both, named, peers,
};
use crate::plan::{Plan, say};
use std::time::Instant;
use terrace_bench::Bound;

const OPEN: &str = "open after a clean close";

/// The bounds on the ratios of records a second, and of bytes written.
fn bounds(peer: Side) -> (Bound, Option<Bound>) {
    match peer {
        Side::Deep => (Bound::AtLeast(4.0), Some(Bound::AtMost(0.285))),
        Side::Fjall => (Bound::AtLeast(2.0), None),
        _ => (Bound::AtLeast(3.0), Some(Bound::AtMost(0.769))),
    }
}

const LOAD: [&str; 4] = [
    "load in batches of 1,000, settled",
    "load in batches of 1,000",
    "written, log included",
    "written to tables",
];

pub(super) fn measure(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    for peer in peers(plan) {
        let is_default = peer == Side::RocksDb;
        let more = mixes::names().chain(beside_writes::names()).filter(|_| is_default);
        let opens = is_default && plan.wants(NAME, OPEN);
        let mut names = LOAD.into_iter().chain(read::NAMES).chain(more);
        if !opens && !names.any(|what| plan.wants(NAME, &named(what, peer))) {
            continue;
        }
        say(&format!("{NAME} loading ours and {}", peer.name()));
        let pair = Pair::of(place, [Side::Ours, peer], SETUP)?;
        let [ours, theirs] = load_both(pair.both(), records(plan), By::Batches)?;
        load_rows(plan, peer, &ours, &theirs, tables);
        tables.plots.extend(plots(peer, [&ours, &theirs]));
        read::measure(plan, &pair, tables)?;
        if is_default {
            mixes::measure(plan, &pair, tables)?;
            beside_writes::measure(plan, &pair, tables)?;
            open_again(plan, pair, tables)?;
        }
    }
    Ok(())
}

/// The pace of the load and what it wrote, over the records.
fn plots(peer: Side, loads: [&Load; 2]) -> [Plot; 2] {
    let plot = |title: &str, line: fn(&Load) -> Vec<(f64, f64)>| Plot {
        title: format!("{title}: ours and {}", peer.name()),
        across: "million bytes put",
        lines: ["ours", peer.name()]
            .into_iter()
            .zip(loads)
            .map(|(name, load)| Series { name: name.into(), points: line(load) })
            .collect(),
    };
    [
        plot("Load in batches of 1,000, thousand records a second until the store rests", Load::pace),
        plot("Bytes written to tables for each byte put", Load::growing),
    ]
}

fn load_rows(plan: &Plan, peer: Side, ours: &Load, theirs: &Load, tables: &mut Tables) {
    let (faster, less) = bounds(peer);
    let rates = [Load::settled_rate, Load::put_rate];
    for (what, rate) in LOAD.into_iter().zip(rates) {
        if plan.wants(NAME, &named(what, peer)) {
            let row = beside(named(what, peer), rate(ours), rate(theirs), Some(faster));
            tables.rates.rows.push(row);
        }
    }
    if plan.wants(NAME, &named(LOAD[2], peer)) {
        let all = |load: &Load| load.amplification(|slice| slice.all);
        let row = beside(named(LOAD[2], peer), all(ours), all(theirs), less);
        tables.written.rows.push(row);
    }
    if plan.wants(NAME, &named(LOAD[3], peer)) {
        written_to_tables(plan, peer, ours, theirs, tables);
    }
}

/// Bytes to tables at the end, and the most after any slice.
fn written_to_tables(plan: &Plan, peer: Side, ours: &Load, theirs: &Load, tables: &mut Tables) {
    let end = |load: &Load| load.amplification(|slice| slice.tables);
    // The bound of a uniform load at the full size.
    let at_most = if records(plan) >= 16_000_000 { 3.2 } else { 4.143 };
    let row = beside(named(LOAD[3], peer), end(ours), end(theirs), None);
    tables.written.rows.push(row.judged(Bound::AtMost(at_most)));
    let name = format!("{}, most of any size", LOAD[3]);
    if tables.written.rows.iter().any(|row| row.name == name) {
        return;
    }
    let most = ours.growing().into_iter().map(|(_, figure)| figure).fold(0.0, f64::max);
    tables.written.rows.push(alone(name, most, Some(Bound::AtMost(4.143))));
}

/// Closes our loaded store, and opens it again.
fn open_again(plan: &Plan, pair: Pair, tables: &mut Tables) -> Outcome<()> {
    if !plan.begins(NAME, OPEN) {
        return Ok(());
    }
    let Pair { stores, directories, .. } = pair;
    drop(stores);
    let start = Instant::now();
    let store = Side::Ours.open(&directories[0].path().join("store"), SETUP)?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    drop(store);
    tables.opens.rows.push(alone(format!("{OPEN}, ms"), ms, Some(Bound::AtMost(50.0))));
    Ok(())
}
