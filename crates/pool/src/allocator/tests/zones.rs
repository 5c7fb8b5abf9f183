//! Tests of `zones`.

use super::*;
use crate::format::layout::{Geometry, PAGE};
use crate::open::options::PoolOptions;
use crate::pool::Pool;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::Dram;

#[test]
fn zones_double_and_then_stay_as_large_as_the_geometry_says() {
    let layout = Layout::new(Geometry { zone_log2: 18, ..Geometry::tiny() }).unwrap();
    let zones = Zones::new(&layout);
    let sizes: Vec<u64> = [0, 16, 48, 111, 112, 175, 176].map(|unit| zones.of_unit(unit).units).to_vec();
    assert_eq!(sizes, [16, 32, 64, 64, 64, 64, 64]);
    // Of a pool with the default geometry, in units of 64 KiB.
    let zones = Zones::new(&Layout::new(Geometry::default()).unwrap());
    let firsts = (0..11).map(|zone| zones.of_unit(((1 << zone) - 1) << 10).units);
    assert!(firsts.eq((0..9).chain([8, 8]).map(|zone| 1 << (10 + zone))));
    let zones = Zones::new(&layout);
    let mut unit = 0;
    while unit < 1000 {
        let zone = zones.of_unit(unit);
        assert_eq!(zone.first, unit);
        assert!((unit..zone.end()).all(|inside| zones.of_unit(inside) == zone));
        unit = zone.end();
    }
}

#[test]
fn headers_are_small_compared_to_zones() {
    for geometry in [Geometry::tiny(), Geometry::for_size(1 << 24), Geometry::default()] {
        let zones = Zones::new(&Layout::new(geometry).unwrap());
        let mut unit = 0;
        for _ in 0..20 {
            let zone = zones.of_unit(unit);
            let head = zone.header_bytes().next_multiple_of(1 << zones.granule_log2());
            assert!(head * 100 <= zone.units << zones.slab_log2, "{zone:?} of {geometry:?}");
            unit = zone.end();
        }
    }
}

#[test]
fn zone_exists_once_its_whole_header_fits() {
    let last = |pool: &Pool<Dram>| pool.0.units().zones().last().unwrap();
    let options = PoolOptions::anonymous().geometry(Geometry::tiny()).size(64 << 10).max_size(8 << 20);
    let pool = options.create::<Dram>().unwrap();
    let zones = &pool.0.units().zones;
    // The first of those whose header is longer than a page.
    let large = zones.of_unit(240);
    assert!((2 * PAGE..3 * PAGE).contains(&large.header_bytes()));
    for (pages, is_there) in [(1, false), (2, false), (3, true)] {
        pool.grow(large.start + pages * PAGE).unwrap();
        assert_eq!(last(&pool) == large, is_there, "{pages} pages of it");
        for offset in (large.start..pool.size()).step_by(8) {
            assert_eq!(pool.0.units().unit_at(offset).is_some(), is_there, "{offset:#x}");
        }
    }
    for zone in pool.0.units().zones() {
        let (last, _) = pool.0.units().hint_word(Hint::Room, &zone, zone.end() - 1);
        assert_eq!(pool.region().offset_of(last).raw() + 8, zone.start + zone.header_bytes());
    }
}

#[test]
fn hints_are_set_only_for_units_with_room() {
    let pool = Pool::<Dram>::anonymous(64 << 20).unwrap();
    let zone = pool.0.units().zones().next().unwrap();
    let all = || {
        pool.0.units().units_in(&zone).map(|unit| (unit, pool.0.units().hint_word(Hint::Room, &zone, unit)))
    };
    for units in [0..1, 3..64, 70..130, 64..128, 5..300] {
        all().for_each(|(_, (word, _))| word.store(pool.medium(), 0, Relaxed));
        pool.0.units().hint_at(&zone, units.clone());
        let hinted = all().filter(|(_, (word, bit))| word.load(pool.medium(), Relaxed) & bit != 0);
        assert!(hinted.map(|(unit, _)| unit).eq(units.clone()), "{units:?}");
    }
}

#[test]
fn a_state_says_what_it_was_made_of() {
    let uses = [
        UnitUse::Owned,
        UnitUse::Full,
        UnitUse::Listed,
        UnitUse::Unclean,
        UnitUse::Reserve,
        UnitUse::Revalidating,
        UnitUse::Quarantined,
        UnitUse::Vacating,
    ];
    for usage in uses {
        let state = UnitState::slab(u32::MAX, 95, usage);
        assert_eq!((state.open_seq(), state.class(), state.usage()), (u32::MAX, Some(95), usage));
        assert!(state.with(UnitUse::Full) == UnitState::slab(u32::MAX, 95, UnitUse::Full));
    }
    assert_eq!(UnitState::granules(7).class(), None);
    assert_eq!(UnitState::granules(7).usage(), UnitUse::Granules);
    assert!(UnitState::granules(0) == UnitState(0));
}

#[test]
fn a_state_shows_any_change_within_a_byte() {
    for state in [UnitState(0), UnitState::granules(1), UnitState::slab(0x1234_5678, 40, UnitUse::Listed)] {
        assert!(state.is_sound());
        for byte in 0..8 {
            assert!((1..256).all(|flip| !UnitState(state.0 ^ flip << (8 * byte)).is_sound()));
        }
    }
}
