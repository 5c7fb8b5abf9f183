//! Tests of damage as the memory node tells it.

use crate::serving::damage::Damage;

#[test]
fn damage_is_told_by_its_text() {
    for damage in Damage::ALL {
        assert_eq!(Damage::of(damage.text()), damage);
    }
    assert_eq!(Damage::of("something that a later release tells"), Damage::Other);
}
