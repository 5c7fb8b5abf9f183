//! The only places where the pool reads the clock: when it was created, and when each process
//! opened it. For people, never for decisions.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix time in milliseconds.
#[allow(clippy::disallowed_methods, reason = "recorded for people to read; no decision depends on it")]
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// `unix_ms` on this machine's wall clock, for people: `09:12` today, `2026-11-21 09:12` on another
/// day.
pub(crate) fn wall_clock(unix_ms: u64) -> String {
    match (local(unix_ms), local(now_ms())) {
        (Some(then), Some(today)) => {
            let time = format!("{:02}:{:02}", then.tm_hour, then.tm_min);
            if (then.tm_year, then.tm_yday) == (today.tm_year, today.tm_yday) {
                time
            } else {
                format!("{}-{:02}-{:02} {time}", 1900 + then.tm_year, then.tm_mon + 1, then.tm_mday)
            }
        }
        _ => "an unknown time".into(),
    }
}

fn local(unix_ms: u64) -> Option<libc::tm> {
    let seconds = libc::time_t::try_from(unix_ms / 1000).ok()?;
    let mut out = std::mem::MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are valid for the call; a result that is not null means that `out` was
    // filled in.
    unsafe {
        let filled = libc::localtime_r(&raw const seconds, out.as_mut_ptr());
        (!filled.is_null()).then(|| out.assume_init())
    }
}

#[cfg(test)]
#[path = "tests/clock.rs"]
mod tests;
