//! Resizes: Level hashing's in place beside a full rehash of the same table; and the cost of
//! Rewo-Hash's resizes for a client that runs meanwhile.

use super::{LevelHash, NAME, Outcome, RewoHash, add, wants};
use crate::ours::Ours;
use crate::plan::Plan;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;
use terrace_bench::{Bound, Measure, Random, Row, Section, median, run_on, spread};
use terrace_index::{CacheBounds, Deferred, PointIndex, Stored};
use terrace_medium::{MappedMedium, Mapping, Pmem};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{Profile, Slow};

type Optane = Slow<Pmem>;

pub(super) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    Ok(vec![level(plan)?, rewo(plan)?])
}

/// Milliseconds that some work takes, by the clock or by the model.
type Timed<M> = fn(&M, &mut dyn FnMut()) -> f64;

fn by_clock(_: &Pmem, work: &mut dyn FnMut()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_nanos() as f64 / 1e6
}

fn by_model(medium: &Optane, work: &mut dyn FnMut()) -> f64 {
    medium.during(work).1 as f64 / 1e6
}

fn level(plan: &Plan) -> Outcome<Section> {
    let keys = plan.records() / 4;
    let title = format!(
        "Level hashing's resizes in place beside a full rehash of the same table (a new one is made, and every pair added to it, 64 pairs a fence where they can share one); a table for {keys} keys. \
         Pmem: by the clock, real write-backs and fences, one thread; optane-100: by the model's waits, a tenth of the keys"
    );
    let mut section = Section::new(&title, "resizes a second", &["full rehash"]).ours_named("in place");
    let a_second = |ms: Outcome<f64>| ms.map_or(f64::NAN, |ms| 1000.0 / ms);
    for (what, timed, least) in [
        ("resize: Level expands", expand as fn(u64, Way) -> Outcome<f64>, 4.0),
        ("resize: Level shrinks", shrink, 1.4),
    ] {
        if wants(plan, what) {
            // The first run is not timed. It also finds out whether there is room.
            timed(keys / 100, Way::InPlace)?;
            let mut sides: [Measure<'_>; 2] = [
                Box::new(|| a_second(timed(keys, Way::InPlace))),
                Box::new(|| a_second(timed(keys, Way::FullRehash))),
            ];
            let row = Row::from_measured(format!("{what}, Pmem"), plan.runner().row(&mut sides));
            section.rows.push(row.against(0, Bound::AtLeast(least)));
        }
    }
    for (what, resize) in [
        ("resize: Level expands, optane-100", expand_on::<Optane> as Resize<Optane>),
        ("resize: Level shrinks, optane-100", shrink_on::<Optane>),
    ] {
        if wants(plan, what) {
            let keys = keys / 10;
            let on = |way| -> Outcome<f64> { Ok(1000.0 / resize(optane(keys)?, keys, way, by_model)?) };
            let row = Row { ours: Some(on(Way::InPlace)?), ..Row::new(what) };
            let row = Row { peers: vec![Some(on(Way::FullRehash)?)], ..row };
            let least = if what.contains("expands") { 4.0 } else { 1.4 };
            section.rows.push(row.against(0, Bound::AtLeast(least)));
        }
    }
    Ok(section)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    InPlace,
    FullRehash,
}

type Resize<M> = fn(Pool<M>, u64, Way, Timed<M>) -> Outcome<f64>;

fn optane(keys: u64) -> Outcome<Pool<Optane>> {
    let bytes = ((64 << 20) + keys * 160) as usize;
    let mapping = Mapping::anonymous(bytes, bytes)?;
    let medium = Slow::counted(Pmem::new(mapping), Profile::OPTANE_100);
    Ok(PoolOptions::anonymous().hash_seed(1).create_on(medium)?)
}

/// A pool whose memory was touched.
fn pmem(keys: u64) -> Pool<Pmem> {
    Ours::<Pmem, LevelHash<Pmem>>::new(0, keys).index.pool().clone()
}

