//! Parses bytes into commands, wherever the network cuts them.
//!
//! The caller keeps one buffer of bytes that were read and not executed yet. [`Parser::parse`]
//! continues where it stopped, so a long command in small pieces is parsed once, not once a piece.
//! Complete commands are kept as places in that buffer ([`Args`]) until [`Parser::release`] forgets
//! them and returns how many bytes the caller must drop.
//!
//! Invariants: `begin <= at <= input.len()`; the spans of complete commands come first, then those
//! of the command being parsed.

use crate::{Limits, ProtocolError, args::Args, args::Span, inline, parse_i64};

/// Parses commands: arrays of bulk strings, and inline ones.
#[derive(Debug, Default)]
pub struct Parser {
    spans: Vec<Span>,
    /// The complete commands: the end of each one's spans, and of its bytes.
    ends: Vec<(usize, usize)>,
    /// The start of the command being parsed.
    begin: usize,
    /// Everything before this is parsed.
    at: usize,
    /// Arguments of the command being parsed that are still missing; 0 if no array is being parsed.
    missing: usize,
    /// Length of the argument being parsed, once its `$` line is known.
    bulk: Option<usize>,
}

/// The outcome of a step: done, or more input is needed.
enum Step {
    Done,
    NeedMore,
}

/// The length that a line announces.
enum Length {
    Is(Option<i64>, usize),
    NeedMore,
    TooLong,
}

/// After a command with more arguments than this, the table of spans is freed instead of kept.
const SPANS_KEPT: usize = 4096;

impl Parser {
    /// A parser for a new connection.
    pub fn new() -> Parser {
        Parser::default()
    }

    /// Continues parsing until `most` complete commands are held or `input` is used up.
    ///
    /// `input` must begin with the bytes given before, except those that `release` told the caller
    /// to drop. An inline command is unquoted in place. After an error, the commands before it are
    /// still held.
    pub fn parse(&mut self, input: &mut [u8], limits: &Limits, most: usize) -> Result<(), ProtocolError> {
        if self.missing > 0 {
            self.check_begun(limits)?;
        }
        while self.ends.len() < most && self.at < input.len() {
            if self.missing == 0 && self.plain(input, limits).is_some() {
                continue;
            }
            if let Step::NeedMore = self.step(input, limits)? {
                break;
            }
        }
        Ok(())
    }

    /// Number of complete commands held.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether no complete command is held.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Complete command `nth`, which lies in `input` as it was given to `parse`.
    ///
    /// # Panics
    /// If there is no such command.
    pub fn command<'a>(&'a self, input: &'a [u8], nth: usize) -> Args<'a> {
        let first = if nth == 0 { 0 } else { self.ends[nth - 1].0 };
        Args::new(input, &self.spans[first..self.ends[nth].0])
    }

    /// Checks the complete command `nth` against narrower limits than it was parsed under. Panics
    /// if there is none.
    pub fn check(&self, nth: usize, limits: &Limits) -> Result<(), ProtocolError> {
        let first = if nth == 0 { 0 } else { self.ends[nth - 1].0 };
        let spans = &self.spans[first..self.ends[nth].0];
        limits.check_arguments(spans.len())?;
        spans.iter().try_for_each(|span| limits.check_bulk(span.len))?;
        limits.check_query(spans.iter().map(|span| span.len).sum())
    }

    /// Checks the incomplete command: the limits may have become narrower since it began.
    fn check_begun(&self, limits: &Limits) -> Result<(), ProtocolError> {
        let first = self.ends.last().map_or(0, |end| end.0);
        limits.check_arguments(self.spans.len() - first + self.missing)?;
        let bulk = self.bulk.unwrap_or(0);
        limits.check_bulk(self.spans[first..].iter().map(|span| span.len).fold(bulk, usize::max))?;
        limits.check_query((self.at - self.begin).saturating_add(bulk))
    }

