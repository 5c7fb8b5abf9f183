//! Tests of `bucket.rs`.

use super::super::shape::sealed::Shape;
use super::*;
use crate::key::NoRecords;
use crate::{Bytes, U64};

fn check_tokens_and_marks<K: Shape>() {
    let mut meta = Meta(0);
    for slot in 0..K::SLOTS {
        assert_eq!((meta.vacancy::<K>(), meta.load::<K>()), (Some(slot), slot as u32));
        meta = meta.with::<K>(slot);
        assert_eq!((meta.tokens::<K>(), meta.marks::<K>()), ((2 << slot) - 1, 0));
    }
    assert_eq!(meta.vacancy::<K>(), None);
    for slot in 0..K::SLOTS {
        let marked = meta.with_marked::<K>(slot);
        assert!((0..K::SLOTS).all(|other| marked.is_marked::<K>(other) == (other == slot)));
        assert_eq!(marked.tokens::<K>(), all_slots::<K>());
        let again = marked.with_marked::<K>(slot).with::<K>(slot);
        assert_eq!((again.tokens::<K>(), again.marks::<K>()), (all_slots::<K>(), 1 << slot));
        assert_eq!(marked.unmarked::<K>(slot).marks::<K>(), 0);
        assert_eq!(marked.without::<K>(slot).tokens::<K>(), all_slots::<K>() & !(1 << slot));
        assert_eq!(marked.without::<K>(slot).marks::<K>(), 0);
    }
    let with_upper = meta.with_upper::<K>();
    assert!(with_upper.uses_upper::<K>() && !meta.uses_upper::<K>() && with_upper.tokens::<K>() == 0);
    assert!(!with_upper.with::<K>(3).uses_upper::<K>(), "a unit that uses its own tier again");
    assert!(K::is_sealed(with_upper.0) && K::is_sealed(meta.0) && K::is_sealed(0));
}

#[test]
fn each_slot_has_a_token_and_a_mark() {
    check_tokens_and_marks::<U64>();
    check_tokens_and_marks::<Bytes<NoRecords>>();
}

fn check_sequence<K: Shape>(changes: usize) {
    let mut seen = std::collections::HashSet::new();
    let mut meta = Meta(0);
    for _ in 0..changes {
        assert!(seen.insert(meta.0), "{:#x} came again", meta.0);
        meta = if meta.load::<K>() == 0 { meta.with::<K>(2) } else { meta.without::<K>(2) };
    }
}

#[test]
fn meta_never_repeats_a_value() {
    check_sequence::<U64>(100_000);
    check_sequence::<Bytes<NoRecords>>(100_000);
}
