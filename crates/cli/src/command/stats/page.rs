//! Figures from a running server's metrics page.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use crate::remote;

/// A server's metrics, as numbers by name.
pub(super) struct Page {
    text: String,
}

/// Maximum length of a metrics page, more than a server writes.
const PAGE_MAX: u64 = 1 << 20;

fn fetch(address: SocketAddr) -> Option<Page> {
    const TIMEOUT: Duration = Duration::from_secs(3);
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.take(PAGE_MAX).read_to_string(&mut answer).ok()?;
    let (head, text) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200").then(|| Page { text: text.into() })
}

impl Page {
    /// Fetches the metrics of the server that has the pool at `path` open: from `port` of this
    /// machine, or from the address in the server's notice. The error says what to do.
    pub(super) fn of(port: Option<u16>, path: &Path) -> Result<(Page, SocketAddr), String> {
        let chosen = port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let contacts = remote::contacts(path);
        let addresses: Vec<SocketAddr> = match chosen {
            Some(address) => vec![address],
            None => contacts.iter().filter_map(|contact| contact.metrics).collect(),
        };
        let mut why = match contacts.is_empty() {
            true => "no server has posted its address in the pool".into(),
            false => "the server that has it open shows no metrics: it was started without --metrics-port"
                .to_string(),
        };
        for address in addresses {
            match fetch(address) {
                None => {
                    why = format!("no server shows metrics at {address}: give the server's --metrics-port")
                }
                Some(page) if !page.is_of(path) => {
                    why = format!(
                        "the server with metrics at {address} serves another pool: give the right --metrics-port"
                    );
                }
                Some(page) => return Ok((page, address)),
            }
        }
        Err(why)
    }

    /// The number of the metric `name`.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.lines(name).find_map(|rest| rest.strip_prefix(' ')?.parse().ok())
    }

    /// The sum of the metrics with this prefix, over all labels.
    pub(super) fn sum(&self, begin: &str) -> Option<u64> {
        let counts = self.lines(begin).map(|rest| rest.rsplit_once(' ')?.1.parse::<u64>().ok());
        counts.sum()
    }

    /// The bounds (seconds) and cumulative counts of the histogram `name`.
    pub(super) fn buckets(&self, name: &str) -> Vec<(f64, f64)> {
        let bucket = format!("{name}_bucket{{le=\"");
        let parse = |rest: &str| {
            let (bound, count) = rest.split_once("\"} ")?;
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
            Some((bound, count.parse().ok()?))
        };
        self.lines(&bucket).filter_map(parse).collect()
    }

    /// The value of the only label of an info metric.
    pub(super) fn label(&self, info: &str, label: &str) -> Option<String> {
        let start = format!("{info}{{{label}=\"");
        let (value, _) = self.lines(&start).next()?.split_once("\"} ")?;
        Some(value.replace("\\\"", "\"").replace("\\\\", "\\"))
    }

    fn is_of(&self, path: &Path) -> bool {
        let its = self.label("terrace_pool_info", "path");
        let same =
            |its: &str| matches!((fs::canonicalize(its), fs::canonicalize(path)), (Ok(a), Ok(b)) if a == b);
        its.is_some_and(|its| same(&its))
    }

    fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.text.lines().filter_map(move |line| line.strip_prefix(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_parsed() {
        let text = "# HELP terrace_records Keys.\nterrace_records 12\nterrace_records_x 13\n\
                    terrace_turn_seconds_bucket{le=\"0.5\"} 3\nterrace_turn_seconds_bucket{le=\"+Inf\"} 4\n\
                    terrace_pool_info{path=\"/\"} 1\n";
        let page = Page { text: text.into() };
        assert_eq!(page.number("terrace_records"), Some(12.0));
        assert_eq!(page.number("terrace_rec"), None);
        assert_eq!(page.buckets("terrace_turn_seconds"), [(0.5, 3.0), (f64::INFINITY, 4.0)]);
        assert_eq!(page.sum("terrace_turn_seconds_bucket{"), Some(7));
        assert!(page.is_of(Path::new("/")));
        assert!(!page.is_of(Path::new("/proc")));
    }
}
