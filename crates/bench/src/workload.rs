//! What a workload does: how many operations of which kind, on which records. A pure function of
//! its seed.
//!
//! YCSB: B. Cooper et al., Benchmarking Cloud Serving Systems with YCSB, SoCC 2010; the mixes are
//! those of its core package.
//!
//! RECIPE: S. Lee et al., RECIPE: Converting Concurrent DRAM Indexes to Persistent-Memory Indexes,
//! SOSP 2019. It measures mixes like YCSB's A, B, C and E, but all records are equally likely, and
//! each write inserts a new record. Its first workload, inserts into an empty store, is
//! `random-int`, or `ycsb-load` with other keys.

use crate::choice::{Choice, Chooser, Chosen};
use crate::{Random, spread};

/// How many of 100 operations are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// Reads of an existing record.
    pub reads: u8,
    /// Reads of a record that never existed.
    pub negative_reads: u8,
    /// Writes of an existing record.
    pub updates: u8,
    /// Writes of a new record.
    pub inserts: u8,
    /// Reads of some consecutive records.
    pub scans: u8,
    /// A read and then a write of the same record.
    pub read_modify_writes: u8,
}

/// A mix of operations and a choice of records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// What it represents.
    pub about: &'static str,
    /// Its operations.
    pub mix: Mix,
    /// Its records.
    pub choice: Choice,
    /// Whether it starts with an empty store.
    pub from_nothing: bool,
    /// Whether its keys are integers by default.
    pub integer_keys: bool,
}

const NO: Mix = Mix { reads: 0, negative_reads: 0, updates: 0, inserts: 0, scans: 0, read_modify_writes: 0 };
const HOT: Choice = Choice::HotSet { operations: 0.8, records: 0.2 };

const fn workload(name: &'static str, about: &'static str, mix: Mix, choice: Choice) -> Workload {
    Workload { name, about, mix, choice, from_nothing: false, integer_keys: false }
}

/// A workload of RECIPE: integer keys by default, all records equally likely.
const fn recipe(name: &'static str, about: &'static str, mix: Mix) -> Workload {
    Workload { integer_keys: true, ..workload(name, about, mix, Choice::Uniform) }
}

impl Workload {
    /// All named workloads.
    pub const ALL: [Self; 14] = [
        Self {
            from_nothing: true,
            ..workload(
                "ycsb-load",
                "inserts into an empty store",
                Mix { inserts: 100, ..NO },
                Choice::Uniform,
            )
        },
        workload(
            "ycsb-a",
            "half reads, half updates: a session store",
            Mix { reads: 50, updates: 50, ..NO },
            Choice::Zipfian,
        ),
        workload(
            "ycsb-b",
            "95% reads, 5% updates: tags of photos",
            Mix { reads: 95, updates: 5, ..NO },
            Choice::Zipfian,
        ),
        workload("ycsb-c", "reads only: a cache of profiles", Mix { reads: 100, ..NO }, Choice::Zipfian),
        workload(
            "ycsb-d",
            "95% reads of the newest, 5% inserts: status updates",
            Mix { reads: 95, inserts: 5, ..NO },
            Choice::Latest,
        ),
        workload(
            "ycsb-e",
            "95% scans of 1 to 100 records, 5% inserts: threads of conversation",
            Mix { scans: 95, inserts: 5, ..NO },
            Choice::Zipfian,
        ),
        workload(
            "ycsb-f",
            "half reads, half reads with a write of what was read: a user database",
            Mix { reads: 50, read_modify_writes: 50, ..NO },
            Choice::Zipfian,
        ),
        Self {
            from_nothing: true,
            integer_keys: true,
            ..workload(
                "random-int",
                "inserts of random integers into an empty store, as papers on hash tables measure them",
                Mix { inserts: 100, ..NO },
                Choice::Uniform,
            )
        },
        workload(
            "negative",
            "reads of keys that are not there",
            Mix { negative_reads: 100, ..NO },
            Choice::Uniform,
        ),
        workload(
            "hot-set",
            "95% reads, 5% updates; 80% of them on 20% of the records",
            Mix { reads: 95, updates: 5, ..NO },
            HOT,
        ),
        recipe(
            "recipe-a",
            "half reads, half inserts, as RECIPE measures A",
            Mix { reads: 50, inserts: 50, ..NO },
        ),
        recipe(
            "recipe-b",
            "95% reads, 5% inserts, as RECIPE measures B",
            Mix { reads: 95, inserts: 5, ..NO },
        ),
        recipe("recipe-c", "reads only, as RECIPE measures C", Mix { reads: 100, ..NO }),
        recipe(
            "recipe-e",
            "95% scans of 1 to 100 records, 5% inserts, as RECIPE measures E",
            Mix { scans: 95, inserts: 5, ..NO },
        ),
    ];

