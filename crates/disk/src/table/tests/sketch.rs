//! Tests of `sketch.rs`.

use super::*;
use crate::codec::hash;

fn sketch(keys: std::ops::Range<u32>) -> Sketch {
    let mut sketch = Sketch::default();
    keys.for_each(|key| sketch.add(hash(&key.to_be_bytes())));
    sketch
}

#[test]
fn estimates_are_close() {
    for count in [0, 1, 10, 300, 1000, 5000, 100_000, 3_000_000] {
        let estimate = sketch(0..count).estimate();
        assert!((estimate - f64::from(count)).abs() <= 0.14 * f64::from(count), "{count}: {estimate}");
    }
}

#[test]
fn keys_of_both_count_once() {
    let mut joined = sketch(0..60_000);
    joined.join(&sketch(30_000..100_000));
    assert_eq!(joined, sketch(0..100_000));
    assert_eq!(Sketch::read(joined.bytes()), Some(joined));
}
