//! The number that repeats a finding: it encodes target, profile and run.

use crate::suite::SUITES;
use std::fmt;
use std::str::FromStr;
use terrace_testkit::crash::{Profile, RandomSource};

const RUN_BITS: u32 = 56;
/// Bits of the profile, the lowest of the suite, and the highest of it, which old seeds do not
/// have.
const PROFILE: u64 = 7;
const SUITE_LOW: u64 = 15;
const SUITE_HIGH_AT: u32 = 59;

const _: () = assert!(Profile::ALL.len() <= PROFILE as usize + 1 && SUITES.len() <= 32);

/// A run of a target under a profile.
///
/// `| 63:60 target, its lower bits | 59 its highest bit | 58:56 profile | 55:0 run |`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSeed {
    /// The target's index in [`crate::SUITES`].
    pub suite: usize,
    /// The profile.
    pub profile: Profile,
    /// The seed of the run's plan.
    pub run: u64,
}

impl RunSeed {
    /// The seed of run `number` of a session with seed `seed`.
    pub fn new(suite: usize, profile: Profile, seed: u64, number: u64) -> Self {
        let mut dice = RandomSource::new(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self { suite, profile, run: dice.bits() & ((1 << RUN_BITS) - 1) }
    }
}

impl fmt::Display for RunSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profile = Profile::ALL.iter().position(|&profile| profile == self.profile).unwrap_or(0);
        let suite = self.suite as u64;
        let bits = (suite & SUITE_LOW) << 60 | (suite >> 4) << SUITE_HIGH_AT;
        write!(f, "{:#x}", bits | (profile as u64) << RUN_BITS | self.run)
    }
}

impl FromStr for RunSeed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bits = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.parse(),
        };
        let bits =
            bits.map_err(|_| format!("`{text}` is not a seed: give the number that the finding names"))?;
        let profile = Profile::ALL.get((bits >> RUN_BITS & PROFILE) as usize).copied();
        let suite = bits >> 60 | (bits >> SUITE_HIGH_AT & 1) << 4;
        let profile =
            profile.ok_or_else(|| format!("`{text}` names no profile: give the seed of a finding"))?;
        Ok(Self { suite: suite as usize, profile, run: bits & ((1 << RUN_BITS) - 1) })
    }
}
