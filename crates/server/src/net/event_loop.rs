//! The event loop: waits for events, gives each connection its turn, and checks timeouts.

use std::{collections::HashSet, io, sync::Arc, time::Duration};

use mio::{Events, Poll, Token};
use slab::Slab;
use terrace::Ticket;

use super::{
    accept::Acceptor,
    cold::ColdDesk,
    connection::{Connection, Next},
    counters::{Counters, add, count, read},
    hub::{Hub, NewConnection},
    job::Job,
    listen::Listeners,
    turn::{Buffers, Turn},
    workers::Workers,
};
use crate::{
    session::{self, Session},
    state::{
        clock::{coarse_ms, precise_ns, unix_ms},
        config::Key,
        shared::Shared,
        stats::{self, Totals},
    },
};

/// One event loop, run by one thread.
pub(crate) struct EventLoop {
    number: usize,
    shared: Arc<Shared>,
    hub: Arc<Hub>,
    workers: Arc<Workers>,
    script_workers: Arc<Workers>,
    poll: Poll,
    connections: Slab<Connection>,
    /// Connections that need another turn although no event will report them.
    again: Vec<usize>,
    /// Connections whose next command waits, for its slot or for a script: each once, in the order
    /// in which they began to wait.
    later: Vec<usize>,
    /// Connections whose replies wait until the writes of this turn are durable.
    held: Vec<usize>,
    /// Sessions whose commands wait for cold reads, if the system can make them meanwhile.
    cold: Option<ColdDesk>,
    /// Everything that this ticket covers is durable.
    settled: Ticket,
    /// Only loop 0 accepts.
    acceptor: Option<Acceptor>,
    /// The last round of arrivals that this loop has answered.
    answered: u64,
    /// Polls since it was asked about the next one.
    polls: usize,
    /// Connections whose sessions are lent with writes: see [`Session::has_writes_ahead`].
    lent: HashSet<usize>,
    /// The round about which the loop answers once such a session is back.
    waits_for_lent: u64,
    checked_at: u64,
    /// When loop 0 next measures the used memory.
    peak_at: u64,
    /// Counters of its connections' commands.
    commands: Arc<stats::Counters>,
}

/// The waker's token.
pub(crate) const WAKE: Token = Token(usize::MAX);
/// Listeners use this token and those below it; connections use the smallest ones.
const LISTEN: usize = usize::MAX - 1;
const LISTENERS_MOST: usize = 1 << 16;
/// The token of cold reads.
const COLD: Token = Token(LISTEN - LISTENERS_MOST);

/// Maximum number of events per poll.
const EVENTS: usize = 1024;
/// Interval between two checks of the connections' timeouts, ms.
const CHECK_MS: u64 = 250;
/// Until commands that wait for their slots are tried again.
const LATER: Duration = Duration::from_millis(1);
/// Minimum interval between two measurements of the used memory, ms.
const PEAK_MS: u64 = 1000;
/// How long the last replies may take to be sent when the server stops, ms.
const FINISH_MS: u64 = 3000;

impl EventLoop {
    pub(crate) fn new(
        number: usize,
        poll: Poll,
        shared: Arc<Shared>,
        hub: Arc<Hub>,
        [workers, script_workers]: [Arc<Workers>; 2],
    ) -> EventLoop {
        let parks = shared.pacing.parks() && shared.config.is_on(Key::IoUring);
        let cold = parks.then(|| ColdDesk::new(poll.registry(), COLD)).flatten();
        shared.pacing.note_ring(cold.is_some());
        EventLoop {
            number,
            cold,
            commands: session::add_counters(&shared),
            shared,
            hub,
            workers,
            script_workers,
            poll,
            connections: Slab::new(),
            again: Vec::new(),
            later: Vec::new(),
            held: Vec::new(),
            settled: Ticket::default(),
            acceptor: None,
            answered: 0,
            polls: 0,
            lent: HashSet::new(),
            waits_for_lent: 0,
            checked_at: coarse_ms(),
            peak_at: 0,
        }
    }

    /// Makes this loop 0, the one that accepts connections.
    pub(crate) fn accept_from(&mut self, listeners: Listeners) -> io::Result<()> {
        let mut acceptor = Acceptor::new(listeners);
        acceptor.register(self.poll.registry(), LISTEN)?;
        self.acceptor = Some(acceptor);
        Ok(())
    }

