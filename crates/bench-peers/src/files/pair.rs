//! Pairs of stores.

use super::Outcome;
use super::place::Place;
use super::store::{Setup, Side, Stored};
use crate::plan::Plan;
use tempfile::TempDir;

/// Two stores, ours and a peer. One is at rest while the other works.
pub(crate) struct Pair {
    pub(crate) peer: Side,
    pub(crate) stores: [Box<dyn Stored>; 2],
    /// Removed after the stores.
    pub(crate) directories: [TempDir; 2],
}

impl Pair {
    pub(crate) fn of(place: &Place, sides: [Side; 2], setup: Setup) -> Outcome<Self> {
        let directories = [place.fresh()?, place.fresh()?];
        let open = |nth: usize| sides[nth].open(&directories[nth].path().join("store"), setup);
        Ok(Self { peer: sides[1], stores: [open(0)?, open(1)?], directories })
    }

    pub(crate) fn both(&self) -> [&dyn Stored; 2] {
        [&*self.stores[0], &*self.stores[1]]
    }
}

/// The peers that this run has.
pub(crate) fn peers(plan: &Plan) -> impl Iterator<Item = Side> {
    let has_rocks = !plan.without_rocksdb;
    let peers = [Side::RocksDb, Side::Deep, Side::Fjall].into_iter();
    peers.filter(move |peer| peer.is_built() && (has_rocks || *peer == Side::Fjall))
}

/// A row's name.
pub(crate) fn named(what: &str, peer: Side) -> String {
    format!("{what}: {}", peer.name())
}
