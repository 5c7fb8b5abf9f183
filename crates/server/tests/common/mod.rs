//! A server in this process, and clients that send and receive raw bytes.
#![allow(dead_code, reason = "each test file uses its part")]

mod client;
mod fresh;
mod refusing;
mod slots;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use tempfile::TempDir;
use terrace::Store;
use terrace_server::{config::Config, net::Listeners, routing::Routing, server::Server, shared::Shared};

pub(crate) use client::{Client, START_MS};
pub(crate) use fresh::{fresh, is_on_disk, is_tiered};
pub(crate) use refusing::{GATE, Refusing};
pub(crate) use slots::{Cluster, Spot};

/// A running server that stops when dropped.
pub(crate) struct Running {
    server: Option<Server>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) directory: TempDir,
    pub(crate) port: u16,
}

/// No reply takes longer, unless the server hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Running {
    /// Starts a server with these settings, a Unix socket and a TCP port.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Running {
        let store = fresh().size(terrace::ByteSize::mib(512)).create().unwrap();
        Running::start_with(store, settings)
    }

    /// As [`Running::start`], over this store.
    pub(crate) fn start_with(store: Store, settings: &[(&str, &str)]) -> Running {
        Running::start_node(store, settings, None)
    }

    /// As [`Running::start_with`], as a node of a cluster.
    pub(crate) fn start_node(
        store: Store,
        settings: &[(&str, &str)],
        routing: Option<Arc<dyn Routing>>,
    ) -> Running {
        Running::start_late(store, settings, routing, |_| ())
    }

    /// As [`Running::start_node`]. Calls `before` with the port when clients can connect, and
    /// nothing serves them yet.
    pub(crate) fn start_late(
        store: Store,
        settings: &[(&str, &str)],
        routing: Option<Arc<dyn Routing>>,
        before: impl FnOnce(u16),
    ) -> Running {
        // The path of a socket has at most 107 bytes, and TMPDIR may be long.
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let socket = directory.path().join("socket").to_string_lossy().into_owned();
        // Another test may take the port between this check and the bind.
        for _ in 0..50 {
            let port = free_port();
            let config = Config::default();
            let fixed = [("unixsocket", socket.as_str()), ("port", &port.to_string()), ("metrics-port", "0")];
            for (name, value) in fixed.iter().chain(settings) {
                config.assign(name, value).unwrap();
            }
            let Ok(listeners) = Listeners::bind(&config) else { continue };
            before(port);
            let shared = Arc::new(match routing {
                Some(routing) => Shared::of_node(store, config, routing),
                None => Shared::new(store, config),
            });
            let server = Some(Server::start(Arc::clone(&shared), listeners).unwrap());
            return Running { server, shared, directory, port };
        }
        panic!("no free port in 50 attempts");
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub(crate) fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Asks the server to stop, and waits until it has.
    pub(crate) fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stopper().stop();
            server.wait().unwrap();
        }
    }

    /// Waits until the server has stopped by itself.
    pub(crate) fn wait(&mut self) {
        self.server.take().unwrap().wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sends `request`, and checks that the reply begins with `answer`.
pub(crate) fn ask(stream: &mut (impl Read + Write), request: &[u8], answer: &[u8]) {
    stream.write_all(request).unwrap();
    expect(stream, answer);
}

/// Reads as many bytes as `answer` has, and checks that they are equal.
pub(crate) fn expect(stream: &mut impl Read, answer: &[u8]) {
    let mut found = vec![0; answer.len()];
    stream.read_exact(&mut found).unwrap();
    assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(answer));
}

/// Reads until the other end closes or resets the connection.
pub(crate) fn rest(stream: &mut impl Read) -> Vec<u8> {
    let mut found = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return found,
            Ok(count) => found.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return found,
            Err(error) => panic!("the server did not close: {error}"),
        }
    }
}

/// Reads an array of byte strings.
pub(crate) fn array(stream: &mut impl Read) -> Vec<Vec<u8>> {
    let count = length(stream, b'*');
    (0..count)
        .map(|_| {
            let mut bytes = vec![0; length(stream, b'$') + 2];
            stream.read_exact(&mut bytes).unwrap();
            bytes.truncate(bytes.len() - 2);
            bytes
        })
        .collect()
}

/// Reads the head of a reply of this kind; returns its length.
fn length(stream: &mut impl Read, kind: u8) -> usize {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&line).into_owned();
    assert_eq!(line[0], kind, "{text}");
    text[1..].trim_end().parse().unwrap()
}

/// Encodes a command as an array of bulk strings.
pub(crate) fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
