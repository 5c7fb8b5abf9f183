//! The conformance suites: one for each trait, run on every implementation.
//!
//! [`point_index`], [`range_index`] and [`stored`] test indexes, [`files`] tests file systems, and
//! `store` tests whole stores of any engine (feature `store`). Each is compiled here once: a
//! subject reaches it behind a trait object.
#![allow(clippy::disallowed_methods, reason = "tests start threads and wait for them")]

mod adversarial;
mod beside;
mod concurrent;
mod counted;
mod erased;
mod families;
mod files;
mod histories;
mod integers;
mod model;
mod place;
mod range;
mod sizes;
#[cfg(feature = "store")]
mod store;
mod stored;
mod subject;

pub use counted::{
    Costs, costs_of_inserts, costs_of_single_changes, gets_only_read, loads_before_growth, most_lines,
    never_flushes, spread,
};
pub use files::files;
#[cfg(feature = "store")]
pub use store::{Site, exact_store, ordered_store, store};
pub use subject::{NAME, Setup};

use erased::Of;
use std::sync::Arc;
use subject::{Index, Make};
use terrace_index::{PointIndex, RangeIndex, U64};
use terrace_pool::Pool;
use terrace_testkit::{KeySort, TestKeys, jittery};

/// The whole suite for maps from single keys. `make` creates an empty index called [`NAME`] in a
/// pool of its own, according to the [`Setup`]. Panics on the first failure.
///
/// ```no_run
/// # use terrace_index::{Stored, U64, hash::Clht}; use terrace_medium::Dram;
/// # use terrace_pool::Pool;
/// use terrace_conformance::{NAME, point_index};
/// point_index(|setup| {
///     let pool = Pool::<Dram>::anonymous(setup.pool_bytes).unwrap();
///     Clht::<Dram, U64>::create(&pool, NAME, setup.capacity).unwrap()
/// });
/// ```
pub fn point_index<I: Index>(make: impl Fn(Setup) -> I)
where
    I::Kind: TestKeys,
{
    all_of_points(I::Kind::SORT, &|setup| Arc::new(make(setup)));
}

fn all_of_points(sort: KeySort, make: Make<'_>) {
    model::behaves_as_a_map(make);
    model::deferred_changes_behave_alike(make);
    model::recovers_everything(make);
    adversarial::keys_that_look_alike(make);
    adversarial::keys_in_order(make);
    adversarial::keys_of_each_family(sort, make);
    sizes::grows_and_shrinks(make);
    sizes::full_pool(make);
    concurrent::one_insert_wins(make);
    concurrent::one_removal_wins(make);
    concurrent::no_increment_is_lost(make);
    concurrent::more_threads_than_slots(make);
    concurrent::own_keys_stay_exact(make);
    concurrent::scans_miss_nothing_through_resizes(make);
    concurrent::readers_never_mix_neighbours(make);
    histories::are_linearizable(make);
}

/// The additional suite for ordered indexes, over families of keys that share their bytes in hard
/// ways. `make` creates an empty index in a pool of its own. Panics on the first failure.
pub fn range_index<I: Index + RangeIndex>(make: impl Fn(Setup) -> I)
where
    I::Kind: TestKeys,
{
    all_of_ranges(I::Kind::SORT, &|setup| Arc::new(make(setup)));
}

fn all_of_ranges(sort: KeySort, make: range::Make<'_>) {
    model::each_family_is_a_map(sort, &|setup| make(setup));
    range::ranges_match_a_map(sort, make);
    range::hard_insertion_orders(sort, make);
    beside::ranges_beside_writers(sort, make);
}

/// The concurrent part of [`range_index`]. A [`Tapped`](terrace_testkit::Tapped) medium is made
/// [`jittery`].
pub fn range_index_races<I: Index + RangeIndex>(make: impl Fn(Setup) -> I)
where
    I::Kind: TestKeys,
{
    beside::ranges_beside_writers(I::Kind::SORT, &|setup| Arc::new(jittery(|| make(setup))));
}

/// The suite for indexes that are closed and reopened by name, in a pool in a file. `OtherKeys` is
/// the same kind of index with another kind of keys, and `OtherIndex` another kind of index.
/// Opening either as `I`, or `I` as either, must be refused. Panics on the first failure.
///
/// ```no_run
/// # use terrace_index::{Bytes, U64, hash::{Clht, Turbo}}; use terrace_medium::Shm;
/// use terrace_conformance::stored;
/// use terrace_testkit::TestRecord;
/// stored::<Clht<Shm, U64>, Clht<Shm, Bytes<TestRecord>>, Turbo<Shm, U64>>();
/// ```
pub fn stored<I, OtherKeys, OtherIndex>()
where
    I: Index,
    OtherKeys: Index + PointIndex<Medium = <I as PointIndex>::Medium>,
    OtherIndex: Index + PointIndex<Medium = <I as PointIndex>::Medium>,
    I::Kind: TestKeys,
    OtherKeys::Kind: TestKeys,
    OtherIndex::Kind: TestKeys,
{
    let of = Of::<I>::TYPE;
    stored::reopens_with_its_content(of);
    stored::can_be_opened_twice(of);
    stored::missing_name_is_no_index(of);
    for other in [Of::<OtherKeys>::TYPE, Of::<OtherIndex>::TYPE] {
        stored::refuses(of, other);
        stored::refuses(other, of);
    }
}

/// Checks that every integer can be a key and a word, above all the ends of the range. `make`
/// creates an empty index called [`NAME`] in the given pool, which is in a file and is closed and
/// reopened. Panics on the first failure.
pub fn integers<I: Index + PointIndex<Kind = U64>>(make: impl Fn(&Pool<<I as PointIndex>::Medium>) -> I) {
    integers::are_all_keys_and_words(&|place| Arc::new(make(&place.create())));
}

/// The concurrent part of [`point_index`]. A [`Tapped`](terrace_testkit::Tapped) medium is made
/// [`jittery`], so the whole suite would take long.
pub fn point_index_races<I: Index>(make: impl Fn(Setup) -> I)
where
    I::Kind: TestKeys,
{
    races_of_points(&|setup| Arc::new(jittery(|| make(setup))));
}

fn races_of_points(make: Make<'_>) {
    concurrent::one_insert_wins(make);
    concurrent::one_removal_wins(make);
    concurrent::no_increment_is_lost(make);
    concurrent::readers_never_mix_neighbours(make);
    histories::are_linearizable(make);
}
