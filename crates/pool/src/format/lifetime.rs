//! How a pool's superblock changes from one open to the next.
//!
//! ```text
//!             create               close                 open
//!   (nothing) ------> in use ----------------> clean ----------------> in use
//!                       |                                                ^
//!                       |  the process dies             open             |
//!                       +----------------> left in use ------------------+
//!                       |                                                ^
//!                       |  the machine dies   `power`: open              |
//!                       +----------------> left in use, other boot ------+
//!                                             `process`: refused; --salvage reads it
//! ```
//!
//! Each open increases the generation and the open sequence by 1.

use crate::error::{Durability, Problem};
use crate::format::layout::{ALLOCATOR_BYTES, Layout};
use crate::format::superblock::Superblock;
use std::sync::atomic::Ordering::Relaxed;
pub(crate) use terrace_medium::boot_id;
use terrace_medium::{LINE, Line, MappedMedium, Offset, Region};
use xxhash_rust::xxh3::xxh3_64;

/// The state in which an open found the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Newly created, in zeroed memory.
    Created,
    /// Closed in order: the allocator's words are valid.
    Clean,
    /// In use when its last process died, or closed while a collection was pending: the allocator's
    /// words are not trusted.
    Unclean,
}

/// The parameters of an open that decide whether and how it succeeds.
pub(crate) struct Opening {
    /// The durability that the medium provides.
    pub(crate) durability: Durability,
    /// Whether the caller assumes it, against the kernel's report.
    pub(crate) assumed_persistent: bool,
    /// The id of the current boot.
    pub(crate) boot: Option<u128>,
    /// Whether the open will not write to the pool.
    pub(crate) read_only: bool,
    /// Whether to read a pool that is not trusted.
    pub(crate) salvage: bool,
    /// The current checksum of the allocator's words, by [`allocator_sum`].
    pub(crate) allocator_sum: u64,
}

/// A checksum of the allocator's words. The next open uses them only if they are what an orderly
/// close left.
pub(crate) fn allocator_sum<M: MappedMedium>(region: &Region<M>, layout: &Layout) -> u64 {
    let mut bytes = Vec::with_capacity(ALLOCATOR_BYTES as usize);
    for at in (layout.allocator..layout.allocator + ALLOCATOR_BYTES).step_by(LINE) {
        for word in region.get::<Line>(Offset::new(at)).iter().flat_map(|line| &line.0) {
            bytes.extend(word.load(region.medium(), Relaxed).to_le_bytes());
        }
    }
    xxh3_64(&bytes)
}

/// How far a salvage advances the generation and the open sequence. In a torn pool the superblock
/// may be older than the rest. The next open sequence could then be that of revalidations that no
/// thread completes, and the next generation that of locks that no thread releases. A salvage
/// writes nothing, so any distant number will do.
const SALVAGE_AHEAD: u32 = 1 << 31;

/// The superblock for the open that follows `found`, and the state in which the pool was found.
pub(crate) fn next_open(found: &Superblock, opening: &Opening) -> Result<(Superblock, Start), Problem> {
    if !found.clean {
        check_resumable(found, opening)?;
    }
    let is_clean = found.clean && !found.collection_pending && found.allocator_sum == opening.allocator_sum;
    let by = if opening.salvage { SALVAGE_AHEAD } else { 1 };
    let next = Superblock {
        sequence: found.sequence.wrapping_add(1),
        // Generation 0 is reserved: a lock word of zeros is free.
        generation: found.generation.wrapping_add(by).max(1),
        open_seq: found.open_seq.wrapping_add(by).max(1),
        clean: false,
        collection_pending: false,
        durability: opening.durability,
        assumed_persistent: opening.assumed_persistent,
        boot: opening.boot.unwrap_or(0),
        ..found.clone()
    };
    Ok((next, if is_clean { Start::Clean } else { Start::Unclean }))
}

/// Checks whether a pool that was left in use can be opened.
fn check_resumable(found: &Superblock, opening: &Opening) -> Result<(), Problem> {
    let survives_the_machine = found.durability == Durability::Power && !found.assumed_persistent;
    let is_same_boot = opening.boot == Some(found.boot);
    if !survives_the_machine && !is_same_boot && !opening.salvage {
        return Err(Problem::MachineCrashed);
    }
    if !opening.read_only && found.durability != opening.durability {
        return Err(Problem::OtherDurability { pool: found.durability, asked: opening.durability });
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/lifetime.rs"]
mod tests;
