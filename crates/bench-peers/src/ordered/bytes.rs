//! The memory of a record in each map: the memory that a child process takes more after it has
//! filled the map.

use super::Outcome;
use super::keys::Keys;
use super::lines::{Demand, Line};
use super::maps::{self, Congee, Locked, Map, SkipList};
use super::ours::{Art, BwTree, Hot, Masstree, OurMap, Ours, SpTree};
use super::sides::{BTREE_MAP, CONGEE, CRATE, SKIP_LIST};
use crate::plan::Plan;
use crate::worker;
use std::borrow::Borrow;
use std::io::Write;
use terrace_bench::{Bound, IntegerKeys, Row, Section, StringKeys, process_resident_bytes};

/// Fills a map of its kind, and returns the bytes that it took.
type Fill = fn(u64) -> Outcome<u64>;

const PEERS: [&str; 4] = [CONGEE, CRATE, SKIP_LIST, BTREE_MAP];
const INTEGERS: [(&str, Fill); 9] = [
    (Art::NAME, ours::<Art, IntegerKeys>),
    (Hot::NAME, ours::<Hot, IntegerKeys>),
    (Masstree::NAME, ours::<Masstree, IntegerKeys>),
    (BwTree::NAME, ours::<BwTree, IntegerKeys>),
    (SpTree::NAME, ours::<SpTree, IntegerKeys>),
    (CONGEE, theirs::<IntegerKeys, Congee>),
    (CRATE, theirs::<IntegerKeys, maps::Masstree>),
    (SKIP_LIST, theirs::<IntegerKeys, SkipList<IntegerKeys>>),
    (BTREE_MAP, theirs::<IntegerKeys, Locked<IntegerKeys>>),
];
const STRINGS: [(&str, Fill); 8] = [
    (Art::NAME, ours::<Art, StringKeys>),
    (Hot::NAME, ours::<Hot, StringKeys>),
    (Masstree::NAME, ours::<Masstree, StringKeys>),
    (BwTree::NAME, ours::<BwTree, StringKeys>),
    (SpTree::NAME, ours::<SpTree, StringKeys>),
    (CRATE, theirs::<StringKeys, maps::Masstree>),
    (SKIP_LIST, theirs::<StringKeys, SkipList<StringKeys>>),
    (BTREE_MAP, theirs::<StringKeys, Locked<StringKeys>>),
];

/// The most bytes of a record.
const MOST: [(&str, &[(&str, f64)]); 2] = [
    (
        IntegerKeys::NAME,
        &[
            (Art::NAME, 46.0),
            (Hot::NAME, 31.0),
            (Masstree::NAME, 34.0),
            (BwTree::NAME, 30.0),
            (SpTree::NAME, 28.0),
        ],
    ),
    (StringKeys::NAME, &[(Art::NAME, 45.0 + 32.0), (Hot::NAME, 15.0 + 32.0)]),
];

pub(super) fn section(plan: &Plan) -> Outcome<Section> {
    let keys = plan.records();
    let title = format!(
        "Memory of a record, its key and value included (16 bytes of integers, 32 of strings): {keys} records, added in random order; what a process takes more, without huge pages"
    );
    let mut section = Section::new(&title, "bytes a record", &PEERS);
    for (kind, most) in MOST {
        let demands = most.iter().map(|(tree, most)| Demand::of(tree, Bound::AtMost(*most))).collect();
        let line = Line::new("bytes", kind.to_owned(), demands);
        let trees = line.begin(plan);
        if trees.is_empty() {
            continue;
        }
        let figure = |side: &str| -> Outcome<Option<f64>> {
            let is_there = sides(kind).iter().any(|(name, _)| *name == side);
            let bytes = is_there.then(|| measured(kind, side, keys)).transpose()?;
            Ok(bytes.map(|bytes| bytes as f64 / keys as f64))
        };
        let peers = PEERS.iter().map(|peer| figure(peer)).collect::<Outcome<Vec<_>>>()?;
        let row = |tree| Ok((tree, Row { ours: figure(tree)?, peers: peers.clone(), ..Row::new("") }));
        let found = trees.into_iter().map(row).collect::<Outcome<_>>()?;
        section.rows.extend(line.rows(plan, &PEERS, found));
    }
    Ok(section)
}

/// The maps of a kind of keys.
fn sides(kind: &str) -> &'static [(&'static str, Fill)] {
    if kind == IntegerKeys::NAME { &INTEGERS } else { &STRINGS }
}

/// Runs a child that fills a map.
fn measured(kind: &str, side: &str, keys: u64) -> Outcome<u64> {
    // Without huge pages, which would round up the memory that is measured here.
    let output = worker::command()?
        .args([worker::MAP, kind, side, &keys.to_string()])
        .env_remove("MIMALLOC_ALLOW_LARGE_OS_PAGES")
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().map_err(|_| {
        format!("a process could not fill a map: {}", String::from_utf8_lossy(&output.stderr)).into()
    })
}

/// Fills a map and prints the bytes that it takes. `arguments`: the kind of keys, the map's name,
/// the number of keys.
pub(crate) fn run(arguments: &[String]) -> Outcome<()> {
    let [kind, side, keys] = arguments else { return Err("a map takes three arguments".into()) };
    let (_, fill) = sides(kind).iter().find(|(name, _)| name == side).ok_or("there is no such map")?;
    writeln!(std::io::stdout(), "{}", fill(keys.parse()?)?)?;
    Ok(())
}

fn ours<T: Ours, K: Keys>(keys: u64) -> Outcome<u64> {
    taken::<K, _>(|| OurMap::<T, K>::anonymous(keys, false), keys)
}

fn theirs<K: Keys, T: Map<K>>(keys: u64) -> Outcome<u64> {
    taken::<K, _>(|| T::new(keys), keys)
}

/// The resident memory that a map with its keys adds to this process.
fn taken<K: Keys, T: Map<K>>(make: impl FnOnce() -> T, keys: u64) -> Outcome<u64> {
    let resident = || process_resident_bytes(std::process::id()).ok_or("the system does not say it");
    let before = resident()?;
    let map = make();
    for number in 0..keys {
        if !map.insert(K::key(number).borrow(), number) {
            return Err("no room for a key".into());
        }
    }
    Ok(resident()?.saturating_sub(before))
}
