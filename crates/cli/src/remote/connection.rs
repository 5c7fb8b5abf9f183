//! A connection to a server: sends commands, receives replies.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    time::Duration,
};

use terrace_protocol::Reply;

use super::{Answer, Place, parse};

/// How long a server may take to accept a connection, and to answer the first commands.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum number of bytes per read.
const READ: usize = 64 << 10;

pub(crate) struct Connection {
    stream: Stream,
    /// Encoded commands that are queued.
    output: Vec<u8>,
    /// Bytes read. Those before `taken` belong to replies that were returned.
    input: Vec<u8>,
    taken: usize,
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Connection {
    pub(crate) fn open(place: &Place) -> io::Result<Connection> {
        let stream = match place {
            Place::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
            Place::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, TIMEOUT)?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
        };
        Ok(Connection { stream, output: Vec::new(), input: Vec::new(), taken: 0 })
    }

    /// Sets whether a read from a silent server times out.
    pub(crate) fn set_timeout(&self, has_timeout: bool) -> io::Result<()> {
        let timeout = has_timeout.then_some(TIMEOUT);
        match &self.stream {
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// Queues a command for [`Connection::send`]. Its encoding is an array of strings, as in
    /// replies.
    pub(crate) fn queue(&mut self, words: &[&[u8]]) {
        let mut command = Reply::new(&mut self.output, false);
        command.array(words.len());
        words.iter().for_each(|word| command.bulk(word));
    }

    /// Number of queued bytes.
    pub(crate) fn queued(&self) -> usize {
        self.output.len()
    }

    pub(crate) fn send(&mut self) -> io::Result<()> {
        let output = std::mem::take(&mut self.output);
        self.send_raw(&output)
    }

    pub(crate) fn send_raw(&mut self, commands: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Unix(stream) => stream.write_all(commands),
            Stream::Tcp(stream) => stream.write_all(commands),
        }
    }

    /// The next reply.
    pub(crate) fn answer(&mut self) -> io::Result<Answer<'_>> {
        let mut begin = self.taken;
        loop {
            // Parsed again below: the borrow checker does not accept a return of the answer here.
            if let Some((_, len)) = parse(&self.input[begin..])? {
                self.taken = begin + len;
                break;
            }
            self.input.drain(..begin);
            (begin, self.taken) = (0, 0);
            self.read_more()?;
        }
        parse(&self.input[begin..])?
            .map(|(answer, _)| answer)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn read_more(&mut self) -> io::Result<()> {
        let have = self.input.len();
        // Read larger pieces of longer replies.
        self.input.resize(have + READ.max(have / 2), 0);
        let read = loop {
            let read = match &mut self.stream {
                Stream::Unix(stream) => stream.read(&mut self.input[have..]),
                Stream::Tcp(stream) => stream.read(&mut self.input[have..]),
            };
            if !read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {
                break read;
            }
        };
        self.input.truncate(have + *read.as_ref().unwrap_or(&0));
        if read? == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}
