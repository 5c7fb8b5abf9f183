//! Says that the node is ready: to the reader of its output, and to a service manager (systemd's
//! `Type=notify`).

use std::{
    env,
    io::{self, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// Prints what the node is, and that it is ready.
pub(super) fn say_ready(line: &str) {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let mut out = io::stdout().lock();
    // The reader of the output may be gone; the node runs nevertheless.
    let _ = writeln!(out, "terrace {VERSION}  {line}\nready").and_then(|()| out.flush());
    tell_manager();
}

/// Tells the service manager, if the node was started by one that listens.
fn tell_manager() {
    let Some(place) = env::var_os("NOTIFY_SOCKET").filter(|place| !place.is_empty()) else { return };
    let tell = || -> io::Result<()> {
        let address = match place.as_bytes() {
            // A name without a file.
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(&place)?,
        };
        UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address).map(|_| ())
    };
    if let Err(error) = tell() {
        log::warn!("cannot tell the service manager at NOTIFY_SOCKET={} of it: {error}", place.display());
    }
}
