//! Ports for the servers of tests.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Below those that the system gives to outgoing connections: a server that dies finds its port
/// free when it starts again.
const PORTS: std::ops::Range<u16> = 2_000..31_000;

/// The first of so many free ports in a row. No other call returns any of them while this process
/// lives, in no process, so they need not be in use yet.
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
    let is_ours = |first: &u16| (*first..*first + count).all(|port| is_free(port) && claim(port));
    rows.find(is_ours).expect("free ports in a row")
}

/// Claims a port for this process: test programs run side by side. The system frees the name when
/// the process ends.
fn claim(port: u16) -> bool {
    static CLAIMED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let name = SocketAddr::from_abstract_name(format!("terrace-test-port-{port}")).expect("a short name");
    let claimed = UnixListener::bind_addr(&name);
    let is_ours = claimed.is_ok();
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).extend(claimed);
    is_ours
}
