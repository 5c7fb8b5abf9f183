//! Connections to an endpoint.
//!
//! ```text
//!   Greeting ── pulse ──▶ Open ── an operation fails ──▶ Doubtful ── pulse ──▶ Ended(Refused)
//!       └──── another pulse ────▶ Ended(Lost) ◀──── no pulse in time ────────────┘
//! ```
//! The providers for TCP answer a forbidden read or write by ending the connection, and tell no
//! reason. So does a target that dies. Only the endpoint's pulse tells the two apart. Nothing but
//! the pulse is posted after the first failure: operations of a former connection may still be on
//! their way, and must not meet later ones.

use super::address::Address;
use super::port::{Attempt, Completed, Item, Port, Verdict};
use crate::{Completion, Connection, Error, Failure, Operation, Output, Place, Posted, RegionKey, Wait};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a target may be silent, after a failure or while the library connects anew. A caller
/// that hears of a death sooner gives up sooner.
const PATIENCE: Duration = Duration::from_secs(1);
/// Times that a thread gives way to others before it sleeps: to wake costs more than a read takes.
/// To poll without giving way would take the processor from a target on the same machine, for whole
/// ticks of the scheduler.
const YIELDS: u32 = 40;
/// A sleep ends after this, whether or not there was a reason.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// A connection of [`Libfabric`](super::Libfabric).
///
/// An atomic operation that is under way when the target dies does not complete: the library does
/// not tell. A caller needs a deadline.
pub struct LibfabricConnection {
    port: Port,
    peer: u64,
    region: RegionKey,
    pulse: u64,
    persists: bool,
    state: State,
    pulse_posted: bool,
    waiting: VecDeque<Item>,
    /// When the connection was found to be in need of patience.
    silent_since: Option<Instant>,
    /// Completed with an error whose reason is not known yet.
    doubtful: Vec<u64>,
    /// Since the last completion.
    yields: u32,
}

#[derive(Clone, Copy)]
enum State {
    Greeting,
    Open,
    Doubtful,
    Ended(Failure),
}

impl LibfabricConnection {
    pub(super) fn new(mut port: Port, address: &Address<'_>, persists: bool) -> Result<Self, Error> {
        let peer = port.peer(address.name)?;
        let Address { region, pulse, .. } = *address;
        let (state, waiting, doubtful) = (State::Greeting, VecDeque::new(), Vec::new());
        Ok(Self {
            port,
            peer,
            region,
            pulse,
            persists,
            state,
            pulse_posted: false,
            waiting,
            silent_since: None,
            doubtful,
            yields: 0,
        })
    }

    fn settle(&mut self, completed: Completed, completions: &mut Vec<Completion>) {
        match completed {
            Completed::Done(Some(number), output) => {
                completions.push(Completion { number, outcome: Ok(output) });
            }
            Completed::Done(None, output) => self.hear_pulse(&output),
            Completed::Failed(Some(Item { number: None, .. }), _) => self.miss_pulse(),
            Completed::Failed(item, verdict) => {
                self.doubtful.extend(item.and_then(|item| item.number));
                self.doubt(verdict);
            }
        }
    }

    fn hear_pulse(&mut self, output: &Output) {
        let same = matches!(output, Output::Buffer(bytes) if bytes[..] == self.pulse.to_ne_bytes());
        self.state = match self.state {
            State::Greeting if same => State::Open,
            State::Doubtful if same => State::Ended(Failure::Refused),
            State::Greeting | State::Doubtful => State::Ended(Failure::Lost),
            other => other,
        };
    }

    /// After a failure the library may still have tried the former connection, so the pulse is
    /// posted again.
    fn miss_pulse(&mut self) {
        match self.state {
            State::Greeting => self.state = State::Ended(Failure::Lost),
            _ => self.pulse_posted = false,
        }
    }

