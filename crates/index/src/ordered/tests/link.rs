//! Tests of `link.rs`.

use super::*;

#[test]
fn link_keeps_its_parts() {
    for (byte, kind, skip, offset) in [(0, 2, 0, 8), (7, 5, 6, 1 << 43), (255, 3, 7, (1 << 44) - 8)] {
        let link = Link::to_node(byte, kind, skip, offset);
        let kept = (skip <= SKIP_MAX).then_some(skip);
        assert_eq!((link.byte(), link.kind(), link.skip(), link.offset()), (byte, kind, kept, offset));
        assert!(link.is_sound() && link.is_node() && !link.is_dirty());
        assert!(link.dirty().is_sound() && link.dirty().clean() == link);
        let moved = link.with_byte(9);
        assert_eq!((moved.byte(), moved.offset(), moved.is_sound()), (9, offset, true));
    }
    let leaf = Link::to_leaf(3, 64);
    assert_eq!((leaf.kind(), leaf.removed().kind(), leaf.removed().byte()), (LEAF, EMPTY, 3));
    assert_eq!((leaf.removed().is_dirty(), leaf.removed().clean()), (true, Link::NONE));
    let vacated = leaf.vacated();
    assert!(vacated.is_empty() && vacated.is_dirty() && vacated.is_whole() && vacated.clean().is_whole());
    assert_eq!((vacated.clean().is_dirty(), vacated.clean().byte()), (false, 3));
    assert!(vacated.clean().is_empty() && Link::to_leaf(0, 8).vacated().clean() != Link::NONE);
    let held = leaf.held();
    assert!(held.is_held() && held.is_dirty() && held.is_sound());
    assert_eq!((held.offset(), held.clean(), leaf.is_held()), (64, leaf, false));
    let (node, far) = (Link::to_node(3, 2, 1, 64), Link::to_node(3, 2, 7, 64));
    assert!(!node.is_held() && node.held().is_held() && node.held() != node.dirty());
    assert_eq!((node.held().clean(), node.held().is_sound()), (far, true));
}

#[test]
fn check_detects_any_changed_byte() {
    let vacated = Link::to_leaf(3, 64).vacated().clean();
    for link in [Link::to_leaf(0, 8), Link::to_node(255, 5, 3, 0x123_4567_89a8), vacated] {
        for (byte, change) in (0..8).flat_map(|byte| (1..256u64).map(move |change| (byte, change))) {
            let changed = Link(link.0 ^ change << (8 * byte));
            assert!(!changed.is_sound() || changed.clean() == link, "{byte} {change:#x}");
        }
    }
}

/// A link that lost its kind is no removed one.
#[test]
fn changed_byte_removes_no_link() {
    let links = (1..2000).flat_map(|nth| [Link::to_leaf(0, 8 * nth), Link::to_node(1, 2, 5, 8 * nth)]);
    for link in links {
        for (byte, change) in (0..8).flat_map(|byte| (1..256u64).map(move |change| (byte, change))) {
            let changed = Link(link.0 ^ change << (8 * byte));
            assert!(!changed.is_whole() || changed.clean() == link, "{link:x?}, {byte} {change:#x}");
        }
        assert!(link.removed().is_whole() && link.removed().is_empty());
    }
}

/// Pools of any age hold such links.
#[test]
fn links_never_change() {
    let links = [Link::to_leaf(1, 8), Link::to_node(0xab, 4, 2, 1 << 20), Link::to_node(0, 2, 9, 64)];
    assert_eq!(
        links.map(|link| link.0),
        [0x0102_0200_0000_0001, 0xab81_2800_0002_0000, 0x007c_7400_0000_0008]
    );
}
