//! Gathers the bits of a word that a mask chooses.
//!
//! The first call chooses the instructions by what the processor has. AMD's processors before
//! family 25 have the instruction, but it takes them hundreds of cycles there.

/// The bits of `value` that `mask` chooses, in their order, without gaps: the lowest is bit 0.
#[inline(always)]
pub fn extract_bits(value: u64, mask: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if bmi2::is_fast() {
        // SAFETY: BMI2 was just found.
        return unsafe { bmi2::extract(value, mask) };
    }
    extract_one_by_one(value, mask)
}

fn extract_one_by_one(value: u64, mask: u64) -> u64 {
    let (mut rest, mut bits, mut place) = (mask, 0, 0);
    while rest != 0 {
        bits |= (value >> rest.trailing_zeros() & 1) << place;
        rest &= rest - 1;
        place += 1;
    }
    bits
}

#[cfg(target_arch = "x86_64")]
mod bmi2 {
    use std::arch::x86_64::{__cpuid, _pext_u64};
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    const YES: u8 = 1;
    const NO: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(0);

    #[inline(always)]
    pub(super) fn is_fast() -> bool {
        ANSWER.load(Relaxed) == YES || detect()
    }

    #[cold]
    fn detect() -> bool {
        if ANSWER.load(Relaxed) == 0 {
            let is_fast = std::arch::is_x86_feature_detected!("bmi2") && !is_in_microcode();
            ANSWER.store(if is_fast { YES } else { NO }, Relaxed);
        }
        ANSWER.load(Relaxed) == YES
    }

    /// Whether this is one of AMD's processors (or Hygon's) that take a step a bit.
    #[allow(unused_unsafe, reason = "newer compilers know that every such processor has it")]
    fn is_in_microcode() -> bool {
        // SAFETY: every processor of this architecture has the instruction.
        let (maker, version) = unsafe { (__cpuid(0), __cpuid(1)) };
        let name = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes).concat();
        let base = version.eax >> 8 & 0xf;
        let family = if base == 0xf { base + (version.eax >> 20 & 0xff) } else { base };
        matches!(&name[..], b"AuthenticAMD" | b"HygonGenuine") && family < 0x19
    }

    /// # Safety
    /// The processor has BMI2.
    #[target_feature(enable = "bmi2")]
    #[inline]
    pub(super) unsafe fn extract(value: u64, mask: u64) -> u64 {
        _pext_u64(value, mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_keep_their_order() {
        assert_eq!(extract_bits(0b1010_0000, 0b1110_0001), 0b1010);
        assert_eq!(extract_bits(!0, 0), 0);
        assert_eq!(extract_bits(0x0123_4567_89ab_cdef, !0), 0x0123_4567_89ab_cdef);
    }

    #[test]
    fn both_ways_extract_the_same() {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5677);
            state ^ state >> 29
        };
        for _ in 0..10_000 {
            let (value, mask) = (next(), next() & next());
            assert_eq!(extract_bits(value, mask), extract_one_by_one(value, mask), "{value:#x} {mask:#x}");
        }
    }
}
