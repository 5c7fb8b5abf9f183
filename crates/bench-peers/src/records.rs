//! Records of 16-byte keys and 64-byte values, as redis-benchmark names them.

use terrace_bench::Random;

pub(crate) const KEY_BYTES: u64 = 16;
pub(crate) const VALUE_BYTES: u64 = 64;

/// The key with this number.
pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("key:{number:012}").into_bytes()
}

/// The value that belongs to it.
pub(crate) fn value(number: u64) -> [u8; VALUE_BYTES as usize] {
    let mut value = [0; VALUE_BYTES as usize];
    Random::new(number).fill(&mut value);
    value
}
