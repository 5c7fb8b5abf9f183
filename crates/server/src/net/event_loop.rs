//! The event loop: waits for sockets, gives each its turn, and looks at the time.

use std::{io, sync::Arc, time::Duration};

use mio::{Events, Poll, Token};
use slab::Slab;

use super::{
    accept::Acceptor,
    clock::{coarse_ms, precise_ns, unix_ms},
    connection::{Buffers, Connection, Next, Turn},
    counters::{Counters, add, count, read},
    hub::{Hub, Newcomer},
    listen::Listeners,
    workers::Workers,
};
use crate::{
    session::Session,
    shared::Shared,
    stats::{self, Totals},
};

/// One thread's.
pub(crate) struct EventLoop {
    number: usize,
    shared: Arc<Shared>,
    hub: Arc<Hub>,
    workers: Arc<Workers>,
    poll: Poll,
    connections: Slab<Connection>,
    /// Connections with more to do, of which no event will tell.
    again: Vec<usize>,
    /// Loop 0's.
    acceptor: Option<Acceptor>,
    checked_at: u64,
    /// When loop 0 looks at the memory's peak next.
    peak_at: u64,
    /// What its connections do, by command.
    commands: Arc<stats::Counters>,
}

/// The waker's token.
pub(crate) const WAKE: Token = Token(usize::MAX);
/// Listeners' tokens are this and those below it, down to connections' own.
const LISTEN: usize = usize::MAX - 1;
const LISTENERS_MOST: usize = 1 << 16;

/// Events taken at once.
const EVENTS: usize = 1024;
/// How often a loop looks whether connections' time is up, ms.
const CHECK_MS: u64 = 250;
/// How often loop 0 looks how much memory is used, ms at least.
const PEAK_MS: u64 = 1000;
/// How long the last replies may take to leave when the server ends, ms.
const FINISH_MS: u64 = 3000;

impl EventLoop {
    pub(crate) fn new(
        number: usize,
        poll: Poll,
        shared: Arc<Shared>,
        hub: Arc<Hub>,
        workers: Arc<Workers>,
    ) -> EventLoop {
        EventLoop {
            number,
            commands: shared.stats.commands.enter(),
            shared,
            hub,
            workers,
            poll,
            connections: Slab::new(),
            again: Vec::new(),
            acceptor: None,
            checked_at: coarse_ms(),
            peak_at: 0,
        }
    }

    /// Makes it loop 0: it accepts connections.
    pub(crate) fn lead(&mut self, listeners: Listeners) -> io::Result<()> {
        let mut acceptor = Acceptor::new(listeners);
        acceptor.register(self.poll.registry(), LISTEN)?;
        self.acceptor = Some(acceptor);
        Ok(())
    }

