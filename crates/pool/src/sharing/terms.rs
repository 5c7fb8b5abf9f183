//! The terms under which processes share a pool: the line of words that they agree on.

use crate::format::layout::Layout;
use crate::format::lifetime::Start;
use crate::sharing::release::SHARING;
use std::sync::atomic::Ordering;
use terrace_medium::{Line, MappedMedium, Offset, Region, full_barrier};

/// The line of words that the pool itself shares. They hold while it is open, and every process
/// that joins reads them.
///
/// ```text
/// word 0     bytes of the pool
///      1     lock of the superblock
///      2     lock of the root directory
///      3     state found at open (8) | pins without barrier (8) | [`SHARING`] (48)
///      4     lock of the initialization of the contents
///      5     whether that has been completed since the pool was opened
///      6     bytes that the pool has or is about to have; a joining process needs as many
///            addresses
/// ```
pub(crate) mod word {
    pub(crate) const SIZE: usize = 0;
    pub(crate) const SUPERBLOCK: usize = 1;
    pub(crate) const ROOTS: usize = 2;
    pub(crate) const TERMS: usize = 3;
    pub(crate) const OPENING: usize = 4;
    pub(crate) const READY: usize = 5;
    pub(crate) const CLAIMED: usize = 6;
}

/// What a process that joins an open pool takes over from it.
#[derive(Clone, Copy)]
pub(crate) struct SharingTerms {
    pub(crate) start: Start,
    pub(crate) light_pins: bool,
}

impl SharingTerms {
    pub(crate) fn encode(self) -> u64 {
        let start = match self.start {
            Start::Created => 1,
            Start::Clean => 2,
            Start::Unclean => 3,
        };
        start | u64::from(self.light_pins) << 8 | SHARING << 16
    }

    /// The terms in `word`, or the sharing version of the process that wrote it.
    fn decode(word: u64) -> Result<Self, u64> {
        let light_pins = word >> 8 & 1 == 1;
        match (word >> 16, word & 0xff) {
            (SHARING, 1) => Ok(Self { start: Start::Created, light_pins }),
            (SHARING, 2) => Ok(Self { start: Start::Clean, light_pins }),
            (SHARING, 3) => Ok(Self { start: Start::Unclean, light_pins }),
            (version, _) => Err(version),
        }
    }
}

/// The terms under which the pool in `region` is open, or the sharing version of the processes that
/// have it open; 0 if it is not shared.
pub(crate) fn terms<M: MappedMedium>(region: &Region<M>, layout: &Layout) -> Result<SharingTerms, u64> {
    let line = region.at::<Line>(Offset::new(layout.shared));
    SharingTerms::decode(line.0[word::TERMS].load(region.medium(), Ordering::Acquire))
}

/// Whether this participant reserved addresses for all that the pool has or is about to have; its
/// slot announces how many. The error is the number of bytes wanted and reserved.
pub(crate) fn check_addresses<M: MappedMedium>(
    region: &Region<M>,
    layout: &Layout,
) -> Result<(), (u64, u64)> {
    // ORDER: the store of the slot comes before this load. A growing process stores the claim, then
    // loads the slots. At least one side sees the other.
    full_barrier(region.medium());
    let claimed = &region.at::<Line>(Offset::new(layout.shared)).0[word::CLAIMED];
    let (wanted, reserved) =
        (claimed.load(region.medium(), Ordering::Acquire), region.medium().mapping().reserved() as u64);
    if wanted > reserved { Err((wanted, reserved)) } else { Ok(()) }
}
