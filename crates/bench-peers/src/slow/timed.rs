//! Times by the clock, on media that make threads wait, and on this machine's memory as it is.

use super::subject::{Kind, On};
use super::work::{Size, Work, fill};
use super::{NAME, Outcome, profiles};
use crate::plan::{Plan, say};
use std::time::Instant;
use terrace_bench::{Measure, Row, Section, median};
use terrace_medium::{MappedMedium, Pmem};
use terrace_testkit::{Profile, Slow};

/// The model around this machine's own memory, without waits: what the others must be compared
/// with. A wait that they add is shorter than the modelled one by the time that the memory here
/// takes, because that passes meanwhile.
const NO_WAIT: Profile = Profile {
    name: "no wait",
    random_read_ns: 0,
    sequential_read_ns: 0,
    same_block_read_ns: 0,
    write_back_ns: 0,
    read_mb_per_s: 0,
    write_mb_per_s: 0,
    ..Profile::DRAM
};

/// Nanoseconds an operation.
pub(super) fn section(plan: &Plan, kind: Kind, works: &[Work], size: Size) -> Outcome<Section> {
    let title = format!(
        "{}, timed: {} records, one thread, Pmem on this machine's memory as it is and made slower. Ns an operation; \"no wait\" is \
         what the model and this machine's own memory take without any wait. Two processors cannot show memory faster than their own, nor many threads that wait together",
        kind.about(),
        size.records
    );
    let unit = format!("{}, timed ns", kind.name());
    let columns: Vec<&str> = [NO_WAIT.name].into_iter().chain(profiles()).collect();
    let mut section = Section::new(&title, &unit, &columns).ours_named("plain");
    say(&format!("{NAME} {}: filling seven media", kind.name()));
    let plain = filled(kind, size, Pmem::new)?;
    let slow = [NO_WAIT]
        .into_iter()
        .chain(Profile::ALL)
        .map(|profile| filled(kind, size, |mapping| Slow::over(Pmem::new(mapping), profile)))
        .collect::<Outcome<Vec<_>>>()?;
    for &work in works {
        say(&format!("{NAME} {} {}", kind.name(), work.name()));
        let mut sides = vec![side(&plain, work, size)];
        sides.extend(slow.iter().map(|slow| side(slow, work, size)));
        section.rows.push(Row::from_measured(work.name(), plan.runner().row(&mut sides)));
    }
    Ok(section)
}

fn filled<M: MappedMedium>(
    kind: Kind,
    size: Size,
    medium: impl FnOnce(terrace_medium::Mapping) -> M,
) -> Outcome<On<M>> {
    let on = kind.on(size.most(), medium)?;
    fill(&*on.subject, size);
    Ok(on)
}

/// The median of the means of batches. Losing the processor now and then lasts as long as many
/// batches, so it does not count.
fn side<M: MappedMedium>(on: &On<M>, work: Work, size: Size) -> Measure<'_> {
    let mut seed = 0;
    Box::new(move || {
        seed += 1;
        work.run(&*on.subject, size, seed, |run| {
            let mut means = Vec::new();
            run.each_batch(&mut |steps, apply| {
                let began = Instant::now();
                apply();
                means.push(began.elapsed().as_nanos() as f64 / steps as f64);
            });
            median(&means)
        })
    })
}
