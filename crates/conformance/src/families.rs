//! Families of keys that are hard for an ordered index: what a node is, and where a search parts,
//! follows from the bytes that keys share.

use terrace_testkit::{KeySort, TestKey};

/// Keys that are hard for one reason, in ascending order, each once.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) keys: Vec<TestKey>,
}

impl Family {
    fn of(name: &'static str, keys: impl IntoIterator<Item = TestKey>) -> Self {
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.sort_unstable();
        keys.dedup();
        Self { name, keys }
    }

    fn of_strings(name: &'static str, keys: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self::of(name, keys.into_iter().map(TestKey::String))
    }

    fn of_integers(name: &'static str, keys: impl IntoIterator<Item = [u8; 8]>) -> Self {
        Self::of(name, keys.into_iter().map(|key| TestKey::Integer(u64::from_be_bytes(key))))
    }
}

/// All families of a sort of keys. The last has some keys of each.
pub(super) fn families(sort: KeySort) -> Vec<Family> {
    const EACH: usize = 40;
    let ends = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1];
    let ends = ends.into_iter().chain((0..64).map(|bit| 1 << bit)).chain(0..2000);
    let mut all = vec![
        Family::of("plain", (0..300).map(|n| sort.key(n))),
        Family::of("ends and single bits", ends.map(|n| sort.key(n))),
    ];
    all.extend(match sort {
        KeySort::Integers => integers(),
        KeySort::Strings => strings(),
    });
    let some = |family: &Family| {
        let keys = family.keys.iter().step_by(family.keys.len().div_ceil(EACH));
        keys.cloned().collect::<Vec<_>>()
    };
    let mixed = Family::of("mixed", all.iter().flat_map(some));
    all.push(mixed);
    all
}

fn integers() -> Vec<Family> {
    let with = |mut key: [u8; 8], place: usize, byte: u8| {
        key[place] = byte;
        key
    };
    let dense =
        move |fill: u8| (0..8).flat_map(move |place| (0..=255).map(move |byte| with([fill; 8], place, byte)));
    let runs = |byte: u8| {
        (0..=255u8).map(move |bits| std::array::from_fn(|n| if bits >> n & 1 == 1 { byte } else { !byte }))
    };
    vec![
        Family::of_integers("dense bytes at each place", dense(0xa5)),
        Family::of_integers("dense bytes among zeros", dense(0)),
        Family::of_integers("runs of 0x00 and 0xff", runs(0).chain(runs(0x01))),
    ]
}

fn strings() -> Vec<Family> {
    vec![
        keys_that_begin_others(),
        common_prefixes(),
        lengths_around_slices(),
        long_common_front(),
        dense_bytes(),
        runs(),
        longest(),
    ]
}

/// `length` bytes without a pattern, the same each time.
fn front(length: usize) -> Vec<u8> {
    let next =
        |state: &u64| Some(state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f));
    std::iter::successors(Some(1), next).map(|state| (state >> 56) as u8).take(length).collect()
}

fn with_tail(mut key: Vec<u8>, tail: &[u8]) -> Vec<u8> {
    key.extend_from_slice(tail);
    key
}

/// A key of `length` bytes, another byte at `place`.
fn with_byte(length: usize, place: usize) -> Vec<u8> {
    let mut key = front(length);
    key[place] ^= 0x55;
    key
}

/// Every prefix of one key, the empty one included, and another key behind each.
fn keys_that_begin_others() -> Family {
    let keys = (0..=300).flat_map(|length| [front(length), with_tail(with_byte(length + 1, length), b"")]);
    Family::of_strings("keys that begin others", keys)
}

/// Keys that part behind each length of a common prefix.
fn common_prefixes() -> Family {
    let lengths = (0..=40).chain(62..=66).chain(126..=130).chain(254..=258);
    let parted =
        |length| [0, 0x7f, 0x80, 0xff].map(|byte| with_tail(front(length), &[byte, b't', b'a', b'i', b'l']));
    Family::of_strings("common prefixes of all lengths", lengths.flat_map(parted))
}

/// Keys of about 8 and 16 bytes, equal up to their ends; also if these are padded by zeros.
fn lengths_around_slices() -> Family {
    let lengths = [0, 1, 6, 7, 8, 9, 10, 15, 16, 17, 18, 23, 24, 25];
    let changed = |length: usize| (0..length).map(move |place| with_byte(length, place));
    let padded = [0, 1, 7, 8, 15, 16]
        .into_iter()
        .flat_map(|length| (0..=10).map(move |zeros| with_tail(front(length), &[0; 10][..zeros])));
    let keys = lengths.into_iter().flat_map(|length| changed(length).chain([front(length)]));
    Family::of_strings("lengths of 7, 8, 9, 16, 17 bytes", keys.chain(padded))
}

