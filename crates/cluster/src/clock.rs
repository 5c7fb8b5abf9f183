//! The clock of leases.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The time since this machine was started. It goes on while the machine sleeps.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.expect("a time since the boot"), nanos.expect("a part of a second"))
}