    /// The workload with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name == name)
    }

    /// Reads and updates of records selected by `choice`.
    pub const fn reads_and_updates(reads: u8, choice: Choice) -> Self {
        workload("reads-updates", "reads and updates", Mix { reads, updates: 100 - reads, ..NO }, choice)
    }
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A read.
    Read,
    /// A read of a record that never existed.
    NegativeRead,
    /// A write of an existing record.
    Update,
    /// A write of a new record.
    Insert,
    /// A read of the record and those that follow it.
    Scan,
    /// A read, then a write.
    ReadModifyWrite,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::NegativeRead, Self::Update, Self::Insert, Self::Scan, Self::ReadModifyWrite];

    /// Its name in tables and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::NegativeRead => "negative_read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read_modify_write",
        }
    }
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its kind.
    pub kind: Kind,
    /// The record's number, from which its key is computed. Records that existed at first are 0 and
    /// up.
    pub record: u64,
    /// Number of records that a scan reads; 1 otherwise.
    pub records: u32,
}

/// The endless operations of one thread of a workload.
#[derive(Clone, Debug)]
pub struct Operations {
    workload: Workload,
    random: Random,
    chooser: Chooser,
    first_new: u64,
    thread: u64,
    threads: u64,
    added: u64,
}

/// Records of negative reads are numbered from here on, beyond all inserts.
const NEVER: u64 = 1 << 62;

impl Operations {
    /// The operations of thread `thread` of `threads` over `records` existing records.
    pub fn new(workload: Workload, records: u64, thread: u64, threads: u64, seed: u64) -> Self {
        let loaded = if workload.from_nothing { 0 } else { records };
        Self {
            workload,
            random: Random::new(spread(seed).wrapping_add(thread)),
            chooser: Chooser::new(workload.choice, loaded),
            first_new: loaded,
            thread,
            threads,
            added: 0,
        }
    }

    fn kind(&mut self) -> Kind {
        let mix = self.workload.mix;
        let counts =
            [mix.reads, mix.negative_reads, mix.updates, mix.inserts, mix.scans, mix.read_modify_writes];
        let mut draw = self.random.below(100) as u8;
        for (kind, count) in Kind::ALL.into_iter().zip(counts) {
            if draw < count {
                return kind;
            }
            draw -= count;
        }
        Kind::Read
    }

    /// The number of the nth record that this thread adds. Threads take turns, so no number occurs
    /// twice.
    fn new_record(&self, nth: u64) -> u64 {
        self.first_new + nth * self.threads + self.thread
    }

    fn insert(&mut self) -> u64 {
        let record = self.new_record(self.added);
        self.added += 1;
        self.chooser.added();
        record
    }
}

