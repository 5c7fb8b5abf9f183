//! A client of a cluster: knows where slots are, follows redirections, and measures its calls.

use super::Outcome;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A client with a connection to each node that it has called.
pub(super) struct Client {
    ports: Vec<u16>,
    connections: HashMap<u16, BufReader<TcpStream>>,
    /// Where a key was served last.
    known: HashMap<String, u16>,
    next: usize,
}

impl Client {
    pub(super) fn new(ports: &[u16]) -> Self {
        Self { ports: ports.to_vec(), connections: HashMap::new(), known: HashMap::new(), next: 0 }
    }

    /// The node that serves a key.
    pub(super) fn owner(&mut self, key: &str) -> Outcome<u16> {
        self.call(key, &["GET", key], Duration::from_secs(30))?;
        self.known.get(key).copied().ok_or_else(|| "no node serves a key".into())
    }

    /// Calls until a node has executed the command. Returns how long that took, and whether another
    /// try was needed after an error or a lost connection.
    pub(super) fn call(
        &mut self,
        key: &str,
        command: &[&str],
        at_most: Duration,
    ) -> Outcome<(Duration, bool)> {
        let (began, mut is_repeated) = (Instant::now(), false);
        let mut port = self.known.get(key).copied().unwrap_or(self.ports[0]);
        while began.elapsed() < at_most {
            match self.try_one(port, command) {
                Ok(line) if line.starts_with("-MOVED") => {
                    port = line
                        .trim_end()
                        .rsplit(':')
                        .next()
                        .and_then(|port| port.parse().ok())
                        .ok_or("no port")?;
                    self.known.insert(key.to_owned(), port);
                }
                Ok(line) if line.starts_with("-TRYAGAIN") || line.starts_with("-CLUSTERDOWN") => {
                    is_repeated = true
                }
                Ok(line) if line.starts_with('-') => return Err(line.into()),
                Ok(_) => {
                    self.known.insert(key.to_owned(), port);
                    return Ok((began.elapsed(), is_repeated));
                }
                Err(_) => {
                    is_repeated = true;
                    self.connections.remove(&port);
                    self.next += 1;
                    port = self.ports[self.next % self.ports.len()];
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        Err(format!("no node executes {command:?}").into())
    }

    fn try_one(&mut self, port: u16, command: &[&str]) -> std::io::Result<String> {
        let connection = match self.connections.entry(port) {
            Entry::Occupied(connection) => connection.into_mut(),
            Entry::Vacant(place) => {
                let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
                let stream = TcpStream::connect_timeout(&address, Duration::from_millis(100))?;
                stream.set_read_timeout(Some(Duration::from_secs(3)))?;
                stream.set_nodelay(true)?;
                place.insert(BufReader::new(stream))
            }
        };
        let mut request = format!("*{}\r\n", command.len());
        command.iter().for_each(|part| request += &format!("${}\r\n{part}\r\n", part.len()));
        connection.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        if connection.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(len) = line.strip_prefix('$').and_then(|len| len.trim_end().parse::<usize>().ok()) {
            connection.read_exact(&mut vec![0; len + 2])?;
        }
        Ok(line)
    }
}
