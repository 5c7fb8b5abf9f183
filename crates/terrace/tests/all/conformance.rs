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

/// Runs a suite over stores in a file with this index: code with write-backs, and without.
fn with(index: Index, suite: fn(&dyn Fn() -> Site)) {
    suite(&|| Site::in_file(|options| options.index(index), Options::open_or_create));
    let power = |options: Options| options.durability(Durability::Power).assume_persistent(true);
    suite(&|| Site::in_file(|options| power(options).index(index), Options::open_or_create));
}

#[test]
fn with_rewo_hash() {
    with(Index::Rewo, |make| exact_store(make));
}

#[test]
fn with_turbohash() {
    with(Index::Turbo, |make| exact_store(make));
}

#[test]
fn with_level_hashing() {
    with(Index::Level, |make| exact_store(make));
}

#[test]
fn with_the_radix_tree() {
    with(Index::Art, |make| exact_store(make));
    with(Index::Art, |make| ordered_store(make));
}

#[test]
fn with_hot() {
    with(Index::Hot, |make| exact_store(make));
    with(Index::Hot, |make| ordered_store(make));
}

#[test]
fn with_masstree() {
    with(Index::Masstree, |make| exact_store(make));
    with(Index::Masstree, |make| ordered_store(make));
}

#[test]
fn with_the_bw_tree() {
    with(Index::BwTree, |make| exact_store(make));
    with(Index::BwTree, |make| ordered_store(make));
}

#[test]
fn with_sptree() {
    with(Index::SpTree, |make| exact_store(make));
    with(Index::SpTree, |make| ordered_store(make));
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

/// Addresses in the index change under a key, so the suite of indexes says little of these.
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
