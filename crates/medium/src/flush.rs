//! The instructions that move a line from the CPU cache to memory, chosen at run time.

/// The instruction that writes a line back on this processor, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushInstruction {
    /// x86-64 `clwb`: writes back, may keep the line cached.
    Clwb,
    /// x86-64 `clflushopt`: writes back and evicts, unordered.
    Clflushopt,
    /// x86-64 `clflush`: writes back and evicts, each ordered after the other.
    Clflush,
    /// AArch64 `dc cvap`: cleans to the point of persistence (ARMv8.2).
    DcCvap,
    /// AArch64 `dc cvac`: cleans to the point of coherency, for processors without `dc cvap`.
    DcCvac,
}

impl FlushInstruction {
    /// The best one that this processor has.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Self {
        Self::of(std::arch::x86_64::__cpuid_count(7, 0).ebx)
    }

    /// The best of a processor with these features: EBX of CPUID leaf 7, subleaf 0 (Intel SDM vol.
    /// 2A).
    #[cfg(target_arch = "x86_64")]
    fn of(features: u32) -> Self {
        match features {
            f if f & 1 << 24 != 0 => Self::Clwb,
            f if f & 1 << 23 != 0 => Self::Clflushopt,
            _ => Self::Clflush,
        }
    }

    /// The best one that this processor has.
    #[cfg(target_arch = "aarch64")]
    pub fn detect() -> Self {
        if std::arch::is_aarch64_feature_detected!("dpb") { Self::DcCvap } else { Self::DcCvac }
    }

    /// Starts writing the line that holds `at` back.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn write_back(self, at: *const u8) {
        use std::arch::asm;
        // SAFETY: the three instructions only move a line that the caller may access between cache
        // and memory; they change no value, and every processor of this architecture that reports
        // them has them.
        unsafe {
            match self {
                Self::Clwb => asm!("clwb [{}]", in(reg) at, options(nostack, preserves_flags)),
                Self::Clflushopt => asm!("clflushopt [{}]", in(reg) at, options(nostack, preserves_flags)),
                _ => asm!("clflush [{}]", in(reg) at, options(nostack, preserves_flags)),
            }
        }
    }

    /// Starts writing the line that holds `at` back.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(crate) fn write_back(self, at: *const u8) {
        use std::arch::asm;
        // SAFETY: cache maintenance by address of memory that the caller may access changes no
        // value. `dc cvap` is written as its system instruction, since assemblers know its name
        // only when told of ARMv8.2.
        unsafe {
            match self {
                Self::DcCvap => {
                    asm!("sys #3, c7, c12, #1, {}", in(reg) at, options(nostack, preserves_flags))
                }
                _ => asm!("dc cvac, {}", in(reg) at, options(nostack, preserves_flags)),
            }
        }
    }
}

/// Waits for this thread's write-backs and streamed stores.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn fence() {
    // SAFETY: sfence has no effect on values; every x86-64 processor has it.
    unsafe { std::arch::asm!("sfence", options(nostack, preserves_flags)) }
}

/// Waits for this thread's write-backs and streamed stores.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(crate) fn fence() {
    // SAFETY: a data synchronisation barrier has no effect on values.
    unsafe { std::arch::asm!("dsb sy", options(nostack, preserves_flags)) }
}

/// Stores 8 bytes past the cache (through it where the architecture has no such store; then the
/// caller writes back).
///
/// # Safety
/// `at` is 8-byte aligned and writable.
#[inline(always)]
pub(crate) unsafe fn stream(at: *mut u64, value: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; movnti is part of SSE2, which every x86-64 processor has.
    // Written as assembly, so that the compiler takes it for an opaque atomic store.
    unsafe {
        std::arch::asm!("movnti [{}], {}", in(reg) at, in(reg) value, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise.
    unsafe {
        std::sync::atomic::AtomicU64::from_ptr(at).store(value, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Whether [`stream`] needs a write-back of its line on this architecture.
pub(crate) const STREAM_NEEDS_WRITE_BACK: bool = !cfg!(target_arch = "x86_64");

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::FlushInstruction::*;

    #[test]
    fn the_best_instruction_is_told_by_two_bits() {
        let of = super::FlushInstruction::of;
        assert_eq!(
            [0, !(3 << 23), 1 << 23, 1 << 24, 3 << 23].map(of),
            [Clflush, Clflush, Clflushopt, Clwb, Clwb]
        );
    }
}
