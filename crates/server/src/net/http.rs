//! Serves `GET /metrics` with the minimum of HTTP.
//!
//! An HTTP library would be a hundred times the code of this page. The page has its own thread,
//! because a scrape reads the store's statistics, which must not delay requests. It serves one
//! scrape at a time; a request has one second and 4 KiB.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

use mio::{Events, Interest, Poll, Token, Waker, net::TcpListener};

use super::{clock::coarse_ms, metrics::Metrics};

/// The server of the metrics page, run by its own thread.
pub(crate) struct MetricsServer {
    poll: Poll,
    listener: TcpListener,
    metrics: Metrics,
    is_over: Box<dyn Fn() -> bool + Send>,
}

const LISTENER: Token = Token(0);
const WAKE: Token = Token(1);
const REQUEST_BYTES: usize = 4 << 10;
const REQUEST_MS: u64 = 1000;

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
        Ok((MetricsServer { poll, listener, metrics, is_over }, waker))
    }

    /// Runs until it is over.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(8);
        while !(self.is_over)() {
            match self.poll.poll(&mut events, Some(Duration::from_secs(1))) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => self.accept_all(),
            }
        }
        Ok(())
    }

    fn accept_all(&self) {
        while !(self.is_over)()
            && let Ok((stream, _)) = self.listener.accept()
        {
            if let Err(error) = self.answer(stream.into()) {
                log::debug!("a request for metrics failed: {error}");
            }
        }
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(Duration::from_millis(REQUEST_MS)))?;
        let page = match read_head(&mut stream)? {
            Some(head) => self.page(&head),
            None => Page::text("431 Request Header Fields Too Large", "a request has at most 4 KiB\n"),
        };
        let Page { status, kind, body } = page;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all((head + &body).as_bytes())
    }

    fn page(&self, head: &[u8]) -> Page {
        let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        match words[..] {
            [b"GET", b"/metrics", b"HTTP/1.1" | b"HTTP/1.0"] => match self.metrics.text() {
                Ok(body) => Page { status: "200 OK", kind: OPENMETRICS, body },
                Err(_) => Page::text("500 Internal Server Error", "the metrics could not be written\n"),
            },
            [b"GET", _, b"HTTP/1.1" | b"HTTP/1.0"] => Page::text("404 Not Found", "see /metrics\n"),
            [_, _, b"HTTP/1.1" | b"HTTP/1.0"] => Page::text("405 Method Not Allowed", "only GET /metrics\n"),
            _ => Page::text("400 Bad Request", "only GET /metrics\n"),
        }
    }
}

impl Page {
    fn text(status: &'static str, body: &str) -> Page {
        Page { status, kind: TEXT, body: body.into() }
    }
}

/// Reads up to the empty line; `None`: there is none within 4 KiB.
fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let deadline = coarse_ms() + REQUEST_MS;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while head.len() < REQUEST_BYTES {
        let left = deadline.saturating_sub(coarse_ms());
        if left == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(Duration::from_millis(left)))?;
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&buffer[..count]);
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(head));
        }
    }
    Ok(None)
}
