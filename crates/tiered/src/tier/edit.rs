//! Edits of the manifest: which blocks there are.
//!
//! ```text
//!   | cleared: seq + 1, or 0 | count, then number and generation of each added block |
//!   | count, then number and generation of each removed block |
//!   | bits of the offset in a block, or 0 | the checksum of each added block, or 0 |
//!                                                                      all varints
//! ```
//!
//! The checksums may be left out.

use std::collections::{BTreeMap, BTreeSet};
use terrace_disk::codec::{Reader, put_varint};

/// The number and the generation of a block.
pub(crate) type Name = (u64, u64);

/// A block, and the checksum of its entries: it tells the file from another one of the same name. 0
/// if it is not known.
pub(crate) type Summed = (Name, u64);

/// An edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    /// Everything with a lower sequence number is gone, and so are all blocks of before.
    pub(crate) cleared: Option<u64>,
    pub(crate) added: Vec<Summed>,
    pub(crate) removed: Vec<Name>,
    /// How many bits of an address are the offset in its block; 0 if that is known.
    pub(crate) block_shift: u32,
}

impl Edit {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.cleared.map_or(0, |seq| seq + 1));
        let added: Vec<Name> = self.added.iter().map(|(name, _)| *name).collect();
        for names in [&added, &self.removed] {
            put_varint(&mut out, names.len() as u64);
            for (number, generation) in names {
                put_varint(&mut out, *number);
                put_varint(&mut out, *generation);
            }
        }
        put_varint(&mut out, self.block_shift.into());
        self.added.iter().for_each(|(_, sum)| put_varint(&mut out, *sum));
        out
    }

    /// The edit in these bytes; `None` if they are none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let cleared = reader.varint()?.checked_sub(1);
        let mut names = || {
            let count = reader.size()?;
            (0..count).map(|_| Some((reader.varint()?, reader.varint()?))).collect::<Option<Vec<Name>>>()
        };
        let (added, removed) = (names()?, names()?);
        let block_shift = u32::try_from(reader.varint()?).ok()?;
        let has_sums = !reader.is_empty();
        let summed = |name| Some((name, if has_sums { reader.varint()? } else { 0 }));
        let added = added.into_iter().map(summed).collect::<Option<Vec<Summed>>>()?;
        reader.is_empty().then_some(Self { cleared, added, removed, block_shift })
    }
}

/// What the edits of a manifest add up to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) cleared_at: u64,
    pub(crate) blocks: BTreeMap<Name, u64>,
    /// Blocks of before.
    pub(crate) gone: BTreeSet<Name>,
    pub(crate) block_shift: u32,
}

impl Plan {
    pub(crate) fn add(&mut self, edit: Edit) -> Result<(), &'static str> {
        if let Some(seq) = edit.cleared {
            self.cleared_at = seq;
            self.gone.extend(std::mem::take(&mut self.blocks).into_keys());
        }
        for name in &edit.removed {
            if self.blocks.remove(name).is_none() {
                return Err("an edit removes a block that does not exist");
            }
            self.gone.insert(*name);
        }
        self.blocks.extend(edit.added);
        if edit.block_shift != 0 {
            self.block_shift = edit.block_shift;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn edit_round_trips(
            cleared in prop::option::of(0..u64::MAX - 1),
            added in prop::collection::vec(any::<Summed>(), 0..5),
            removed in prop::collection::vec(any::<Name>(), 0..5),
            block_shift in any::<u32>(),
        ) {
            let edit = Edit { cleared, added, removed, block_shift };
            let bytes = edit.to_bytes();
            prop_assert_eq!(Edit::read(&bytes), Some(edit.clone()));
            // Without its checksums it is another edit.
            let is_none = |cut| Edit::read(&bytes[..cut]).is_none_or(|cut| cut != edit);
            prop_assert!((0..bytes.len()).all(is_none));
        }
    }
}
