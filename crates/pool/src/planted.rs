//! Bugs that a test can plant, to see whether it would find them. Without the feature `planted` all of this is nothing.
#![cfg_attr(
    not(feature = "planted"),
    allow(dead_code, unreachable_pub, reason = "without the feature nobody outside names them")
)]

/// A bug in how participants take back what a dead one has left, or in the pool's memory, its roots and its growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Bug {
    /// A lock is noted once it is taken.
    NoteAfterLock = 1,
    /// A note is struck out before its lock is free.
    NoteStruckEarly,
    /// Who recovers frees all locks that are noted, whoever has them.
    LivingLockFreed,
    /// Nobody is told that a dead one was in the middle of something.
    DoubtDropped,
    /// A recovery that was cut off by a death is nobody's any more.
    NoTakeOver,
    /// A dead one's seat stays pinned.
    MarkLeft,
    /// The ends of a queue of limbo stay as the dead one left them.
    QueueNotMended,
    /// A superblock stays as the dead one left it.
    SuperblockLeft,
    /// What a dead one changed under its lock is taken for durable.
    UnfencedForgotten,
    /// A block that is retired is free at once, and again when its time has come.
    FreedTwice,
    /// A new slab has the bits of what lay there before.
    BitmapLeft,
    /// That a unit is a slab is not durable when a block of it is given out.
    SlabUnfenced,
    /// A root is changed by two stores, and is nothing in between.
    RootInTwoStores,
    /// The superblock tells of new memory before there are hints of it.
    SizeBeforeHints,
    /// An open sets no memory aside for what a full pool gives back, nor finds what an earlier one did.
    ReserveForgotten,
}

impl Bug {
    /// Those of participants.
    pub const OF_PARTICIPANTS: [Self; 9] = [
        Self::NoteAfterLock,
        Self::NoteStruckEarly,
        Self::LivingLockFreed,
        Self::DoubtDropped,
        Self::NoTakeOver,
        Self::MarkLeft,
        Self::QueueNotMended,
        Self::SuperblockLeft,
        Self::UnfencedForgotten,
    ];

    /// Those of memory, roots and growth.
    pub const OF_MEMORY: [Self; 6] = [
        Self::FreedTwice,
        Self::BitmapLeft,
        Self::SlabUnfenced,
        Self::RootInTwoStores,
        Self::SizeBeforeHints,
        Self::ReserveForgotten,
    ];
}

#[cfg(feature = "planted")]
static PLANTED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// Plants a bug into every pool of this process, or takes the last one out.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(0, |bug| bug as u32), std::sync::atomic::Ordering::Relaxed);
}

/// Whether this bug is planted.
#[inline(always)]
pub(crate) fn has(bug: Bug) -> bool {
    #[cfg(feature = "planted")]
    return PLANTED.load(std::sync::atomic::Ordering::Relaxed) == bug as u32;
    #[cfg(not(feature = "planted"))]
    {
        let _ = bug;
        false
    }
}
