//! Accepting connections, and sharing them out.

use std::{io, os::fd::AsFd, sync::atomic::Ordering, time::Duration};

use mio::{Interest, Registry, Token};
use rustix::net::sockopt;

use super::{
    counters::{add, count},
    hub::{Hub, Newcomer},
    listen::Listeners,
    stream::{Io, Stream},
};
use crate::{config::Key, session::Peer, shared::Shared};

/// The listening sockets, on loop 0.
pub(super) struct Acceptor {
    listeners: Listeners,
    /// The loop that gets the next connection.
    next: usize,
    /// Accepting failed with connections waiting, of which no event will tell again.
    retry: bool,
}

/// Redis's words, since clients match on them.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

impl Acceptor {
    pub(super) fn new(listeners: Listeners) -> Acceptor {
        Acceptor { listeners, next: 0, retry: false }
    }

    /// Has the poll report connections, by tokens from `first` down.
    pub(super) fn register(&mut self, registry: &Registry, first: usize) -> io::Result<()> {
        let mut token = first;
        for listener in &mut self.listeners.tcp {
            registry.register(listener, Token(token), Interest::READABLE)?;
            token -= 1;
        }
        if let Some((listener, _)) = &mut self.listeners.unix {
            registry.register(listener, Token(token), Interest::READABLE)?;
        }
        Ok(())
    }

    /// Accepts all that wait. Those for loop 0 are returned, the others are sent to theirs.
    pub(super) fn accept(&mut self, shared: &Shared, hub: &Hub) -> Vec<Newcomer> {
        self.retry = false;
        let mut own = Vec::new();
        for at in 0..=self.listeners.tcp.len() {
            loop {
                match self.accept_one(at) {
                    Ok(newcomer) => self.admit(newcomer, shared, hub, &mut own),
                    Err(error) => match error.kind() {
                        io::ErrorKind::WouldBlock => break,
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                        _ => {
                            self.failed(&error, hub);
                            break;
                        }
                    },
                }
            }
        }
        own
    }

    /// [`Acceptor::accept`], if it failed the last time.
    pub(super) fn accept_again(&mut self, shared: &Shared, hub: &Hub) -> Vec<Newcomer> {
        if self.retry { self.accept(shared, hub) } else { Vec::new() }
    }

    fn accept_one(&self, at: usize) -> io::Result<Newcomer> {
        if let Some(listener) = self.listeners.tcp.get(at) {
            let (stream, address) = listener.accept()?;
            let local_address = stream.local_addr()?.to_string();
            let stream = Stream::Tcp(stream);
            let peer = Peer { address: address.to_string(), local_address, fd: stream.raw_fd(), unix: false };
            return Ok(Newcomer { stream, peer });
        }
        let Some((listener, path)) = &self.listeners.unix else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let stream = Stream::Unix(listener.accept()?.0);
        let address = format!("{}:0", path.display());
        let peer = Peer { local_address: address.clone(), address, fd: stream.raw_fd(), unix: true };
        Ok(Newcomer { stream, peer })
    }

    fn admit(&mut self, newcomer: Newcomer, shared: &Shared, hub: &Hub, own: &mut Vec<Newcomer>) {
        let most = usize::try_from(shared.config.number(Key::MaxClients)).unwrap_or(usize::MAX);
        if !hub.enter(most) {
            // Said once in so many, as long as it lasts.
            if count(&shared.stats.connections_rejected).is_multiple_of(1000) {
                log::warn!(
                    "refused a client: {most} are connected, which is maxclients; CONFIG SET maxclients allows more"
                );
            }
            if newcomer.stream.write(TOO_MANY) != Io::Ended {
                newcomer.stream.finish_writing();
            }
            return;
        }
        add(&shared.stats.connections, 1);
        prepare(&newcomer.stream, shared.config.number(Key::TcpKeepalive));
        let to = self.next;
        self.next = (to + 1) % hub.loops();
        if to == 0 {
            own.push(newcomer);
        } else if let Err(error) = hub.send(to, newcomer) {
            log::error!("cannot wake event loop {to}: {error}");
        }
    }

    fn failed(&mut self, error: &io::Error, hub: &Hub) {
        // Said once, not ten times a second, as long as it lasts.
        if hub.counters.accept_failures.fetch_add(1, Ordering::Relaxed).is_multiple_of(100) {
            log::error!("cannot accept a connection: {error}; trying again (ulimit -n bounds their number)");
        }
        self.retry = true;
    }
}

/// Small replies leave at once; a client that vanished is noticed.
fn prepare(stream: &Stream, keepalive: u64) {
    if let Stream::Unix(_) = stream {
        return;
    }
    let fd = stream.as_fd();
    // Each only tunes a connection that works without it.
    let _ = sockopt::set_tcp_nodelay(fd, true);
    if keepalive > 0 {
        let _ = sockopt::set_socket_keepalive(fd, true);
        let _ = sockopt::set_tcp_keepidle(fd, Duration::from_secs(keepalive));
        let _ = sockopt::set_tcp_keepintvl(fd, Duration::from_secs((keepalive / 3).max(1)));
        let _ = sockopt::set_tcp_keepcnt(fd, 3);
    }
}
