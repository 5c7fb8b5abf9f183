//! Listening sockets: addresses, ports and errors.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    path::{Path, PathBuf},
};

use mio::net::{TcpListener, UnixListener};

use super::{
    error::ListenError,
    unix::{self, SocketFile},
};
use crate::state::config::{Config, Key};

/// All listening sockets of a server.
#[derive(Debug, Default)]
pub struct Listeners {
    pub(super) tcp: Vec<TcpListener>,
    pub(super) unix: Option<(UnixListener, PathBuf)>,
    pub(super) unix_file: Option<SocketFile>,
    pub(super) metrics: Option<TcpListener>,
}

impl Listeners {
    /// Opens the sockets that the settings name.
    pub fn bind(config: &Config) -> Result<Listeners, ListenError> {
        let mut listeners = Listeners::default();
        let port = config.number(Key::Port);
        let backlog = backlog(config);
        if port != 0 {
            let addresses = addresses(&config.text(Key::Bind), to_port(port))?;
            addresses.iter().try_for_each(|address| refuse_open(address.ip(), config))?;
            for address in addresses {
                listeners.tcp.push(tcp(address, backlog, "--port")?);
            }
        }
        let path = config.text(Key::UnixSocket);
        if !path.is_empty() {
            listeners.listen_unix(Path::new(&path), backlog, config)?;
        }
        listeners.metrics = metrics_listener(config)?;
        if listeners.tcp.is_empty() && listeners.unix.is_none() {
            return Err(ListenError::NoAddress);
        }
        Ok(listeners)
    }

    /// The TCP addresses that clients connect to.
    pub fn tcp_addresses(&self) -> Vec<SocketAddr> {
        self.tcp.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// The Unix socket that clients connect to.
    pub fn unix_path(&self) -> Option<&Path> {
        self.unix.as_ref().map(|(_, path)| path.as_path())
    }

    /// The address of the metrics page.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref()?.local_addr().ok()
    }

    /// Takes the listener of the metrics page, which a thread of its own serves.
    pub(crate) fn take_metrics(&mut self) -> Option<TcpListener> {
        self.metrics.take()
    }

    fn listen_unix(&mut self, path: &Path, backlog: i32, config: &Config) -> Result<(), ListenError> {
        let mode = u32::try_from(config.number(Key::UnixSocketPerm)).unwrap_or(0o700);
        let (listener, file) = unix::listen(path, mode)?;
        rustix::net::listen(&listener, backlog)
            .map_err(|error| ListenError::Unix { path: path.into(), source: error.into() })?;
        self.unix = Some((UnixListener::from_std(listener), path.to_path_buf()));
        self.unix_file = Some(file);
        Ok(())
    }
}

fn to_port(number: u64) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// The addresses that `bind` names: IP addresses or host names, separated by spaces or commas.
fn addresses(bind: &str, port: u16) -> Result<Vec<SocketAddr>, ListenError> {
    let mut found = Vec::new();
    for name in bind.split([' ', ',']).filter(|name| !name.is_empty()) {
        let name = if name == "*" { "0.0.0.0" } else { name.trim_matches(['[', ']']) };
        let resolved = (name, port).to_socket_addrs();
        let resolved = resolved.map_err(|source| ListenError::Address { name: name.into(), source })?;
        found.extend(resolved);
    }
    found.sort_unstable();
    found.dedup();
    if found.is_empty() { Err(ListenError::NoAddress) } else { Ok(found) }
}

/// Refuses a non-loopback address without a password: any client could read and delete all data.
fn refuse_open(ip: IpAddr, config: &Config) -> Result<(), ListenError> {
    if ip.is_loopback() || !config.password().is_empty() {
        return Ok(());
    }
    Err(ListenError::NoPassword { ip })
}

/// Listens for scrapes, if the settings name a port for them.
pub(super) fn metrics_listener(config: &Config) -> Result<Option<TcpListener>, ListenError> {
    let port = config.number(Key::MetricsPort);
    if port == 0 {
        return Ok(None);
    }
    let address = addresses(&config.text(Key::MetricsBind), to_port(port))?[0];
    match tcp(address, METRICS_BACKLOG, "--metrics-port") {
        // A second server on the same machine must not fail only because of the default port.
        Err(error) if !config.is_explicit(Key::MetricsPort) => {
            log::warn!("no metrics: {error}; --metrics-port PORT chooses another, 0 none");
            config.record(Key::MetricsPort, 0);
            Ok(None)
        }
        listener => listener.map(Some),
    }
}

/// Scrapes that may wait to be accepted.
const METRICS_BACKLOG: i32 = 511;

