//! Compares 16 or 32 bytes with one value at a time.
//!
//! The first comparison chooses the instructions by what the processor has. The exception is 16
//! bytes on x86-64: there SSE2, which all of these processors have, takes fewer instructions than
//! the choice. The vector loads are written in assembler because Rust's are not atomic: a
//! concurrent store would be a data race. The processors load each aligned word of a vector whole.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Acquire, Ordering::Relaxed};

/// An implementation of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kernel {
    /// No vector unit: words in ordinary registers.
    Portable = 1,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// A bit for each of the `8 * WORDS` bytes at `at` that equals `byte`; bit 0 is the first in
/// memory. The caller's later loads are ordered after these.
///
/// # Safety
/// `WORDS` words (2 or 4) at `at` are readable, aligned, and only ever written atomically.
#[inline(always)]
pub(crate) unsafe fn equal_bytes<const WORDS: usize>(at: *const u8, byte: u8) -> u32 {
    const { assert!(WORDS == 2 || WORDS == 4, "one vector register is filled, or half of one") };
    #[cfg(target_arch = "x86_64")]
    if WORDS == 2 {
        // SAFETY: the caller's promise.
        return unsafe { sse2(at, byte) };
    }
    let chosen = CHOSEN.load(Relaxed);
    #[cfg(target_arch = "x86_64")]
    if chosen == Kernel::Avx512 as u8 {
        // SAFETY: the caller's promise, and AVX-512 with VL and BW was found.
        return unsafe { avx512(at, byte) };
    } else if chosen == Kernel::Avx2 as u8 {
        // SAFETY: the caller's promise, and AVX2 was found.
        return unsafe { avx2(at, byte) };
    }
    #[cfg(target_arch = "aarch64")]
    if chosen == Kernel::Neon as u8 {
        // SAFETY: the caller's promise; every aarch64 processor that runs Rust's standard library
        // has NEON.
        return unsafe { neon::<WORDS>(at, byte) };
    }
    // SAFETY: the caller's promise.
    unsafe { fallback::<WORDS>(at, byte) }
}

/// Compares without a vector unit, and chooses an implementation at the first call. Not inlined: it
/// would take registers from the vector paths.
///
/// # Safety
/// As [`equal_bytes`].
#[inline(never)]
unsafe fn fallback<const WORDS: usize>(at: *const u8, byte: u8) -> u32 {
    if CHOSEN.load(Relaxed) == 0 {
        choose();
    }
    // SAFETY: the caller's promise.
    unsafe { portable::<WORDS>(at, byte) }
}

#[cold]
fn choose() {
    CHOSEN.store(best() as u8, Relaxed);
}

#[cfg(target_arch = "x86_64")]
fn best() -> Kernel {
    use std::arch::is_x86_feature_detected as has;
    match () {
        () if has!("avx512vl") && has!("avx512bw") => Kernel::Avx512,
        () if has!("avx2") => Kernel::Avx2,
        () => Kernel::Portable,
    }
}

