//! Tests: every medium and index passes the suite for stores.

use terrace::{Durability, Index, Options};
use terrace_conformance::{Site, exact_store, ordered_store, store};
use terrace_testkit::TappedPmem;

#[test]
fn in_memory_of_the_process() {
    exact_store(Site::anonymous);
}

#[test]
fn on_counted_persistent_memory() {
    exact_store(Site::on::<TappedPmem>);
}

/// A store on persistent memory with this index: other media have passed the suite of indexes.
fn with(index: Index) -> impl Fn() -> Site {
    let power = |options: Options| options.durability(Durability::Power).assume_persistent(true);
    move || Site::in_file(|options| power(options).index(index), Options::open_or_create)
}

#[test]
fn with_rewo_hash() {
    exact_store(with(Index::Rewo));
}

#[test]
fn with_turbohash() {
    exact_store(with(Index::Turbo));
}

#[test]
fn with_level_hashing() {
    exact_store(with(Index::Level));
}

#[test]
fn with_the_radix_tree() {
    exact_store(with(Index::Art));
    ordered_store(with(Index::Art));
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
fn over_dram_and_a_pool_with_clht() {
    store(|| Site::tiered_with(Index::Clht, true));
}

#[test]
fn over_dram_and_counted_persistent_memory() {
    store(Site::tiered_on::<TappedPmem>);
}
