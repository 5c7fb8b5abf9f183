//! The suite for stores of any engine, index and medium.

mod exact;
mod keys;
mod model;
mod ordered;
mod site;
mod threads;

pub use site::Site;

use std::collections::BTreeMap;
use terrace::Store;

/// The suite that every store passes, whatever its engine. `make` returns a place for a new store
/// each time. Panics on the first failure.
///
/// ```no_run
/// use terrace_conformance::{Site, store};
/// store(Site::anonymous);
/// ```
pub fn store(make: impl Fn() -> Site) {
    model::is_a_map(&make);
    model::many_keys_come_and_go(&make);
    keys::integers_and_look_alikes(&make);
    keys::keys_of_every_length(&make);
    threads::increments_add_up(&make);
    threads::modify_loses_nothing(&make);
    threads::batches_are_atomic(&make);
    threads::readers_never_go_back_in_time(&make);
    threads::transactions_are_serializable(&make);
    threads::everything_at_once(&make);
    threads::scans_miss_no_stable_key(&make);
    threads::held_value_does_not_change(&make);
}

/// As [`store`], for a store whose counts are exact: those of its keys and bytes follow each write.
pub fn exact_store(make: impl Fn() -> Site) {
    store(&make);
    exact::counts_follow_each_write(&make);
    exact::counts_add_up_over_threads(&make);
}

/// The additional suite for stores that keep their keys in order. `make` returns a place for a new
/// store each time. Panics on the first failure.
pub fn ordered_store(make: impl Fn() -> Site) {
    assert!(make().open().is_ordered(), "a store that keeps its keys in order");
    ordered::ranges_match_a_map(&make);
    ordered::many_keys_in_order(&make);
    ordered::ranges_stay_in_order_beside_writers(&make);
    ordered::removal_spares_neighbours(&make);
}

/// The content of a store, by a scan.
fn contents(store: &Store) -> BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)> {
    let mut found = BTreeMap::new();
    let mut cursor = terrace::Cursor::START;
    loop {
        let mut add = |key: &[u8], entry: terrace::Entry<'_>| {
            found.insert(key.to_vec(), (entry.value.to_vec(), entry.expires_at));
        };
        cursor = store.scan(&cursor, 7, &mut add).expect("a sound store");
        if cursor.is_end() {
            return found;
        }
    }
}

/// Panics with the findings if the store is not sound.
fn assert_sound(store: &Store) {
    let report = store.check(&mut |_, _| {});
    assert!(report.is_sound(), "{:#?}", report.findings);
}
