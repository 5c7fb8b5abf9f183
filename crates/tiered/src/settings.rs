//! How a store is opened.

use crate::space::shares::Shares;
use std::sync::Arc;
use terrace_engine::{Clock, Durability};

/// How a store is opened.
#[derive(Clone)]
pub struct Settings {
    /// How DRAM is divided.
    pub shares: Shares,
    /// Stripes of keys' locks: a power of two.
    pub stripes: usize,
    /// Keys that the index has room for at first.
    pub expected_keys: u64,
    /// Bytes of a log segment.
    pub segment_bytes: u64,
    /// Bytes of log from which on the blocks that keep its tail go to the tier.
    pub log_bytes: u64,
    /// What a write survives when it returns, at first.
    pub durability: Durability,
    /// With [`Durability::Interval`], milliseconds after which the log is synced.
    pub interval_ms: u64,
    /// Whether nothing is changed.
    pub read_only: bool,
    /// Tells what has expired.
    pub clock: Arc<dyn Clock>,
    /// A number that nobody can guess, another one each time.
    pub chance: u64,
}

impl Settings {
    /// Settings for so many bytes of DRAM.
    pub fn with_dram(dram: u64, clock: Arc<dyn Clock>, chance: u64) -> Self {
        Self {
            shares: Shares::of(dram),
            stripes: 2048,
            expected_keys: 0,
            segment_bytes: (dram / 8).clamp(1 << 20, 64 << 20),
            log_bytes: (dram / 2).clamp(8 << 20, 4 << 30),
            durability: Durability::Process,
            interval_ms: 1000,
            read_only: false,
            clock,
            chance,
        }
    }
}
