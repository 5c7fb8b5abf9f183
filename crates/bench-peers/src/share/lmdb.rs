//! Terrace beside LMDB, which also shares one memory map between processes.

use super::{NAME, Neighbour, Outcome, answer_each, filled, rate, read_some, write_some};
use crate::plan::{Plan, say};
use crate::records::{key, value};
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls};
use std::ops::Bound::{Included, Unbounded};
use std::path::Path;
use terrace_bench::{Bound, Measure, Row, Section};

/// Two processes, Terrace beside LMDB, both in /dev/shm.
pub(super) fn section(plan: &Plan) -> Outcome<Section> {
    let title = "Two processes on one store, both at work; M/s of both together; uniform 16-byte keys, 64-byte values, in /dev/shm. LMDB with NOSYNC and a writable map; \
                 its reads in one transaction for all, and in one for each, as whoever wants the newest has them; its writes in one each";
    let mut section = Section::new(title, "M/s", &["LMDB"]);
    let rows = [
        ("get, one snapshot for all", "reads", "lmdb-reads", 2.0),
        ("get, the newest each", "reads", "lmdb-newest", 2.0),
        ("put", "writes", "lmdb-writes", 5.0),
    ];
    let wanted: Vec<_> =
        rows.into_iter().filter(|(name, ..)| plan.wants(NAME, &format!("lmdb {name}"))).collect();
    if wanted.is_empty() {
        return Ok(section);
    }
    let records = plan.count(10_000_000);
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let (path, theirs) = (directory.path().join("share.pool"), directory.path().join("lmdb"));
    let store = filled(&path, records)?;
    std::fs::create_dir(&theirs)?;
    let lmdb = Lmdb::open(&theirs, records)?;
    lmdb.fill(0..records)?;
    for (name, ours, other, at_least) in wanted {
        say(&format!("{NAME} lmdb {name}"));
        let mut near = Neighbour::start(ours, &path, records)?;
        let mut far = Neighbour::start(other, &theirs, records)?;
        let (mut seed, mut their_seed) = (0, 0);
        let own = |seed| {
            if ours == "reads" { read_some(&store, records, seed) } else { write_some(&store, records, seed) }
        };
        let measure: Measure<'_> = Box::new(|| {
            seed += 1;
            near.rate_together(seed, own).unwrap_or(f64::NAN)
        });
        let peer: Measure<'_> = Box::new(|| {
            their_seed += 1;
            far.rate_together(their_seed, |seed| lmdb.work(other, records, seed)).unwrap_or(f64::NAN)
        });
        let row = Row::from_measured(name, plan.runner().row(&mut [measure, peer]));
        section.rows.push(row.against(0, Bound::AtLeast(at_least)));
    }
    Ok(section)
}

/// A neighbour's work with LMDB.
pub(super) fn run(work: &str, path: &Path, records: u64) -> Outcome<()> {
    let lmdb = Lmdb::open(path, records)?;
    answer_each(|seed| lmdb.work(work, records, seed))
}

/// An LMDB environment of one database.
pub(crate) struct Lmdb {
    env: Env,
    database: Database<Bytes, Bytes>,
}

impl Lmdb {
    #[allow(unsafe_code, reason = "LMDB's map is memory that other processes write")]
    pub(crate) fn open(path: &Path, records: u64) -> Outcome<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(((1 << 30) + records as usize * 400).next_multiple_of(1 << 20));
        // SAFETY: only LMDB writes to its files, and this process opens them once. Without NOSYNC's
        // sync, a crash of the machine loses them, which is what this compares.
        let env = unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP).open(path) }?;
        let mut transaction = env.write_txn()?;
        let database = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Self { env, database })
    }

    /// Puts the records with these numbers, in this order, in one transaction.
    pub(crate) fn fill(&self, numbers: impl Iterator<Item = u64>) -> Outcome<()> {
        let mut transaction = self.env.write_txn()?;
        for number in numbers {
            self.database.put(&mut transaction, &key(number), &value(number))?;
        }
        Ok(transaction.commit()?)
    }

    /// A transaction that reads.
    pub(crate) fn snapshot(&self) -> heed::Result<RoTxn<'_, WithTls>> {
        self.env.read_txn()
    }

    /// Calls `each` with up to `most` records in the order of their keys, from `from` on. Returns
    /// how many there were.
    pub(crate) fn range(
        &self,
        snapshot: &RoTxn<'_>,
        from: &[u8],
        most: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> heed::Result<usize> {
        let mut found = 0;
        for entry in self.database.range(snapshot, &(Included(from), Unbounded))?.take(most) {
            let (key, value) = entry?;
            each(key, value);
            found += 1;
        }
        Ok(found)
    }

    /// Million operations a second.
    fn work(&self, what: &str, records: u64, seed: u64) -> f64 {
        match what {
            "lmdb-reads" => match self.env.read_txn() {
                Ok(snapshot) => rate(500_000, records, seed, |key, _| {
                    matches!(self.database.get(&snapshot, key), Ok(Some(_)))
                }),
                Err(_) => f64::NAN,
            },
            "lmdb-newest" => rate(500_000, records, seed, |key, _| {
                let newest = self.env.read_txn();
                newest.is_ok_and(|newest| matches!(self.database.get(&newest, key), Ok(Some(_))))
            }),
            _ => rate(100_000, records, seed, |key, value| self.write(key, value).is_ok()),
        }
    }

    fn write(&self, key: &[u8], value: &[u8]) -> heed::Result<()> {
        let mut transaction = self.env.write_txn()?;
        self.database.put(&mut transaction, key, value)?;
        transaction.commit()
    }
}