fn expand(keys: u64, way: Way) -> Outcome<f64> {
    expand_on(pmem(keys), keys, way, by_clock)
}

fn shrink(keys: u64, way: Way) -> Outcome<f64> {
    shrink_on(pmem(keys), keys, way, by_clock)
}

/// A table in which the word of the nth key is n.
fn expand_on<M: MappedMedium>(pool: Pool<M>, keys: u64, way: Way, timed: Timed<M>) -> Outcome<f64> {
    let table = LevelHash::create(&pool, "table", keys)?;
    let guard = pool.pin();
    let slots = table.stats(&guard).slots;
    // It expands at nine tenths at the earliest.
    let nearly = slots * 9 / 10;
    (0..nearly).for_each(|n| add(&table, spread(n), n));
    if way == Way::FullRehash {
        return rehash(&table, 2 * slots, timed);
    }
    for n in nearly.. {
        let began = timed(pool.medium(), &mut || add(&table, spread(n), n));
        if table.stats(&guard).resizing {
            return Ok(began + timed(pool.medium(), &mut || while table.maintain(&guard) {}));
        }
    }
    Err("the table never grew".into())
}

fn shrink_on<M: MappedMedium>(pool: Pool<M>, keys: u64, way: Way, timed: Timed<M>) -> Outcome<f64> {
    let table = LevelHash::create(&pool, "table", keys)?;
    let guard = pool.pin();
    let slots = table.stats(&guard).slots;
    let filled = slots * 3 / 4;
    (0..filled).for_each(|n| add(&table, spread(n), n));
    // It shrinks once an eighth of its slots is used.
    let first = slots / 8 + 1;
    let remove = |n| assert_eq!(table.remove(&guard, &spread(n)), Some(n), "a key was lost");
    (first..filled).for_each(remove);
    if way == Way::FullRehash {
        return rehash(&table, slots / 2, timed);
    }
    (first - 2..first).for_each(remove);
    let ms = timed(pool.medium(), &mut || while table.maintain(&guard) {});
    match table.stats(&guard).slots < slots {
        true => Ok(ms),
        false => Err("the table never shrank".into()),
    }
}

/// Makes another table with `slots` slots, and adds every pair to it.
fn rehash<M: MappedMedium>(old: &LevelHash<M>, slots: u64, timed: Timed<M>) -> Outcome<f64> {
    const TOGETHER: u32 = 64;
    let pool = old.pool();
    let guard = pool.pin();
    let mut new = None;
    let ms = timed(pool.medium(), &mut || {
        let Ok(table) = LevelHash::<M>::create(pool, "rehashed", slots * 4 / 5) else { return };
        let (mut deferred, mut waiting) = (Deferred::default(), 0);
        old.for_each(&guard, |word| {
            let key = spread(word);
            let added = table.compare_and_swap_deferred(&guard, &key, None, Some(word), &mut deferred);
            assert!(added.is_ok(), "the pool is full");
            waiting += 1;
            if waiting == TOGETHER {
                table.persist_deferred(&guard, std::mem::take(&mut deferred));
                waiting = 0;
            }
        });
        table.persist_deferred(&guard, deferred);
        new = Some(table);
    });
    let new = new.ok_or("no room for a second table")?;
    assert_eq!(
        (new.len(), new.stats(&guard).resizes),
        (old.len(), 0),
        "a pair was lost, or the new table grew"
    );
    Ok(ms)
}

/// The operations of a client meanwhile.
const WORKS: [(&str, u64); 2] = [("gets", 0), ("gets, an update in 20", 20)];

/// With the Cached Table, which has room for all keys, and without. The paper's losses are from
/// Figure 16b.
const TABLES: [(&str, bool, &str); 2] =
    [("Rewo", true, "the paper's loses 4%"), ("Rewo without its cache", false, "the paper's loses 22%")];
/// The share of its throughput that either must keep.
const KEPT: f64 = 0.96;

