//! Connections to the memory: one for the logs, and one for each read at a time.

use super::logs::Sent;
use crate::lock::lock;
use crate::message::Access;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;
use terrace_fabric::{
    Fabric, Libfabric, LibfabricConnection, Operation, Output, Place, Ports, RegionKey, Until, perform,
};

/// What a session does, counted.
#[derive(Default)]
pub(super) struct Counts {
    /// Round trips of reads, and of writes to logs.
    pub(super) read_rounds: AtomicU64,
    pub(super) log_writes: AtomicU64,
    /// Keys that were looked up in the memory.
    pub(super) look_ups: AtomicU64,
    /// Keys about which the memory node was asked.
    pub(super) asked: AtomicU64,
}

/// How sessions reach the memory, and what each of them has: the same for all of a node.
pub(super) struct Means {
    pub(super) shards: u16,
    pub(super) cache_bytes: u64,
    pub(super) counts: Arc<Counts>,
    /// The address of this host in the fabric's network.
    pub(super) host: String,
    /// The ports that connections listen on.
    pub(super) fabric_ports: Option<Ports>,
    /// How long an operation or a request may take.
    pub(super) patience: Duration,
}

/// The connections of a session. Nothing stands below but the fabric.
pub(super) struct Lanes {
    log: Mutex<LibfabricConnection>,
    /// Those of reads, with the pool as a region.
    reads: Vec<(Mutex<LibfabricConnection>, RegionKey)>,
    next: AtomicU64,
}

impl Lanes {
    /// Connects to the memory, as the memory node describes it.
    pub(super) fn connect(means: &Means, access: &Access) -> Result<Self, String> {
        let fabric = Libfabric::on_ports(&access.provider, &means.host, means.fabric_ports);
        let fabric = fabric.map_err(|error| error.to_string())?;
        let connect = |address: &Vec<u8>| fabric.connect(address).map_err(|error| error.to_string());
        let mut connections = access.lanes.iter().map(connect).collect::<Result<Vec<_>, _>>()?.into_iter();
        let log = connections.next().filter(|_| access.lanes.len() > 1);
        let log = Mutex::new(log.ok_or("the memory node offers too few connections")?);
        let keys = access.pool.iter().skip(1).map(|key| RegionKey::from_bytes(*key));
        let reads = connections.map(Mutex::new).zip(keys).collect();
        Ok(Self { log, reads, next: AtomicU64::new(0) })
    }

    /// Reads ranges of the pool, all in one round trip. Returns their bytes.
    pub(super) fn read(&self, ranges: &[(u64, usize)], patience: Duration) -> Result<Vec<Vec<u8>>, String> {
        let (mut lane, region) = self.idle();
        let operation = |&(offset, len): &(u64, usize)| Operation::Read {
            from: Place { region, offset },
            into: vec![0; len],
        };
        let operations = ranges.iter().map(operation).collect();
        let done = perform(&mut *lane, operations, patience).map_err(|error| error.to_string());
        drop(lane);
        done.and_then(|outcomes| outcomes.into_iter().map(buffer).collect())
    }

    /// A lane that no other thread uses now, if there is one.
    fn idle(&self) -> (MutexGuard<'_, LibfabricConnection>, RegionKey) {
        let first = self.next.fetch_add(1, Relaxed) as usize;
        let count = self.reads.len();
        for nth in 0..count {
            let (lane, region) = &self.reads[(first + nth) % count];
            match lane.try_lock() {
                Ok(lane) => return (lane, *region),
                Err(TryLockError::Poisoned(poisoned)) => return (poisoned.into_inner(), *region),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        let (lane, region) = &self.reads[first % count];
        (lock(lane), *region)
    }

    /// Writes to segments, all in one round trip.
    pub(super) fn write(&self, writes: Vec<Sent>, patience: Duration) -> Result<(), String> {
        let operation = |(piece, region): Sent| Operation::Write {
            bytes: piece.bytes,
            to: Place { region, offset: piece.offset },
            until: Until::Arrived,
        };
        let operations = writes.into_iter().map(operation).collect();
        let done = perform(&mut *lock(&self.log), operations, patience).map_err(|error| error.to_string());
        done.and_then(|outcomes| outcomes.into_iter().try_for_each(|outcome| buffer(outcome).map(drop)))
    }
}

fn buffer(outcome: Result<Output, terrace_fabric::Failure>) -> Result<Vec<u8>, String> {
    match outcome {
        Ok(Output::Buffer(bytes)) => Ok(bytes),
        Ok(Output::Before(_)) => Err("the fabric gave the answer to another operation".into()),
        Err(failure) => Err(failure.to_string()),
    }
}