/// 200 bytes in common, then a number of one or two bytes.
fn long_common_front() -> Family {
    let keys = (0..600u16).map(|n| with_tail(front(200), &n.to_be_bytes()[usize::from(n < 256)..]));
    Family::of_strings("a common front of 200 bytes", keys)
}

/// All last bytes behind common fronts, also where the keys go on.
fn dense_bytes() -> Family {
    let dense = |length: usize, tail: &'static [u8]| {
        let keys = (0..=255).map(move |byte| with_tail(with_tail(front(length), &[byte]), tail));
        keys.chain([front(length)])
    };
    let last = [0, 1, 7, 8, 9, 200].into_iter().flat_map(move |length| dense(length, b""));
    let inner = [0, 6, 12].into_iter().flat_map(move |length| dense(length, b"tail"));
    Family::of_strings("dense bytes at one node", last.chain(inner))
}

/// All strings of up to eight bytes 0x00 and 0xff, and long runs of these.
fn runs() -> Family {
    let bits = |length: u32| {
        let byte = |bits: u32, n: u32| if bits >> n & 1 == 1 { 0xff } else { 0 };
        (0..1 << length).map(move |bits| (0..length).map(|n| byte(bits, n)).collect())
    };
    let long = (9..=40).flat_map(|length| {
        let [zeros, ones] = [0, 0xff].map(|byte| vec![byte; length]);
        let tails: [&[u8]; 4] = [b"", &[0x01], &[0xfe], &[0xff, 0x00]];
        tails
            .into_iter()
            .flat_map(move |tail| [with_tail(zeros.clone(), tail), with_tail(ones.clone(), tail)])
    });
    Family::of_strings("runs of 0x00 and 0xff", (0..=8).flat_map(bits).chain(long))
}

/// Few keys of up to 64 KiB, equal up to their ends, or almost.
fn longest() -> Family {
    const MAX: usize = 1 << 16;
    let equal = [0, 1, 4096, 4097, MAX / 2, MAX - 1, MAX].map(front);
    let parted = [0, 4096, MAX / 2, MAX - 1].map(|place| with_byte(MAX, place));
    let runs = [0, 0xff].into_iter().flat_map(|byte| [MAX - 1, MAX].map(|length| vec![byte; length]));
    Family::of_strings("keys of up to 64 KiB", equal.into_iter().chain(parted).chain(runs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all_strings() -> BTreeSet<Vec<u8>> {
        let strings = strings().into_iter().flat_map(|family| family.keys);
        let string = |key| match key {
            TestKey::String(string) => string,
            TestKey::Integer(_) => panic!("an integer among strings"),
        };
        strings.map(string).collect()
    }

    #[test]
    fn families_have_many_keys_each_once_in_order() {
        for Family { name, keys } in [KeySort::Integers, KeySort::Strings].into_iter().flat_map(families) {
            assert!(keys.is_sorted_by(|one, next| one < next), "{name}");
            let least = if name == "keys of up to 64 KiB" { 10 } else { 80 };
            assert!(keys.len() >= least, "{name}: {} keys", keys.len());
        }
    }

    #[test]
    fn strings_have_every_hard_property() {
        let all = all_strings();
        let lengths: BTreeSet<usize> = all.iter().map(Vec::len).collect();
        assert!([0, 7, 8, 9, 16, 17, 200, 1 << 16].iter().all(|length| lengths.contains(length)));
        let begun = all.iter().zip(all.iter().skip(1)).filter(|(key, next)| next.starts_with(key));
        assert!(begun.count() > 300, "keys that begin the next");
        for length in 0..=40 {
            let parts = |byte: u8| {
                all.iter().any(|key| key.get(..=length) == Some(&with_tail(front(length), &[byte])))
            };
            assert!(parts(0) && parts(0xff), "keys that part behind {length} bytes");
        }
        for length in [0, 1, 7, 8, 9, 200] {
            let dense = (0..=255).all(|byte| all.contains(&with_tail(front(length), &[byte])));
            assert!(dense, "all bytes behind {length}");
        }
        assert!((0..=40).all(|length| all.contains(&vec![0; length]) && all.contains(&vec![0xff; length])));
    }

    #[test]
    fn integers_part_at_each_byte() {
        let dense = integers().swap_remove(0).keys;
        let count = |place: u32| {
            let others = 0xa5a5_a5a5_a5a5_a5a5 & !(0xff << (8 * place));
            dense
                .iter()
                .filter(|key| matches!(key, TestKey::Integer(n) if n & !(0xff << (8 * place)) == others))
                .count()
        };
        assert!((0..8).all(|place| count(place) == 256));
    }
}
