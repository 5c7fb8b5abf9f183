//! SPTree on the model of slow memory `optane-100`: with write buffers, with filters alone, by the
//! pool alone, and beside FAST & FAIR. Then what its layers take, and what an open costs.
//!
//! Costs are counts of the model and of the medium, so the same on every machine, and exact. The
//! processor's work and DRAM cost nothing there. Opens are timed on this machine's memory.

use crate::plan::{Plan, say};
use std::hint::black_box;
use std::ops::{Bound::Included, Bound::Unbounded, ControlFlow};
use std::sync::Arc;
use std::time::Instant;
use terrace_bench::{Bound, FastFair, IntegerKeys, OrderedBaseline, Row, Section, Space, spread};
use terrace_index::ordered::SpTree;
use terrace_index::{Direction, LayerOptions, PointIndex, RangeIndex, Stored, U64};
use terrace_medium::{Dram, MappedMedium, Mapping, Pmem};
use terrace_pool::{Pool, PoolOptions};
use terrace_testkit::{Profile, Slow, TappedPmem};

const NAME: &str = "sptree";
/// Keys of a scan.
const SCANNED: usize = 50;
/// Bytes of a node of integers.
const NODE_BYTES: u64 = 1152;
const MIB: u64 = 1 << 20;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What an operation costs.
#[derive(Clone, Copy)]
struct Cost {
    blocks_written: f64,
    blocks_read: f64,
    fences: f64,
    waited_ns: f64,
}

/// A kind of operation, the figures of it, and the bounds of SPTree with buffers.
struct Work {
    name: &'static str,
    run: fn(&dyn Tree, u64) -> bool,
    /// The most of each figure: blocks written, blocks read, fences.
    most: [Option<f64>; 3],
    /// The least speed over SPTree without buffers, and over FAST & FAIR.
    speed: [Option<f64>; 2],
}

const WORKS: [Work; 6] = [
    Work {
        name: "insert",
        run: |tree, n| tree.insert(n),
        most: [Some(0.60), None, Some(1.1)],
        speed: [Some(1.5), Some(2.5)],
    },
    Work {
        name: "get",
        run: |tree, n| tree.get(n),
        most: [Some(0.0), Some(1.6), None],
        speed: [None, Some(1.5)],
    },
    Work {
        name: "absent",
        run: |tree, n| !tree.get(!n),
        most: [Some(0.0), Some(0.012), None],
        speed: [None, Some(4.5)],
    },
    Work {
        name: "scan of 50",
        run: |tree, n| tree.scan(n) > 0,
        most: [Some(0.0), None, None],
        speed: [None, Some(1.2)],
    },
    Work { name: "update", run: |tree, n| tree.update(n), most: [None; 3], speed: [None; 2] },
    Work { name: "removal", run: |tree, n| tree.remove(n), most: [None; 3], speed: [None; 2] },
];

/// A tree on the model. Key `n` is spread over all keys.
trait Tree {
    fn medium(&self) -> &TappedPmem;
    fn insert(&self, n: u64) -> bool;
    fn update(&self, n: u64) -> bool;
    fn get(&self, n: u64) -> bool;
    fn scan(&self, n: u64) -> usize;
    fn remove(&self, n: u64) -> bool;
}

struct Ours(SpTree<TappedPmem, U64>);

