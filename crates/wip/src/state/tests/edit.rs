//! Tests of `edit.rs`.

use super::*;

#[test]
fn edits_are_read_as_written() {
    let added = Added { bucket: 4, level: 2, number: 1 << 40, bytes: 99, is_oldest: true };
    let edit = Edit {
        cleared: Some(0),
        buckets: vec![
            NewBucket { id: 3, low: vec![], parent: Some(0) },
            NewBucket { id: 4, low: b"middle\0".to_vec(), parent: None },
        ],
        ended: vec![0, 7],
        added: vec![added, Added { level: 0, is_oldest: false, ..added }],
        removed: vec![1, 2, u64::MAX],
        flushed: vec![(4, 1 << 50)],
        written: 12_345,
    };
    let bytes = edit.to_bytes();
    assert_eq!(Edit::read(&bytes), Some(edit));
    assert!((0..bytes.len()).all(|cut| Edit::read(&bytes[..cut]).is_none()));
    assert_eq!(Edit::read(&[&bytes[..], &[0]].concat()), None);
    assert_eq!(Edit::read(&Edit::default().to_bytes()), Some(Edit::default()));
}
