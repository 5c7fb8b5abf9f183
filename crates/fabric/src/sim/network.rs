//! What the network does: pieces, replies, ends of connections, messages.

use super::event::{Event, NodeId};
use super::queue::Happening;
use super::state::{Condition, Under, World, nanos};
use crate::{Access, Completion, Failure, Operation, Output, Posted, load_bytes, store_bytes};
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

impl World {
    /// Lets something happen; returns which node has to hear of it.
    pub(super) fn happen(&mut self, happening: Happening) -> Option<(usize, Event)> {
        match happening {
            Happening::Heard { from, to, life, event } => return self.hear(from, to, life, event),
            Happening::Piece { operation, piece } => self.piece(operation, piece),
            Happening::Reply { operation } => self.reply(operation),
            Happening::End { connection } => self.end(connection),
        }
        None
    }

    /// Tells a node; or keeps that back, or drops it.
    fn hear(&mut self, from: usize, to: usize, life: u64, event: Event) -> Option<(usize, Event)> {
        if self.is_cut(from, to) {
            self.behind_cut.push((from, to, Happening::Heard { from, to, life, event }));
            return None;
        }
        let condition = self.nodes[to].condition;
        match condition {
            _ if life != self.nodes[to].life => None,
            Condition::Running if self.is_for_nobody(&event) => None,
            Condition::Running => Some((to, event)),
            Condition::Stopped => {
                self.nodes[to].inbox.push(Happening::Heard { from, to, life, event });
                None
            }
            Condition::Dead | Condition::Gone => None,
        }
    }

    /// Whether an event is about a connection that its node has dropped.
    fn is_for_nobody(&mut self, event: &Event) -> bool {
        let Event::Completed { connection } = event else { return false };
        let state = &mut self.connections[*connection as usize];
        state.waking = false;
        state.dropped
    }

    pub(super) fn send(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        if self.random.one_in(self.options.message_lost_in) || !self.is_alive(to) {
            return;
        }
        let mut at = self.now + self.latency();
        let state = &mut self.nodes[to];
        if !self.options.reorders_messages {
            let last = state.last_message.entry(from).or_default();
            at = at.max(*last);
            *last = at;
        }
        let life = state.life;
        let event = Event::Message { from: NodeId(from), bytes };
        self.queue.add(at, Happening::Heard { from, to, life, event });
    }

    /// Whether the network carries something; else it waits until it does.
    fn passes(&mut self, from: usize, to: usize, happening: Happening) -> Option<Happening> {
        if self.is_cut(from, to) {
            self.behind_cut.push((from, to, happening));
            return None;
        }
        Some(happening)
    }

    pub(super) fn post(&mut self, connection: usize, batch: Vec<Posted>) {
        for Posted { number, operation } in batch {
            if let Some(failure) = self.connections[connection].ended {
                self.complete(connection, Completion { number, outcome: Err(failure) });
            } else {
                self.start(connection, number, operation);
            }
        }
    }

    fn start(&mut self, connection: usize, number: u64, operation: Operation) {
        let most = u64::from(self.options.pieces_max).min(operation.len() as u64 / 8).max(1);
        let pieces = 1 + self.random.below(most) as u32;
        let under = Under {
            connection,
            number,
            operation,
            checked: None,
            pieces,
            chance: self.random.any(),
            left: pieces,
            incomplete: false,
            before: 0,
        };
        let operation = self.operations.insert(under);
        self.connections[connection].under_way.push((operation, number));
        let mut at = self.now + self.latency();
        if !self.options.reorders {
            at = at.max(self.connections[connection].last_piece);
        }
        let gap = nanos(self.options.piece_gap);
        let first = if self.options.reorders { self.random.below(pieces.into()) as u32 } else { 0 };
        for step in 0..pieces {
            let piece = (first + step) % pieces;
            self.queue.add(at, Happening::Piece { operation, piece });
            at += self.random.below(gap);
        }
        self.connections[connection].last_piece = at;
        if self.random.one_in(self.options.connection_lost_in) {
            self.break_connection(connection, Failure::Lost);
        }
    }

    fn piece(&mut self, operation: usize, piece: u32) {
        let connection = self.operations[operation].connection;
        let state = &self.connections[connection];
        let (from, life) = (state.node, state.life);
        let happening = Happening::Piece { operation, piece };
        if self.is_in_process(operation, piece, from, life) {
            return self.nodes[from].inbox.push(happening);
        }
        let Some(endpoint) = self.connections[connection].endpoint else {
            self.break_connection(connection, Failure::Lost);
            return self.lose_piece(operation);
        };
        let to = self.endpoints[endpoint].node;
        let Some(happening) = self.passes(from, to, happening) else { return };
        if !self.endpoints[endpoint].open {
            if self.nodes[to].condition != Condition::Gone {
                self.break_connection(connection, Failure::Lost);
            }
            return self.lose_piece(operation);
        }
        let broken = self.connections[connection].broken.is_some() || life != self.nodes[from].life;
        if broken && self.random.one_in(2) {
            return self.lose_piece(operation);
        }
        if self.options.needs_target && self.nodes[to].condition == Condition::Stopped {
            return self.nodes[to].inbox.push(happening);
        }
        self.arrive(operation, piece, endpoint);
    }

    /// Whether a piece has not left its process, which is stopped.
    fn is_in_process(&self, operation: usize, piece: u32, node: usize, life: u64) -> bool {
        let state = &self.nodes[node];
        let may_have_left = self.options.reorders && (operation as u32 ^ piece) & 1 == 1;
        life == state.life && state.condition == Condition::Stopped && !may_have_left
    }

