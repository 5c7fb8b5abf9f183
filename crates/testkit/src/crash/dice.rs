//! Random numbers from a seed (SplitMix64).

/// A generator; the same seed gives the same numbers.
#[derive(Clone, Debug, Default)]
pub struct RandomSource(u64);

impl RandomSource {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A random number below `sides`; 0 if `sides` is 0.
    pub fn roll(&mut self, sides: u64) -> u64 {
        if sides == 0 { 0 } else { ((u128::from(self.bits()) * u128::from(sides)) >> 64) as u64 }
    }

    /// A random element of `choices`.
    ///
    /// # Panics
    /// If `choices` is empty.
    pub fn pick<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[self.roll(choices.len() as u64) as usize]
    }
}