    /// Runs until the server stops. Requests that have arrived by then are still answered.
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
            holds: shared.pacing.defers(),
            since: Ticket::default(),
        };
        let mut events = Events::with_capacity(EVENTS);
        while !shared.is_shutting_down() {
            // Before the poll, which then finds what had arrived when the question was asked.
            let asked = hub.asked(self.number);
            self.wait(&mut events, self.poll_timeout(turn.now, asked))?;
            turn.now = coarse_ms();
            self.serve_all(&events, asked, &mut turn);
            self.check_time(&turn);
        }
        // The kernel closes the connections that are still in the listen queue.
        let waiting = self.acceptor.take().map(|mut acceptor| acceptor.take_waiting(&hub));
        self.finish(waiting.unwrap_or_default(), &mut turn, &mut events)
    }

    fn wait(&mut self, events: &mut Events, timeout: Duration) -> io::Result<()> {
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// How long the poll may wait for events.
    fn poll_timeout(&self, now: u64, asked: u64) -> Duration {
        let owes_answer = asked != self.answered && asked != self.waits_for_lent;
        if !self.again.is_empty() || owes_answer {
            return Duration::ZERO;
        }
        if !self.later.is_empty() {
            return LATER;
        }
        Duration::from_millis((self.checked_at + CHECK_MS).saturating_sub(now).max(1))
    }

    /// `asked`: the round of arrivals about which this loop was asked before it polled.
    fn serve_all(&mut self, events: &Events, asked: u64, turn: &mut Turn<'_>) {
        turn.since = turn.shared.store.ticket();
        let again = std::mem::take(&mut self.again);
        if !self.later.is_empty() {
            self.serve_late(events, turn);
        }
        for event in events {
            let token = event.token();
            if let Some(connection) = self.connections.get_mut(token.0) {
                connection.record_readiness(event);
                self.serve_unless_late(token.0, turn);
            } else if token == WAKE {
                let accepted = self.hub.receive(self.number);
                self.admit(accepted, turn);
                self.resume_served(turn);
            } else if token == COLD {
                // All that have ended are taken below.
            } else if token.0 > LISTEN - LISTENERS_MOST
                && let Some(acceptor) = &mut self.acceptor
            {
                acceptor.accept(turn.shared, &self.hub, turn.now);
            }
        }
        for key in again {
            self.serve_unless_late(key, turn);
        }
        self.resume_parked(turn);
        self.answer(asked, events);
        self.let_in(turn);
        self.settle(turn);
        self.add_counts(turn);
    }

    /// Tries the commands that wait, before those that have just arrived. Drops those whose clients
    /// have gone: they may have sent them again by another connection, and rely on its reply.
    fn serve_late(&mut self, events: &Events, turn: &mut Turn<'_>) {
        self.record_readiness(events);
        for key in std::mem::take(&mut self.later) {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            // Another connection may have the key meanwhile.
            if !std::mem::take(&mut connection.is_late) {
                continue;
            }
            if connection.is_half_closed() {
                log::debug!("dropped a command that waited: its client has closed the connection");
                self.close(key);
            } else {
                self.serve(key, turn);
            }
        }
    }

    /// Serves a connection whose next command does not wait.
    fn serve_unless_late(&mut self, key: usize, turn: &mut Turn<'_>) {
        if self.connections.get(key).is_some_and(|connection| !connection.is_late) {
            self.serve(key, turn);
        }
    }

    /// Answers about a round of arrivals, once all is executed that had arrived before it, at least
    /// of connections that their clients have closed. Scripts that take long are not waited for.
    fn answer(&mut self, asked: u64, events: &Events) {
        if asked == self.answered {
            return;
        }
        self.polls += 1;
        // The poll reports in the order of arrival, each connection once.
        let is_all = events.iter().count() < EVENTS || self.polls > self.connections.len() / EVENTS + 1;
        // By a look at the sockets: no event has come yet for those that this turn has let in.
        let has_closed = |key: &usize| self.connections.get(*key).is_some_and(Connection::has_closed);
        if !is_all || self.again.iter().any(has_closed) {
            return;
        }
        if self.lent.iter().any(has_closed) {
            self.waits_for_lent = asked;
            return;
        }
        (self.answered, self.polls) = (asked, 0);
        self.hub.answer(self.number, asked);
    }

    /// Lets connections in for which all loops have answered.
    fn let_in(&mut self, turn: &mut Turn<'_>) {
        if let Some(acceptor) = &mut self.acceptor {
            let own = acceptor.let_in(&self.hub, turn.now);
            self.admit(own, turn);
        }
    }

    /// Makes the writes of this turn durable, all of them together, and sends the replies that
    /// waited for it.
    fn settle(&mut self, turn: &mut Turn<'_>) {
        if self.held.is_empty() {
            return;
        }
        // Another loop's writes count, too: a reply here may tell of them.
        let (ticket, held) = (turn.shared.store.ticket(), std::mem::take(&mut self.held));
        let of = |key: &usize| self.connections.get(*key).map(Connection::since);
        let since = held.iter().filter_map(of).min().unwrap_or(turn.since);
        let settled = if ticket > self.settled { turn.shared.store.settle_since(since) } else { Ok(()) };
        // After an error, too: the store takes no more writes, and what it has is answered.
        self.settled = ticket;
        match settled {
            Ok(()) => {}
            Err(error) => {
                // The replies say what is not so. A client without a reply knows that it does not
                // know.
                log::error!("closed {} connections without a reply: {error}", held.len());
                return held.into_iter().for_each(|key| self.drop_held(key));
            }
        }
        for key in held {
            let Some(connection) = self.connections.get_mut(key).filter(|it| it.is_held()) else { continue };
            let next = connection.release(turn);
            self.apply_next(key, next);
        }
    }

    fn drop_held(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key).filter(|it| it.is_held()) else { return };
        match connection.is_with_worker() {
            true => connection.break_off(),
            false => self.close(key),
        }
    }

    fn serve(&mut self, key: usize, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let next = connection.serve(turn);
        self.note_held(key);
        self.apply_next(key, next);
    }

    /// Notes a connection if its replies are held; perhaps more than once.
    fn note_held(&mut self, key: usize) {
        if self.connections.get(key).is_some_and(Connection::is_held) {
            self.held.push(key);
        }
    }

    /// Continues the connections whose sessions workers have sent back.
    fn resume_served(&mut self, turn: &mut Turn<'_>) {
        let served = self.hub.take_served(self.number);
        self.resume(served, turn);
    }

    fn resume(&mut self, jobs: Vec<Job>, turn: &mut Turn<'_>) {
        for job in jobs {
            let key = job.owner.1;
            self.lent.remove(&key);
            // The connection still exists, unless registering it with the poll failed.
            let Some(connection) = self.connections.get_mut(key).filter(|it| it.is_with_worker()) else {
                continue;
            };
            let next = connection.take_session_back(job, turn);
            self.note_held(key);
            self.apply_next(key, next);
        }
    }

    /// Continues the connections whose cold reads are made.
    fn resume_parked(&mut self, turn: &mut Turn<'_>) {
        while let Some(cold) = &mut self.cold {
            let ready = cold.proceed();
            if ready.is_empty() {
                return;
            }
            // Some of them may want more reads, which are to begin now.
            self.resume(ready, turn);
        }
    }

    fn apply_next(&mut self, key: usize, next: Next) {
        let connection = &mut self.connections[key];
        match next {
            Next::Close => return self.close(key),
            Next::Again => self.again.push(key),
            Next::Later => self.put_off(key),
            Next::Long => {
                let job = connection.lend_session((self.number, key));
                note_lent(&mut self.lent, &job);
                self.workers.submit(job);
            }
            Next::Script if self.shared.scripts.take_thread() => {
                self.script_workers.submit(connection.lend_session((self.number, key)));
            }
            Next::Script => self.put_off(key),
            Next::Cold => {
                let mut job = connection.lend_session((self.number, key));
                note_lent(&mut self.lent, &job);
                count(&self.shared.stats.parked);
                match &mut self.cold {
                    Some(cold) => cold.park(job),
                    None => {
                        job.session.cold_reads().clear();
                        self.workers.submit(job);
                    }
                }
            }
            Next::Wait => {}
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        if let Err(error) = connection.update_interest(self.poll.registry(), Token(key)) {
            log::error!("cannot watch a connection: {error}; closed it");
            self.close(key);
        }
    }

    /// Records what events say about sockets.
    fn record_readiness(&mut self, events: &Events) {
        for event in events {
            if let Some(connection) = self.connections.get_mut(event.token().0) {
                connection.record_readiness(event);
            }
        }
    }

    /// Gives each connection its last turn. Returns whether all of them wait for an event.
    fn finish_all(&mut self, turn: &mut Turn<'_>) -> bool {
        let keys: Vec<usize> = self.connections.iter().map(|(key, _)| key).collect();
        let mut waiting = true;
        for key in keys {
            let next = self.connections[key].finish(turn);
            waiting &= next != Next::Again;
            self.note_held(key);
            self.apply_next(key, next);
        }
        waiting
    }

    fn put_off(&mut self, key: usize) {
        self.connections[key].is_late = true;
        self.later.push(key);
    }

    fn admit(&mut self, new_connections: Vec<NewConnection>, turn: &mut Turn<'_>) {
        for new in new_connections {
            let (shared, commands) = (Arc::clone(&self.shared), Arc::clone(&self.commands));
            let is_of_cluster = shared.is_of_cluster();
            let mut session = Session::with_counters(shared, new.peer.clone(), unix_ms(), commands);
            if is_of_cluster && new.stream.is_closed() {
                session.note_closed(new.arrivals);
            }
            let entry = self.connections.vacant_entry();
            let mut connection = Connection::new(new, session, turn.now);
            let key = entry.key();
            match connection.register(self.poll.registry(), Token(key)) {
                Ok(()) => {
                    entry.insert(connection);
                    // In this turn, so that the answer about the next round covers what has come.
                    self.serve(key, turn);
                }
                Err(error) => {
                    log::error!("cannot watch a connection: {error}; closed it");
                    self.hub.remove_connection(self.number);
                }
            }
        }
    }

    fn close(&mut self, key: usize) {
        // Decrement first: a client that sees the connection closed may connect again at once.
        self.hub.remove_connection(self.number);
        // Closing the descriptor removes it from the poll.
        drop(self.connections.remove(key));
    }

    /// Adds the bytes counted since the last call to the server's counters, and passes on a
    /// SHUTDOWN.
    fn add_counts(&self, turn: &mut Turn<'_>) {
        if turn.bytes_in + turn.bytes_out > 0 {
            add(&turn.shared.stats.bytes_in, std::mem::take(&mut turn.bytes_in));
            add(&turn.shared.stats.bytes_out, std::mem::take(&mut turn.bytes_out));
        }
        if std::mem::take(&mut turn.shutdown) {
            self.shared.shut_down();
            self.hub.wake_all();
        }
    }

    fn check_time(&mut self, turn: &Turn<'_>) {
        if turn.now < self.checked_at + CHECK_MS {
            return;
        }
        self.checked_at = turn.now;
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.accept_again(turn.shared, &self.hub, turn.now);
            self.measure(turn);
        }
        let killed = self.connections.iter().filter(|(_, connection)| connection.is_killed());
        let killed: Vec<usize> = killed.map(|(key, _)| key).collect();
        killed.into_iter().for_each(|key| self.close(key));
        let timed_out = |(key, connection): (usize, &Connection)| {
            connection.has_timed_out(turn.shared, turn.now).then_some(key)
        };
        let timed_out: Vec<usize> = self.connections.iter().filter_map(timed_out).collect();
        for key in timed_out {
            count(&turn.counters.timeouts);
            log::debug!("closed a connection after a timeout: see timeout and auth-timeout");
            self.close(key);
        }
    }

    /// Records the totals for INFO's rates, and the peak of the used memory.
    fn measure(&mut self, turn: &Turn<'_>) {
        let stats = &turn.shared.stats;
        let totals = Totals {
            at_ms: turn.now,
            commands: stats.commands.calls(),
            bytes_in: read(&stats.bytes_in),
            bytes_out: read(&stats.bytes_out),
        };
        stats.rates.record(totals);
        // A node of a cluster uses memory elsewhere, and would wait for an answer.
        if turn.now >= self.peak_at && !turn.shared.is_of_cluster() {
            let began = precise_ns();
            stats::used_memory(stats, &turn.shared.store.stats());
            // This takes longer in a larger pool; spend at most a thousandth of the time on it.
            let took_us = precise_ns().saturating_sub(began) / 1000;
            self.peak_at = turn.now + took_us.max(PEAK_MS);
        }
    }

    /// Answers the requests that have arrived, and waits a while until the replies are sent.
    /// `waiting`: connections that were not let in yet.
    fn finish(
        &mut self,
        waiting: Vec<NewConnection>,
        turn: &mut Turn<'_>,
        events: &mut Events,
    ) -> io::Result<()> {
        self.shared.scripts.shut_down();
        turn.since = turn.shared.store.ticket();
        self.admit(waiting, turn);
        let accepted = self.hub.receive(self.number);
        self.admit(accepted, turn);
        let deadline = turn.now + FINISH_MS;
        let is_with_worker = |(_, connection): (usize, &Connection)| connection.is_with_worker();
        while !self.connections.is_empty()
            && (turn.now < deadline || self.connections.iter().any(is_with_worker))
        {
            turn.since = turn.shared.store.ticket();
            let waiting = self.finish_all(turn) && self.held.is_empty();
            self.settle(turn);
            self.again.clear();
            let timeout = if waiting { Duration::from_millis(50) } else { Duration::ZERO };
            if !self.connections.is_empty() {
                self.wait(events, timeout)?;
                self.record_readiness(events);
                self.resume_served(turn);
                self.settle(turn);
            }
            self.resume_parked(turn);
            turn.now = coarse_ms();
        }
        self.add_counts(turn);
        Ok(())
    }
}

fn note_lent(lent: &mut HashSet<usize>, job: &Job) {
    if job.session.has_writes_ahead() {
        lent.insert(job.owner.1);
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        self.workers.remove_loop();
        self.script_workers.remove_loop();
    }
}
