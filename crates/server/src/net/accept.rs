//! Accepts connections and distributes them to the loops.

use std::{io, os::fd::AsFd, sync::atomic::Ordering, time::Duration};

use mio::{Interest, Registry, Token};
use rustix::net::sockopt;

use super::{
    counters::{add, count},
    hub::{Hub, NewConnection},
    listen::Listeners,
    stream::{Io, Stream},
};
use crate::{config::Key, session::Peer, shared::Shared};

/// The listening sockets. Loop 0 owns them.
pub(super) struct Acceptor {
    listeners: Listeners,
    /// The loop that gets the next connection.
    next: usize,
    /// Accepting failed while connections wait; no further event reports them.
    retry: bool,
}

/// The text of Redis, because clients match it.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

impl Acceptor {
    pub(super) fn new(listeners: Listeners) -> Acceptor {
        Acceptor { listeners, next: 0, retry: false }
    }

    /// Makes the poll report new connections, by tokens from `first` downwards.
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

    /// Accepts all waiting connections. Returns those for loop 0, sends the others to their loops.
    pub(super) fn accept(&mut self, shared: &Shared, hub: &Hub) -> Vec<NewConnection> {
        self.retry = false;
        let mut own = Vec::new();
        for at in 0..=self.listeners.tcp.len() {
            loop {
                match self.accept_one(at) {
                    Ok(new) => self.admit(new, shared, hub, &mut own),
                    Err(error) => match error.kind() {
                        io::ErrorKind::WouldBlock => break,
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                        _ => {
                            self.record_failure(&error, hub);
                            break;
                        }
                    },
                }
            }
        }
        own
    }

    /// Calls [`Acceptor::accept`] if it failed the last time.
    pub(super) fn accept_again(&mut self, shared: &Shared, hub: &Hub) -> Vec<NewConnection> {
        if self.retry { self.accept(shared, hub) } else { Vec::new() }
    }

    fn accept_one(&self, at: usize) -> io::Result<NewConnection> {
        if let Some(listener) = self.listeners.tcp.get(at) {
            let (stream, address) = listener.accept()?;
            let local_address = stream.local_addr()?.to_string();
            let stream = Stream::Tcp(stream);
            let peer =
                Peer { address: address.to_string(), local_address, fd: stream.raw_fd(), is_unix: false };
            return Ok(NewConnection { stream, peer });
        }
        let Some((listener, path)) = &self.listeners.unix else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let stream = Stream::Unix(listener.accept()?.0);
        let address = format!("{}:0", path.display());
        let peer = Peer { local_address: address.clone(), address, fd: stream.raw_fd(), is_unix: true };
        Ok(NewConnection { stream, peer })
    }

    fn admit(&mut self, new: NewConnection, shared: &Shared, hub: &Hub, own: &mut Vec<NewConnection>) {
        let most = usize::try_from(shared.config.number(Key::MaxClients)).unwrap_or(usize::MAX);
        if !hub.try_add_connection(most) {
            // Log one in 1000 of these.
            if count(&shared.stats.connections_rejected).is_multiple_of(1000) {
                log::warn!(
                    "refused a client: {most} are connected, which is maxclients; CONFIG SET maxclients allows more"
                );
            }
            if new.stream.write(TOO_MANY) != Io::Ended {
                new.stream.finish_writing();
            }
            return;
        }
        add(&shared.stats.connections, 1);
        set_tcp_options(&new.stream, shared.config.number(Key::TcpKeepalive));
        let to = self.next;
        self.next = (to + 1) % hub.loop_count();
        if to == 0 {
            own.push(new);
        } else if let Err(error) = hub.send(to, new) {
            log::error!("cannot wake event loop {to}: {error}");
        }
    }

    fn record_failure(&mut self, error: &io::Error, hub: &Hub) {
        // Log one in 100: this happens several times a second while it lasts.
        if hub.counters.accept_failures.fetch_add(1, Ordering::Relaxed).is_multiple_of(100) {
            log::error!("cannot accept a connection: {error}; trying again (ulimit -n bounds their number)");
        }
        self.retry = true;
    }
}

/// Sets TCP options: small replies are sent at once, vanished clients are noticed.
fn set_tcp_options(stream: &Stream, keepalive: u64) {
    if let Stream::Unix(_) = stream {
        return;
    }
    let fd = stream.as_fd();
    // A connection works without any of these.
    let _ = sockopt::set_tcp_nodelay(fd, true);
    if keepalive > 0 {
        let _ = sockopt::set_socket_keepalive(fd, true);
        let _ = sockopt::set_tcp_keepidle(fd, Duration::from_secs(keepalive));
        let _ = sockopt::set_tcp_keepintvl(fd, Duration::from_secs((keepalive / 3).max(1)));
        let _ = sockopt::set_tcp_keepcnt(fd, 3);
    }
}