impl Iterator for Operations {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        const SCAN_MOST: u64 = 100;
        let mut kind = self.kind();
        let records = if kind == Kind::Scan { 1 + self.random.below(SCAN_MOST) as u32 } else { 1 };
        let record = match kind {
            Kind::Insert => self.insert(),
            Kind::NegativeRead => NEVER + self.random.below(NEVER),
            _ => match self.chooser.next(&mut self.random) {
                Some(Chosen::Loaded(record)) => record,
                Some(Chosen::Added(nth)) => self.new_record(nth),
                None => {
                    kind = Kind::Insert;
                    self.insert()
                }
            },
        };
        Some(Operation { kind, record, records })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn mixes_add_up_and_are_followed() {
        for workload in Workload::ALL {
            let mix = workload.mix;
            let counts =
                [mix.reads, mix.negative_reads, mix.updates, mix.inserts, mix.scans, mix.read_modify_writes];
            assert_eq!(counts.iter().map(|&count| u32::from(count)).sum::<u32>(), 100, "{}", workload.name);
            let mut drawn = [0u32; 6];
            for operation in Operations::new(workload, 1000, 0, 1, 1).take(100_000) {
                drawn[operation.kind as usize] += 1;
            }
            for (drawn, count) in drawn.into_iter().zip(counts) {
                let off = (f64::from(drawn) / 1000.0 - f64::from(count)).abs();
                assert!(off < 0.6, "{}: {drawn} of 100,000 for {count}%", workload.name);
            }
        }
    }

    #[test]
    fn operations_depend_on_the_seed_only() {
        for workload in Workload::ALL {
            let run =
                |seed, thread| Operations::new(workload, 500, thread, 2, seed).take(200).collect::<Vec<_>>();
            assert_eq!(run(1, 0), run(1, 0));
            assert_ne!(run(1, 0), run(1, 1), "{}", workload.name);
            let differs = workload.mix.inserts == 100 || run(1, 0) != run(2, 0);
            assert!(differs, "{}", workload.name);
        }
    }

    #[test]
    fn threads_insert_distinct_and_read_existing_records() {
        let workload = Workload::named("ycsb-d").unwrap();
        let mut inserted = HashSet::new();
        for thread in 0..3 {
            let mut there: HashSet<u64> = (0..100).collect();
            for operation in Operations::new(workload, 100, thread, 3, 9).take(5000) {
                match operation.kind {
                    Kind::Insert => {
                        assert!(inserted.insert(operation.record) && operation.record >= 100);
                        there.insert(operation.record);
                    }
                    _ => assert!(there.contains(&operation.record), "{operation:?}"),
                }
            }
        }
    }

    #[test]
    fn recipe_writes_only_new_records_and_reads_all_alike() {
        for letter in ["a", "b", "c", "e"] {
            let workload = Workload::named(&format!("recipe-{letter}")).unwrap();
            let ycsb = Workload::named(&format!("ycsb-{letter}")).unwrap();
            assert_eq!(workload.mix.inserts, ycsb.mix.inserts + ycsb.mix.updates, "{letter}");
            assert_eq!(
                (workload.mix.reads, workload.mix.scans),
                (ycsb.mix.reads, ycsb.mix.scans),
                "{letter}"
            );
            let (mut written, mut asked) = (HashSet::new(), [0u32; 100]);
            for operation in Operations::new(workload, 100, 0, 1, 3).take(100_000) {
                match operation.kind {
                    Kind::Insert => assert!(operation.record >= 100 && written.insert(operation.record)),
                    Kind::Read | Kind::Scan if operation.record < 100 => {
                        asked[operation.record as usize] += 1
                    }
                    Kind::Read | Kind::Scan => assert!(written.contains(&operation.record)),
                    other => panic!("{other:?} in {letter}"),
                }
            }
            let mean = asked.iter().sum::<u32>() / 100;
            assert!(asked.iter().all(|count| count.abs_diff(mean) < mean / 3 + 12), "{letter}: {asked:?}");
        }
    }

    #[test]
    fn scans_and_negative_reads_stay_in_range() {
        for workload in ["ycsb-e", "recipe-e"] {
            let scans = Operations::new(Workload::named(workload).unwrap(), 100, 0, 1, 1).take(20_000);
            let lengths: HashSet<u32> = scans.filter(|o| o.kind == Kind::Scan).map(|o| o.records).collect();
            assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&1), Some(&100)));
        }
        let negative = Operations::new(Workload::named("negative").unwrap(), 100, 0, 1, 1).take(1000);
        assert!({ negative }.all(|operation| operation.record >= NEVER));
    }
}
