//! Tests: every medium and index passes the suite for stores.

use terrace::{Durability, Index, Options};
use terrace_conformance::{Site, exact_store, ordered_store, store};
use terrace_medium::{Pmem, Shm};
use terrace_testkit::{TappedPmem, TappedShm};

#[test]
fn in_memory_of_the_process() {
    exact_store(Site::anonymous);
}

#[test]
fn on_shm() {
    exact_store(Site::shm);
}

#[test]
fn on_pmem() {
    exact_store(Site::pmem);
}

#[test]
fn on_counted_media() {
    exact_store(Site::on::<TappedShm>);
    exact_store(Site::on::<TappedPmem>);
}

#[test]
fn with_rewo_hash() {
    exact_store(|| Site::in_file(|options| options.index(Index::Rewo), Options::open_or_create));
    exact_store(|| {
        let power = |options: Options| options.durability(Durability::Power).assume_persistent(true);
        Site::in_file(|options| power(options).index(Index::Rewo), Options::open_or_create)
    });
}

#[test]
fn with_turbohash() {
    exact_store(|| Site::in_file(|options| options.index(Index::Turbo), Options::open_or_create));
    exact_store(|| {
        let power = |options: Options| options.durability(Durability::Power).assume_persistent(true);
        Site::in_file(|options| power(options).index(Index::Turbo), Options::open_or_create)
    });
}

#[test]
fn with_level_hashing() {
    exact_store(|| Site::in_file(|options| options.index(Index::Level), Options::open_or_create));
    exact_store(|| {
        let power = |options: Options| options.durability(Durability::Power).assume_persistent(true);
        Site::in_file(|options| power(options).index(Index::Level), Options::open_or_create)
    });
}

#[test]
fn with_the_radix_tree() {
    let process = || Site::in_file(|options| options.index(Index::Art), Options::open_or_create);
    let power = || {
        let power = |options: Options| options.durability(Durability::Power).assume_persistent(true);
        Site::in_file(|options| power(options).index(Index::Art), Options::open_or_create)
    };
    exact_store(process);
    ordered_store(process);
    exact_store(power);
    ordered_store(power);
}

#[test]
fn on_a_disk() {
    store(Site::disk);
    ordered_store(Site::disk);
}

#[test]
fn over_two_tiers() {
    store(Site::tiered);
}

#[test]
fn over_dram_and_a_pool() {
    store(Site::tiered_in_pool);
}

#[test]
fn over_two_tiers_with_clht() {
    store(|| Site::tiered_with(Index::Clht, false));
}

#[test]
fn over_two_tiers_with_level() {
    store(|| Site::tiered_with(Index::Level, false));
}

#[test]
fn over_two_tiers_with_rewo() {
    store(|| Site::tiered_with(Index::Rewo, false));
}

#[test]
fn over_dram_and_a_pool_with_clht() {
    store(|| Site::tiered_with(Index::Clht, true));
}

#[test]
fn over_dram_and_counted_persistent_memory() {
    store(Site::tiered_on::<TappedPmem>);
}
