//! Runs a workload on anything that can be read and written, and records latencies.

use crate::pace::wait_until;
use crate::{Kind, Operation, Operations, Pace, Shape};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The target of a workload: one thread's handle.
pub trait Subject {
    /// Why an operation failed.
    type Error;
    /// Reads a record. Returns whether it existed.
    fn read(&mut self, key: &[u8]) -> Result<bool, Self::Error>;
    /// Writes a record, new or not.
    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), Self::Error>;
    /// Reads a record, then writes it. Returns whether it existed.
    fn read_modify_write(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Self::Error>;
    /// Reads `records` consecutive records from `key` on.
    fn scan(&mut self, key: &[u8], records: u32) -> Result<(), Self::Error>;
}

/// How long a thread works, and how it is timed.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// When its operations are due.
    pub pace: Pace,
    /// Operations after which it stops.
    pub operations: Option<u64>,
    /// The time in which operations are due, for an open loop: it then does the same number on
    /// every machine that keeps up. A closed loop is stopped from outside.
    pub time: Option<Duration>,
    /// The length of each piece of [`Seen::over_time`].
    pub tick: Duration,
}

/// The longest latency recorded exactly, in ns; longer ones count as this.
const LONGEST_NS: u64 = 600_000_000_000;

/// An empty histogram of ns with `digits` significant digits.
fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, digits).expect("constant bounds that the library takes")
}

/// What threads have measured. Latencies are in ns, from the moment when an operation was due.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Latencies of each kind of operation.
    pub kinds: BTreeMap<Kind, Histogram<u64>>,
    /// Time that operations took once they had begun; of an open loop only.
    pub service: Option<Histogram<u64>>,
    /// The latencies of all kinds, one histogram for each piece of time, to two digits.
    pub over_time: Vec<Histogram<u64>>,
    /// Reads that did not find a record that must exist.
    pub missed: u64,
}

impl Seen {
    /// Adds the measurements of another thread.
    pub fn add(&mut self, other: Seen) {
        for (kind, seen) in other.kinds {
            *self.kinds.entry(kind).or_insert_with(|| histogram(3)) += seen;
        }
        if let Some(seen) = other.service {
            *self.service.get_or_insert_with(|| histogram(3)) += seen;
        }
        self.over_time.resize_with(self.over_time.len().max(other.over_time.len()), || histogram(2));
        for (all, seen) in self.over_time.iter_mut().zip(other.over_time) {
            *all += seen;
        }
        self.missed += other.missed;
    }

    /// Number of operations of all kinds.
    pub fn operations(&self) -> u64 {
        self.kinds.values().map(Histogram::len).sum()
    }

    fn record(&mut self, kind: Kind, ended: Duration, latency: Duration, tick: Duration) {
        let ns = latency.as_nanos().clamp(1, u128::from(LONGEST_NS)) as u64;
        self.kinds.entry(kind).or_insert_with(|| histogram(3)).saturating_record(ns);
        let piece = (ended.as_nanos() / tick.as_nanos().max(1)) as usize;
        if piece >= self.over_time.len() {
            self.over_time.resize_with(piece + 1, || histogram(2));
        }
        self.over_time[piece].saturating_record(ns);
    }
}

/// Does one thread's work on `subject`, from `start` on, until `stop` or until its operations are
/// done.
///
/// # Errors
/// The first error of an operation.
pub fn drive<S: Subject>(
    subject: &mut S,
    operations: Operations,
    shape: &Shape,
    drive: Drive,
    start: Instant,
    stop: &AtomicBool,
) -> Result<Seen, S::Error> {
    let mut seen = Seen::default();
    if drive.pace != Pace::Closed {
        seen.service = Some(histogram(3));
    }
    let mut key = Vec::new();
    let most = drive.operations.unwrap_or(u64::MAX);
    for (nth, operation) in (0..most).zip(operations) {
        let due = drive.pace.due(nth);
        if due.zip(drive.time).is_some_and(|(due, time)| due >= time) {
            break;
        }
        let due = due.map(|after| start + after);
        due.into_iter().for_each(wait_until);
        // ORDER: Relaxed: one operation more or less does not matter.
        if stop.load(Relaxed) {
            break;
        }
        shape.key(operation.record, &mut key);
        let began = Instant::now();
        seen.missed += u64::from(!operate(subject, operation, &key, shape, nth)?);
        let ended = Instant::now();
        if let Some(service) = &mut seen.service {
            service.saturating_record((ended - began).as_nanos().max(1) as u64);
        }
        seen.record(operation.kind, ended - start, ended - due.unwrap_or(began), drive.tick);
    }
    Ok(seen)
}

