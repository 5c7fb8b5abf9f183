//! The addresses of a node: those that others are told, and those that they have told.

use std::net::{SocketAddr, ToSocketAddrs};

use super::options::NodeOptions;
use crate::failure::Failure;

/// The host of an address that others can connect to.
pub(super) fn announced(options: &NodeOptions, address: SocketAddr, flag: &str) -> Result<String, Failure> {
    match &options.announce_host {
        Some(host) => Ok(host.clone()),
        None if address.ip().is_unspecified() => Err(Failure::usage(format!(
            "{flag} {} is no address that others can connect to: give --announce-host",
            address.ip()
        ))),
        None => Ok(address.ip().to_string()),
    }
}

/// This machine's address in the fabric's network.
pub(super) fn fabric_host(options: &NodeOptions, address: SocketAddr, flag: &str) -> Result<String, Failure> {
    match &options.host {
        Some(host) => Ok(host.clone()),
        None if address.ip().is_unspecified() => Err(Failure::usage(format!(
            "{flag} {} is no address of the memory's fabric: give one with --host",
            address.ip()
        ))),
        None => Ok(address.ip().to_string()),
    }
}

/// An IPv6 address in brackets.
pub(super) fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// The address that a text stands for.
pub(super) fn resolve(address: &str) -> Result<SocketAddr, Failure> {
    let failed =
        |why: String| Failure::new(format!("the memory node's address {address} is not known: {why}"));
    let mut found = address.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    found.next().ok_or_else(|| failed("the name has no address".into()))
}
