//! Ports for the servers of tests.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// Below those that the system gives to outgoing connections: a server that dies finds its port
/// free when it starts again.
const PORTS: std::ops::Range<u16> = 2_000..31_000;

/// The first of so many free ports in a row. No other call of this process returns any of them
/// soon, so they need not be in use yet.
///
/// # Panics
/// If there are none, or `count` is 0 or above 1,000.
pub fn free_ports(count: u16) -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    assert!((1..=1_000).contains(&count), "1 to 1,000 ports");
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    // Processes at one time begin at different places.
    let row = || {
        let place =
            (std::process::id() as u16).wrapping_mul(64).wrapping_add(TAKEN.fetch_add(count, Relaxed));
        // One divisor for rows of all lengths, or rows of different lengths would overlap.
        PORTS.start + place % (PORTS.end - PORTS.start)
    };
    let mut rows = std::iter::repeat_with(row).take(usize::from(PORTS.end));
    rows.find(|first| (*first..first + count).all(is_free)).expect("free ports in a row")
}
