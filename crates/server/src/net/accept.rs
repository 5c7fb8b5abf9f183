//! Accepts connections and distributes them to the loops, in an order that clients rely on.
//!
//! A client that has waited too long closes its connection, and sends the request again on another
//! one. So the commands of a connection that its client has closed are executed before those of
//! connections that were made afterwards. Two rules make this so although several loops execute:
//! 1. A connection that was accepted is let in once each loop has executed what had arrived in its
//!    sockets by then: a *round*. What arrives together shares one. A loop that serves answers at
//!    the end of its turn, one that sleeps is woken.
//! 2. If clients have closed some connections of a round already, loop 0 executes what these have
//!    sent, one after the other. The others wait for another round.
//!
//! A round ends after [`ROUND_MS`] at the latest: a loop that hangs must not lock clients out.

use std::{io, os::fd::AsFd, sync::atomic::Ordering, time::Duration};

use mio::{Interest, Registry, Token};
use rustix::net::sockopt;

use super::{
    counters::{add, count},
    hub::{Hub, NewConnection},
    listen::Listeners,
    stream::{Io, Stream},
};
use crate::state::{clients::Peer, config::Key, shared::Shared};

/// The listening sockets. Loop 0 owns them.
pub(super) struct Acceptor {
    listeners: Listeners,
    /// The loop that gets the next connection.
    next: usize,
    /// Accepting failed while connections wait; no further event reports them.
    retry: bool,
    /// Connections that were accepted, and wait for the end of this round.
    round: Vec<NewConnection>,
    /// Connections that wait for the next round.
    behind: Vec<NewConnection>,
    /// The number of the round, when it began, and the loops whose answers it waits for.
    number: u64,
    began_ms: u64,
    asked: Vec<usize>,
}

/// How long a round may take, ms: longer than a write of a cluster waits for its log.
const ROUND_MS: u64 = 5000;

/// The text of Redis, because clients match it.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

impl Acceptor {
    pub(super) fn new(listeners: Listeners) -> Acceptor {
        let (round, behind, asked) = Default::default();
        Acceptor { listeners, next: 0, retry: false, round, behind, number: 0, began_ms: 0, asked }
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

    /// Accepts all waiting connections. [`Acceptor::let_in`] distributes them.
    pub(super) fn accept(&mut self, shared: &Shared, hub: &Hub, now: u64) {
        self.retry = false;
        for at in 0..=self.listeners.tcp.len() {
            loop {
                match self.accept_one(at) {
                    Ok(new) => self.admit(new, shared, hub),
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
        self.begin_round(hub, now);
    }

    /// Calls [`Acceptor::accept`] if it failed the last time.
    pub(super) fn accept_again(&mut self, shared: &Shared, hub: &Hub, now: u64) {
        if self.retry {
            self.accept(shared, hub, now);
        }
    }

    fn begin_round(&mut self, hub: &Hub, now: u64) {
        if self.round.is_empty() && !self.behind.is_empty() {
            self.round = std::mem::take(&mut self.behind);
            (self.number, self.began_ms) = (self.number + 1, now);
            self.asked = hub.ask_all(self.number);
        }
    }

    /// Distributes the connections of a round that is over. Returns those that loop 0 is to serve
    /// at once, in this order.
    pub(super) fn let_in(&mut self, hub: &Hub, now: u64) -> Vec<NewConnection> {
        let is_over = || self.asked.iter().all(|at| hub.has_answered(*at, self.number));
        if self.round.is_empty() || now < self.began_ms + ROUND_MS && !is_over() {
            return Vec::new();
        }
        let round = std::mem::take(&mut self.round);
        let (first, others): (Vec<_>, Vec<_>) = match round.len() {
            1 => (Vec::new(), round),
            _ => round.into_iter().partition(|new| new.stream.is_closed()),
        };
        let mut own = Vec::new();
        if first.is_empty() {
            others.into_iter().for_each(|new| self.distribute(new, hub, &mut own));
        } else {
            first.iter().for_each(|_| hub.assign(0));
            own = first;
            self.behind.splice(0..0, others);
        }
        self.begin_round(hub, now);
        own
    }

    /// Takes all connections that wait, for loop 0: the server stops.
    pub(super) fn take_waiting(&mut self, hub: &Hub) -> Vec<NewConnection> {
        let mut waiting = std::mem::take(&mut self.round);
        waiting.append(&mut self.behind);
        waiting.iter().for_each(|_| hub.assign(0));
        waiting
    }

    fn distribute(&mut self, new: NewConnection, hub: &Hub, own: &mut Vec<NewConnection>) {
        let to = self.next;
        self.next = (to + 1) % hub.loop_count();
        hub.assign(to);
        if to == 0 {
            own.push(new);
        } else if let Err(error) = hub.send(to, new) {
            log::error!("cannot wake event loop {to}: {error}");
        }
    }

    fn accept_one(&self, at: usize) -> io::Result<NewConnection> {
        if let Some(listener) = self.listeners.tcp.get(at) {
            let (stream, address) = listener.accept()?;
            let local_address = stream.local_addr()?.to_string();
            let stream = Stream::Tcp(stream);
            let peer =
                Peer { address: address.to_string(), local_address, fd: stream.raw_fd(), is_unix: false };
            return Ok(NewConnection { stream, peer, arrivals: 0 });
        }
        let Some((listener, path)) = &self.listeners.unix else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let stream = Stream::Unix(listener.accept()?.0);
        let address = format!("{}:0", path.display());
        let peer = Peer { local_address: address.clone(), address, fd: stream.raw_fd(), is_unix: true };
        Ok(NewConnection { stream, peer, arrivals: 0 })
    }

    fn admit(&mut self, mut new: NewConnection, shared: &Shared, hub: &Hub) {
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
        new.arrivals = shared.routing().map_or(0, |routing| routing.arrivals());
        self.behind.push(new);
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
