//! Tests of `ends.rs`.

use super::*;

#[test]
fn newest_sound_slot_counts() {
    let noted = |count| Noted { count, written: count * 100, segment: 3, oldest: 2, ..Noted::default() };
    let both = [noted(8).to_bytes(5), noted(7).to_bytes(5)].concat();
    assert_eq!(Noted::newest(&both, 5), noted(8));
    assert_eq!(Noted::newest(&both, 6), Noted::default(), "another store's");
    for at in 0..SLOT {
        let mut damaged = both.clone();
        damaged[at] ^= 1;
        assert_eq!(Noted::newest(&damaged, 5), noted(7), "{at}");
    }
    assert_eq!(Noted::newest(&both[..SLOT + 9], 5), noted(8));
    assert_eq!(Noted::newest(&[], 5), Noted::default());
}
