//! Each index in each variant behaves as a map.

use crate::baselines::spot::{Removing, Spot, SpotSizes, SpotVariant, Spotted};
use crate::baselines::tests::space;
use crate::baselines::{SkipList, SpaceFull, SpotCceh, SpotFastFair};
use crate::{Random, spread};
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_medium::Dram;

type Layer<S> = Spot<Dram, S>;

/// Removes a key, if the index can. Returns whether it can.
type Remove<S> = fn(&mut Layer<S>, u64) -> Result<bool, SpaceFull>;

fn removes<S: Spotted<Dram> + Removing>(spot: &mut Layer<S>, key: u64) -> Result<bool, SpaceFull> {
    spot.remove(key).map(|()| true)
}

fn keeps<S: Spotted<Dram>>(_: &mut Layer<S>, _: u64) -> Result<bool, SpaceFull> {
    Ok(false)
}

/// Half of the keys are dense, half of them anywhere.
fn key(number: u64) -> u64 {
    if number.is_multiple_of(2) { number } else { spread(number) }
}

fn compare<S: Spotted<Dram>>(spot: &Layer<S>, model: &BTreeMap<u64, u64>, numbers: u64, when: &str) {
    for key in (0..numbers).map(key) {
        assert_eq!(spot.get(key), model.get(&key).copied(), "{} {when}: key {key}", S::NAME);
    }
}

/// Applies random changes to a layer and to a model; then opens the layer again, with its log.
fn check<S: Spotted<Dram>>(
    variant: SpotVariant,
    (numbers, changes): (u64, u64),
    sizes: SpotSizes,
    remove: Remove<S>,
) {
    let space = space::<Dram>(96 << 20);
    let mut spot = Layer::<S>::create(space.clone(), variant, sizes).expect("room for a layer");
    let (mut model, mut random) = (BTreeMap::new(), Random::new(11));
    for nth in 0..changes {
        let key = key(random.below(numbers));
        match random.below(16) {
            0..3 if remove(&mut spot, key).expect("room for a removal") => _ = model.remove(&key),
            0..11 => {
                spot.put(key, nth).expect("room for a key");
                model.insert(key, nth);
            }
            _ => assert_eq!(spot.get(key), model.get(&key).copied(), "{} {}", S::NAME, variant.name()),
        }
    }
    compare(&spot, &model, numbers, variant.name());
    assert!(spot.logged() <= sizes.logged && (variant.merge.is_some() == (spot.buffered() > 0)));
    if variant.logs || variant.merge.is_none() {
        spot = reopened(&space, spot, variant, sizes);
        compare(&spot, &model, numbers, "opened again");
    }
    spot.merge_all().expect("room for all");
    compare(&spot, &model, numbers, "merged");
    assert_eq!((spot.buffered(), spot.logged()), (0, 0));
    assert!(model.iter().all(|(key, value)| spot.below().get(*key) == Some(*value)));
    spot = reopened(&space, spot, variant, sizes);
    compare(&spot, &model, numbers, "opened after all merges");
}

/// The next process's layer; the DRAM of this one is gone.
fn reopened<S: Spotted<Dram>>(
    space: &Arc<crate::baselines::Space<Dram>>,
    spot: Layer<S>,
    variant: SpotVariant,
    sizes: SpotSizes,
) -> Layer<S> {
    let head = spot.head();
    drop(spot);
    Layer::open(space.clone(), head, variant, sizes).expect("a layer").expect("room for its log's records")
}

fn check_all<S: Spotted<Dram>>(remove: Remove<S>) {
    for variant in SpotVariant::ALL {
        check(variant, (40, 5_000), SpotSizes { buffered: Some(3), logged: 4 }, remove);
        check(variant, (3_000, 30_000), SpotSizes { buffered: Some(7), logged: 500 }, remove);
        check(variant, (30_000, 120_000), SpotSizes { buffered: None, logged: 20_000 }, remove);
    }
}

#[test]
fn cceh_is_a_map_in_all_variants() {
    check_all::<SpotCceh<Dram>>(removes);
}

#[test]
fn fast_fair_is_a_map_in_all_variants() {
    check_all::<SpotFastFair<Dram>>(removes);
}

#[test]
fn skip_list_is_a_map_in_all_variants() {
    check_all::<SkipList<Dram>>(keeps);
}

/// Fills a small memory, and goes on. Keys that were taken are there, and others are not.
fn check_full<S: Spotted<Dram>>() {
    for variant in SpotVariant::ALL {
        let sizes = SpotSizes { buffered: None, logged: 1000 };
        let mut spot = Layer::<S>::create(space::<Dram>(1 << 20), variant, sizes).expect("room for a layer");
        let (mut taken, mut refused) = (Vec::new(), 0);
        while refused < 500 {
            let n = taken.len() as u64;
            taken.push(spot.put(key(n), n).is_ok());
            refused += usize::from(taken.last() == Some(&false));
        }
        let name = || format!("{} {}", S::NAME, variant.name());
        let first = taken.iter().position(|is_taken| !is_taken);
        assert!(first.is_some_and(|first| first > 10_000), "{}: full at {first:?}", name());
        for (n, &is_taken) in (0..).zip(&taken) {
            assert_eq!(spot.get(key(n)), is_taken.then_some(n), "{}", name());
        }
        assert!(spot.put(key(0), 7).is_err() || spot.get(key(0)) == Some(7), "{}", name());
    }
}

#[test]
fn full_memory_refuses_keys_and_keeps_the_others() {
    check_full::<SpotCceh<Dram>>();
    check_full::<SpotFastFair<Dram>>();
    check_full::<SkipList<Dram>>();
}
