//! The message to a service manager that the node is ready (systemd's `Type=notify`).

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// Tells the service manager, if the node was started by one that listens.
pub(super) fn ready() {
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
