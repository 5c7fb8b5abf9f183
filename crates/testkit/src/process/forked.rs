//! A child by fork, which runs a part of a test and then ends.

use std::io::Error;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The error number of a child whose body has returned 0. No call of the kernel returns it.
const ZERO: i32 = 4096;
/// Bound of what a body may return.
const MOST: i32 = 1000;

/// Runs `body` in a child by fork of this process, and returns its result there. The child has a
/// copy of this process's memory, none of its other threads, and ends after the body.
///
/// The body must wait for no other thread, and for no lock that one may hold: it would hang, and
/// this call with it.
///
/// # Panics
/// If the child cannot be made, or the body returns a number from 1,000 on.
pub fn in_forked_child(mut body: impl FnMut() -> u16 + Send + Sync + 'static) -> u16 {
    let run = move || Err(Error::from_raw_os_error(ZERO + i32::from(body())));
    let mut command = Command::new("/bin/true");
    // SAFETY: the child is alone in its copy of the memory, and always ends after the body: the
    // error keeps it from running the program. Callers let the body wait for no other thread.
    unsafe { command.pre_exec(run) };
    let error = command.spawn().expect_err("the body's result");
    let number = error.raw_os_error().filter(|number| (ZERO..ZERO + MOST).contains(number));
    number.map_or_else(|| panic!("no child: {error}"), |number| (number - ZERO) as u16)
}
