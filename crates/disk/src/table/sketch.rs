//! About how many different keys tables have together.
//!
//! HyperLogLog: each key's hash chooses a register, which keeps the longest run of zeros in the
//! rest of the hash. Registers of several tables are joined by their maximum, so a key that several
//! of them have counts once. With 512 registers the standard error is 4.6%.

/// Registers of a sketch, a byte each.
const REGISTERS: usize = 512;
const BITS: u32 = REGISTERS.trailing_zeros();

/// A sketch of a set of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch(Box<[u8; REGISTERS]>);

impl Default for Sketch {
    fn default() -> Self {
        Self(Box::new([0; REGISTERS]))
    }
}

impl Sketch {
    /// Adds a key, given by its hash.
    #[inline]
    pub(super) fn add(&mut self, hash: u64) {
        let register = &mut self.0[(hash >> (64 - BITS)) as usize];
        let run = ((hash << BITS | 1 << (BITS - 1)).leading_zeros() + 1) as u8;
        *register = run.max(*register);
    }

    /// Adds the keys of another set.
    pub fn join(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0.iter()).for_each(|(one, other)| *one = (*one).max(*other));
    }

    /// About how many keys the set has.
    pub fn estimate(&self) -> f64 {
        const MANY: f64 = REGISTERS as f64;
        let sum: f64 = self.0.iter().map(|&run| (-f64::from(run)).exp2()).sum();
        let raw = 0.7213 / (1.0 + 1.079 / MANY) * MANY * MANY / sum;
        let empty = self.0.iter().filter(|&&run| run == 0).count();
        // Few keys leave registers empty, and their number says more.
        if raw <= 2.5 * MANY && empty > 0 { MANY * (MANY / empty as f64).ln() } else { raw }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &*self.0
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self(Box::new(bytes.try_into().ok()?)))
    }
}

/// Bytes of a sketch in a file.
pub(super) const BYTES: usize = REGISTERS;

#[cfg(test)]
#[path = "tests/sketch.rs"]
mod tests;
