//! Why a server cannot listen, or cannot start its threads.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

/// The reason why the server cannot listen.
#[derive(Debug)]
#[non_exhaustive]
pub enum ListenError {
    /// Another program has the port.
    PortInUse {
        /// The address.
        address: SocketAddr,
        /// The flag that chooses another port.
        flag: &'static str,
    },
    /// The system refused the address.
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The flag that chooses another port.
        flag: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A name does not resolve to an address.
    Address {
        /// The name.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The address is not loopback, and no password is set.
    NoPassword {
        /// The address.
        ip: IpAddr,
    },
    /// A running server uses the Unix socket.
    UnixInUse {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The path exists and is not a socket.
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system refused the Unix socket.
    Unix {
        /// Path of the socket.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// No TCP port and no Unix socket is configured.
    NoAddress,
}

impl ListenError {
    /// What the user can do, one line each.
    pub fn hints(&self) -> Vec<String> {
        match self {
            ListenError::PortInUse { address, flag } => vec![
                format!("to see which program: ss -ltnp 'sport = :{}'", address.port()),
                format!("to use another port: {flag} PORT"),
            ],
            ListenError::Tcp { flag, source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                vec![format!("only root may use ports below 1024; to use another: {flag} PORT")]
            }
            ListenError::Tcp { .. } | ListenError::Address { .. } => {
                vec!["--bind takes addresses of this machine: ip -brief address".into()]
            }
            ListenError::NoPassword { .. } => vec![
                "any client that reaches that address could read and delete all data".into(),
                "give clients a password: TERRACE_PASSWORD=... or --password-file FILE".into(),
                "or serve this machine only: --bind 127.0.0.1".into(),
            ],
            ListenError::UnixInUse { .. } => vec!["to use another: --unix PATH".into()],
            ListenError::NotASocket { .. } => {
                vec!["move that file, or use another: --unix PATH".into()]
            }
            ListenError::Unix { path, source } => match source.kind() {
                io::ErrorKind::NotFound => vec![format!(
                    "the directory {} must exist",
                    path.parent().unwrap_or(Path::new("/")).display()
                )],
                io::ErrorKind::InvalidInput => vec!["a socket's path has at most 107 bytes".into()],
                _ => vec!["to use another: --unix PATH".into()],
            },
            ListenError::NoAddress => vec!["give --port PORT, or --unix PATH, or both".into()],
        }
    }
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenError::PortInUse { address, .. } => {
                write!(f, "port {} of {} is in use by another program", address.port(), address.ip())
            }
            ListenError::Tcp { address, source, .. } => write!(f, "cannot listen on {address}: {source}"),
            ListenError::Address { name, source } => write!(f, "`{name}` is not an address: {source}"),
            ListenError::NoPassword { ip } => {
                write!(f, "refusing to listen on {ip}, which is not loopback, without a password")
            }
            ListenError::UnixInUse { path } => {
                write!(f, "the socket {} is in use by a running server", path.display())
            }
            ListenError::NotASocket { path } => write!(f, "{} exists and is not a socket", path.display()),
            ListenError::Unix { path, source } => write!(f, "cannot listen on {}: {source}", path.display()),
            ListenError::NoAddress => f.write_str("nothing to listen on"),
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ListenError::Tcp { source, .. }
            | ListenError::Address { source, .. }
            | ListenError::Unix { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The system refused a thread, a poll or a socket operation that the server needs.
#[derive(Debug)]
pub struct StartError(pub(super) io::Error);

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> StartError {
        StartError(error)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot start the server's threads: {}", self.0)
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}
