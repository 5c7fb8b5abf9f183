//! Bugs that a test can plant, to see whether it would find them. Without the feature `planted` all of this is nothing.
#![cfg_attr(
    not(feature = "planted"),
    allow(dead_code, unreachable_pub, reason = "without the feature nobody outside names them")
)]

/// A bug of P-CLHT, of TurboHash, of Rewo-Hash, or of Level hashing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Bug {
    /// A pair's valid bit is stored before its key and word.
    PublishBeforePair = 1,
    /// A new overflow bucket is linked before it is written.
    LinkBeforeBucket,
    /// The lock is free before the change is durable.
    UnlockWithoutPersist,
    /// The first bucket of the chain is written back, whichever was changed.
    WrongLineWrittenBack,
    /// A key in a new overflow bucket is not counted.
    ForgottenCount,
    /// A put over a key that is there adds it once more.
    StaleDuplicate,
    /// A new word for a key is stored in two steps, first without, then with it.
    TwoWordReplace,
    /// A removal keeps its lock.
    LockLeftHeld,
    /// The overflow buckets of a group that has moved are given back to nobody.
    LeakedOverflow,
    /// A group counts as moved before its new buckets are durable.
    MovedBeforeBuckets,
    /// What overflows in a moved group is left behind.
    LostOverflow,
    /// A resize ends with its last group unmoved.
    CursorEarly,
    /// At the end of a resize the new table is forgotten before it becomes the current one.
    NextClearedFirst,
    /// Recovery forgets a resize that was under way.
    ResizeForgotten,
    /// A slot that does not share its bucket's first line is valid before it is durable.
    SlotUnfenced,
    /// A slot keeps the tag of the key that was in it before.
    ForgottenTag,
    /// A key passes a full bucket that does not say so.
    PassedUnsaid,
    /// A deleted slot is empty, so that paths end at its bucket.
    DeletedEndsPath,
    /// A shard's new place counts before its buckets are durable.
    SwitchBeforeShard,
    /// A shard's new buckets are written to before the new place is durable.
    SwitchUnfenced,
    /// A rehash leaves the last bucket out.
    LostBucket,
    /// A rehash at the same size loses the key behind a deleted slot.
    LostBehindDeleted,
    /// The old buckets of a rehashed shard are given back to nobody.
    OldShardLeaked,
    /// Recovery leaves the places for readers as the crash left them.
    RecoveryForgotten,
    /// A key that moves is invalid at its old place before its copy is written.
    EvictedBeforeCopy,
    /// The slot of a key that moves is not locked.
    UnmarkedMove,
    /// Of two records of a key that a crash has left, both stay.
    DoubleKept,
    /// A copy of a key that moves is not durable when it counts, or when the key's old slot does not.
    CopyUnfenced,
    /// A resize begins before its views are durable.
    SwitchBeforeTable,
    /// A movement clears the old slot before the new one has the key.
    SourceClearedFirst,
    /// The slots of a movement are not marked.
    Unmarked,
    /// The original of a movement goes before the copy is durable.
    TokenUnfenced,
    /// That the original of a movement has gone is not durable when its locks are free.
    OriginalKept,
    /// A scan visits both copies of a key that is there twice.
    DuplicateSeen,
    /// A unit that moves leaves the key in its last slot behind.
    LostSlot,
    /// That a unit has shrunk is not durable when its locks are free.
    MergeUnfenced,
    /// Units move before the state is durable that says so.
    StateUnfenced,
    /// At the end of a resize the tier that is left over is given back to nobody.
    TierLeaked,
    /// A reader caches the word that it found without a look whether the key has been changed meanwhile.
    CacheFillUnchecked,
    /// A writer tells the cache of a change after it can be seen.
    CacheSyncLate,
    /// A removed key stays in the cache.
    CacheKeepsDeleted,
    /// A bucket of the cache that has no room for a key does not say so.
    CacheOverflowForgotten,
    /// A scan looks whether a bucket has a locked slot once it has read the slots.
    MarkSeenLate,
    /// Buckets of a spare count as cleared before that is durable.
    ClearedUnfenced,
    /// A resize begins when a part of its spare is cleared.
    SpareHalfCleared,
    /// The collector does not know of the spare.
    SpareUnmarked,
    /// A spare that another takes the place of is given back to nobody.
    SpareLeaked,
}

impl Bug {
    /// Those of P-CLHT.
    pub const OF_CLHT: [Self; 14] = [
        Self::PublishBeforePair,
        Self::LinkBeforeBucket,
        Self::UnlockWithoutPersist,
        Self::WrongLineWrittenBack,
        Self::ForgottenCount,
        Self::StaleDuplicate,
        Self::TwoWordReplace,
        Self::LockLeftHeld,
        Self::LeakedOverflow,
        Self::MovedBeforeBuckets,
        Self::LostOverflow,
        Self::CursorEarly,
        Self::NextClearedFirst,
        Self::ResizeForgotten,
    ];

    /// Those of TurboHash.
    pub const OF_TURBO: [Self; 16] = [
        Self::PublishBeforePair,
        Self::UnlockWithoutPersist,
        Self::ForgottenCount,
        Self::StaleDuplicate,
        Self::TwoWordReplace,
        Self::LockLeftHeld,
        Self::SlotUnfenced,
        Self::ForgottenTag,
        Self::PassedUnsaid,
        Self::DeletedEndsPath,
        Self::SwitchBeforeShard,
        Self::SwitchUnfenced,
        Self::LostBucket,
        Self::LostBehindDeleted,
        Self::OldShardLeaked,
        Self::RecoveryForgotten,
    ];

    /// Those of Rewo-Hash.
    pub const OF_REWO: [Self; 26] = [
        Self::ClearedUnfenced,
        Self::SpareHalfCleared,
        Self::SpareUnmarked,
        Self::SpareLeaked,
        Self::MarkSeenLate,
        Self::CacheFillUnchecked,
        Self::CacheSyncLate,
        Self::CacheKeepsDeleted,
        Self::CacheOverflowForgotten,
        Self::PassedUnsaid,
        Self::PublishBeforePair,
        Self::UnlockWithoutPersist,
        Self::ForgottenCount,
        Self::StaleDuplicate,
        Self::TwoWordReplace,
        Self::LockLeftHeld,
        Self::SlotUnfenced,
        Self::ForgottenTag,
        Self::SwitchUnfenced,
        Self::LostBucket,
        Self::OldShardLeaked,
        Self::EvictedBeforeCopy,
        Self::UnmarkedMove,
        Self::DoubleKept,
        Self::CopyUnfenced,
        Self::SwitchBeforeTable,
    ];

    /// Those of Level hashing.
    pub const OF_LEVEL: [Self; 21] = [
        Self::DoubleKept,
        Self::PublishBeforePair,
        Self::UnlockWithoutPersist,
        Self::ForgottenCount,
        Self::StaleDuplicate,
        Self::TwoWordReplace,
        Self::LockLeftHeld,
        Self::SlotUnfenced,
        Self::MovedBeforeBuckets,
        Self::CursorEarly,
        Self::ResizeForgotten,
        Self::SourceClearedFirst,
        Self::Unmarked,
        Self::CopyUnfenced,
        Self::TokenUnfenced,
        Self::OriginalKept,
        Self::DuplicateSeen,
        Self::LostSlot,
        Self::MergeUnfenced,
        Self::StateUnfenced,
        Self::TierLeaked,
    ];
}

#[cfg(feature = "planted")]
static PLANTED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// Plants a bug into every index of this process, or takes the last one out.
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