fn rewo(plan: &Plan) -> Outcome<Section> {
    let keys = plan.records() / 2;
    let title = format!(
        "Throughput of one thread on a Rewo-Hash of up to {keys} keys on Pmem while another moves keys of a resize, beside the same between two resizes"
    );
    let columns = ["between"];
    let mut section = Section::new(&title, "million operations/s", &columns).ours_named("meanwhile");
    for (table, is_cached, papers) in TABLES {
        for (what, update_in) in WORKS {
            let name = format!("resize: {table}, {what}");
            if plan.wants(NAME, &name) && wants(plan, &name) {
                let row = while_it_resizes(Row::new(name), keys, is_cached, update_in, papers);
                section.rows.push(row.against(0, Bound::AtLeast(KEPT)));
            }
        }
    }
    Ok(section)
}

fn while_it_resizes(row: Row, keys: u64, is_cached: bool, update_in: u64, papers: &str) -> Row {
    let mut index = Ours::<Pmem, RewoHash<Pmem>>::new(keys / 8, keys).index;
    if is_cached {
        let bytes = 64 * keys;
        index = index.with_cache(CacheBounds { min: bytes, max: bytes });
    }
    let (mut next, mut figures, mut lasted) = (0, [Vec::new(), Vec::new()], Vec::new());
    while next < keys {
        next = grow(&index, next, keys);
        // The first resizes are too short to measure.
        if next < keys / 4 {
            let guard = index.pool().pin();
            while index.maintain(&guard) {}
            continue;
        }
        if next == keys {
            break;
        }
        let (during, ms) = beside_resize(&index, next, update_in);
        lasted.push(ms);
        figures[0].push(during);
        figures[1].push(client(&index, next, update_in, |done| done < 200_000));
    }
    let [during, between] = figures.map(|figures| median(&figures));
    let note = format!("{} resizes, of {:.1} ms in the median; {papers}", lasted.len(), median(&lasted));
    Row { ours: Some(during), peers: vec![Some(between)], ..row }.noting(note)
}

/// Adds keys from number `next` on until keys begin to move to a new table, at most `keys`.
fn grow(index: &RewoHash<Pmem>, mut next: u64, keys: u64) -> u64 {
    let guard = index.pool().pin();
    let buckets = index.stats(&guard).buckets;
    while next < keys && index.stats(&guard).buckets == buckets {
        add(index, spread(next), next);
        next += 1;
    }
    next
}

/// A client's rate while another thread does the whole resize, and the milliseconds that it took.
fn beside_resize(index: &RewoHash<Pmem>, keys: u64, update_in: u64) -> (f64, f64) {
    let is_over = AtomicBool::new(false);
    let (_, results) = run_on(2, |thread| match thread {
        0 => {
            let (guard, began) = (index.pool().pin(), Instant::now());
            while index.maintain(&guard) {}
            is_over.store(true, Relaxed);
            began.elapsed().as_nanos() as f64 / 1e6
        }
        _ => client(index, keys, update_in, |_| !is_over.load(Relaxed)),
    });
    (results[1], results[0])
}

/// Random operations while `should_continue` of the number done so far is true. Returns millions a
/// second.
fn client(index: &RewoHash<Pmem>, keys: u64, update_in: u64, should_continue: impl Fn(u64) -> bool) -> f64 {
    const PIECE: u64 = 256;
    let (mut random, mut done, began) = (Random::new(keys), 0, Instant::now());
    while should_continue(done) {
        for nth in 0..PIECE {
            let (n, guard) = (random.below(keys), index.pool().pin());
            let found = match update_in != 0 && nth % update_in == 0 {
                true => index.update(&guard, &spread(n), n),
                false => index.get(&guard, &spread(n)),
            };
            assert_eq!(found, Some(n), "a key was lost");
        }
        done += PIECE;
    }
    done as f64 / began.elapsed().as_secs_f64() / 1e6
}
