//! Tests of `node.rs`.

use super::super::super::links::store;
use super::*;
use terrace_medium::{Dram, MappedMedium, Mapping};

#[test]
fn shape_keeps_its_parts() {
    for (kind, level) in [(Kind::Four, 0), (Kind::Full, 65_535), (Kind::Hashed, 0x1234)] {
        let shape = Shape::new(kind, level, 7);
        let marked = shape.with_obsolete(0xabcd).with_counted(9);
        assert_eq!((marked.level(), marked.counted(), marked.obsolete()), (level, 9, 0xabcd));
        assert!(KINDS.iter().all(|&other| marked.is_of(other) == (other == kind)));
        assert_eq!(marked.with_obsolete(0).with_counted(7), shape);
        let fixed = (0..4).flat_map(|byte| (1..256u64).map(move |change| shape.0 ^ change << (8 * byte)));
        assert!(fixed.map(Shape).all(|changed| !changed.is_of(kind)));
    }
}

#[test]
fn prefix_keeps_length_and_first_bytes() {
    for len in [0, 1, 4, 5, 6, 300, 65_535] {
        let bytes: Vec<u8> = (1..=len).map(|n| n as u8).collect();
        let prefix = Prefix::of(&bytes);
        let (kept, held) = prefix.bytes();
        assert_eq!((prefix.len(), held), (len, len.min(5)));
        assert_eq!(&kept[..held], &bytes[..held]);
        assert!(prefix.is_sound());
        let changes = (0..8).flat_map(|byte| (1..256u64).map(move |change| change << (8 * byte)));
        assert!(changes.map(|change| Prefix(prefix.0 ^ change)).all(|changed| !changed.is_sound()));
    }
}

/// A node of kind 64 in new memory.
fn with_node(test: impl FnOnce(&Dram, Node<'_>)) {
    let region = Region::new(Dram::new(Mapping::anonymous(1 << 16, 1 << 16).unwrap()));
    test(region.medium(), Node::at(&region, Kind::Hashed, 64).unwrap());
}

/// Pools of any age hold such links and shapes.
#[test]
fn bits_of_kinds_never_change() {
    assert_eq!(KINDS.map(Kind::bits), [2, 6, 3, 7, 5]);
    assert!((0..8).all(|bits| Kind::of(bits).is_none_or(|kind| kind.bits() == bits)));
    assert_eq!(KINDS.map(|kind| Shape::new(kind, 0, 0).0 >> 8 & 7), [0, 4, 1, 5, 3]);
}

#[test]
fn count_of_another_generation_means_nothing() {
    with_node(|medium, node| {
        (0..3).for_each(|nth| store(medium, &node.links()[nth], Link::to_leaf(nth as u8, 64)));
        assert_eq!(node.recount(medium, 1), 3);
        node.count(medium, 1, 1);
        assert_eq!(node.len_hint(medium, 1), 4);
        node.count(medium, 2, 1);
        assert_eq!(node.len_hint(medium, 2), 3);
        (0..4).for_each(|_| node.count(medium, 2, -1));
        assert_eq!(node.len_hint(medium, 2), 0, "never too high");
    });
}

#[test]
fn line_of_a_byte_holds_its_link() {
    assert_eq!([0, 7, 8, 255].map(|byte| Node::line_of(Kind::Full, byte)), [64, 64, 128, 32 * 64]);
    assert_eq!([0, 1, 7, 8, 64].map(|byte| Node::line_of(Kind::Hashed, byte)), [64, 128, 512, 128, 64]);
    assert_eq!([Kind::Four, Kind::Twelve, Kind::Twenty].map(|kind| Node::line_of(kind, 200)), [0; 3]);
}