/// The number of connections that may wait to be accepted. Warns if the kernel allows fewer.
fn backlog(config: &Config) -> i32 {
    let wanted = config.number(Key::TcpBacklog);
    let text = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
    if let Ok(most) = text.trim().parse::<u64>()
        && most < wanted
    {
        log::warn!(
            "only {most} connections may wait to be accepted, not {wanted} (tcp-backlog): limited by \
             the kernel's net.core.somaxconn"
        );
        config.record(Key::TcpBacklog, most);
    }
    i32::try_from(wanted).unwrap_or(i32::MAX)
}

fn tcp(address: SocketAddr, backlog: i32, flag: &'static str) -> Result<TcpListener, ListenError> {
    let listen = || {
        let listener = TcpListener::bind(address)?;
        // The socket listens already, with a backlog that `bind` does not let us choose. A second
        // call changes it.
        rustix::net::listen(&listener, backlog)?;
        Ok(listener)
    };
    listen().map_err(|source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::PortInUse { address, flag },
        _ => ListenError::Tcp { address, flag, source },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(settings: &[(&str, &str)]) -> Config {
        let config = Config::default();
        for (name, value) in [("metrics-port", "0")].iter().chain(settings) {
            config.assign(name, value).unwrap();
        }
        config
    }

    #[test]
    fn non_loopback_address_requires_password() {
        for bind in ["0.0.0.0", "*", "127.0.0.1 0.0.0.0", "[::]"] {
            let open = config(&[("bind", bind), ("port", "1")]);
            assert!(matches!(Listeners::bind(&open), Err(ListenError::NoPassword { .. })));
        }
        assert!(refuse_open([0, 0, 0, 0].into(), &config(&[("requirepass", "secret")])).is_ok());
        assert!(refuse_open([127, 0, 0, 7].into(), &config(&[])).is_ok());
    }

    /// The kernel completes connections up to the backlog even if no thread accepts them.
    #[test]
    fn backlog_is_as_configured() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listeners = (0..50).find_map(|_| {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let (port, path) = (free.to_string(), path.to_str().unwrap());
            Listeners::bind(&config(&[("port", &port), ("unixsocket", path)])).ok()
        });
        let listeners = listeners.expect("a free port in 50 attempts");
        let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let waiting = somaxconn.trim().parse::<usize>().unwrap().min(200);
        let address = listeners.tcp_addresses()[0];
        let patience = std::time::Duration::from_secs(10);
        let connect = |nth| {
            let stream = std::net::TcpStream::connect_timeout(&address, patience);
            stream.unwrap_or_else(|error| panic!("connection {nth}: {error}"))
        };
        let tcp: Vec<_> = (0..waiting).map(connect).collect();
        drop(tcp);
        let connect = |nth| {
            let socket = rustix::net::socket_with(
                rustix::net::AddressFamily::UNIX,
                rustix::net::SocketType::STREAM,
                rustix::net::SocketFlags::NONBLOCK,
                None,
            )
            .unwrap();
            let connected = rustix::net::connect(&socket, &rustix::net::SocketAddrUnix::new(&path).unwrap());
            connected.unwrap_or_else(|error| panic!("connection {nth}: {error}"));
            socket
        };
        let unix: Vec<_> = (0..waiting).map(connect).collect();
        drop(unix);
    }

    #[test]
    fn occupied_metrics_port_is_skipped_only_by_default() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let chosen = config(&[("port", "0"), ("metrics-port", &port.to_string())]);
        let error = Listeners::bind(&chosen).unwrap_err();
        assert!(matches!(error, ListenError::PortInUse { flag: "--metrics-port", .. }), "{error}");
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let default = Config::default();
        for (name, value) in [("port", "0"), ("unixsocket", socket.to_str().unwrap())] {
            default.assign(name, value).unwrap();
        }
        default.record(Key::MetricsPort, port.into());
        let listeners = Listeners::bind(&default).unwrap();
        assert_eq!((listeners.metrics_address(), default.number(Key::MetricsPort)), (None, 0));
    }

    #[test]
    fn bind_errors_name_the_cause() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port().to_string();
        let error = Listeners::bind(&config(&[("port", &port)])).unwrap_err();
        assert!(error.to_string().contains(&format!("port {port} of 127.0.0.1 is in use")), "{error}");
        assert!(matches!(Listeners::bind(&config(&[("port", "0")])), Err(ListenError::NoAddress)));
        assert!(matches!(Listeners::bind(&config(&[("bind", " ")])), Err(ListenError::NoAddress)));
        let unknown = config(&[("bind", "no.such.host.invalid")]);
        assert!(matches!(Listeners::bind(&unknown), Err(ListenError::Address { .. })));
    }
}
