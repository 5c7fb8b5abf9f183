//! The longest puts, while the distribution of keys shifts (thesis 2.4, figure 2.7): in each phase
//! all puts go to another quarter of the key space, with another distribution.

use super::tables::Tables;
use super::{MEMORY, NAME, SETUP, records};
use crate::files::{
    Outcome, Pair, Place, Plot, Series, Side, Stored, beside, histogram, micros, named, peers, settle, value,
};
use crate::plan::Plan;
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::time::Instant;
use terrace_bench::{Bound, Random};
use terrace_engine::ManualClock;
use terrace_medium::files::SystemFiles;
use terrace_wip::{Settings, Wip};

const FIGURES: [(&str, f64, f64); 3] = [
    ("put, keys shift, p99", 99.0, f64::INFINITY),
    ("put, keys shift, p99.99", 99.99, 5e3),
    ("put, keys shift, longest", 100.0, 50e3),
];

/// How the keys of a phase are distributed over their quarter: places from 0 to 1.
#[derive(Clone, Copy, Debug)]
enum Shift {
    Exponential,
    Normal,
    Uniform,
    ReversedExponential,
}

const PHASES: [Shift; 4] = [Shift::Exponential, Shift::Normal, Shift::Uniform, Shift::ReversedExponential];

impl Shift {
    fn place(self, random: &mut Random) -> f64 {
        let exponential =
            |random: &mut Random| (-(1.0 - random.fraction()).ln() / 8.0).min(1.0 - f64::EPSILON);
        match self {
            Self::Exponential => exponential(random),
            Self::ReversedExponential => 1.0 - f64::EPSILON - exponential(random),
            Self::Uniform => random.fraction(),
            // Twelve uniform numbers have the variance 1.
            Self::Normal => {
                let sum: f64 = (0..12).map(|_| random.fraction()).sum();
                ((sum - 6.0) / 8.0 + 0.5).clamp(0.0, 1.0 - f64::EPSILON)
            }
        }
    }
}

pub(super) fn measure(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    for peer in peers(plan).filter(|peer| *peer != Side::Deep) {
        if !FIGURES.iter().any(|(what, ..)| plan.begins(NAME, &named(what, peer))) {
            continue;
        }
        let pair = Pair::of(place, [Side::Ours, peer], SETUP)?;
        let mut seen = [histogram(), histogram()];
        for (nth, phase) in PHASES.into_iter().enumerate() {
            for (store, seen) in pair.both().into_iter().zip(&mut seen) {
                put_phase(store, nth as u64, phase, records(plan) / 4, seen)?;
                settle();
            }
        }
        tables.plots.push(buckets(pair)?);
        let [ours, theirs] = &seen;
        for (what, percentile, most) in FIGURES {
            let (ours, theirs) = (micros(ours, percentile), micros(theirs, percentile));
            let row = beside(named(what, peer), ours, theirs, None);
            let is_bound = most.is_finite();
            tables.latencies.rows.push(if is_bound { row.judged(Bound::AtMost(most)) } else { row });
        }
    }
    Ok(())
}

/// Where the buckets of ours are, and how much each holds: closes both stores.
fn buckets(pair: Pair) -> Outcome<Plot> {
    let Pair { stores, directories, .. } = pair;
    drop(stores);
    let path = directories[0].path().join("store");
    let mut settings = Settings::with_memory(MEMORY as u64, Arc::new(ManualClock::default()), 1);
    settings.read_only = true;
    let held = Wip::open(SystemFiles, &path, settings)?.buckets();
    let place = |low: &[u8]| {
        let digits = std::str::from_utf8(low).ok().and_then(|low| u64::from_str_radix(low, 16).ok());
        digits.unwrap_or(0) as f64 / 2f64.powi(64)
    };
    let ends = held.iter().skip(1).map(|(low, _)| place(low)).chain([1.0]);
    let steps = held.iter().zip(ends).flat_map(|((low, bytes), end)| {
        let megabytes = *bytes as f64 / 1e6;
        [(place(low), 0.0), (place(low), megabytes), (end, megabytes), (end, 0.0)]
    });
    Ok(Plot {
        title: "Million bytes of tables of each bucket, after the shifts".into(),
        across: "place in the key space",
        lines: vec![Series { name: "ours".into(), points: steps.collect() }],
    })
}

/// Puts of one thread without a pause.
fn put_phase(
    store: &dyn Stored,
    quarter: u64,
    shift: Shift,
    puts: u64,
    seen: &mut Histogram<u64>,
) -> Outcome<()> {
    let mut random = Random::new(quarter + 1);
    for _ in 0..puts {
        let place = quarter << 62 | (shift.place(&mut random) * (1u64 << 62) as f64) as u64;
        let (key, value) = (format!("{place:016x}"), value(&mut random));
        let start = Instant::now();
        store.put(key.as_bytes(), &value)?;
        seen.saturating_record(start.elapsed().as_nanos() as u64);
    }
    Ok(())
}
