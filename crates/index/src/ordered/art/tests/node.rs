//! Tests of `node.rs`.

use super::super::super::links::store;
use super::*;
use terrace_medium::{Dram, MappedMedium, Mapping};

#[test]
fn shape_keeps_its_parts() {
    for (kind, level) in [(Kind::Four, 0), (Kind::Full, 65_535), (Kind::FortyEight, 0x1234)] {
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

/// A node of kind 48 in new memory.
fn with_node(test: impl FnOnce(&Dram, Node<'_>)) {
    let region = Region::new(Dram::new(Mapping::anonymous(1 << 16, 1 << 16).unwrap()));
    test(region.medium(), Node::at(&region, Kind::FortyEight, 64).unwrap());
}

#[test]
fn new_hints_find_a_link_beside_a_removed_one() {
    with_node(|medium, node| {
        let (removed, link) = (Link::to_leaf(17, 64).removed(), Link::to_leaf(17, 128));
        store(medium, &node.links()[5], removed);
        assert_eq!(node.child(medium, 1, 17).unwrap().1, removed);
        store(medium, &node.links()[2], link);
        assert_eq!(node.child(medium, 1, 17).unwrap().1, link, "without hints");
        node.note_place(medium, 1, 18, 0);
        assert_eq!(node.child(medium, 1, 17).unwrap().1, link, "with hints");
        assert!(node.child(medium, 1, 18).is_none());
    });
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
fn line_of_a_byte_holds_its_link_or_hint() {
    assert_eq!([0, 7, 8, 255].map(|byte| Node::line_of(Kind::Full, byte)), [64, 64, 128, 32 * 64]);
    assert_eq!([0, 63, 64, 255].map(|byte| Node::line_of(Kind::FortyEight, byte)), [64, 64, 128, 256]);
    assert_eq!([Kind::Four, Kind::Sixteen].map(|kind| Node::line_of(kind, 200)), [0, 0]);
}