impl Tree for Ours {
    fn medium(&self) -> &TappedPmem {
        self.0.pool().medium()
    }
    fn insert(&self, n: u64) -> bool {
        self.0.insert(&self.0.pool().pin(), &spread(n), n).is_ok()
    }
    fn update(&self, n: u64) -> bool {
        self.0.update(&self.0.pool().pin(), &spread(n), n + 1).is_some()
    }
    fn get(&self, n: u64) -> bool {
        self.0.get(&self.0.pool().pin(), &spread(n)).is_some()
    }
    fn scan(&self, n: u64) -> usize {
        let (guard, mut found) = (self.0.pool().pin(), 0);
        let each = |key, word| {
            black_box((key, word));
            found += 1;
            if found < SCANNED { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        self.0.range(&guard, Included(&spread(n)), Unbounded, Direction::Forward, SCANNED, each);
        found
    }
    fn remove(&self, n: u64) -> bool {
        self.0.remove(&self.0.pool().pin(), &spread(n)).is_some()
    }
}

struct Theirs {
    tree: FastFair<TappedPmem>,
    space: Arc<Space<TappedPmem>>,
}

impl Tree for Theirs {
    fn medium(&self) -> &TappedPmem {
        self.space.medium()
    }
    fn insert(&self, n: u64) -> bool {
        self.tree.insert(&spread(n), n) == Ok(true)
    }
    fn update(&self, n: u64) -> bool {
        self.tree.update(&spread(n), n + 1)
    }
    fn get(&self, n: u64) -> bool {
        self.tree.get(&spread(n)).is_some()
    }
    fn scan(&self, n: u64) -> usize {
        let mut found = 0;
        self.tree.scan(&spread(n), SCANNED, &mut |value| {
            black_box(value);
            found += 1;
        });
        found
    }
    fn remove(&self, n: u64) -> bool {
        self.tree.remove(&spread(n)).is_some()
    }
}

fn optane(mapping: Mapping) -> TappedPmem {
    TappedPmem::over_slow(Slow::counted(Pmem::new(mapping), Profile::OPTANE_100))
}

/// Bytes of a pool for so many keys, with the log and what changes retire.
fn pool_bytes(keys: u64) -> u64 {
    64 * MIB + keys * 64
}

/// DRAM for so many keys, which is enough for all nodes.
fn dram(keys: u64) -> u64 {
    8 * MIB + keys * 24
}

fn ours(keys: u64, options: LayerOptions) -> Outcome<Ours> {
    let bytes = pool_bytes(keys) as usize;
    let mapping = Mapping::anonymous(bytes, bytes)?;
    let pool = PoolOptions::anonymous().hash_seed(1).create_on(optane(mapping))?;
    let mut index = SpTree::create(&pool, "tree", 0)?;
    index.set_layers(options);
    Ok(Ours(index))
}

fn theirs(keys: u64) -> Outcome<Theirs> {
    let space = Arc::new(Space::anonymous(64 * MIB + keys * 256, optane)?);
    Ok(Theirs { tree: OrderedBaseline::<_, IntegerKeys>::create(space.clone())?, space })
}

/// The costs of all works, one after the other. The first half of the keys is there before.
fn costs(tree: &dyn Tree, keys: u64) -> Vec<Cost> {
    let half = keys / 2;
    (0..half).for_each(|n| assert!(tree.insert(n), "key {n} is new"));
    let cost = |work: &Work| {
        let all = half..keys;
        let run = || all.for_each(|n| assert!((work.run)(tree, n), "{} of key {n}", work.name));
        let (counts, (traffic, waited_ns, ())) = tree.medium().during(|| tree.medium().slow().during(run));
        let an_operation = |count: u64| count as f64 / (keys - half) as f64;
        Cost {
            blocks_written: an_operation(traffic.blocks_written),
            blocks_read: an_operation(traffic.blocks_read),
            fences: an_operation(counts.fences),
            waited_ns: an_operation(waited_ns),
        }
    };
    WORKS.iter().map(cost).collect()
}

/// All tables of results.
pub(crate) fn sections(plan: &Plan) -> Outcome<Vec<Section>> {
    let mut sections = Vec::new();
    if plan.wants(NAME, "costs") {
        sections.push(of_costs(plan)?);
    }
    if plan.wants(NAME, "memory") {
        sections.push(memory(plan)?);
    }
    if plan.wants(NAME, "opens") {
        sections.push(opens(plan)?);
    }
    Ok(sections)
}

fn of_costs(plan: &Plan) -> Outcome<Section> {
    let keys = plan.records() / 10;
    let title = format!(
        "SPTree on {}, one thread, an operation: {keys} random keys of 8 bytes, the second half counted; blocks of 256 bytes; ns are the model's, where DRAM and the processor cost nothing",
        Profile::OPTANE_100.name
    );
    let without = LayerOptions { buffers: 0, ..LayerOptions::of(dram(keys)) };
    let mut section =
        Section::new(&title, "an operation", &["filters", "pool alone", "FAST & FAIR"]).ours_named("buffers");
    let mut all = Vec::new();
    for options in [LayerOptions::of(dram(keys)), without, LayerOptions::of(0)] {
        say(&format!("{NAME} costs: {options:?}"));
        all.push(costs(&ours(keys, options)?, keys));
    }
    say(&format!("{NAME} costs: FAST & FAIR"));
    all.push(costs(&theirs(keys)?, keys));
    for (nth, work) in WORKS.iter().enumerate() {
        let row = |what: &str, figure: fn(&Cost) -> f64| {
            let mut figures = all.iter().map(|costs| figure(&costs[nth]));
            let ours = figures.next();
            Row { ours, peers: figures.map(Some).collect(), ..Row::new(format!("{}: {what}", work.name)) }
        };
        let figures = [
            row("blocks written", |cost| cost.blocks_written),
            row("blocks read", |cost| cost.blocks_read),
            row("fences", |cost| cost.fences),
        ];
        for (row, most) in figures.into_iter().zip(work.most) {
            section.rows.push(match most {
                // A quick run's modelled cache holds the tree.
                Some(most) if !plan.quick => row.judged(Bound::AtMost(most)),
                _ => row,
            });
        }
        let times = row("ns", |cost| cost.waited_ns);
        let [over_filters, over_theirs] =
            work.speed.map(|least| least.filter(|_| !plan.quick).map(|least| Bound::AtMost(1.0 / least)));
        section.rows.push(match over_theirs {
            Some(bound) => times.clone().against(2, bound),
            None => times.clone(),
        });
        if let Some(bound) = over_filters {
            let name = format!("{}: ns, over filters", work.name);
            section.rows.push(Row { name, ..times }.against(0, bound));
        }
    }
    Ok(section)
}

/// A tree in this machine's memory, with keys.
fn filled(keys: u64, options: LayerOptions) -> Outcome<SpTree<Dram, U64>> {
    let pool = PoolOptions::anonymous().size(pool_bytes(keys)).huge_pages(true).create()?;
    let mut index = SpTree::create(&pool, "tree", 0)?;
    index.set_layers(options);
    let guard = pool.pin();
    for n in 0..keys {
        index.insert(&guard, &spread(n), n).map_err(|error| format!("{error:?}"))?;
    }
    drop(guard);
    Ok(index)
}

fn memory(plan: &Plan) -> Outcome<Section> {
    let keys = plan.records() / 10;
    let title = format!("What SPTree takes with {keys} random keys of 8 bytes");
    let mut section = Section::new(&title, "a figure", &[]).ours_named("sptree");
    let mut add = |name: &str, ours: f64, most: f64| {
        let row = Row { ours: Some(ours), ..Row::new(name) };
        section.rows.push(row.judged(Bound::AtMost(most)));
    };
    for (name, buffers, most) in [("with all buffers", true, 0.34), ("with filters alone", false, 0.13)] {
        say(&format!("{NAME} memory: {name}"));
        let mut options = LayerOptions::of(dram(keys));
        options.buffers *= u64::from(buffers);
        let index = filled(keys, options)?;
        let layers = index.layers().ok_or("no layers")?;
        let bottom = layers.nodes[0] * NODE_BYTES;
        add(&format!("DRAM over the bottom, {name}"), layers.bytes as f64 / bottom as f64, most);
        if !buffers {
            let bytes = index.stats(&index.pool().pin()).bytes;
            add("bytes of the pool a key", bytes as f64 / keys as f64, 27.0);
        }
    }
    Ok(section)
}

/// What the open of a tree costs whose process died.
struct Open {
    log_bytes: u64,
    /// Until the first key was read.
    first_read_ms: f64,
    /// Until the layers knew all nodes.
    layers_ms: f64,
}

fn open(keys: u64, options: LayerOptions) -> Outcome<Open> {
    let index = filled(keys, options)?;
    let (pool, log_bytes): (Pool<Dram>, u64) =
        (index.pool().clone(), index.layers().map_or(0, |layers| layers.log_bytes));
    // As a dead process, it merges nothing.
    drop(index);
    let began = Instant::now();
    let mut index: SpTree<Dram, U64> = SpTree::recover(&pool, "tree")?.ok_or("no tree")?;
    let found = index.get(&pool.pin(), &spread(keys / 3));
    let first_read_ms = began.elapsed().as_secs_f64() * 1000.0;
    assert_eq!(found, Some(keys / 3), "a key after the open");
    index.set_layers(options);
    let began = Instant::now();
    while index.maintain(&pool.pin()) {}
    Ok(Open { log_bytes, first_read_ms, layers_ms: began.elapsed().as_secs_f64() * 1000.0 })
}

fn opens(plan: &Plan) -> Outcome<Section> {
    let title = "An open after a death, one thread, on this machine's memory: until the first key is read (the log is merged before), and layers made anew";
    let mut section = Section::new(title, "a figure", &[]).ours_named("sptree");
    let mut add = |name: String, ours: f64, bound: Option<Bound>| {
        let row = Row { ours: Some(ours), ..Row::new(name) };
        section.rows.push(match bound {
            Some(bound) if !plan.quick => row.judged(bound),
            _ => row,
        });
    };
    for keys in [plan.records(), 4 * plan.records()] {
        for (name, buffers) in [("no log", false), ("a log", true)] {
            say(&format!("{NAME} opens: {keys} keys, {name}"));
            let mut options = LayerOptions::of(dram(keys));
            options.buffers *= u64::from(buffers);
            let open = open(keys, options)?;
            let log = if buffers { format!("a log of {} KiB", open.log_bytes >> 10) } else { name.into() };
            let bound = if buffers { None } else { Some(Bound::AtMost(20.0)) };
            add(format!("{keys} keys, {log}: first read, ms"), open.first_read_ms, bound);
            if buffers {
                let rate = open.log_bytes as f64 / 1048.576 / open.first_read_ms;
                add(format!("{keys} keys, {log}: MiB replayed a second"), rate, Some(Bound::AtLeast(320.0)));
            } else {
                let rate = keys as f64 / open.layers_ms / 1000.0;
                add(
                    format!("{keys} keys: layers made, million keys a second"),
                    rate,
                    Some(Bound::AtLeast(10.0)),
                );
            }
        }
    }
    Ok(section)
}
