//! Spot-on's case study on the model of slow memory `optane-100`: CCEH, FAST & FAIR and a skip
//! list, each as published and with one guideline after the other, with and without a log.
//!
//! Counts of the model and of the medium, so the same on every machine, and exact. Random inserts,
//! of which the second half is counted: the index doubles, so about as large a share of it is in
//! buffers at the end as at the beginning.

use crate::plan::{Plan, say};
use std::sync::Arc;
use terrace_bench::{
    Bound, Row, Section, SkipList, Space, Spot, SpotCceh, SpotFastFair, SpotSizes, SpotVariant, Spotted,
    spread,
};
use terrace_medium::{LINE, MappedMedium, Pmem};
use terrace_testkit::{Profile, Slow, TappedPmem};

const NAME: &str = "spot";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Of an insert.
#[derive(Clone, Copy)]
struct Cost {
    blocks_written: f64,
    blocks_read: f64,
    fences: f64,
    bytes_written: f64,
    waited_ns: f64,
    /// The share of all keys that is in buffers at the end.
    buffered: f64,
}

const COLUMNS: [&str; 6] =
    ["blocks written", "blocks read", "fences", "bytes written", "ns, modelled", "share in buffers"];

impl Cost {
    fn figures(self) -> [f64; 6] {
        [
            self.blocks_written,
            self.blocks_read,
            self.fences,
            self.bytes_written,
            self.waited_ns,
            self.buffered,
        ]
    }
}

/// All tables of results.
pub(crate) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let keys = plan.records() / 10;
    let title = format!(
        "Spot-on's case study on {}, one thread, an insert: {keys} random keys of 8 bytes, the second half counted; blocks of 256 bytes, and bytes of the lines \
         that the device gets. B: buffers; O: merged out of place; C: search path in DRAM; log: of what is buffered, with as many records as keys",
        Profile::OPTANE_100.name
    );
    let mut costs = Section::new(&title, "an insert", &COLUMNS[1..]).ours_named(COLUMNS[0]);
    let title = "Base over all guidelines, BOC: how many times as many blocks. Wanted is what the thesis measured with 120 million keys, less 3%";
    let mut ratios = Section::new(title, "blocks of base over BOC's", &[]).ours_named("ratio");
    of_index::<SpotCceh<_>>(plan, keys, [4.2, 2.7], [&mut costs, &mut ratios])?;
    of_index::<SpotFastFair<_>>(plan, keys, [3.9, 6.5], [&mut costs, &mut ratios])?;
    of_index::<SkipList<_>>(plan, keys, [1.9, 11.0], [&mut costs, &mut ratios])?;
    if plan.quick {
        // The modelled cache holds the indexes of so few keys.
        ratios.rows.iter_mut().for_each(|row| row.target = None);
    }
    Ok([costs, ratios].into_iter().filter(|section| !section.rows.is_empty()).collect())
}

/// Adds the rows of an index, and its ratios of blocks written and read with their bounds.
fn of_index<S: Spotted<TappedPmem>>(
    plan: &Plan,
    keys: u64,
    least: [f64; 2],
    [costs, ratios]: [&mut Section; 2],
) -> Outcome<()> {
    let (mut base, mut boc) = (None, None);
    for variant in SpotVariant::ALL {
        let name = format!("{} {}", S::NAME, variant.name());
        if !plan.wants(NAME, &name) {
            continue;
        }
        say(&format!("{NAME} {name}"));
        let cost = cost::<S>(variant, keys)?;
        let figures = cost.figures();
        let peers = figures[1..].iter().copied().map(Some).collect();
        costs.rows.push(Row { ours: Some(figures[0]), peers, ..Row::new(name) });
        match variant {
            SpotVariant::BASE => base = Some(cost),
            SpotVariant::BOC => boc = Some(cost),
            _ => {}
        }
    }
    let Some((base, boc)) = base.zip(boc) else { return Ok(()) };
    let written = ("written", base.blocks_written / boc.blocks_written);
    let read = ("read", base.blocks_read / boc.blocks_read);
    for ((what, ratio), least) in [written, read].into_iter().zip(least) {
        let row = Row { ours: Some(ratio), ..Row::new(format!("{}: blocks {what}", S::NAME)) };
        ratios.rows.push(row.judged(Bound::AtLeast(least)));
    }
    Ok(())
}

fn cost<S: Spotted<TappedPmem>>(variant: SpotVariant, keys: u64) -> Outcome<Cost> {
    let medium = |mapping| TappedPmem::over_slow(Slow::counted(Pmem::new(mapping), Profile::OPTANE_100));
    let space = Arc::new(Space::anonymous((1 << 20) + keys * 128, medium)?);
    let sizes = SpotSizes { buffered: None, logged: keys };
    let mut spot = Spot::<_, S>::create(space.clone(), variant, sizes)?;
    let mut put = |n: u64| spot.put(spread(n), n);
    (0..keys / 2).try_for_each(&mut put)?;
    let mut work = || (keys / 2..keys).try_for_each(&mut put);
    let (counts, (traffic, waited_ns, done)) =
        space.medium().during(|| space.medium().slow().during(&mut work));
    done?;
    let an_insert = |count: u64| count as f64 / (keys - keys / 2) as f64;
    Ok(Cost {
        blocks_written: an_insert(traffic.blocks_written),
        blocks_read: an_insert(traffic.blocks_read),
        fences: an_insert(counts.fences),
        bytes_written: an_insert(traffic.lines_written * LINE as u64),
        waited_ns: an_insert(waited_ns),
        buffered: spot.buffered() as f64 / keys as f64,
    })
}
