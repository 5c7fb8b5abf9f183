//! Tests of `plan`.

use super::*;
use terrace_engine::Absence;
use terrace_engine::Token;

#[test]
fn plan_has_one_step_a_key_in_order_and_the_last_write_counts() {
    for count in [0, 1, 2, 3, 100, 5000u32] {
        let keys: Vec<[u8; 4]> = (0..count).map(u32::to_le_bytes).collect();
        let put = |key, value| Write { key, what: WriteKind::Put { value, expires_at: None } };
        let writes: Vec<Write<'_>> = keys
            .iter()
            .chain(&keys)
            .enumerate()
            .map(|(n, key)| put(key, if n < keys.len() { b"1" } else { b"2" }))
            .collect();
        let there = Version::from(Some(Token { sum: 64, stamp: 1 }));
        let expected: Vec<Expected<'_>> = keys.iter().map(|key| (&key[..], there)).collect();
        let steps = plan(&writes, &expected, 7).unwrap();
        assert!(steps.iter().map(|step| step.key).eq(keys.iter().map(|key| &key[..])), "{count}");
        let is_right = |(nth, step): (usize, &BatchStep<'_>)| {
            matches!(step.what, Some(WriteKind::Put { value: b"2", .. }))
                && step.expectation() == Some((nth, there))
        };
        assert!(steps.iter().enumerate().all(is_right), "{count}");
    }
}

#[test]
fn contradicting_expectations_fail() {
    let absence = |removals| Some(Absence { removals, expired: None });
    let [absent, since, since_later] =
        [None, absence(1), absence(2)].map(|absence| Version { token: None, absence });
    let there = Version::from(Some(Token { sum: 64, stamp: 1 }));
    let (a, other) = (&b"a"[..], (&b"b"[..], there));
    let planned = |first, second| {
        let steps = plan(&[], &[other, (a, first), other, (a, second)], 5)?;
        assert!(steps.len() == 2 && steps[0].key == b"b");
        Ok(steps[1].expectation())
    };
    assert_eq!(planned(there, there), Ok(Some((1, there))));
    assert_eq!(planned(absent, absent), Ok(Some((1, absent))));
    // "Absent all along" implies "absent now".
    for (first, second) in [(since, absent), (absent, since), (since, since)] {
        assert_eq!(planned(first, second), Ok(Some((1, since))));
    }
    for (first, second) in [(there, absent), (absent, there), (since, since_later), (there, since)] {
        assert_eq!(planned(first, second), Err(1));
    }
}
