//! A serving node's parts together.

use super::gate::Gate;
use super::lanes::{Counts, Means};
use super::ownership::Ownership;
use super::read::Reader;
use super::space::PoolSpace;
use super::write::Writer;
use crate::owner::Owner;
use crate::slot::SlotRange;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use terrace_engine::{Clock, Watches};
use terrace_fabric::Ports;

/// Settings of a serving node.
#[derive(Clone)]
pub struct Settings {
    /// Its name: 40 hexadecimal digits, the same through all restarts.
    pub id: String,
    /// Logs that it writes, 1 to 64. Each is merged by one thread at a time.
    pub shards: u16,
    /// Connections to the memory: one for the logs, the others for as many reads at one time.
    pub lanes: u16,
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// The address of this host in the fabric's network.
    pub host: String,
    /// Ports that the connections listen on, which each do; any that are free, if there are none.
    pub fabric_ports: Option<Ports>,
    /// How long an operation on the memory, or a request to the memory node, may take:
    /// [`PATIENCE`](Self::PATIENCE), unless the machine is so busy that a living memory node takes
    /// longer. After that the session ends.
    pub patience: Duration,
    /// Decides what has expired.
    pub clock: Arc<dyn Clock>,
}

impl Settings {
    /// The usual patience.
    pub const PATIENCE: Duration = Duration::from_secs(2);
}

/// The state of a serving node that its threads share. Below stands `ownership`, and the gate
/// below that. Readers and writers borrow these for one operation.
pub(super) struct Node {
    pub(super) settings: Settings,
    pub(super) ownership: Ownership,
    pub(super) watches: Arc<Watches>,
    pub(super) counts: Arc<Counts>,
    pub(super) space: PoolSpace,
}

impl Node {
    pub(super) fn new(settings: Settings, drains: mpsc::Sender<Vec<SlotRange>>) -> Self {
        let owner = Owner::new(settings.id.clone(), settings.shards, settings.lanes);
        let (watches, counts) = (Arc::<Watches>::default(), Arc::<Counts>::default());
        let means = Means {
            shards: settings.shards,
            cache_bytes: settings.cache_bytes,
            counts: Arc::clone(&counts),
            host: settings.host.clone(),
            fabric_ports: settings.fabric_ports,
            patience: settings.patience,
        };
        let ownership = Ownership::new(owner, means, Arc::clone(&watches), drains);
        Self { settings, ownership, watches, counts, space: PoolSpace::default() }
    }

    /// Where operations begin.
    pub(super) fn gate(&self) -> &Gate {
        &self.ownership.gate
    }

    /// What reads.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { gate: self.gate(), clock: &*self.settings.clock }
    }

    /// What writes.
    pub(super) fn writer(&self) -> Writer<'_> {
        let (reader, ownership, shards) = (self.reader(), &self.ownership, self.settings.shards);
        Writer { reader, ownership, watches: &self.watches, shards }
    }
}
