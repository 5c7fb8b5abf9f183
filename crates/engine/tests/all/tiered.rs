//! Tests: the tiered engine beside a map, through background work in any order, restarts, and power
//! failures of a simulated disk.

use crate::place::{InPmem, InShm};
use crate::rig::{try_history, try_history_aside, try_history_in};
use crate::subject::{OfTiered, OfTieredChanging, OfTieredWith};
use terrace_engine::Durability;
use terrace_index::hash::{Clht, Level, Rewo};
use terrace_medium::Dram;
use terrace_tiered::Kind;

#[test]
fn histories_with_power_failures_match_a_map() {
    (0..30).for_each(|seed| try_history::<OfTiered>(seed, Durability::Power));
}

#[test]
fn histories_without_syncs_keep_a_prefix() {
    (100..130).for_each(|seed| try_history::<OfTiered>(seed, Durability::Process));
}

#[test]
fn histories_with_changing_settings_match_a_map() {
    (400..415).for_each(|seed| try_history::<OfTieredChanging>(seed, Durability::Power));
    (415..430).for_each(|seed| try_history::<OfTieredChanging>(seed, Durability::Process));
    (430..440).for_each(|seed| try_history_in::<OfTieredChanging, InPmem>(seed, Durability::Power));
}

#[test]
fn histories_of_a_thread_that_must_not_wait_match_a_map() {
    (200..230).for_each(|seed| try_history_aside::<OfTiered>(seed, Durability::Power));
}

/// Processes are killed: nothing may be lost, whatever was promised.
#[test]
fn histories_in_a_pool_match_a_map() {
    (200..220).for_each(|seed| try_history_in::<OfTiered, InShm>(seed, Durability::Process));
    (220..240).for_each(|seed| try_history_in::<OfTiered, InPmem>(seed, Durability::Power));
}

/// Indexes that read records of the tier when they grow.
#[test]
fn histories_with_any_hash_table_match_a_map() {
    for seed in 300..308 {
        try_history::<OfTieredWith<Clht<Dram, Kind>>>(seed, Durability::Power);
        try_history::<OfTieredWith<Level<Dram, Kind>>>(seed, Durability::Power);
        try_history::<OfTieredWith<Rewo<Dram, Kind>>>(seed, Durability::Power);
        try_history_in::<OfTieredWith<Clht<Dram, Kind>>, InPmem>(seed, Durability::Power);
        try_history_in::<OfTieredWith<Level<Dram, Kind>>, InPmem>(seed, Durability::Power);
        try_history_in::<OfTieredWith<Rewo<Dram, Kind>>, InPmem>(seed, Durability::Power);
    }
}