    fn doubt(&mut self, verdict: Verdict) {
        match (verdict, self.state) {
            (Verdict::Refused, _) => self.state = State::Ended(Failure::Refused),
            (Verdict::Unknown, State::Open) => {
                (self.state, self.pulse_posted) = (State::Doubtful, false);
                self.silent_since = Some(now());
            }
            _ => {}
        }
    }

    /// Posts what can be posted now.
    fn push(&mut self) {
        match self.state {
            State::Greeting | State::Doubtful if !self.pulse_posted => self.post_pulse(),
            State::Open => self.post_waiting(),
            _ => {}
        }
    }

    fn post_pulse(&mut self) {
        let from = Place { region: self.region, offset: 0 };
        let operation = Operation::Read { from, into: vec![0; 8] };
        match self.port.post(self.peer, Item { number: None, operation }) {
            Attempt::Posted => self.pulse_posted = true,
            Attempt::Later(_) => {}
            Attempt::Refused(_) | Attempt::Failed(_) => self.miss_pulse(),
        }
    }

    fn post_waiting(&mut self) {
        while let Some(item) = self.waiting.pop_front() {
            let (item, verdict) = match self.port.post(self.peer, item) {
                Attempt::Posted => {
                    self.silent_since = None;
                    continue;
                }
                Attempt::Later(item) => {
                    self.waiting.push_front(item);
                    // The library has room, so it must be connecting anew.
                    if self.port.is_idle() && self.silent_since.is_none() {
                        self.silent_since = Some(now());
                    }
                    return;
                }
                Attempt::Refused(item) => (item, Verdict::Refused),
                Attempt::Failed(item) => (item, Verdict::Unknown),
            };
            self.waiting.push_front(item);
            return self.doubt(verdict);
        }
    }

    fn lose_patience(&mut self) {
        if self.silent_since.is_some_and(|since| now() - since > PATIENCE) {
            self.give_up();
        }
    }

    /// Completes all that is not done. The port keeps the buffers of what is under way.
    fn fail_all(&mut self, failure: Failure, completions: &mut Vec<Completion>) {
        let waiting = self.waiting.drain(..).filter_map(|item| item.number);
        let numbers = self.doubtful.drain(..).chain(waiting).chain(self.port.take_numbers());
        completions.extend(numbers.map(|number| Completion { number, outcome: Err(failure) }));
    }
}

impl Connection for LibfabricConnection {
    fn persists(&self) -> bool {
        self.persists
    }

    fn post(&mut self, batch: Vec<Posted>) -> Result<(), Error> {
        batch.iter().try_for_each(|posted| posted.operation.check(self.persists))?;
        let items =
            batch.into_iter().map(|Posted { number, operation }| Item { number: Some(number), operation });
        self.waiting.extend(items);
        self.push();
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        while !matches!(self.state, State::Ended(_))
            && let Some(completed) = self.port.completed()
        {
            self.settle(completed, completions);
            self.yields = 0;
        }
        self.push();
        self.lose_patience();
        if let State::Ended(failure) = self.state {
            self.fail_all(failure, completions);
        }
    }

    fn give_up(&mut self) {
        if !matches!(self.state, State::Ended(_)) {
            self.state = State::Ended(Failure::Lost);
        }
    }
}

impl Wait for LibfabricConnection {
    fn wait(&mut self, at_most: Duration) -> Result<(), Error> {
        let at_most = match self.state {
            State::Ended(_) => return Ok(()),
            _ if self.yields < YIELDS => {
                self.yields += 1;
                std::thread::yield_now();
                return Ok(());
            }
            State::Open if self.waiting.is_empty() => at_most.min(SLEEP_MAX),
            // Nothing tells when the library has room again.
            _ => at_most.min(Duration::from_millis(1)),
        };
        self.port.wait(at_most)
    }
}

#[allow(clippy::disallowed_methods, reason = "a bound for an answer that may never come")]
fn now() -> Instant {
    Instant::now()
}
