//! Compares several words with one value at a time.

use std::sync::atomic::{AtomicU64, Ordering};

/// A bit for each of the `count` words (at most 4) at `at` that equals `value`. Each word is loaded
/// with Acquire.
///
/// # Safety
/// Four words at `at` are readable, aligned, and only ever written atomically.
#[inline(always)]
pub(crate) unsafe fn equal_words(at: *const u8, count: usize, value: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if avx2::is_available() {
        // SAFETY: the caller's promise, and AVX2 was just found.
        return unsafe { equal_words_avx2(at, value) } & !(u64::MAX << count);
    }
    // SAFETY: the caller's promise.
    unsafe { equal_words_one_by_one(at, count, value) }
}

/// # Safety
/// As `equal_words`, for `count` words.
#[inline(always)]
unsafe fn equal_words_one_by_one(at: *const u8, count: usize, value: u64) -> u64 {
    let words = (0..count).map(|index| {
        // SAFETY: the caller's promise.
        unsafe { AtomicU64::from_ptr(at.cast::<u64>().cast_mut().add(index)) }.load(Ordering::Acquire)
    });
    words.enumerate().fold(0, |bits, (index, word)| bits | u64::from(word == value) << index)
}

/// Compares four words at once. Written in assembler because Rust's vector loads are not atomic: a
/// concurrent store would be a data race. The processor loads each aligned word of a vector whole
/// and does not reorder loads; the block is a compiler barrier.
///
/// # Safety
/// As `equal_words`, on a processor with AVX2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn equal_words_avx2(at: *const u8, value: u64) -> u64 {
    let equal: u64;
    // SAFETY: reads 32 readable bytes (the caller's promise) and changes two vector registers,
    // which are named. The upper halves of all are left zero, as code without AVX expects.
    unsafe {
        std::arch::asm!(
            "vmovq {x}, {value}",
            "vpbroadcastq {x:y}, {x}",
            "vpcmpeqq {x:y}, {x:y}, [{at}]",
            "vmovmskpd {equal:e}, {x:y}",
            "vzeroupper",
            at = in(reg) at,
            value = in(reg) value,
            equal = lateout(reg) equal,
            x = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    equal
}

/// Whether the processor has AVX2: one comparison, where the standard library's macro makes three.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    const YES: u8 = 1;
    const NO: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(0);

    #[inline(always)]
    pub(super) fn is_available() -> bool {
        ANSWER.load(Relaxed) == YES || detect()
    }

    #[cold]
    fn detect() -> bool {
        if ANSWER.load(Relaxed) == 0 {
            let answer = if std::arch::is_x86_feature_detected!("avx2") { YES } else { NO };
            ANSWER.store(answer, Relaxed);
        }
        ANSWER.load(Relaxed) == YES
    }
}

#[cfg(test)]
mod tests {
    use crate::{Dram, Line, Mapping, Offset, Region};
    use std::sync::atomic::Ordering::Relaxed;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn avx2_detection_is_stable() {
        let is_available = std::arch::is_x86_feature_detected!("avx2");
        assert_eq!([super::avx2::is_available(), super::avx2::is_available()], [is_available; 2]);
    }

    #[test]
    fn equal_words_finds_every_combination() {
        let region = Region::new(<Dram as crate::MappedMedium>::new(Mapping::anonymous(64, 64).unwrap()));
        let line: &Line = region.at(Offset::new(0));
        for value in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
            for pattern in 0..256u64 {
                for (index, word) in line.0.iter().enumerate() {
                    // The other words differ in one half only.
                    let other = value ^ if index % 2 == 0 { 1 } else { 1 << 63 };
                    word.store(
                        region.medium(),
                        if pattern >> index & 1 == 1 { value } else { other },
                        Relaxed,
                    );
                }
                assert_eq!(line.equal::<1, 3>(region.medium(), value), pattern >> 1 & 0b111);
                assert_eq!(line.equal::<4, 4>(region.medium(), value), pattern >> 4);
                assert_eq!(line.equal::<0, 1>(region.medium(), value), pattern & 1);
                // SAFETY: three words of the line.
                let plain = unsafe { super::equal_words_one_by_one(line.0[1].at(), 3, value) };
                assert_eq!(plain, pattern >> 1 & 0b111, "without AVX2");
            }
        }
    }
}
