//! Tests: the instructions of a persist, observed by single-stepping a child process.
#![cfg(target_arch = "x86_64")]

use std::ptr::null_mut;
use terrace_medium::{Dram, FlushInstruction, MappedMedium, Mapping, Offset, Pmem, Region, Shm, Word};

#[derive(Debug, PartialEq, Eq)]
enum Step {
    WriteBack(FlushInstruction),
    Fence,
}

/// The write-back or fence whose code begins with these bytes (Intel SDM vol. 2: CLWB, CLFLUSH,
/// CLFLUSHOPT, SFENCE).
fn step(code: [u8; 8]) -> Option<Step> {
    // Without a prefix for registers above the eighth.
    let without_rex =
        |code: &[u8]| if code[0] & 0xf0 == 0x40 { code[1..4].to_vec() } else { code[..3].to_vec() };
    let (prefixed, code) = match code[0] {
        0x66 => (true, without_rex(&code[1..])),
        _ => (false, without_rex(&code)),
    };
    let [0x0f, 0xae, modrm] = code[..] else { return None };
    let (is_register, extension) = (modrm >> 6 == 3, modrm >> 3 & 7);
    match (prefixed, extension, is_register) {
        (false, 7, true) => Some(Step::Fence),
        (true, 6, false) => Some(Step::WriteBack(FlushInstruction::Clwb)),
        (true, 7, false) => Some(Step::WriteBack(FlushInstruction::Clflushopt)),
        (false, 7, false) => Some(Step::WriteBack(FlushInstruction::Clflush)),
        _ => None,
    }
}

/// The write-backs and fences of `work`, run in a child; `None` where processes may not be traced.
fn steps_of(work: impl FnOnce()) -> Option<Vec<Step>> {
    /// Offset of the instruction pointer in `user_regs_struct` (sys/user.h).
    const RIP: usize = 128;
    // SAFETY: the child does only what follows, none of which takes a lock that another thread of
    // this process may have held.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: calls without pointers. The parent observes what happens between the two stops.
        unsafe {
            if libc::ptrace(libc::PTRACE_TRACEME, 0, null_mut::<()>(), null_mut::<()>()) != 0 {
                libc::_exit(1);
            }
            libc::raise(libc::SIGSTOP);
            work();
            libc::raise(libc::SIGSTOP);
            libc::_exit(0);
        }
    }
    let wait = || {
        let mut status = 0;
        // SAFETY: the status is written to.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    };
    let ask = |what: libc::c_uint, at: usize| {
        // SAFETY: the child is stopped; this reads from it, or continues it by one instruction.
        unsafe { libc::ptrace(what, child, at as *mut libc::c_void, null_mut::<()>()) }
    };
    let mut status = wait();
    if libc::WIFEXITED(status) {
        return None;
    }
    let mut steps = Vec::new();
    loop {
        let at = ask(libc::PTRACE_PEEKUSER, RIP) as usize;
        steps.extend(step(ask(libc::PTRACE_PEEKTEXT, at).to_ne_bytes()));
        ask(libc::PTRACE_SINGLESTEP, 0);
        status = wait();
        assert!(libc::WIFSTOPPED(status), "the child has ended: {status:#x}");
        match libc::WSTOPSIG(status) {
            libc::SIGTRAP => {}
            libc::SIGSTOP => break,
            other => panic!("signal {other}"),
        }
    }
    // SAFETY: a stopped child of this process.
    unsafe { libc::kill(child, libc::SIGKILL) };
    wait();
    Some(steps)
}

fn persist_on<M: MappedMedium>() -> (Region<M>, Option<Vec<Step>>) {
    let region = Region::new(M::new(Mapping::anonymous(4096, 0).unwrap()));
    let word = region.at(Offset::<Word>::new(64));
    let steps = steps_of(|| region.persist(word));
    (region, steps)
}

#[test]
fn persist_is_one_write_back_and_one_fence_or_nothing() {
    let (region, steps) = persist_on::<Pmem>();
    let Some(steps) = steps else { return };
    assert_eq!(steps, [Step::WriteBack(region.medium().flush_instruction()), Step::Fence]);
    assert_eq!(persist_on::<Shm>().1.unwrap(), []);
    assert_eq!(persist_on::<Dram>().1.unwrap(), []);
}
