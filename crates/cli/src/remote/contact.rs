//! A server's addresses, and their text form: the notice that `serve` posts in its pool.
//!
//! ```text
//! run 5f1c..e2           the server's run_id, as in INFO; unique to each server process
//! unix /run/app.socket
//! tcp 127.0.0.1:6379
//! metrics 127.0.0.1:9121
//! ```

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{self, Path, PathBuf},
};

use terrace::NOTICE_MAX;

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// A server's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contact {
    pub(crate) run_id: String,
    /// In the order in which a client tries them.
    pub(crate) places: Vec<Place>,
    pub(crate) metrics: Option<SocketAddr>,
}

impl Contact {
    /// A server that listens on these addresses. Wildcard addresses become loopback addresses.
    pub(crate) fn new(
        run_id: &str,
        unix: Option<&Path>,
        tcp: impl IntoIterator<Item = SocketAddr>,
        metrics: Option<SocketAddr>,
    ) -> Contact {
        let unix = unix.and_then(|path| path::absolute(path).ok()).map(Place::Unix);
        let mut tcp: Vec<SocketAddr> = tcp.into_iter().map(local_address).collect();
        tcp.sort_by_key(|address| !address.ip().is_loopback());
        let places = unix.into_iter().chain(tcp.into_iter().map(Place::Tcp)).collect();
        Contact { run_id: run_id.into(), places, metrics }
    }

    /// The notice's text, with as many addresses as fit.
    pub(crate) fn to_notice(&self) -> String {
        let mut notice = format!("run {}\n", self.run_id);
        let places = self.places.iter().map(|place| format!("{place}\n"));
        let metrics = self.metrics.map(|address| format!("metrics {address}\n"));
        // The first address and the metrics have priority.
        let mut places: Vec<String> = places.collect();
        let rest = places.split_off(places.len().min(1));
        for line in places.into_iter().chain(metrics).chain(rest) {
            // A path that contains a line end would be read as two lines.
            if notice.len() + line.len() <= NOTICE_MAX && line.matches('\n').count() == 1 {
                notice.push_str(&line);
            }
        }
        notice
    }

    /// Parses a notice. Unknown lines are ignored, for later releases. `None` if it is not a
    /// server's.
    pub(crate) fn parse(notice: &str) -> Option<Contact> {
        let mut contact = Contact::default();
        for (kind, what) in notice.lines().filter_map(|line| line.split_once(' ')) {
            match kind {
                "run" => contact.run_id = what.into(),
                "unix" => contact.places.push(Place::Unix(what.into())),
                "tcp" => contact.places.extend(what.parse().ok().map(Place::Tcp)),
                "metrics" => contact.metrics = what.parse().ok(),
                _ => {}
            }
        }
        (!contact.run_id.is_empty()).then_some(contact)
    }
}

/// The address at which a process on the same machine reaches a listener: loopback if it listens on
/// all addresses.
fn local_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Unix(path) => write!(f, "unix {}", path.display()),
            Place::Tcp(address) => write!(f, "tcp {address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn contact_is_restored_from_its_notice() {
        let socket = Path::new("/run/a b.socket");
        let contact = Contact::new(
            "5f",
            Some(socket),
            [tcp("10.0.0.1:7"), tcp("0.0.0.0:1"), tcp("[::]:2")],
            Some(tcp("127.0.0.1:9121")),
        );
        let places = [
            Place::Unix(socket.into()),
            Place::Tcp(tcp("127.0.0.1:1")),
            Place::Tcp(tcp("[::1]:2")),
            Place::Tcp(tcp("10.0.0.1:7")),
        ];
        assert_eq!(contact.places, places);
        assert_eq!(Contact::parse(&contact.to_notice()), Some(contact));
    }

    #[test]
    fn long_notice_keeps_whole_lines_and_the_metrics() {
        let many = (1..=200).map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let notice = Contact::new(&"f".repeat(40), None, many, Some(tcp("127.0.0.1:9121"))).to_notice();
        assert!(notice.len() <= NOTICE_MAX);
        let read = Contact::parse(&notice).unwrap();
        assert!(read.metrics.is_some() && read.places[0] == Place::Tcp(tcp("10.0.0.1:1")));
        assert!(read.places.len() > 3);
    }

    #[test]
    fn other_notices_and_unknown_lines_are_ignored() {
        assert_eq!(Contact::parse(""), None);
        assert_eq!(Contact::parse("hello"), None);
        let read = Contact::parse("run 1\nquic [::1]:1\ntcp nowhere\ntcp 127.0.0.1:5\n").unwrap();
        assert_eq!(read.places, [Place::Tcp(tcp("127.0.0.1:5"))]);
    }
}
