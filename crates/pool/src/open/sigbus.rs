//! Reports lost memory of a pool, or of a file that is written through a mapping: a load or store
//! that ends in SIGBUS.
//!
//! The cause is a file that is cut short while it is mapped, a file system without room for a hole,
//! or a failing disk or memory module. The kernel answers the next access with SIGBUS, and by
//! default the process ends without a message. The handler writes one line that names the file and
//! a remedy, and then lets the signal end the process. A SIGBUS elsewhere goes to the previous
//! handler.
//!
//! The handler makes only calls that are allowed in one (signal-safety(7)): `write`, `fstat`,
//! `readlink`, `sigaction`, `raise`, and loads and stores of atomics.

use crate::sharing::fork::{self, NAME};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::Once;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::files::mapped_at;

/// Installs a handler for SIGBUS: a process that loses the memory of a pool, or a file that it
/// writes through a mapping, writes a message to standard error before the signal ends it. A
/// program calls this once; a library leaves it to the program. Further calls do nothing.
pub fn explain_lost_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all zeros are a valid value of this type, and its fields are plain.
        let action = unsafe {
            let action = action.assume_init_mut();
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut action.sa_mask);
            action
        };
        // SAFETY: the handler only makes calls that are allowed in one. No other code uses `BEFORE`
        // until the handler runs.
        if unsafe { libc::sigaction(libc::SIGBUS, action, BEFORE.0.get().cast()) } == 0 {
            // ORDER: Release: pairs with the load in the handler.
            INSTALLED.store(true, Release);
        }
    });
}

/// The previous action for SIGBUS.
static BEFORE: PreviousActions = PreviousActions(UnsafeCell::new(MaybeUninit::zeroed()));
static INSTALLED: AtomicBool = AtomicBool::new(false);

struct PreviousActions(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, before `INSTALLED` is set, and only read afterwards.
unsafe impl Sync for PreviousActions {}

/// Whether a thread is writing the line already.
static REPORTING: AtomicBool = AtomicBool::new(false);

extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid one, as SA_SIGINFO requests.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // The kernel's codes are positive. A signal sent by a process has another code, and no address.
    match if code > 0 { fork::mapping_of(address) } else { None } {
        // Another thread writes the line; this one faults again until that is done.
        Some(_) if REPORTING.swap(true, Relaxed) => {}
        Some((at, offset, handle)) => {
            report(at, offset, handle, code);
            set_action(signal, None);
        }
        None if code > 0 && mapped_at(address).is_some() => {
            if !REPORTING.swap(true, Relaxed) {
                report_file(address, code);
                set_action(signal, None);
            }
        }
        None => {
            // ORDER: Acquire: pairs with the store after `BEFORE` was written.
            let before = INSTALLED.load(Acquire).then_some(BEFORE.0.get());
            set_action(signal, before.map(|before| before.cast_const().cast()));
            if code <= 0 {
                // SAFETY: raise(3) may be called here. The signal is blocked in the handler, so it
                // takes effect when the handler returns.
                unsafe { libc::raise(signal) };
            }
        }
    }
    // On return the faulting access is repeated, now with the action just set.
}

/// Sets the action for a signal; `None` is the default, which ends the process.
fn set_action(signal: libc::c_int, action: Option<*const libc::sigaction>) {
    let default = MaybeUninit::<libc::sigaction>::zeroed();
    let action = action.unwrap_or(default.as_ptr());
    // SAFETY: sigaction(2) may be called in a handler; all zeros are the default action without
    // flags.
    unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) };
}

/// Writes the message.
fn report(at: usize, offset: usize, handle: RawFd, code: libc::c_int) {
    let mut line = LineBuffer::new();
    line.push(b"error: the pool ");
    for byte in fork::name_of(at) {
        match byte.load(Relaxed) {
            0 => break,
            byte => line.push(&[byte]),
        }
    }
    line.push(b" lost the memory at byte ");
    line.push_number(offset as u64);
    match length(handle) {
        // An error that a memory module or a disk reports.
        _ if code == libc::BUS_MCEERR_AR || code == libc::BUS_MCEERR_AO => {
            line.push(b", where the hardware reports an error");
        }
        Some(length) if length <= offset as u64 => {
            line.push(b": its file was cut short to ");
            line.push_number(length);
            line.push(b" bytes while it was in use");
        }
        _ => line.push(b": its file system has no room for it, or cannot read it"),
    }
    line.push(b"; to save what is left, --salvage keeps what its checksums prove; or restore a backup\n");
    line.write();
}

/// Writes the message about the file that is written through a mapping with this address.
fn report_file(address: usize, code: libc::c_int) {
    let Some((handle, offset)) = mapped_at(address) else { return };
    let mut line = LineBuffer::new();
    line.push(b"error: the file ");
    let mut link = LineBuffer::new();
    link.push(b"/proc/self/fd/");
    link.push_number(handle.unsigned_abs().into());
    link.push(b"\0");
    let mut name = [0_u8; NAME];
    // SAFETY: readlink(2) may be called in a handler; the path ends with a zero, and at most so
    // many bytes are written.
    let named = unsafe { libc::readlink(link.bytes.as_ptr().cast(), name.as_mut_ptr().cast(), NAME) };
    line.push(&name[..usize::try_from(named).unwrap_or(0)]);
    match length(handle) {
        _ if code == libc::BUS_MCEERR_AR || code == libc::BUS_MCEERR_AO => {
            line.push(b" is lost, where the hardware reports an error");
        }
        Some(length) if length <= offset as u64 => {
            line.push(b" was cut short to ");
            line.push_number(length);
            line.push(b" bytes while it was in use");
        }
        _ => line.push(b" cannot be written: its file system has no room for it, or cannot read it"),
    }
    line.push(
        b"; terrace check tells what is lost, and check --repair keeps the rest; or restore a backup\n",
    );
    line.write();
}

/// The size of a file in bytes.
fn length(handle: RawFd) -> Option<u64> {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: fstat(2) may be called in a handler; it fills in the buffer or fails.
    let done = unsafe { libc::fstat(handle, found.as_mut_ptr()) } == 0;
    // SAFETY: it is filled in, and all zeros would be a valid value, too.
    done.then(|| unsafe { found.assume_init().st_size }.unsigned_abs())
}

/// A line of text in a fixed buffer.
struct LineBuffer {
    bytes: [u8; NAME + 400],
    len: usize,
}

impl LineBuffer {
    fn new() -> Self {
        Self { bytes: [0; NAME + 400], len: 0 }
    }

    fn push(&mut self, text: &[u8]) {
        for &byte in text {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
    }

    fn push_number(&mut self, number: u64) {
        let mut digits = [0; 20];
        let (mut rest, mut first) = (number, digits.len());
        while rest > 0 || first == digits.len() {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.push(&digits[first..]);
    }

    fn write(&self) {
        // SAFETY: write(2) may be called in a handler, and the bytes are initialized.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, self.bytes.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
#[path = "tests/sigbus.rs"]
mod tests;
