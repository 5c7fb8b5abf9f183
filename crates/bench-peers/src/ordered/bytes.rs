//! The memory of a record in each map: the memory that a child process takes more after it has
//! filled the map.

use super::keys::Keys;
use super::maps::{Congee, Locked, Map, Masstree, SkipList};
use super::ours::ArtMap;
use super::{Outcome, wants};
use crate::plan::Plan;
use crate::worker;
use std::borrow::Borrow;
use std::io::Write;
use terrace_bench::{Bound, IntegerKeys, Row, Section, StringKeys, process_resident_bytes};

/// Fills a map of its kind, and returns the bytes that it took.
type Fill = fn(u64) -> Outcome<u64>;

const ART: &str = "ART";
const INTEGERS: [(&str, Fill); 5] = [
    (ART, |keys| taken::<IntegerKeys, _>(|| ArtMap::anonymous(keys, false), keys)),
    ("congee", |keys| taken::<IntegerKeys, Congee>(|| Map::<IntegerKeys>::new(keys), keys)),
    ("masstree", |keys| taken::<IntegerKeys, Masstree>(|| Map::<IntegerKeys>::new(keys), keys)),
    ("skip list", |keys| taken::<IntegerKeys, _>(|| SkipList::new(keys), keys)),
    ("BTreeMap", |keys| taken::<IntegerKeys, _>(|| Locked::new(keys), keys)),
];
const STRINGS: [(&str, Fill); 4] = [
    (ART, |keys| taken::<StringKeys, _>(|| ArtMap::anonymous(keys, false), keys)),
    ("masstree", |keys| taken::<StringKeys, Masstree>(|| Map::<StringKeys>::new(keys), keys)),
    ("skip list", |keys| taken::<StringKeys, _>(|| SkipList::new(keys), keys)),
    ("BTreeMap", |keys| taken::<StringKeys, _>(|| Locked::new(keys), keys)),
];

pub(super) fn section(plan: &Plan) -> Outcome<Section> {
    let keys = plan.records();
    let title = format!(
        "Memory of a record, its key and value included (16 bytes of integers, 32 of strings): {keys} records, added in random order; what a process takes more, without huge pages"
    );
    let peers: Vec<&str> = INTEGERS[1..].iter().map(|side| side.0).collect();
    let mut section = Section::new(&title, "bytes a record", &peers).ours_named(ART);
    let rows = [(IntegerKeys::NAME, &INTEGERS[..], 46.0), (StringKeys::NAME, &STRINGS[..], 45.0 + 32.0)];
    for (kind, sides, most) in rows {
        let name = format!("bytes: {kind}");
        if !wants(plan, &name) {
            continue;
        }
        let figure = |side: &str| -> Outcome<Option<f64>> {
            let is_there = sides.iter().any(|(name, _)| *name == side);
            let bytes = is_there.then(|| measured(kind, side, keys)).transpose()?;
            Ok(bytes.map(|bytes| bytes as f64 / keys as f64))
        };
        let ours = figure(ART)?;
        let peers = peers.iter().map(|peer| figure(peer)).collect::<Outcome<_>>()?;
        section.rows.push(Row { ours, peers, ..Row::new(name) }.judged(Bound::AtMost(most)));
    }
    Ok(section)
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
    let sides = if kind == IntegerKeys::NAME { &INTEGERS[..] } else { &STRINGS[..] };
    let (_, fill) = sides.iter().find(|(name, _)| name == side).ok_or("there is no such map")?;
    writeln!(std::io::stdout(), "{}", fill(keys.parse()?)?)?;
    Ok(())
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
