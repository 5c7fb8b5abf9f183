//! Tests of `directory.rs`.

use super::*;
use std::fs::File;
use terrace_medium::{Dram, MappedMedium, Mapping, Protection, Shm};

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
    assert!(Place::NONE.is_sound(len));
    assert!(Place::new(len as u64 - 512, 1).is_sound(len) && !Place::new(len as u64 - 512, 2).is_sound(len));
}

#[test]
fn home_is_the_first_bits_and_paths_wrap() {
    for log2 in 0..=BUCKETS_LOG2_MAX {
        let place = Place::new(64, log2);
        assert_eq!(place.home(u64::MAX), place.buckets() - 1);
        assert_eq!(place.home(u64::MAX >> 1), (place.buckets() - 1) / 2);
        assert_eq!(place.home(0), 0);
        assert_eq!(place.next(place.buckets() - 1), 0);
    }
}

fn with_descriptor(test: impl FnOnce(&Dram, Descriptor<'_>)) {
    let region = Region::new(Dram::new(Mapping::anonymous(64, 64).unwrap()));
    test(region.medium(), Descriptor(region.at(Offset::new(0))));
}

#[test]
fn pending_buckets_wrap_around_the_end() {
    with_descriptor(|medium, descriptor| {
        let place = Place::new(0x4040, 3);
        let pending = |last: u64, count| {
            descriptor.set_pending(medium, place.bucket(last), count);
            let mut pending: Vec<u64> = descriptor.pending(medium, place).collect();
            pending.sort_unstable();
            pending
        };
        assert_eq!(pending(5, 1), [5]);
        assert_eq!(pending(1, 3), [0, 1, 7]);
        assert_eq!(pending(3, 9), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(pending(3, 1000), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(pending(8, 2), [0; 0], "not of this shard");
        assert_eq!(descriptor.pending(medium, Place::NONE).count(), 0);
    });
}

#[test]
fn too_many_pending_buckets_mean_the_whole_shard() {
    with_descriptor(|medium, descriptor| {
        let place = Place::new(0x4040, 8);
        for (count, pending) in [(1, 1), (62, 62), (63, 256), (64, 256), (200, 256)] {
            descriptor.set_pending(medium, place.bucket(100), count);
            assert_eq!(descriptor.pending(medium, place).count(), pending, "{count}");
            assert_eq!(descriptor.pending(medium, place).next(), Some(100));
        }
    });
}

#[test]
fn shard_in_a_grown_pool_is_sound() {
    let path = std::env::temp_dir().join(format!("terrace-directory-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let (own, protection) = (file.try_clone().unwrap(), Protection::ReadWrite);
    let mapping = Mapping::file(own, 1 << 20, 4 << 20, protection).unwrap();
    mapping.follow_growth();
    let region = Region::new(Shm::new(mapping));
    let (medium, descriptor) = (region.medium(), Descriptor(region.at(Offset::new(0))));
    file.set_len(2 << 20).unwrap();
    for (start, is_sound) in [((2 << 20) - 8 * 256, true), ((2 << 20) - 7 * 256, false)] {
        descriptor.prepare(medium, Place::new(start, 3));
        descriptor.switch(medium);
        assert_eq!(descriptor.is_sound(&region), is_sound);
    }
}

#[test]
fn probes_average_over_4_to_64_paths() {
    with_descriptor(|medium, descriptor| {
        for (log2, paths) in [(0, 4), (1, 8), (3, 32), (4, 64), (5, 64), (BUCKETS_LOG2_MAX, 64)] {
            descriptor.forget_measure(medium);
            assert_eq!(descriptor.measure(medium, 1, log2), ONE_PROBE);
            // One path that is longer by as many buckets as there are paths.
            assert_eq!(descriptor.measure(medium, 1 + paths, log2), 2 * ONE_PROBE, "2^{log2}");
            let less = 2 * ONE_PROBE - ONE_PROBE / paths;
            assert_eq!(descriptor.measure(medium, 1, log2), less, "2^{log2}");
        }
    });
}

#[test]
fn shards_depend_on_hint_and_pool_size() {
    assert_eq!(shards_log2(0, 1 << 16), 0);
    assert_eq!(shards_log2(0, 4 << 20), 2);
    assert_eq!(shards_log2(10_000_000, 4 << 20), 14);
    assert_eq!(shards_log2(1025, 0), 1);
    assert_eq!(shards_log2(u64::MAX, u64::MAX), SHARDS_LOG2_MAX);
}

#[test]
fn root_check_depends_on_every_word() {
    let words = [1, 0x1234_5678_9abc_def0, 14, 0x8000, 0x1_8000];
    for at in 0..words.len() {
        for bit in 0..64 {
            let mut other = words;
            other[at] ^= 1 << bit;
            assert_ne!(root_check(&other), root_check(&words));
        }
    }
}
