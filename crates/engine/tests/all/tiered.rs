//! Tests: the tiered engine beside a map, through background work in any order, restarts, and power
//! failures of a simulated disk.

use crate::rig::try_history;
use crate::subject::{OfTiered, Subject};
use crate::wip::PATH;
use std::ops::Bound;
use std::sync::Arc;
use terrace_engine::tiered::{Settings, Shares, Tiered};
use terrace_engine::{Durability, Durably, Engine, ManualClock, OnDisk, Put};
use terrace_medium::Dram;
use terrace_testkit::simfs::SimFs;

/// A store with tiny parts, so that a short history has blocks that are sealed and rewritten.
pub(crate) fn settings(durability: Durability, clock: &Arc<ManualClock>) -> Settings {
    let mut settings = Settings::with_dram(1 << 20, Arc::clone(clock) as Arc<_>, 12_345);
    settings.shares = Shares { page_bytes: 4 << 10, block_pages: 4, seats: 2 };
    settings.stripes = 16;
    settings.segment_bytes = 16 << 10;
    settings.log_bytes = 64 << 10;
    settings.durability = durability;
    settings
}

pub(crate) fn create(files: &SimFs, settings: Settings) -> Tiered<SimFs, Dram> {
    OfTiered::create(files.clone(), PATH, settings).unwrap()
}

pub(crate) fn open(files: &SimFs, settings: Settings) -> Tiered<SimFs, Dram> {
    OfTiered::open(files.clone(), PATH, settings).unwrap()
}

#[test]
fn histories_with_power_failures_match_a_map() {
    (0..30).for_each(|seed| try_history::<OfTiered>(seed, Durability::Power));
}

#[test]
fn histories_without_syncs_keep_a_prefix() {
    (100..130).for_each(|seed| try_history::<OfTiered>(seed, Durability::Process));
}

/// A store has numbers for some thousand blocks: each round begins one, and ends the one before.
#[test]
fn numbers_of_blocks_come_back() {
    let (files, clock) = (SimFs::new(["/data"]), Arc::new(ManualClock::at(1000)));
    let store = create(&files, settings(Durability::Process, &clock));
    let all = (Bound::Unbounded, Bound::Unbounded);
    for round in 0..5000u32 {
        let value = round.to_le_bytes();
        store.put(Put { key: b"key", value: &value, expires_at: None }, Durably::Later).unwrap();
        store.put(Put { key: &value, value: b"", expires_at: None }, Durably::Later).unwrap();
        OnDisk::flush(&store).unwrap();
        if round % 4 == 0 {
            store.evict();
        }
        if round >= 3 {
            store.delete(&(round - 3).to_le_bytes(), Durably::Store).unwrap();
        }
        if round % 50 == 0 {
            OnDisk::compact(&store, all.0, all.1).unwrap();
        }
        assert_eq!(*store.get(b"key").unwrap().unwrap(), value, "{round}");
    }
    assert_eq!(store.len().get(), 4);
    drop(store);
    let store = open(&files, settings(Durability::Process, &clock));
    assert_eq!(*store.get(b"key").unwrap().unwrap(), 4999u32.to_le_bytes());
    assert_eq!(store.len().get(), 4);
}
