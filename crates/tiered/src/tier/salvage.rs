//! Salvage: reads what is sound of a damaged store, without opening it.
//!
//! Every record tells its key and its number, so of two versions the newest counts, wherever they
//! lie. Records are found without what is around them (`sound`). Where the entries of a block are
//! sound, they tell the numbers of lost records, too: so an older version is known to be one, and a
//! removed key stays away.
//!
//! What is known of all keys may take more memory than there is. So the files are read once for
//! each part of the hashes, as for an open.

use super::NAME;
use super::edit::{Edit, Name, Plan, Summed};
use super::entries::hash_parts;
use super::format::{self, Mention};
use super::large;
use super::read::Block;
use super::sound::{self, Part};
use super::unnamed;
use crate::space::record::{Kind, LargeValue, Record, second_hash};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_disk::{Content, Directory, DiskError, Manifest, salvage_edits, salvage_log};
use terrace_engine::Salvage;
use terrace_engine::finding;
use terrace_engine::read_drafts;
use terrace_engine::{Entry, Finding};
use terrace_medium::files::{Files, Purpose, StoredFile};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a record, about, where nothing tells how many there are.
const RECORD_BYTES: u64 = 64;

/// A file with records of the store.
struct Source {
    file: Box<dyn StoredFile>,
    path: PathBuf,
    /// Bytes that may have records.
    length: u64,
    /// The block, if its entries are sound.
    block: Option<Block>,
    /// Where damage begins.
    damage: Vec<u64>,
    /// Records that the entries tell, and that were lost.
    lost: u64,
}

/// A version of a key that is known to have been there.
#[derive(Clone, Copy)]
struct Known {
    seq: u64,
    is_tombstone: bool,
    place: Lost,
}

/// Where a version was that may be lost.
#[derive(Clone, Copy)]
enum Lost {
    /// At this offset of this source.
    Record(u32, u32),
    /// A large value: see `Reading::large`.
    Large(u32),
}

/// What is known of a key.
#[derive(Default)]
struct Versions {
    /// The number of the newest sound version, and whether that is a tombstone.
    sound: Option<(u64, bool)>,
    /// The newest version that something tells of.
    known: Option<Known>,
    is_done: bool,
}

impl Versions {
    /// The newest version, if it is lost.
    fn lost(&self) -> Option<Known> {
        self.known.filter(|known| self.sound.is_none_or(|(seq, _)| seq < known.seq))
    }

    fn know(&mut self, known: Known) {
        if self.known.is_none_or(|other| other.seq < known.seq) {
            self.known = Some(known);
        }
    }

    /// Whether this is the version to keep, which is asked once.
    fn keeps(&mut self, seq: u64) -> bool {
        let is_gone = self.lost().is_some_and(|lost| lost.is_tombstone);
        let keeps = !self.is_done && !is_gone && self.sound == Some((seq, false));
        self.is_done |= keeps;
        keeps
    }
}

/// The two hashes of a key.
type Hashes = (u64, u64);

/// A version of a key, wherever it was found.
struct Version<'a> {
    key: &'a [u8],
    seq: u64,
    expires_at: Option<u64>,
    value: Value<'a>,
}

enum Value<'a> {
    Tombstone,
    Small(&'a [u8]),
    Large(LargeValue, usize),
}

/// A salvage under way.
struct Reading<'s> {
    files: &'s Arc<dyn Files>,
    path: &'s Path,
    store: u64,
    cleared_at: u64,
    sources: Vec<Source>,
    findings: Vec<Finding>,
    /// Large values that are lost: their keys, and why.
    large: Vec<(Vec<u8>, DiskError)>,
}

/// Visits every entry of the store at `path` that its checksums prove, and every damage. What it
/// notes about keys has `memory` bytes at a time, about.
///
/// # Errors
/// There is no store, or another process has it open.
pub fn salvage(
    files: &Arc<dyn Files>,
    path: &Path,
    memory: u64,
    each: &mut Salvage<'_>,
) -> Result<(), DiskError> {
    let mut findings = Vec::new();
    let directory = open_directory(files, path, &mut findings)?;
    let names = files.list(path).map_err(DiskError::room("list", path))?;
    let names: Vec<&str> = names.iter().filter_map(|name| name.to_str()).collect();
    let said = directory.as_ref().map(|directory| directory.identity().store);
    let store = store_of(files, path, &names, said);
    if said.is_some_and(|said| said != store) {
        let foreign = DiskError::Foreign { path: path.join("TERRACE") };
        findings.push(finding(&foreign, "identity", None));
    }
    let (plan, is_whole) = read_plan(files, (path, store), memory, &mut findings);
    let all = names.iter().filter_map(|name| Some((format::numbers_of(name)?, 0)));
    let blocks: BTreeMap<Name, u64> = all.collect();
    let blocks = if is_whole { plan.blocks } else { blocks };
    let (cleared_at, large) = (plan.cleared_at, Vec::new());
    let mut reading = Reading { files, path, store, cleared_at, sources: Vec::new(), findings, large };
    reading.open_blocks(&blocks, is_whole);
    for (nth, bounds) in hash_parts(reading.records(&names), memory).enumerate() {
        let mut versions = HashMap::new();
        reading.collect(bounds, nth == 0, &mut versions);
        reading.hand_out(bounds, &mut versions, each);
        reading.note_lost(&versions);
    }
    reading.note_damage();
    reading.findings.into_iter().for_each(|finding| each(Err(finding)));
    Ok(())
}

