//! Tests of `descriptor`.

use super::*;
use terrace_medium::Dram;
use terrace_pool::{Geometry, PoolOptions};

#[test]
fn descriptor_takes_a_line_and_16_bytes_an_entry() {
    assert_eq!([1, 4, 5, 8, 500].map(size), [128, 128, 192, 192, 8064]);
}

#[test]
fn descriptor_has_the_documented_layout() {
    let pool = terrace_pool::Pool::<Dram>::anonymous(4 << 20).unwrap();
    let guard = pool.pin();
    let block = Descriptor::alloc(&guard, 3).unwrap();
    let descriptor = Descriptor::init(&guard, block, 3);
    (0..3).for_each(|index| descriptor.set_new(index, 100 + index as u64));
    [Some(200), None, Some(202)].iter().enumerate().for_each(|(index, &old)| descriptor.set_old(index, old));
    descriptor.set_status(Status::Aborted);
    let word = |at| {
        let word: &Word = pool.region().at(Offset::new(descriptor.offset() + at));
        word.load(pool.medium(), Relaxed)
    };
    assert_eq!([0, 8, 16].map(word), [u64::from_le_bytes(*b"batch  1"), 3, 3]);
    assert_eq!([64, 72, 80, 88, 96, 104].map(word), [100, 200, 101, 0, 102, 202]);
    assert_eq!([0, 1, 2].map(|index| descriptor.entry(index).1), [Some(200), None, Some(202)]);
}

#[test]
fn batch_word_round_trips_at_its_limits() {
    for at in [64, 1 << 20, 1 << 40, (1 << (OFFSET_BITS + 6)) - 64] {
        for index in [0, 1, 63, ENTRIES_MAX - 1] {
            let word = Descriptor::<Dram>::batch_word(at, index);
            assert_eq!(Descriptor::<Dram>::named_by(word), (at, index));
        }
    }
}

#[test]
fn batch_is_limited_to_nameable_entries() {
    let options = PoolOptions::anonymous().size(3 << 30).geometry(Geometry::default());
    let pool = options.create::<Dram>().unwrap();
    let guard = pool.pin();
    let full = Descriptor::alloc(&guard, ENTRIES_MAX + 1).err().map(|full| (full.wanted, full.size));
    assert_eq!(full, Some((128 + 16 * ENTRIES_MAX as u64, pool.size())));
    assert!(Descriptor::alloc(&guard, 2 * ENTRIES_MAX).is_err());
    assert!(Descriptor::alloc(&guard, ENTRIES_MAX).is_ok());
}
