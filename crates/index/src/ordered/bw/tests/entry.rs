//! Tests of `entry.rs`.

use super::*;

fn changed(entry: Entry) -> impl Iterator<Item = Entry> {
    (0..8).flat_map(move |byte| (1..256u64).map(move |change| Entry(entry.0 ^ change << (8 * byte))))
}

#[test]
fn entry_keeps_its_parts() {
    for (offset, column) in [(64, 0), (0x1234_5678_9ac0, 1), ((1 << 44) - 64, 0)] {
        let offset = offset & ((1 << 44) - 1);
        let entry = Entry::of_page(offset, column);
        assert!(entry.is_page() && entry.is_sound() && !entry.is_dirty());
        assert_eq!((entry.offset(), entry.slots(), entry.column()), (offset, 0, column));
        let filled = (0..SLOTS_MAX).fold(entry, Entry::with_slot);
        assert_eq!((filled.offset(), filled.slots(), filled.column()), (offset, 0xfff, column));
        assert!(filled.is_dirty() && filled.is_sound() && filled.clean().is_sound());
        assert_eq!(filled.with_column(1 - column).with_column(column), filled);
    }
}

#[test]
fn states_follow_each_other() {
    let entry = Entry::of_page(640, 1).with_slot(3);
    assert_eq!(entry.state(), State::Open);
    let frozen = entry.with_state(State::Frozen);
    assert_eq!((frozen.state(), frozen.is_open()), (State::Frozen, false));
    let (thawed, doomed) = (frozen.with_state(State::Thawed), frozen.with_state(State::Doomed));
    assert_eq!((thawed.state(), thawed.is_open()), (State::Thawed, true));
    assert_eq!((doomed.state(), doomed.is_open()), (State::Doomed, false));
    assert_eq!((doomed.offset(), doomed.slots(), doomed.column()), (640, 8, 1));
    let in_place = [thawed, entry].map(|entry| entry.with_state(State::InPlace));
    assert!(in_place.iter().all(|entry| entry.is_in_place() && !entry.is_open() && !entry.is_doomed()));
    let both = doomed.with_state(State::DoomedInPlace);
    assert!(both.is_in_place() && both.is_doomed() && both.is_sound() && doomed.is_doomed());
}

#[test]
fn changed_byte_is_unsound_or_only_dirty() {
    for entry in [Entry::of_page(4096, 0).with_slot(7), Entry::tombstone(77, 3)] {
        for other in changed(entry) {
            assert!(!other.is_sound() || other.clean() == entry.clean(), "{other:?}");
        }
    }
    assert!(changed(Entry(0)).all(|other| !other.is_page() || !other.is_sound()));
}

#[test]
fn tombstone_ends_with_its_epoch_or_generation() {
    let tombstone = Entry::tombstone(100, 5);
    assert!(!tombstone.is_page() && tombstone.is_sound());
    assert!(!tombstone.is_reusable(100, 5) && !tombstone.is_reusable(104, 5));
    assert!(tombstone.is_reusable(105, 5) && tombstone.is_reusable(100, 6));
    assert!(Entry(0).is_reusable(0, 1) && !Entry::of_page(64, 0).is_reusable(1 << 30, 9));
}