#[cfg(target_arch = "aarch64")]
fn best() -> Kernel {
    Kernel::Neon
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn best() -> Kernel {
    Kernel::Portable
}

/// Compares word by word: a byte that is equal becomes zero, and no byte's carry reaches the next.
///
/// # Safety
/// As [`equal_bytes`].
#[inline(always)]
unsafe fn portable<const WORDS: usize>(at: *const u8, byte: u8) -> u32 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let wanted = u64::from_ne_bytes([byte; 8]);
    (0..WORDS).fold(0, |bits, index| {
        // SAFETY: the caller's promise.
        let word = unsafe { AtomicU64::from_ptr(at.cast::<u64>().cast_mut().add(index)) }.load(Acquire);
        let differing = u64::from_le(word) ^ wanted;
        let equal = !((differing & LOW).wrapping_add(LOW) | differing | LOW);
        // The top bit of each byte, gathered in the topmost byte.
        let gathered = (equal >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits | (gathered as u32) << (8 * index)
    })
}

/// # Safety
/// As [`equal_bytes`], of two words.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn sse2(at: *const u8, byte: u8) -> u32 {
    let equal: u32;
    // SAFETY: reads 16 bytes, as the caller promises; the registers that change are named. The
    // block is a compiler barrier, and the processor does not reorder loads.
    unsafe {
        std::arch::asm!(
            "movd {x}, {bytes:e}",
            "pshufd {x}, {x}, 0",
            "movdqu {y}, [{at}]",
            "pcmpeqb {x}, {y}",
            "pmovmskb {equal:e}, {x}",
            at = in(reg) at,
            bytes = in(reg) u32::from(byte) * 0x0101_0101,
            equal = lateout(reg) equal,
            x = out(xmm_reg) _,
            y = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    equal
}

/// Registers above the sixteenth need no `vzeroupper`.
///
/// # Safety
/// As [`equal_bytes`], of four words, on a processor with AVX-512 VL and BW.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn avx512(at: *const u8, byte: u8) -> u32 {
    let equal: u32;
    // SAFETY: as above, for 32 bytes.
    unsafe {
        std::arch::asm!(
            "vpbroadcastb ymm16, {byte:e}",
            "vpcmpeqb k1, ymm16, [{at}]",
            "kmovd {equal:e}, k1",
            at = in(reg) at,
            byte = in(reg) u32::from(byte),
            equal = lateout(reg) equal,
            out("xmm16") _,
            out("k1") _,
            options(nostack, preserves_flags),
        );
    }
    equal
}

/// # Safety
/// As [`equal_bytes`], of four words, on a processor with AVX2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn avx2(at: *const u8, byte: u8) -> u32 {
    let equal: u32;
    // SAFETY: as above, for 32 bytes. The upper halves of all registers are left zero, as code
    // without AVX expects.
    unsafe {
        std::arch::asm!(
            "vmovd {x}, {byte:e}",
            "vpbroadcastb {x:y}, {x}",
            "vpcmpeqb {x:y}, {x:y}, [{at}]",
            "vpmovmskb {equal:e}, {x:y}",
            "vzeroupper",
            at = in(reg) at,
            byte = in(reg) u32::from(byte),
            equal = lateout(reg) equal,
            x = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
    equal
}

/// Picks a different bit from each equal byte, and adds up the eight of a half.
///
/// # Safety
/// As [`equal_bytes`].
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn neon<const WORDS: usize>(at: *const u8, byte: u8) -> u32 {
    const PICK: u64 = 0x8040_2010_0804_0201;
    (0..WORDS / 2).fold(0, |bits, half| {
        let (low, high): (u32, u32);
        // SAFETY: reads 16 bytes, as the caller promises; the registers that change are named. The
        // barrier keeps later loads behind this one.
        unsafe {
            std::arch::asm!(
                "ldr {x:q}, [{at}]",
                "dmb ishld",
                "dup {y}.16b, {byte:w}",
                "cmeq {x}.16b, {x}.16b, {y}.16b",
                "dup {y}.2d, {pick}",
                "and {x}.16b, {x}.16b, {y}.16b",
                "ext {y}.16b, {x}.16b, {x}.16b, #8",
                "addv {x:b}, {x}.8b",
                "addv {y:b}, {y}.8b",
                "umov {low:w}, {x}.b[0]",
                "umov {high:w}, {y}.b[0]",
                at = in(reg) at.add(16 * half),
                byte = in(reg) u32::from(byte),
                pick = in(reg) PICK,
                low = lateout(reg) low,
                high = lateout(reg) high,
                x = out(vreg) _,
                y = out(vreg) _,
                options(nostack, preserves_flags),
            );
        }
        bits | (low | high << 8) << (16 * half)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Compare = unsafe fn(*const u8, u8) -> u32;

    /// Every implementation that this processor can run, for 16 bytes and for 32.
    fn kernels() -> Vec<(&'static str, Compare, Compare)> {
        let mut kernels: Vec<(&'static str, Compare, Compare)> = vec![
            ("portable", portable::<2>, portable::<4>),
            ("the chosen one", equal_bytes::<2>, equal_bytes::<4>),
        ];
        #[cfg(target_arch = "x86_64")]
        {
            if best() == Kernel::Avx512 {
                kernels.push(("AVX-512", sse2, avx512));
            }
            if std::arch::is_x86_feature_detected!("avx2") {
                kernels.push(("AVX2", sse2, avx2));
            }
        }
        #[cfg(target_arch = "aarch64")]
        kernels.push(("NEON", neon::<2>, neon::<4>));
        kernels
    }

    #[repr(align(64))]
    struct Bytes([u8; 32]);

    #[test]
    fn every_kernel_agrees_with_byte_by_byte() {
        let mut random = 0x1234_5678_9abc_def0_u64;
        for round in 0..4000 {
            let mut bytes = Bytes([0; 32]);
            for byte in &mut bytes.0 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Few values, so that many are equal. Neighbours differ in one bit, so that a carry
                // would show.
                *byte = [0, 1, 0x7f, 0x80, 0x81, 0xff][(random >> 40) as usize % 6];
            }
            let wanted = [0, 1, 0x7f, 0x80, 0x81, 0xff, 0x55][round % 7];
            let one_by_one =
                bytes.0.iter().enumerate().fold(0u32, |bits, (i, &b)| bits | u32::from(b == wanted) << i);
            for (name, two, four) in kernels() {
                let at = bytes.0.as_ptr();
                // SAFETY: 32 bytes, aligned to 64, that no other thread writes.
                let (half, whole) = unsafe { (two(at, wanted), four(at, wanted)) };
                assert_eq!(
                    (half, whole),
                    (one_by_one & 0xffff, one_by_one),
                    "{name}: {wanted} in {:?}",
                    bytes.0
                );
            }
        }
    }

    #[test]
    fn chosen_kernel_stays_chosen() {
        choose();
        assert_eq!(CHOSEN.load(Relaxed), best() as u8);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn widest_available_kernel_is_chosen() {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = info.lines().find(|line| line.starts_with("flags")).unwrap();
        let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
        let widest = match [has("avx512vl") && has("avx512bw"), has("avx2")] {
            [true, _] => Kernel::Avx512,
            [false, true] => Kernel::Avx2,
            [false, false] => Kernel::Portable,
        };
        assert_eq!(best(), widest);
    }
}
