//! Tests of `place.rs`.

use super::*;

#[test]
fn place_with_a_changed_byte_is_unsound() {
    let len = 1 << 44;
    for (start, log2) in [(0x8000, 8), (64, 0), (0x7ff_1234_5640, 10), (0x1_0000_0000, BUCKETS_LOG2_MAX)] {
        let place = Place::new(start, log2);
        assert_eq!((place.start(), place.log2(), place.is_sound(len)), (start, log2, true));
        for (byte, flip) in (0..8).flat_map(|byte| (1..256).map(move |flip| (byte, flip))) {
            assert!(!Place(place.word() ^ flip << (8 * byte)).is_sound(len), "{flip:#x} in byte {byte}");
        }
    }
    assert!(!Place(0).is_sound(len));
    let at_the_end = |log2| Place::new(len as u64 - 512, log2).is_sound(len);
    assert!(at_the_end(1) && !at_the_end(2));
}

#[test]
fn second_bucket_determines_the_first() {
    assert_eq!(Place::new(64, 0).second(0, 200), 0, "but not in a table of one");
    for log2 in 1..=BUCKETS_LOG2_MAX {
        let place = Place::new(64, log2);
        for (home, tag) in
            [0, 1, place.buckets() - 1].into_iter().flat_map(|home| (0..=255).map(move |t| (home, t)))
        {
            let second = place.second(home, tag);
            assert!(second != home && second < place.buckets());
            assert!((1..WINDOW).contains(&place.distance(tag)));
            assert_eq!(place.home_of_second(second, tag), home);
        }
    }
}

#[test]
fn home_is_the_bits_behind_the_top() {
    for log2 in 0..=BUCKETS_LOG2_MAX {
        let place = Place::new(64, log2);
        assert_eq!(place.home(u64::MAX), place.buckets() - 1);
        assert_eq!(place.home(u64::MAX >> (TOP_BITS + 1)), (place.buckets() - 1) / 2);
        assert_eq!(place.home(u64::MAX << (64 - TOP_BITS)), 0);
    }
}

#[test]
fn tags_spread_second_buckets_evenly() {
    let distances = |log2, tags: [u8; 4]| tags.map(|tag| Place::new(64, log2).distance(tag));
    assert_eq!(distances(20, [0, 1, 128, 255]), [1, 1, 128, 255]);
    assert_eq!(distances(8, [0, 2, 129, 255]), [1, 2, 129, 255]);
    assert_eq!(distances(2, [0, 85, 86, 255]), [1, 1, 2, 3]);
    assert_eq!(distances(1, [0, 85, 86, 255]), [1, 1, 1, 1]);
}
