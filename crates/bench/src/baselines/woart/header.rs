//! The header of a node: the bytes that all keys below share, in one word.

/// Most bytes of a key: lengths have 12 bits.
pub(super) const KEY_BYTES_MAX: usize = (1 << LENGTH_BITS) - 1;
/// Bytes of the shared piece that a header holds.
const HELD: usize = 5;
const LENGTH_BITS: u32 = 12;

/// The shared piece of the keys below a node: where it begins, how long it is, and its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The number of bytes before it.
    pub(super) depth: usize,
    pub(super) length: usize,
    held: [u8; HELD],
}

impl Header {
    /// The header of a node whose keys share `piece` from `depth` on.
    pub(super) fn new(depth: usize, piece: &[u8]) -> Self {
        assert!(depth + piece.len() <= KEY_BYTES_MAX, "{} bytes from {depth} on", piece.len());
        let mut held = [0; HELD];
        let some = piece.len().min(HELD);
        held[..some].copy_from_slice(&piece[..some]);
        Self { depth, length: piece.len(), held }
    }

    /// The number of the byte that tells the node's children apart. It never changes, whatever the
    /// header's other fields.
    pub(super) fn level(self) -> usize {
        self.depth + self.length
    }

    /// The first bytes of the piece, at most as many as a header holds.
    pub(super) fn held(&self) -> &[u8] {
        &self.held[..self.length.min(HELD)]
    }

    /// Whether it holds the whole piece.
    pub(super) fn is_whole(self) -> bool {
        self.length <= HELD
    }

    pub(super) fn packed(self) -> u64 {
        let held = self.held.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        self.depth as u64 | (self.length as u64) << LENGTH_BITS | held << (2 * LENGTH_BITS)
    }

    pub(super) fn unpacked(word: u64) -> Self {
        let number = |word: u64| word as usize & KEY_BYTES_MAX;
        let held = word >> (2 * LENGTH_BITS);
        Self {
            depth: number(word),
            length: number(word >> LENGTH_BITS),
            held: std::array::from_fn(|nth| (held >> (8 * nth)) as u8),
        }
    }
}
