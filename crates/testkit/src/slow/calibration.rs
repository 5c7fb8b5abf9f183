//! Compares a profile with what this machine achieves.

use super::clock::now_ns;
use super::{Profile, Slow};
use std::fmt::{self, Display, Formatter};
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::{Line, MapError, MappedMedium, Mapping, Offset, Pmem, Region, Word};

/// Memory used by the measurement: far more than the modelled cache.
const BYTES: u64 = 32 << 20;
const BATCHES: u64 = 401;
const BATCH: u64 = 64;

/// The requested and the achieved time, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The name of the measurement.
    pub name: &'static str,
    /// The profile's value.
    pub asked_ns: f64,
    /// The measured value.
    pub achieved_ns: f64,
}

/// How closely this machine simulates a profile, measured with one thread on memory of its own.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The profile.
    pub profile: Profile,
    /// The requested and achieved times.
    pub comparisons: Vec<Comparison>,
}

impl Calibration {
    /// Measures for about 100 ms.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn measure(profile: Profile) -> Result<Self, MapError> {
        let mapping = Mapping::anonymous(BYTES as usize, BYTES as usize)?;
        let region = Region::new(Slow::over(Pmem::new(mapping), profile));
        touch(&region);
        let lines = profile.lines_of_block();
        let sequential = (profile.sequential_read_ns + (lines - 1) * profile.same_block_read_ns) as f64;
        let compare =
            |name, requested: f64, achieved_ns| Comparison { name, asked_ns: requested, achieved_ns };
        let comparisons = vec![
            compare("a random read", profile.random_read_ns as f64, random_reads(&region)),
            compare("a line read in sequence", sequential / lines as f64, sequential_reads(&region)),
            compare("a line in the cache", 0.0, cached_reads(&region)),
            compare("write-back and fence", profile.write_back_ns as f64, write_backs(&region)),
        ];
        Ok(Self { profile, comparisons })
    }

    /// Whether all measurements except the cached line differ from the profile by at most this
    /// share.
    pub fn is_within(&self, share: f64) -> bool {
        let requested = self.comparisons.iter().filter(|c| c.asked_ns > 0.0);
        requested.into_iter().all(|c| (c.achieved_ns / c.asked_ns - 1.0).abs() <= share)
    }
}

impl Display for Calibration {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.profile.name)?;
        for (i, c) in self.comparisons.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma} {} {:.0} ns ({:.0} asked)", c.name, c.achieved_ns, c.asked_ns)?;
        }
        Ok(())
    }
}

type Calibrated = Region<Slow<Pmem>>;

fn word(region: &Calibrated, line: u64) -> &Word {
    &region.at(Offset::<Line>::new(line * 64)).0[0]
}

/// Allocates every page, and evicts the lines that are read first from the modelled cache.
fn touch(region: &Calibrated) {
    for page in 0..BYTES / 4096 {
        word(region, page * 64).store(region.medium(), page, Relaxed);
    }
}

/// The time of one `operation`: the median of the means of many batches, so that preemptions do not
/// count.
fn typical(mut operation: impl FnMut(u64)) -> f64 {
    let mut batch = |first: u64| {
        let began = now_ns();
        (first..first + BATCH).for_each(&mut operation);
        (now_ns() - began) as f64 / BATCH as f64
    };
    let mut means: Vec<f64> = (0..BATCHES).map(|n| batch(n * BATCH)).collect();
    means.sort_by(f64::total_cmp);
    means[means.len() / 2]
}

fn random_reads(region: &Calibrated) -> f64 {
    let lines = BYTES / 64;
    typical(|i| {
        let line = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 & (lines - 1);
        black_box(word(region, line).load(region.medium(), Relaxed));
    })
}

fn sequential_reads(region: &Calibrated) -> f64 {
    // From the middle, of which random reads have left few lines in the cache.
    typical(|i| _ = black_box(word(region, BYTES / 128 + i).load(region.medium(), Relaxed)))
}

fn cached_reads(region: &Calibrated) -> f64 {
    typical(|i| _ = black_box(word(region, i & 63).load(region.medium(), Relaxed)))
}

fn write_backs(region: &Calibrated) -> f64 {
    typical(|i| {
        let word = word(region, i & 3);
        word.store(region.medium(), i, Relaxed);
        region.medium().fence_of(word);
    })
}

impl Slow<Pmem> {
    /// Writes a word back and waits until it is durable.
    fn fence_of(&self, word: &Word) {
        use terrace_medium::Medium;
        // PERSIST: nothing depends on it; its duration is measured.
        self.write_back(word.at());
        self.fence();
    }
}
