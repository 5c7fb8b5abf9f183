//! Tests: every medium and index passes the suite for stores.

use terrace::{Durability, Index, Options};
use terrace_medium::{Pmem, Shm};
use terrace_testkit::Counting;
use terrace_testkit::conformance::{Site, store};

#[test]
fn in_memory_of_the_process() {
    store(Site::anonymous);
}

#[test]
fn on_shm() {
    store(Site::shm);
}

#[test]
fn on_pmem() {
    store(Site::pmem);
}

#[test]
fn on_counted_media() {
    store(Site::on::<Counting<Shm>>);
    store(Site::on::<Counting<Pmem>>);
}

#[test]
fn with_rewo_hash() {
    store(|| Site::in_file(|options| options.index(Index::Rewo), Options::open_or_create));
    store(|| {
        let power = |options: Options| options.durability(Durability::Power).assume_persistent(true);
        Site::in_file(|options| power(options).index(Index::Rewo), Options::open_or_create)
    });
}

#[test]
fn with_turbohash() {
    store(|| Site::in_file(|options| options.index(Index::Turbo), Options::open_or_create));
    store(|| {
        let power = |options: Options| options.durability(Durability::Power).assume_persistent(true);
        Site::in_file(|options| power(options).index(Index::Turbo), Options::open_or_create)
    });
}

#[test]
fn with_level_hashing() {
    store(|| Site::in_file(|options| options.index(Index::Level), Options::open_or_create));
    store(|| {
        let power = |options: Options| options.durability(Durability::Power).assume_persistent(true);
        Site::in_file(|options| power(options).index(Index::Level), Options::open_or_create)
    });
}