    pub(super) fn lose_piece(&mut self, operation: usize) {
        self.operations[operation].incomplete = true;
        self.piece_is_over(operation);
    }

    fn arrive(&mut self, operation: usize, piece: u32, endpoint: usize) {
        if !self.check(operation, endpoint) {
            let connection = self.operations[operation].connection;
            self.break_connection(connection, Failure::Refused);
            return self.lose_piece(operation);
        }
        let range = self.cut_of(operation, piece);
        let under = &mut self.operations[operation];
        let (memory, begin) = under.checked.as_ref().expect("a key that was checked");
        let (words, at) = (memory.words(), begin + range.start);
        match &mut under.operation {
            Operation::Read { into, .. } => load_bytes(words, at, &mut into[range]),
            Operation::Write { bytes, .. } => store_bytes(words, at, &bytes[range]),
            // ORDER: AcqRel, Acquire: pair with the target's own accesses to the word.
            Operation::CompareAndSwap { expected, new, .. } => {
                let swapped = words[at / 8].compare_exchange(*expected, *new, AcqRel, Acquire);
                under.before = swapped.unwrap_or_else(|found| found);
            }
            Operation::FetchAdd { add, .. } => under.before = words[at / 8].fetch_add(*add, AcqRel),
        }
        self.piece_is_over(operation);
    }

    /// Checks the key, bounds and rights of an operation, the first time.
    fn check(&mut self, operation: usize, endpoint: usize) -> bool {
        let under = &mut self.operations[operation];
        if under.checked.is_some() {
            return true;
        }
        let place = under.operation.place();
        let Some(region) = self.endpoints[endpoint].regions.get(&place.region) else { return false };
        let end = place.offset.checked_add(under.operation.len() as u64);
        let permitted = match under.operation {
            Operation::Read { .. } => region.access.reads(),
            Operation::Write { .. } => region.access.writes(),
            Operation::CompareAndSwap { .. } | Operation::FetchAdd { .. } => {
                region.access == Access::ReadWrite
            }
        };
        if !permitted || end.is_none_or(|end| end > region.len as u64) {
            return false;
        }
        let begin = region.begin + place.offset as usize;
        under.checked = Some((region.memory.clone(), begin));
        true
    }

    /// The bytes of a piece: at least about a word, since there are no more pieces than words.
    fn cut_of(&self, operation: usize, piece: u32) -> Range<usize> {
        let Under { operation, pieces, chance, .. } = &self.operations[operation];
        let (len, pieces) = (operation.len(), *pieces as usize);
        let into_word = (operation.place().offset % 8) as usize;
        let cut = |piece: usize| match len * piece / pieces {
            at if piece == 0 || piece == pieces => at,
            at if self.options.tears_words => at + (chance >> (3 * (piece % 21))) as usize % 8,
            at => ((at + into_word) & !7).saturating_sub(into_word),
        };
        cut(piece as usize)..cut(piece as usize + 1)
    }

    fn piece_is_over(&mut self, operation: usize) {
        let under = &mut self.operations[operation];
        under.left -= 1;
        if under.left > 0 {
            return;
        }
        let connection = &self.connections[under.connection];
        if under.incomplete || connection.is_over() {
            self.operations.remove(operation);
        } else {
            let latency = self.latency();
            self.after(latency, Happening::Reply { operation });
        }
    }

    fn reply(&mut self, operation: usize) {
        let connection = self.operations[operation].connection;
        let endpoint = self.connections[connection].endpoint.expect("a target that replies");
        let (from, to) = (self.endpoints[endpoint].node, self.connections[connection].node);
        let Some(_) = self.passes(from, to, Happening::Reply { operation }) else { return };
        let Under { number, operation: done, before, .. } = self.operations.remove(operation);
        let state = &mut self.connections[connection];
        if state.is_over() {
            return;
        }
        state.under_way.retain(|(other, _)| *other != operation);
        let output = match done {
            Operation::Read { into: buffer, .. } | Operation::Write { bytes: buffer, .. } => {
                Output::Buffer(buffer)
            }
            Operation::CompareAndSwap { .. } | Operation::FetchAdd { .. } => Output::Before(before),
        };
        self.complete(connection, Completion { number, outcome: Ok(output) });
    }

    fn complete(&mut self, connection: usize, completion: Completion) {
        let state = &mut self.connections[connection];
        state.completions.push(completion);
        if !std::mem::replace(&mut state.waking, true) {
            let (node, life) = (state.node, state.life);
            let event = Event::Completed { connection: connection as u64 };
            self.after(0, Happening::Heard { from: node, to: node, life, event });
        }
    }

    /// Ends a connection; the initiator learns it later.
    pub(super) fn break_connection(&mut self, connection: usize, failure: Failure) {
        let state = &mut self.connections[connection];
        if !state.is_over() {
            state.broken = Some(failure);
            let latency = self.latency();
            self.after(latency, Happening::End { connection });
        }
    }

    fn end(&mut self, connection: usize) {
        let state = &self.connections[connection];
        let (endpoint, to) = (state.endpoint, state.node);
        if let Some(endpoint) = endpoint {
            let from = self.endpoints[endpoint].node;
            let Some(_) = self.passes(from, to, Happening::End { connection }) else { return };
        }
        let failure = self.connections[connection].broken.expect("a connection that is over");
        self.tell_end(connection, failure);
    }

    /// Tells the initiator that a connection is over.
    pub(super) fn tell_end(&mut self, connection: usize, failure: Failure) {
        let state = &mut self.connections[connection];
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(failure);
        for (_, number) in std::mem::take(&mut state.under_way) {
            self.complete(connection, Completion { number, outcome: Err(failure) });
        }
    }
}
