//! Tests of `layout`.

use super::*;

#[test]
fn parts_are_line_aligned_and_zones_slab_aligned() {
    for geometry in [Geometry::tiny(), Geometry::for_size(1 << 22), Geometry::default()] {
        let layout = Layout::new(geometry).unwrap();
        let parts = [
            layout.roots,
            layout.participants,
            layout.shared,
            layout.allocator,
            layout.thread_slots,
            layout.watches,
            layout.zones,
        ];
        assert!(parts.is_sorted() && parts.iter().all(|p| p % 64 == 0), "{layout:?}");
        assert_eq!(layout.zones % (1 << geometry.slab_log2), 0);
        assert!((8..=64).contains(&layout.watch_count()), "{layout:?}");
        assert!(layout.watch(layout.watch_count()) <= layout.zones);
        assert_eq!(layout.watch(3), layout.watches + 3 * WATCH_BYTES);
        assert_eq!(layout.smallest() - layout.zones, 8 << geometry.slab_log2);
    }
    assert!(Layout::new(Geometry::tiny()).unwrap().smallest() <= 64 << 10);
}

#[test]
fn every_size_has_a_geometry_of_which_it_fills_the_first_zone() {
    for size in (0..45).flat_map(|log2| [(1 << log2) - 1, 1 << log2, (1 << log2) + 1]) {
        let geometry = Geometry::for_size(size);
        assert_eq!(geometry.check(), Ok(()), "{size}");
        assert!(size <= 1 << geometry.first_zone_log2 || geometry.first_zone_log2 == geometry.zone_log2);
    }
}

#[test]
fn slabs_become_larger_from_one_mib_on_and_from_64() {
    let slab = |size| Geometry::for_size(size).slab_log2;
    assert_eq!([(1 << 20) - 1, 1 << 20, (64 << 20) - 1, 64 << 20].map(slab), [12, 14, 14, 16]);
}

#[test]
fn a_geometry_out_of_range_is_refused() {
    let good = Geometry::tiny();
    for bad in [
        Geometry { thread_slots: 0, ..good },
        Geometry { participants: 4097, ..good },
        Geometry { roots: 0, ..good },
        Geometry { slab_log2: 11, ..good },
        Geometry { zone_log2: 13, ..good },
        Geometry { zone_log2: 64, ..good },
        Geometry { zone_log2: 15, ..good },
        Geometry { first_zone_log2: 13, ..good },
        Geometry { first_zone_log2: 21, ..good },
    ] {
        assert!(Layout::new(bad).is_err(), "{bad:?}");
    }
}