/// Does one operation. Returns whether it found a record that must exist.
fn operate<S: Subject>(
    subject: &mut S,
    operation: Operation,
    key: &[u8],
    shape: &Shape,
    nth: u64,
) -> Result<bool, S::Error> {
    let value = || shape.value(operation.record, nth);
    match operation.kind {
        Kind::Read => subject.read(key),
        Kind::NegativeRead => subject.read(key).map(|found| !found),
        Kind::Update | Kind::Insert => subject.write(key, value()).map(|()| true),
        Kind::Scan => subject.scan(key, operation.records).map(|()| true),
        Kind::ReadModifyWrite => subject.read_modify_write(key, value()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyShape, Workload};
    use std::collections::HashMap;
    use std::convert::Infallible;

    #[derive(Default)]
    struct Map {
        records: HashMap<Vec<u8>, Vec<u8>>,
        scanned: u64,
        stall_at: Option<u64>,
        operations: u64,
    }

    impl Map {
        fn step(&mut self) {
            self.operations += 1;
            if self.stall_at == Some(self.operations) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    impl Subject for Map {
        type Error = Infallible;
        fn read(&mut self, key: &[u8]) -> Result<bool, Infallible> {
            self.step();
            Ok(self.records.contains_key(key))
        }
        fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), Infallible> {
            self.step();
            self.records.insert(key.to_vec(), value.to_vec());
            Ok(())
        }
        fn read_modify_write(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Infallible> {
            Ok(self.records.insert(key.to_vec(), value.to_vec()).is_some())
        }
        fn scan(&mut self, _: &[u8], records: u32) -> Result<(), Infallible> {
            self.scanned += u64::from(records);
            Ok(())
        }
    }

    fn run(workload: Workload, map: &mut Map, pace: Pace, operations: u64) -> Seen {
        let shape = Shape::new(KeyShape::Integer, "", 8..=8);
        let mut key = Vec::new();
        let loaded = if workload.from_nothing { 0 } else { 500 };
        for record in 0..loaded {
            shape.key(record, &mut key);
            map.records.insert(key.clone(), vec![0; 8]);
        }
        let drive = Drive { pace, operations: Some(operations), time: None, tick: Duration::from_millis(10) };
        let stream = Operations::new(workload, 500, 0, 1, 1);
        super::drive(map, stream, &shape, drive, Instant::now(), &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn every_workload_finds_its_records() {
        for workload in Workload::ALL {
            let mut map = Map::default();
            let seen = run(workload, &mut map, Pace::Closed, 5000);
            assert_eq!((seen.missed, seen.operations()), (0, 5000), "{}", workload.name);
            assert_eq!(seen.over_time.iter().map(Histogram::len).sum::<u64>(), 5000);
            let inserts = seen.kinds.get(&Kind::Insert).map_or(0, Histogram::len);
            let loaded = if workload.from_nothing { 0 } else { 500 };
            assert_eq!(map.records.len() as u64, loaded + inserts, "{}", workload.name);
            assert_eq!(map.scanned > 0, workload.mix.scans > 0);
        }
    }

    /// One operation takes 50 ms among 200 that are due one a millisecond. A closed loop sees one
    /// slow operation, an open one all that had to wait.
    #[test]
    fn open_loop_counts_waiting_operations() {
        let slow = |pace| {
            let mut map = Map { stall_at: Some(50), ..Map::default() };
            let seen = run(Workload::named("ycsb-c").unwrap(), &mut map, pace, 200);
            let reads = &seen.kinds[&Kind::Read];
            (reads.len() - reads.count_between(0, 4_999_999), seen.service)
        };
        let (closed, none) = slow(Pace::Closed);
        assert!(closed >= 1 && none.is_none(), "{closed}");
        let (open, service) = slow(Pace::of(Some(1000.0), 0, 1));
        assert!(open >= 40.max(closed), "{open} {closed}");
        assert_eq!(service.unwrap().len(), 200);
    }

    /// This stop never comes.
    #[test]
    fn open_loop_ends_with_its_time() {
        let mut map = Map::default();
        let workload = Workload::named("ycsb-load").unwrap();
        let drive = Drive {
            pace: Pace::of(Some(10_000.0), 1, 2),
            operations: None,
            time: Some(Duration::from_millis(30)),
            tick: Duration::from_millis(10),
        };
        let (stream, shape) =
            (Operations::new(workload, 0, 0, 1, 1), Shape::new(KeyShape::Integer, "", 8..=8));
        let stop = AtomicBool::new(false);
        let seen = super::drive(&mut map, stream, &shape, drive, Instant::now(), &stop).unwrap();
        assert_eq!(seen.operations(), 150);
    }

    #[test]
    fn measurements_of_threads_add_up() {
        let workload = Workload::named("ycsb-a").unwrap();
        let mut all = Seen::default();
        all.add(run(workload, &mut Map::default(), Pace::Closed, 300));
        all.add(run(workload, &mut Map::default(), Pace::Closed, 200));
        assert_eq!(all.operations(), 500);
        assert_eq!(all.over_time.iter().map(Histogram::len).sum::<u64>(), 500);
    }
}