    /// Forgets the first `count` complete commands. Returns how many bytes at the front of the
    /// buffer the caller must drop before the next `parse`.
    pub fn release(&mut self, count: usize) -> usize {
        let all = count >= self.ends.len();
        let count = count.min(self.ends.len());
        let spans = self.ends[..count].last().map_or(0, |end| end.0);
        let dropped = if all { self.begin } else { self.ends[..count].last().map_or(0, |end| end.1) };
        self.ends.drain(..count);
        for end in &mut self.ends {
            *end = (end.0 - spans, end.1 - dropped);
        }
        self.spans.drain(..spans);
        // A long command that comes in many pieces keeps its place until it is whole: nothing to do
        // for each piece.
        if dropped > 0 {
            self.spans.iter_mut().for_each(|span| span.start -= dropped);
        }
        if self.spans.len() < SPANS_KEPT && self.spans.capacity() > 2 * SPANS_KEPT {
            self.spans.shrink_to(SPANS_KEPT);
        }
        self.at -= dropped;
        self.begin -= dropped;
        dropped
    }

    /// Whether part of a command has been parsed and the rest is missing.
    pub fn in_command(&self) -> bool {
        self.at > self.begin || self.missing > 0
    }

    /// A lower bound of the bytes that the command needs beyond the end of `input`. The caller
    /// decides how much to reserve.
    pub fn wanted(&self, input: &[u8]) -> usize {
        self.bulk.map_or(0, |len| (self.at + len + 2).saturating_sub(input.len()))
    }

    /// Parses the usual command: a complete array of up to nine arguments of up to 999 bytes.
    /// `None`, and nothing changed, if it is none; [`Parser::step`] then parses it.
    fn plain(&mut self, input: &[u8], limits: &Limits) -> Option<()> {
        let &[b'*', count @ b'1'..=b'9', b'\r', b'\n'] = input.get(self.at..)?.first_chunk()? else {
            return None;
        };
        let (count, held) = (usize::from(count - b'0'), self.spans.len());
        let mut at = self.at + 4;
        for _ in 0..count {
            let Some((start, len)) = plain_bulk(input, at) else {
                self.spans.truncate(held);
                return None;
            };
            at = start + len + 2;
            self.spans.push(Span { start, len });
        }
        let within = |span: &Span| span.len <= limits.bulk_bytes;
        if count > limits.arguments
            || at - self.begin > limits.query_bytes
            || !self.spans[held..].iter().all(within)
        {
            self.spans.truncate(held);
            return None;
        }
        self.at = at;
        self.end_command();
        Some(())
    }

    fn step(&mut self, input: &mut [u8], limits: &Limits) -> Result<Step, ProtocolError> {
        match (self.missing, self.bulk) {
            (0, _) if input[self.at] == b'*' => self.begin_array(input, limits),
            (0, _) => self.inline(input, limits),
            (_, None) => self.begin_bulk(input, limits),
            (_, Some(len)) => self.end_bulk(input, len),
        }
    }

