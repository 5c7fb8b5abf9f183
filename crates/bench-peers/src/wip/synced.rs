//! Single puts: without a sync, and with one each.

use super::tables::Tables;
use super::{NAME, SETUP, SYNCED, records, runner};
use crate::files::{
    By, Outcome, Pair, Place, Side, Stored, alternate, beside, load_both, named, peers, rounds, shape, value,
};
use crate::plan::{Plan, say};
use std::time::{Duration, Instant};
use terrace_bench::{Bound, Random};

const SINGLE: [&str; 2] = ["single puts, settled", "single puts"];

pub(super) fn measure(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    for peer in peers(plan).filter(|peer| *peer != Side::Deep) {
        singles(plan, place, peer, tables)?;
        synced(plan, place, peer, tables)?;
    }
    Ok(())
}

/// A quarter of the records, each put by itself.
fn singles(plan: &Plan, place: &Place, peer: Side, tables: &mut Tables) -> Outcome<()> {
    if !SINGLE.iter().any(|what| plan.wants(NAME, &named(what, peer))) {
        return Ok(());
    }
    say(&format!("{NAME} single puts: {}", peer.name()));
    let pair = Pair::of(place, [Side::Ours, peer], SETUP)?;
    let [ours, theirs] = load_both(pair.both(), records(plan) / 4, By::Singles)?;
    let bound = (peer == Side::RocksDb).then_some(Bound::AtLeast(3.0));
    let rates = [(ours.settled_rate(), theirs.settled_rate()), (ours.put_rate(), theirs.put_rate())];
    for (what, (ours, theirs)) in SINGLE.into_iter().zip(rates) {
        tables.rates.rows.push(beside(named(what, peer), ours, theirs, bound));
    }
    Ok(())
}

/// Puts that survive a loss of power when they return, by one and by sixteen threads.
fn synced(plan: &Plan, place: &Place, peer: Side, tables: &mut Tables) -> Outcome<()> {
    let lines = [("synced puts, one writer", 1, 2.0), ("synced puts, sixteen writers", 16, 1.5)];
    if !lines.iter().any(|(what, ..)| plan.wants(NAME, &named(what, peer))) {
        return Ok(());
    }
    let pair = Pair::of(place, [Side::Ours, peer], SYNCED)?;
    let time = Duration::from_millis(if plan.quick { 300 } else { 3000 });
    for (what, writers, least) in lines {
        let name = named(what, peer);
        if !plan.begins(NAME, &name) {
            continue;
        }
        let once = |side: usize, _| put_for(pair.both()[side], writers, time);
        let measured = alternate(runner(plan), once)?;
        let bound = (peer == Side::RocksDb).then_some(Bound::AtLeast(least));
        tables.rates.rows.push(rounds(name, measured, bound));
    }
    Ok(())
}

/// Thousand puts a second of all writers.
fn put_for(store: &dyn Stored, writers: u64, time: Duration) -> Outcome<f64> {
    let start = Instant::now();
    let work = &|writer: u64| -> Outcome<u64> {
        let (shape, mut random, mut puts) = (shape(), Random::new(writer), 0);
        let mut key = Vec::new();
        while start.elapsed() < time {
            shape.key(random.next(), &mut key);
            store.put(&key, &value(&mut random))?;
            puts += 1;
        }
        Ok(puts)
    };
    let puts: Vec<Outcome<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(move || work(writer))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer panicked")).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    Ok(puts.into_iter().sum::<Outcome<u64>>()? as f64 / seconds / 1e3)
}