/// The directory of the store, unless its identity is damaged.
fn open_directory(
    files: &Arc<dyn Files>,
    path: &Path,
    findings: &mut Vec<Finding>,
) -> Result<Option<Directory>, DiskError> {
    match Directory::open(files, path, NAME, true) {
        Err(error @ DiskError::Corrupt { .. }) => {
            findings.push(finding(&error, "identity", None));
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

/// The store that most files are of.
fn store_of(files: &Arc<dyn Files>, path: &Path, names: &[&str], said: Option<u64>) -> u64 {
    let blocks = names.iter().filter(|name| format::numbers_of(name).is_some());
    let of_blocks = blocks.filter_map(|name| Some(format::foot_of(files, &path.join(name))?.store));
    let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
    for store in of_blocks.chain(Directory::identities(files, path)).chain(said) {
        *votes.entry(store).or_default() += 1;
    }
    let most = votes.into_iter().max_by_key(|&(store, votes)| (votes, Some(store) == said));
    most.map_or(0, |(store, _)| store)
}

/// The manifest as far as it can be read, and whether that is all of it.
fn read_plan(
    files: &Arc<dyn Files>,
    (path, store): (&Path, u64),
    memory: u64,
    findings: &mut Vec<Finding>,
) -> (Plan, bool) {
    let mut plan = Plan::default();
    let read = Manifest::read(files, path, store, &mut |bytes: &[u8]| {
        let added = Edit::read(bytes).ok_or("it is no edit of this engine").and_then(|edit| plan.add(edit));
        added.map_err(|what| DiskError::corrupt(path, 0, what))
    });
    let read = read.and_then(|()| check_end(files, (path, store), &plan, memory));
    if let Err(error) = &read {
        // Any edit that is proved was in force once, and what is cleared is not cleared back.
        salvage_edits(files, path, store, &mut |bytes| {
            let cleared = Edit::read(bytes).and_then(|edit| edit.cleared);
            plan.cleared_at = cleared.unwrap_or(0).max(plan.cleared_at);
        });
        salvage_log(files, path, store, &mut |record| {
            let cleared = record.ok().and_then(|record| record.cleared());
            plan.cleared_at = cleared.unwrap_or(0).max(plan.cleared_at);
        });
        let affected = Some("what was cleared, which may be back: all blocks count now".into());
        findings.push(Finding { affected, ..finding(error, "manifest", None) });
    }
    (plan, read.is_ok())
}

/// Fails if blocks show that the manifest has lost its end.
fn check_end(
    files: &Arc<dyn Files>,
    (path, store): (&Path, u64),
    plan: &Plan,
    memory: u64,
) -> Result<(), DiskError> {
    let unnamed = unnamed::blocks(files, (path, store), plan)?;
    if unnamed.is_empty() {
        return Ok(());
    }
    let open = |&name: &Name| Block::open(files, path, store, name).map(Arc::new).ok();
    let named: Vec<_> = plan.blocks.keys().filter_map(open).collect();
    let mut logged = None;
    salvage_log(files, path, store, &mut |record| {
        record.iter().for_each(|record| unnamed::note(&mut logged, record));
    });
    unnamed::check(files, path, (&named, &unnamed), (logged, plan.cleared_at), memory)
}

/// What the loss of records that nothing tells of may have done.
const UNTOLD: &str =
    "keys that are not known: they may be missing, be older versions, or be back though removed";

/// The key in a form that can be printed.
fn shown(key: &[u8]) -> String {
    key.escape_ascii().take(64).map(char::from).collect()
}

impl Reading<'_> {
    /// Opens these blocks, or of each number the newest one that is sound.
    fn open_blocks(&mut self, blocks: &BTreeMap<Name, u64>, all: bool) {
        let mut sound = None;
        for (&name, &sum) in blocks.iter().rev() {
            if all || sound != Some(name.0) {
                sound = self.open_block((name, sum)).then_some(name.0).or(sound);
            }
        }
    }

    /// Returns whether its end is sound.
    fn open_block(&mut self, (name, sum): Summed) -> bool {
        let path = format::path_of(self.path, name.0, name.1);
        let file = self.files.open(&path, Purpose::Read).map_err(DiskError::room("open", &path));
        let opened = file.and_then(|file| {
            let length = file.length().map_err(DiskError::room("read", &path))?;
            Ok((file, length))
        });
        let (file, length) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.note_untold(&error);
                return false;
            }
        };
        let opened = Block::open(self.files, self.path, self.store, name);
        let (is_sound, length) = match &opened {
            Ok(block) => (true, block.foot.data_bytes()),
            Err(_) => (false, length),
        };
        let block = opened.and_then(|block| block.verify().map(|()| block));
        let named = block.as_ref().map_err(Clone::clone).and_then(|block| block.check_sum(sum));
        if let Err(error) = &named {
            self.note_untold(error);
        }
        if !matches!(block, Err(DiskError::Foreign { .. })) {
            let (block, damage) = (block.ok(), Vec::new());
            self.sources.push(Source { file, path, length, block, damage, lost: 0 });
        }
        is_sound
    }

    /// How many records there are, about.
    fn records(&self, names: &[&str]) -> u64 {
        let of_source = |source: &Source| {
            source.block.as_ref().map_or(source.length / RECORD_BYTES, |block| block.foot.records)
        };
        let length = |name: &&str| {
            self.files.open(&self.path.join(name), Purpose::Read).and_then(|file| file.length()).unwrap_or(0)
        };
        let log = names.iter().filter(|name| name.ends_with(".log")).map(length).sum::<u64>();
        self.sources.iter().map(of_source).sum::<u64>() + log / RECORD_BYTES
    }

    /// Visits the versions of keys with hashes within these bounds: those of the blocks, and those
    /// of the log. `damage` gets what is damaged.
    fn visit(
        &self,
        bounds: (u64, u64),
        each: &mut dyn FnMut(Hashes, Version<'_>),
        damage: &mut dyn FnMut(Damage<'_>),
    ) {
        let is_within = |hash: u64, seq: u64| bounds.0 <= hash && hash <= bounds.1 && seq >= self.cleared_at;
        for (nth, source) in self.sources.iter().enumerate() {
            sound::visit(&*source.file, source.length, self.store, &mut |part| match part {
                Part::Damage(at) => damage(Damage::Block(nth, at)),
                Part::Record(record) if is_within(record.hash(), record.seq) => {
                    each((record.hash(), second_hash(record.key())), version_in(&record));
                }
                Part::Record(..) => {}
            });
        }
        salvage_log(self.files, self.path, self.store, &mut |record| {
            let record = match record {
                Ok(record) => record,
                Err(error) => return damage(Damage::Log(&error)),
            };
            damage(Damage::Passed);
            for (draft, seq) in read_drafts(record.payload).zip(record.first_seq..) {
                let Some(draft) = draft else { return };
                let hash = xxh3_64_with_seed(draft.key, self.store);
                let (value, expires_at) = match (draft.content, large::reference_in(&draft, self.path)) {
                    (Content::Tombstone, _) => (Value::Tombstone, None),
                    (Content::Put { expires_at, .. }, Ok(Some((large, len)))) => {
                        (Value::Large(large, len), expires_at)
                    }
                    (Content::Put { value, expires_at }, _) => (Value::Small(value), expires_at),
                };
                if is_within(hash, seq) {
                    let version = Version { key: draft.key, seq, expires_at, value };
                    each((hash, second_hash(draft.key)), version);
                }
            }
        });
    }

    /// Finds out which versions of keys with hashes within these bounds are the newest.
    fn collect(&mut self, bounds: (u64, u64), is_first: bool, versions: &mut HashMap<Hashes, Versions>) {
        let mut large = Vec::new();
        let mut of_blocks: Vec<(usize, u64)> = Vec::new();
        let mut of_log: Vec<(DiskError, u64)> = Vec::new();
        let mut each = |hashes, version: Version<'_>| {
            let known = versions.entry(hashes).or_default();
            let is_tombstone = matches!(version.value, Value::Tombstone);
            if let Value::Large(value, len) = version.value
                && let Err(error) = self.read_large(value, len)
            {
                let place = Lost::Large(large.len() as u32);
                large.push((version.key.to_vec(), error));
                return known.know(Known { seq: version.seq, is_tombstone, place });
            }
            known.sound = known.sound.max(Some((version.seq, is_tombstone)));
        };
        self.visit(bounds, &mut each, &mut |damage| match damage {
            Damage::Block(nth, at) => of_blocks.push((nth, at)),
            Damage::Log(error) => of_log.push((error.clone(), 0)),
            Damage::Passed => of_log.last_mut().into_iter().for_each(|(_, kept)| *kept += 1),
        });
        for (nth, source) in self.sources.iter().enumerate() {
            let Some(block) = &source.block else { continue };
            let read = block.mentions(bounds, &mut |mention: Mention| {
                let Mention { seq, is_tombstone, offset, .. } = mention;
                if seq >= self.cleared_at {
                    let place = Lost::Record(nth as u32, offset);
                    let known = versions.entry((mention.hash, mention.second)).or_default();
                    known.know(Known { seq, is_tombstone, place });
                }
            });
            read.err().iter().for_each(|error| self.findings.push(finding(error, "block", None)));
        }
        self.large = large;
        if is_first {
            of_blocks.into_iter().for_each(|(nth, at)| self.sources[nth].damage.push(at));
            self.findings.extend(of_log.iter().map(|(error, kept)| Finding {
                affected: Some(format!("a part of the log; {kept} records behind it are kept")),
                ..finding(error, "log", None)
            }));
        }
    }

    /// Hands out the newest versions.
    fn hand_out(
        &mut self,
        bounds: (u64, u64),
        versions: &mut HashMap<Hashes, Versions>,
        each: &mut Salvage<'_>,
    ) {
        let mut findings = Vec::new();
        let mut keep = |hashes, version: Version<'_>| {
            let Some(known) = versions.get_mut(&hashes).filter(|known| known.sound.is_some()) else { return };
            if !known.keeps(version.seq) {
                return;
            }
            let token = version.seq.into();
            let read;
            let value = match version.value {
                Value::Small(value) => value,
                Value::Large(large, len) => match self.read_large(large, len) {
                    Ok(value) => {
                        read = value;
                        &read[..]
                    }
                    Err(error) => return findings.push(finding(&error, "large value", None)),
                },
                Value::Tombstone => return,
            };
            each(Ok((version.key, Entry { value, expires_at: version.expires_at, token })));
            if let Some(lost) = known.lost() {
                let affected = format!("the key `{}`: it has an older version now", shown(version.key));
                findings.push(Finding { affected: Some(affected), ..self.finding_of(lost) });
            }
        };
        self.visit(bounds, &mut keep, &mut |_| {});
        self.findings.extend(findings);
    }

    /// Notes the versions that are lost of keys that have no other one.
    fn note_lost(&mut self, versions: &HashMap<Hashes, Versions>) {
        for versions in versions.values() {
            let Some(lost) = versions.lost().filter(|lost| !lost.is_tombstone) else { continue };
            if let Lost::Record(nth, _) = lost.place {
                self.sources[nth as usize].lost += 1;
            }
            if !versions.is_done {
                self.findings.push(self.finding_of(lost));
            }
        }
    }

    /// Notes the damage of blocks that no lost record tells of.
    fn note_damage(&mut self) {
        for source in &self.sources {
            let is_told = source.block.is_some() && source.lost > 0;
            for &at in source.damage.iter().filter(|_| !is_told) {
                let damage = DiskError::corrupt(&source.path, at, "there is no sound record from here on");
                let affected = source.block.is_none().then(|| UNTOLD.into());
                self.findings.push(Finding { affected, ..finding(&damage, "block", None) });
            }
        }
    }

    /// The finding for the newest version of a key, which is lost.
    fn finding_of(&self, lost: Known) -> Finding {
        match lost.place {
            Lost::Record(nth, offset) => {
                let block = self.sources[nth as usize].block.as_ref().expect("a block with entries");
                let affected = Some("a key that is not known".into());
                Finding { affected, ..finding(&block.missing(offset.into()), "record", None) }
            }
            Lost::Large(nth) => {
                let (key, error) = &self.large[nth as usize];
                let affected = Some(format!("the key `{}`", shown(key)));
                Finding { affected, ..finding(error, "large value", None) }
            }
        }
    }

    fn read_large(&self, large: LargeValue, len: usize) -> Result<Vec<u8>, DiskError> {
        let path = large::path_of(self.path, large.number);
        let missing = || DiskError::corrupt(&path, 0, "the file of a large value is missing");
        large::read(self.files, self.path, large, len)?.ok_or_else(missing)
    }

    fn note_untold(&mut self, error: &DiskError) {
        let affected = Some(UNTOLD.into());
        self.findings.push(Finding { affected, ..finding(error, "block", None) });
    }
}

/// What a visit has met.
enum Damage<'d> {
    /// Of a source, at an offset.
    Block(usize, u64),
    /// Of the log.
    Log(&'d DiskError),
    /// No damage, but a record of the log.
    Passed,
}

fn version_in<'b>(record: &Record<'b>) -> Version<'b> {
    let value = match record.shape.kind {
        Kind::Tombstone => Value::Tombstone,
        Kind::Value => Value::Small(record.inline),
        Kind::Large => {
            let large = LargeValue::read(record.inline).expect("as long as a reference");
            Value::Large(large, record.shape.value_len)
        }
    };
    Version { key: record.key(), seq: record.seq, expires_at: record.expires_at, value }
}
