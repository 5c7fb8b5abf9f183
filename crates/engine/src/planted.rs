//! Bugs that a test can plant, to see whether it would find them. Without the feature `planted` all of this is nothing.
#![cfg_attr(
    not(feature = "planted"),
    allow(dead_code, unreachable_pub, reason = "without the feature nobody outside names them")
)]

/// A bug of `direct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Bug {
    /// A record is not written back before its key names it.
    RecordNotWrittenBack = 1,
    /// A batch is announced before its descriptor and its records are durable.
    AnnouncedEarly,
    /// The records of a batch count one by one, as they are published.
    CountedOneByOne,
    /// That a batch is committed is not durable when it is settled.
    StatusUnfenced,
    /// A scan shows what has expired.
    ExpiredShown,
    /// A sweep removes whatever expires some time, without a look at the time.
    SweptUntimely,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::RecordNotWrittenBack,
        Self::AnnouncedEarly,
        Self::CountedOneByOne,
        Self::StatusUnfenced,
        Self::ExpiredShown,
        Self::SweptUntimely,
    ];
}

#[cfg(feature = "planted")]
static PLANTED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// Plants a bug into every store of this process, or takes the last one out.
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
