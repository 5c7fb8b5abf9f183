//! The keys and values of records, computed from the records' numbers.

use crate::{Random, spread, ycsb_key};
use std::io::Write;
use std::ops::RangeInclusive;

/// The kind of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyShape {
    /// 8 bytes: a random integer, most significant byte first, so that keys sort as numbers.
    Integer,
    /// A prefix and a number in 16 hexadecimal digits, padded with `.` to this length.
    String {
        /// Bytes; more if prefix and number need more.
        bytes: usize,
    },
    /// 24 bytes, as YCSB makes them: `user` and a number in 20 decimal digits. Without the prefix.
    Ycsb,
}

/// How records look.
#[derive(Clone, Debug)]
pub struct Shape {
    keys: KeyShape,
    prefix: &'static str,
    value_bytes: RangeInclusive<usize>,
    /// Random bytes, as many as the longest value.
    bytes: Vec<u8>,
}

impl Shape {
    /// Keys that begin with `prefix` if they are strings; values of all lengths in `value_bytes`,
    /// equally likely.
    pub fn new(keys: KeyShape, prefix: &'static str, value_bytes: RangeInclusive<usize>) -> Self {
        let mut bytes = vec![0; *value_bytes.end() + SHIFTS];
        Random::new(1).fill(&mut bytes);
        Self { keys, prefix, value_bytes, bytes }
    }

    /// Bytes of a key.
    pub fn key_bytes(&self) -> usize {
        match self.keys {
            KeyShape::Integer => 8,
            KeyShape::String { bytes } => bytes.max(self.prefix.len() + 16),
            KeyShape::Ycsb => 24,
        }
    }

    /// Mean number of bytes of a value.
    pub fn mean_value_bytes(&self) -> f64 {
        (*self.value_bytes.start() as f64 + *self.value_bytes.end() as f64) / 2.0
    }

    /// Writes the key of record `record` to `key`. Numbers are spread, so that neighbours are far
    /// apart.
    pub fn key(&self, record: u64, key: &mut Vec<u8>) {
        key.clear();
        match self.keys {
            KeyShape::Integer => key.extend_from_slice(&spread(record).to_be_bytes()),
            KeyShape::String { .. } => {
                // Writing to memory does not fail.
                let _ = write!(key, "{}{:016x}", self.prefix, spread(record));
                key.resize(self.key_bytes(), b'.');
            }
            KeyShape::Ycsb => key.extend_from_slice(&ycsb_key(record)),
        }
    }

    /// A value of record `record`, a different one for each `version`.
    pub fn value(&self, record: u64, version: u64) -> &[u8] {
        let draw = spread(record ^ version.rotate_left(32));
        let (start, end) = (*self.value_bytes.start(), *self.value_bytes.end());
        let length = start + ((draw >> 32) as usize) % (end - start + 1);
        let from = draw as usize % SHIFTS;
        &self.bytes[from..from + length]
    }
}

/// Number of different values of one length.
const SHIFTS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_distinct_and_of_the_requested_length() {
        for (keys, length) in [
            (KeyShape::Integer, 8),
            (KeyShape::String { bytes: 40 }, 40),
            (KeyShape::String { bytes: 1 }, 21),
            (KeyShape::Ycsb, 24),
        ] {
            let shape = Shape::new(keys, "user:", 0..=0);
            let mut seen = HashSet::new();
            for record in 0..1000 {
                let mut key = Vec::new();
                shape.key(record, &mut key);
                assert_eq!(key.len(), length);
                assert!(seen.insert(key));
            }
        }
    }

    #[test]
    fn ycsb_key_is_user_and_decimal_digits() {
        let (shape, mut key) = (Shape::new(KeyShape::Ycsb, "user:", 0..=0), Vec::new());
        for record in 0..1000 {
            shape.key(record, &mut key);
            assert_eq!(key, format!("user{:020}", spread(record)).as_bytes());
            let digits = key.strip_prefix(b"user").unwrap();
            assert_eq!((key.len(), digits.iter().all(u8::is_ascii_digit)), (shape.key_bytes(), true));
        }
    }

    #[test]
    fn values_have_exactly_the_requested_lengths() {
        let shape = Shape::new(KeyShape::Integer, "", 3..=6);
        let lengths: HashSet<usize> = (0..1000).map(|record| shape.value(record, 1).len()).collect();
        assert_eq!(lengths, HashSet::from([3, 4, 5, 6]));
        assert_eq!(shape.value(7, 1), shape.value(7, 1));
        assert!((0..100).any(|version| shape.value(7, version) != shape.value(7, 1)));
        assert_eq!(Shape::new(KeyShape::Integer, "", 0..=0).value(1, 1), b"");
    }
}
