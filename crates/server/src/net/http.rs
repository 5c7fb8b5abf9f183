//! Serves `GET /metrics` with the minimum of HTTP.
//!
//! An HTTP library would be a hundred times the code of this page. The page has its own thread,
//! because a scrape reads the store's statistics, which must not delay requests. It serves up to
//! [`AT_ONCE`] connections side by side. One more takes the place of that which has sent nothing
//! for the longest time. A request has 4 KiB, and ten seconds, a response ten seconds more.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    time::Duration,
};

use mio::{
    Events, Interest, Poll, Token, Waker,
    net::{TcpListener, TcpStream},
};

use super::metrics::Metrics;
use crate::state::clock::coarse_ms;

/// The server of the metrics page, run by its own thread.
pub(crate) struct MetricsServer {
    poll: Poll,
    listener: TcpListener,
    metrics: Metrics,
    is_over: Box<dyn Fn() -> bool + Send>,
    /// The connections, the oldest first.
    open: BTreeMap<usize, Connection>,
    next: usize,
}

const LISTENER: Token = Token(0);
const WAKE: Token = Token(1);
const FIRST: usize = 2;
const REQUEST_BYTES: usize = 4 << 10;
const PATIENCE_MS: u64 = 10_000;
/// How often it looks whether it is over, if nothing wakes it.
const LOOK_MS: u64 = 1000;

/// Connections that are open at one time.
const AT_ONCE: usize = 32;

/// A connection: it reads the request, and then writes the response.
struct Connection {
    stream: TcpStream,
    /// What has arrived of the request, up to the empty line.
    head: Vec<u8>,
    /// The response, once it is known, and how much of it is written.
    response: Option<(Vec<u8>, usize)>,
    /// When the part of it that is under way has to be over.
    deadline_ms: u64,
}

/// An HTTP response: status, media type and body.
struct Page {
    status: &'static str,
    kind: &'static str,
    body: String,
}

const TEXT: &str = "text/plain; charset=utf-8";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl MetricsServer {
    /// Serves `metrics` on `listener` until `is_over`, which it asks when it is woken.
    pub(crate) fn new(
        mut listener: TcpListener,
        metrics: Metrics,
        is_over: Box<dyn Fn() -> bool + Send>,
    ) -> io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let server = MetricsServer { poll, listener, metrics, is_over, open: BTreeMap::new(), next: FIRST };
        Ok((server, waker))
    }

    /// Runs until it is over.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(2 * AT_ONCE);
        while !(self.is_over)() {
            match self.poll.poll(&mut events, Some(Duration::from_millis(self.rest_ms()))) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                done => done?,
            }
            // First those that are ready: a new one may need the place of one that says nothing.
            events.iter().for_each(|event| self.advance(event.token().0));
            let now = coarse_ms();
            self.open.retain(|_, connection| now < connection.deadline_ms);
            self.accept_all();
        }
        Ok(())
    }

    /// How long nothing has to be done, unless an event comes.
    fn rest_ms(&self) -> u64 {
        let first = self.open.values().map(|connection| connection.deadline_ms).min();
        first.map_or(LOOK_MS, |first| first.saturating_sub(coarse_ms()).clamp(1, LOOK_MS))
    }

    fn accept_all(&mut self) {
        while !(self.is_over)()
            && let Ok((mut stream, _)) = self.listener.accept()
        {
            let number = self.next;
            self.next += 1;
            let events = Interest::READABLE | Interest::WRITABLE;
            if let Err(error) = self.poll.registry().register(&mut stream, Token(number), events) {
                log::debug!("a request for metrics failed: {error}");
                continue;
            }
            self.make_place();
            let deadline_ms = coarse_ms() + PATIENCE_MS;
            let connection = Connection { stream, head: Vec::new(), response: None, deadline_ms };
            self.open.insert(number, connection);
            // Its request may have arrived with it.
            self.advance(number);
        }
    }

    /// Closes the oldest connection that has sent nothing, or the oldest of all, if there are too
    /// many for one more.
    fn make_place(&mut self) {
        while self.open.len() >= AT_ONCE {
            let silent = self.open.iter().find(|(_, connection)| connection.head.is_empty());
            let Some((&oldest, _)) = silent.or(self.open.first_key_value()) else { return };
            let is_silent = silent.is_some();
            // What it has sent may have arrived meanwhile.
            self.advance(oldest);
            if self.open.get(&oldest).is_some_and(|connection| connection.head.is_empty() || !is_silent) {
                self.open.remove(&oldest);
            }
        }
    }

    /// Goes on with a connection as far as it does not have to wait; closes it if it is done.
    fn advance(&mut self, number: usize) {
        let Some(connection) = self.open.get_mut(&number) else { return };
        match connection.advance(&self.metrics) {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => log::debug!("a request for metrics failed: {error}"),
        }
        self.open.remove(&number);
    }
}

impl Connection {
    /// Reads and writes what can be read and written now. Returns whether the response is written.
    fn advance(&mut self, metrics: &Metrics) -> io::Result<bool> {
        if self.response.is_none() {
            let Some(page) = self.read(metrics)? else { return Ok(false) };
            self.response = Some((page.encode(), 0));
            self.deadline_ms = coarse_ms() + PATIENCE_MS;
        }
        let Some((bytes, written)) = &mut self.response else { return Ok(false) };
        while *written < bytes.len() {
            match now_or_later(|| self.stream.write(&bytes[*written..]))? {
                Some(count) => *written += count,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Reads the request; `None`: it has not arrived whole.
    fn read(&mut self, metrics: &Metrics) -> io::Result<Option<Page>> {
        let mut buffer = [0; 1024];
        while self.head.len() < REQUEST_BYTES {
            let Some(count) = now_or_later(|| self.stream.read(&mut buffer))? else { return Ok(None) };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.head.extend_from_slice(&buffer[..count]);
            if self.head.windows(4).any(|end| end == b"\r\n\r\n") {
                return Ok(Some(Page::of(&self.head, metrics)));
            }
        }
        Ok(Some(Page::text("431 Request Header Fields Too Large", "a request has at most 4 KiB\n")))
    }
}

/// The result of an operation on a socket; `None`: it would have to wait.
fn now_or_later(mut operation: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match operation() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            done => return done.map(Some),
        }
    }
}

impl Page {
    /// The answer to a request.
    fn of(head: &[u8], metrics: &Metrics) -> Page {
        let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        match words[..] {
            [b"GET", b"/metrics", b"HTTP/1.1" | b"HTTP/1.0"] => match metrics.text() {
                Ok(body) => Page { status: "200 OK", kind: OPENMETRICS, body },
                Err(_) => Page::text("500 Internal Server Error", "the metrics could not be written\n"),
            },
            [b"GET", _, b"HTTP/1.1" | b"HTTP/1.0"] => Page::text("404 Not Found", "see /metrics\n"),
            [_, _, b"HTTP/1.1" | b"HTTP/1.0"] => Page::text("405 Method Not Allowed", "only GET /metrics\n"),
            _ => Page::text("400 Bad Request", "only GET /metrics\n"),
        }
    }

    fn text(status: &'static str, body: &str) -> Page {
        Page { status, kind: TEXT, body: body.into() }
    }

    fn encode(self) -> Vec<u8> {
        let Page { status, kind, body } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        (head + &body).into_bytes()
    }
}
