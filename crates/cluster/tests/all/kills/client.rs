//! A client of a cluster, which follows redirections and tries again what certainly did not happen.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// No call takes longer, unless the cluster hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a reply may take. A stopped node answers after that.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Text(String),
    Nothing,
    /// None came: the call has happened or not.
    Unknown,
}

impl Reply {
    pub(crate) fn word(&self) -> Option<u64> {
        match self {
            Self::Text(text) => Some(text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))),
            Self::Nothing | Self::Unknown => None,
        }
    }
}

/// A client with a connection to each node that it has called.
pub(crate) struct Client {
    ports: Vec<u16>,
    connections: HashMap<u16, BufReader<TcpStream>>,
    next: usize,
}

impl Client {
    pub(crate) fn new(ports: Vec<u16>) -> Self {
        Self { ports, connections: HashMap::new(), next: 0 }
    }

    /// Calls until some node has executed the command, or nobody knows whether one has.
    pub(crate) fn call(&mut self, command: &[&str]) -> Reply {
        let began = Instant::now();
        let mut port = self.ports[self.next % self.ports.len()];
        // How often the ports said this.
        let mut refusals: BTreeMap<(u16, String), u64> = BTreeMap::new();
        loop {
            assert!(began.elapsed() < PATIENCE, "no node executes {command:?}: {refusals:?}");
            match self.call_one(port, command) {
                Ok(Ok(reply)) => return reply,
                Ok(Err(error)) => {
                    *refusals.entry((port, error.clone())).or_default() += 1;
                    let words: Vec<&str> = error.split(' ').collect();
                    match words[..] {
                        ["MOVED", _, place] => port = place.rsplit(':').next().unwrap().parse().unwrap(),
                        ["TRYAGAIN" | "CLUSTERDOWN", ..] => std::thread::sleep(Duration::from_millis(1)),
                        _ => panic!("{command:?}: {error}"),
                    }
                }
                // Not sent.
                Err(false) => {
                    *refusals.entry((port, "no connection".into())).or_default() += 1;
                    self.connections.remove(&port);
                    self.next += 1;
                    port = self.ports[self.next % self.ports.len()];
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(true) => {
                    self.connections.remove(&port);
                    self.next += 1;
                    return Reply::Unknown;
                }
            }
        }
    }

    /// The word of a key, read until there is an answer.
    pub(crate) fn get(&mut self, key: &str) -> Option<u64> {
        loop {
            match self.call(&["GET", key]) {
                Reply::Unknown => {}
                reply => return reply.word(),
            }
        }
    }

    /// Calls one node. `Err`: whether the command may have been sent.
    fn call_one(&mut self, port: u16, command: &[&str]) -> Result<Result<Reply, String>, bool> {
        let connection = match self.connections.entry(port) {
            Entry::Occupied(connection) => connection.into_mut(),
            Entry::Vacant(place) => {
                let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
                let stream =
                    TcpStream::connect_timeout(&address, Duration::from_millis(200)).map_err(|_| false)?;
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                stream.set_nodelay(true).unwrap();
                place.insert(BufReader::new(stream))
            }
        };
        let mut request = format!("*{}\r\n", command.len());
        command.iter().for_each(|part| request += &format!("${}\r\n{part}\r\n", part.len()));
        connection.get_mut().write_all(request.as_bytes()).map_err(|_| true)?;
        read_reply(connection).map_err(|_| true)
    }
}

fn read_reply(connection: &mut BufReader<TcpStream>) -> std::io::Result<Result<Reply, String>> {
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let (kind, rest) = line.trim_end().split_at_checked(1).ok_or(std::io::ErrorKind::UnexpectedEof)?;
    match kind {
        "+" | ":" => Ok(Ok(Reply::Text(rest.to_owned()))),
        "-" => Ok(Err(rest.to_owned())),
        "$" if rest == "-1" => Ok(Ok(Reply::Nothing)),
        "$" => {
            let mut text = vec![0; rest.parse::<usize>().map_err(std::io::Error::other)? + 2];
            connection.read_exact(&mut text)?;
            text.truncate(text.len() - 2);
            Ok(Ok(Reply::Text(String::from_utf8_lossy(&text).into_owned())))
        }
        _ => Ok(Ok(Reply::Nothing)),
    }
}
