//! The hash of a key and the key together, as an index looks for them.

use super::record::hash_in;

/// Bytes of a key whose probe needs no memory of its own.
const SHORT: usize = 120;
/// The hash of a key and the key.
pub(crate) struct Probe {
    short: [u8; SHORT + 8],
    long: Vec<u8>,
    len: usize,
}

impl Probe {
    #[inline]
    pub(crate) fn of(hash: u64, key: &[u8]) -> Self {
        let mut probe = Self { short: [0; SHORT + 8], long: Vec::new(), len: key.len() + 8 };
        if key.len() <= SHORT {
            probe.short[..8].copy_from_slice(&hash.to_le_bytes());
            probe.short[8..probe.len].copy_from_slice(key);
        } else {
            probe.long = [&hash.to_le_bytes(), key].concat();
        }
        probe
    }

    pub(crate) fn hash(&self) -> u64 {
        hash_in(self)
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self[8..]
    }
}

impl std::ops::Deref for Probe {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.len] } else { &self.long }
    }
}
