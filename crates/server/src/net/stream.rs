//! A connected socket of either kind.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use mio::{Interest, Registry, Token, event::Source, net};
use rustix::{
    buffer::spare_capacity,
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown},
};

/// A nonblocking TCP or Unix connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(net::TcpStream),
    Unix(net::UnixStream),
}

/// The result of a read or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Io {
    /// This many bytes, at least one.
    Moved(usize),
    /// No bytes to read, or the socket accepts none.
    Blocked,
    /// The other end has closed, or the connection broke.
    Ended,
}

impl Stream {
    /// Reads once, into the spare capacity of `buffer`, which must not be empty.
    pub(super) fn read(&self, buffer: &mut Vec<u8>) -> Io {
        loop {
            match recv(self, spare_capacity(buffer), RecvFlags::empty()) {
                Ok((_, 0)) => return Io::Ended,
                Ok((_, count)) => return Io::Moved(count),
                Err(Errno::INTR) => {}
                Err(errno) => return Self::failed(errno),
            }
        }
    }

    /// Writes once.
    pub(super) fn write(&self, bytes: &[u8]) -> Io {
        loop {
            match send(self, bytes, SendFlags::NOSIGNAL) {
                Ok(0) => return Io::Blocked,
                Ok(count) => return Io::Moved(count),
                Err(Errno::INTR) => {}
                Err(errno) => return Self::failed(errno),
            }
        }
    }

    /// Whether the other end has closed, or will send no more; what it has sent may be unread.
    pub(super) fn is_closed(&self) -> bool {
        let mut sockets = [PollFd::new(self, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If this fails, the socket's next read says so.
        poll(&mut sockets, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    /// Announces that nothing more will be written; the other end may still send.
    pub(super) fn finish_writing(&self) {
        // This fails if the connection broke; then there is nothing left to do.
        let _ = shutdown(self, Shutdown::Write);
    }

    pub(super) fn raw_fd(&self) -> i32 {
        self.as_fd().as_raw_fd()
    }

    fn failed(errno: Errno) -> Io {
        if errno == Errno::AGAIN { Io::Blocked } else { Io::Ended }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(tcp) => tcp.as_fd(),
            Stream::Unix(unix) => unix.as_fd(),
        }
    }
}

impl Source for Stream {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Stream::Tcp(tcp) => tcp.register(registry, token, interests),
            Stream::Unix(unix) => unix.register(registry, token, interests),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Stream::Tcp(tcp) => tcp.reregister(registry, token, interests),
            Stream::Unix(unix) => unix.reregister(registry, token, interests),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Stream::Tcp(tcp) => tcp.deregister(registry),
            Stream::Unix(unix) => unix.deregister(registry),
        }
    }
}
