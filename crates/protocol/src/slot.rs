//! The hash slot of a key, as Redis Cluster defines it.

use crc::{CRC_16_XMODEM, Crc};

/// Number of hash slots.
pub const SLOTS: u16 = 16_384;

static CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The hash slot of a key, below [`SLOTS`]. Keys with the same tag have the same slot: the tag is
/// the text between the first `{` and the first `}` behind it, unless that is empty.
pub fn slot(key: &[u8]) -> u16 {
    CRC.checksum(hashed(key)) % SLOTS
}

/// The part of a key that decides about its slot.
fn hashed(key: &[u8]) -> &[u8] {
    let find = |byte: u8, text: &[u8]| text.iter().position(|found| *found == byte);
    let Some(open) = find(b'{', key) else { return key };
    let tag = &key[open + 1..];
    match find(b'}', tag) {
        Some(len) if len > 0 => &tag[..len],
        _ => key,
    }
}