    /// Runs until the server is to end. What has arrived by then is still answered.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let (shared, hub) = (Arc::clone(&self.shared), Arc::clone(&self.hub));
        let mut turn = Turn {
            shared: &shared,
            counters: &hub.counters,
            now: coarse_ms(),
            buffers: Buffers::default(),
            bytes_in: 0,
            bytes_out: 0,
            sample: Counters::SAMPLE,
            shutdown: false,
        };
        let mut events = Events::with_capacity(EVENTS);
        while !shared.shutting_down() {
            self.wait(&mut events, self.patience(turn.now))?;
            turn.now = coarse_ms();
            self.serve_all(&events, &mut turn);
            self.housekeep(&turn);
        }
        // Connections that are still in their listener's queue find it closed.
        self.acceptor = None;
        self.finish(&mut turn, &mut events)
    }

    fn wait(&mut self, events: &mut Events, patience: Duration) -> io::Result<()> {
        match self.poll.poll(events, Some(patience)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// How long it may wait for events.
    fn patience(&self, now: u64) -> Duration {
        if !self.again.is_empty() {
            return Duration::ZERO;
        }
        Duration::from_millis((self.checked_at + CHECK_MS).saturating_sub(now).max(1))
    }

    fn serve_all(&mut self, events: &Events, turn: &mut Turn<'_>) {
        let again = std::mem::take(&mut self.again);
        for event in events {
            let token = event.token();
            if let Some(connection) = self.connections.get_mut(token.0) {
                connection.note(event);
                self.serve(token.0, turn);
            } else if token == WAKE {
                let arrived = self.hub.receive(self.number);
                self.admit(arrived, turn);
                self.take_back(turn);
            } else if token.0 > LISTEN - LISTENERS_MOST
                && let Some(acceptor) = &mut self.acceptor
            {
                let own = acceptor.accept(turn.shared, &self.hub);
                self.admit(own, turn);
            }
        }
        for key in again {
            self.serve(key, turn);
        }
        self.tally(turn);
    }

    fn serve(&mut self, key: usize, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let next = connection.serve(turn);
        self.follow(key, next);
    }

    /// Goes on with the connections whose long commands are done.
    fn take_back(&mut self, turn: &mut Turn<'_>) {
        for job in self.hub.served(self.number) {
            let key = job.owner.1;
            // It was not closed meanwhile, unless the system refused to watch it.
            let Some(connection) = self.connections.get_mut(key).filter(|it| it.is_away()) else { continue };
            let next = connection.come_back(job, turn);
            self.follow(key, next);
        }
    }

    fn follow(&mut self, key: usize, next: Next) {
        let connection = &mut self.connections[key];
        match next {
            Next::Close => return self.close(key),
            Next::Again => self.again.push(key),
            Next::Long => self.workers.hand_over(connection.depart((self.number, key))),
            Next::Wait => {}
        }
        if let Err(error) = connection.update_interest(self.poll.registry(), Token(key)) {
            log::error!("cannot watch a connection: {error}; closed it");
            self.close(key);
        }
    }

    fn admit(&mut self, newcomers: Vec<Newcomer>, turn: &Turn<'_>) {
        for newcomer in newcomers {
            let (shared, commands) = (Arc::clone(&self.shared), Arc::clone(&self.commands));
            let session = Session::counting(shared, newcomer.peer.clone(), unix_ms(), commands);
            let entry = self.connections.vacant_entry();
            let mut connection = Connection::new(newcomer, session, turn.now);
            match connection.register(self.poll.registry(), Token(entry.key())) {
                Ok(()) => _ = entry.insert(connection),
                Err(error) => {
                    log::error!("cannot watch a connection: {error}; closed it");
                    self.hub.leave();
                }
            }
        }
    }

    fn close(&mut self, key: usize) {
        // Counted out first: who sees the connection closed may take its place.
        self.hub.leave();
        // Closing the descriptor takes it out of the poll.
        drop(self.connections.remove(key));
    }

    /// Adds what was counted since the last time to what all loops count.
    fn tally(&self, turn: &mut Turn<'_>) {
        if turn.bytes_in > 0 {
            add(&turn.shared.stats.bytes_in, std::mem::take(&mut turn.bytes_in));
            add(&turn.shared.stats.bytes_out, std::mem::take(&mut turn.bytes_out));
        }
        if std::mem::take(&mut turn.shutdown) {
            self.shared.shut_down();
            self.hub.wake_all();
        }
    }

    fn housekeep(&mut self, turn: &Turn<'_>) {
        if turn.now < self.checked_at + CHECK_MS {
            return;
        }
        self.checked_at = turn.now;
        if let Some(acceptor) = &mut self.acceptor {
            let own = acceptor.accept_again(turn.shared, &self.hub);
            self.admit(own, turn);
            self.measure(turn);
        }
        let expired = |(key, connection): (usize, &Connection)| {
            connection.expired(turn.shared, turn.now).then_some(key)
        };
        let expired: Vec<usize> = self.connections.iter().filter_map(expired).collect();
        for key in expired {
            count(&turn.counters.timeouts);
            log::debug!("closed a connection whose time was up: see timeout and auth-timeout");
            self.close(key);
        }
    }

    /// Notes what INFO shows of the last seconds, and how much memory is used.
    fn measure(&mut self, turn: &Turn<'_>) {
        let stats = &turn.shared.stats;
        let totals = Totals {
            at_ms: turn.now,
            commands: stats.commands.calls(),
            bytes_in: read(&stats.bytes_in),
            bytes_out: read(&stats.bytes_out),
        };
        stats.rates.note(totals);
        if turn.now >= self.peak_at {
            let began = precise_ns();
            stats::used_memory(stats, &turn.shared.store.stats());
            // The larger the pool, the longer it takes: one thousandth of the time at most.
            let took_us = precise_ns().saturating_sub(began) / 1000;
            self.peak_at = turn.now + took_us.max(PEAK_MS);
        }
    }

    /// Answers what has arrived, and gives the replies a while to leave.
    fn finish(&mut self, turn: &mut Turn<'_>, events: &mut Events) -> io::Result<()> {
        let arrived = self.hub.receive(self.number);
        self.admit(arrived, turn);
        let deadline = turn.now + FINISH_MS;
        let is_away = |(_, connection): (usize, &Connection)| connection.is_away();
        while !self.connections.is_empty() && (turn.now < deadline || self.connections.iter().any(is_away)) {
            let keys: Vec<usize> = self.connections.iter().map(|(key, _)| key).collect();
            let mut waiting = true;
            for key in keys {
                let next = self.connections[key].finish(turn);
                waiting &= next != Next::Again;
                self.follow(key, next);
            }
            self.again.clear();
            let patience = if waiting { Duration::from_millis(50) } else { Duration::ZERO };
            if !self.connections.is_empty() {
                self.wait(events, patience)?;
                events.iter().for_each(|event| {
                    if let Some(connection) = self.connections.get_mut(event.token().0) {
                        connection.note(event);
                    }
                });
                self.take_back(turn);
            }
            turn.now = coarse_ms();
        }
        self.tally(turn);
        Ok(())
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        self.workers.leave();
    }
}