    fn begin_array(&mut self, input: &[u8], limits: &Limits) -> Result<Step, ProtocolError> {
        let count = match read_length(input, self.at, limits.line_bytes) {
            Length::NeedMore => return Ok(Step::NeedMore),
            Length::TooLong => return Err(ProtocolError::MultibulkLineTooLong),
            Length::Is(count, next) => {
                self.at = next;
                count.ok_or(ProtocolError::MultibulkLength)?
            }
        };
        if count <= 0 {
            // An empty or null array is no command: Redis ignores it without a reply.
            self.begin = self.at;
            return Ok(Step::Done);
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        limits.check_arguments(count)?;
        self.missing = count;
        Ok(Step::Done)
    }

    fn begin_bulk(&mut self, input: &[u8], limits: &Limits) -> Result<Step, ProtocolError> {
        let (len, next) = match read_length(input, self.at, limits.line_bytes) {
            Length::NeedMore => return Ok(Step::NeedMore),
            Length::TooLong => return Err(ProtocolError::BulkLineTooLong),
            Length::Is(len, next) => (len, next),
        };
        if input[self.at] != b'$' {
            return Err(ProtocolError::ExpectedDollar(input[self.at]));
        }
        let len = len.and_then(|len| usize::try_from(len).ok()).ok_or(ProtocolError::BulkLength)?;
        limits.check_bulk(len)?;
        limits.check_query((next - self.begin).saturating_add(len).saturating_add(2))?;
        self.at = next;
        self.bulk = Some(len);
        Ok(Step::Done)
    }

    fn end_bulk(&mut self, input: &[u8], len: usize) -> Result<Step, ProtocolError> {
        let end = self.at + len;
        let Some(line_end) = input.get(end..end + 2) else { return Ok(Step::NeedMore) };
        // Redis skips these two bytes unread. A client that sent others has lost count, and the
        // bytes that follow would be parsed as commands.
        if line_end != b"\r\n" {
            return Err(ProtocolError::BulkEnd);
        }
        self.spans.push(Span { start: self.at, len });
        self.at = end + 2;
        self.bulk = None;
        self.missing -= 1;
        if self.missing == 0 {
            self.end_command();
        }
        Ok(Step::Done)
    }

    fn inline(&mut self, input: &mut [u8], limits: &Limits) -> Result<Step, ProtocolError> {
        let window = &input[self.at..input.len().min(self.at + limits.line_bytes + 1)];
        let Some(end) = window.iter().position(|&byte| byte == b'\n') else {
            let too_long = window.len() > limits.line_bytes;
            let error = ProtocolError::InlineTooLong { most: limits.line_bytes };
            return if too_long { Err(error) } else { Ok(Step::NeedMore) };
        };
        let line = if end > 0 && window[end - 1] == b'\r' { end - 1 } else { end };
        let before = self.spans.len();
        inline::split(&mut input[self.at..self.at + line], self.at, &mut self.spans)?;
        self.at += end + 1;
        let count = self.spans.len() - before;
        if let Err(error) = limits.check_arguments(count) {
            self.spans.truncate(before);
            return Err(error);
        }
        if count > 0 {
            self.end_command();
        }
        self.begin = self.at;
        Ok(Step::Done)
    }

    fn end_command(&mut self) {
        self.ends.push((self.spans.len(), self.at));
        self.begin = self.at;
    }
}

/// The start and length of the bulk string at `at`, if it is complete and its length has one to
/// three digits.
fn plain_bulk(input: &[u8], at: usize) -> Option<(usize, usize)> {
    let digit = |byte: u8| usize::from(byte.wrapping_sub(b'0'));
    // The shortest, `$0` and two line ends, has six bytes.
    let &[b'$', a, b, c, d, e] = input.get(at..)?.first_chunk()? else { return None };
    let (len, digits) = match (b, c, d, e) {
        (b'\r', b'\n', ..) => (digit(a), 1),
        (_, b'\r', b'\n', _) if digit(b) <= 9 => (10 * digit(a) + digit(b), 2),
        (_, _, b'\r', b'\n') if digit(b) <= 9 && digit(c) <= 9 => {
            (100 * digit(a) + 10 * digit(b) + digit(c), 3)
        }
        _ => return None,
    };
    let canonical = digit(a) <= 9 && (a != b'0' || digits == 1);
    let start = at + digits + 3;
    (canonical && input.get(start + len..)?.starts_with(b"\r\n")).then_some((start, len))
}

/// Parses the number on the line at `at`, after its first byte, and finds the start of the next
/// line.
fn read_length(input: &[u8], at: usize, longest: usize) -> Length {
    // Nearly every length has one to three digits.
    if let Some(&[_, ones, b'\r', b'\n']) = input.get(at..at + 4)
        && ones.is_ascii_digit()
    {
        return Length::Is(Some(i64::from(ones - b'0')), at + 4);
    }
    let window = &input[at..input.len().min(at + longest + 1)];
    match window.iter().position(|&byte| byte == b'\r') {
        None if window.len() > longest => Length::TooLong,
        None => Length::NeedMore,
        Some(end) => match input.get(at + end + 1) {
            None => Length::NeedMore,
            Some(b'\n') => Length::Is(window.get(1..end).and_then(parse_i64), at + end + 2),
            Some(_) => Length::Is(None, at + end + 2),
        },
    }
}
