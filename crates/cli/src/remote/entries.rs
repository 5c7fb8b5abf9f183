//! Iteration over the entries of a served store: SCAN or X.RANGE, then the values of its keys.

use std::io;

use terrace::Direction;

use super::{Answer, Client};
use crate::{
    entry::{Found, Range, Wanted},
    failure::Failure,
};

/// Number of keys requested at a time.
const KEYS: &[u8] = b"512";
/// Maximum number of bytes of commands sent before their replies are read. They fit the socket's
/// buffers, so the send completes even if the server stops reading until its replies are read.
const SENT_AHEAD: usize = 48 << 10;

impl Client {
    /// Calls `each` with every wanted entry until it returns false.
    ///
    /// A key that exists throughout is visited at least once, and exactly once in a range. A value
    /// and its expiry are read at one instant, but different entries at different instants.
    pub(crate) fn each_entry(
        &mut self,
        wanted: &Wanted<'_>,
        each: &mut dyn FnMut(&[u8], Found<'_>) -> io::Result<bool>,
    ) -> Result<(), Failure> {
        let before = self.skipped()?;
        match wanted.range.order {
            Some(direction) => self.each_in_range(wanted, direction, each)?,
            None => self.each_listed(wanted, each)?,
        }
        self.left_out += self.skipped()?.saturating_sub(before);
        Ok(())
    }

    /// Number of damaged records that scans of the server have left out, for all its clients.
    fn skipped(&mut self) -> Result<u64, Failure> {
        let info = match self.ask(&[b"INFO", b"stats"]) {
            Ok(info) => info.unwrap_or_default(),
            Err(error) => return Err(self.lost(error)),
        };
        let count = |line: &[u8]| {
            let text = line.trim_ascii().strip_prefix(b"damaged_records_skipped:")?;
            std::str::from_utf8(text).ok()?.parse().ok()
        };
        Ok(info.split(|&byte| byte == b'\n').find_map(count).unwrap_or(0))
    }

    fn each_listed(
        &mut self,
        wanted: &Wanted<'_>,
        each: &mut dyn FnMut(&[u8], Found<'_>) -> io::Result<bool>,
    ) -> Result<(), Failure> {
        let mut cursor = b"0".to_vec();
        loop {
            let (next, keys) = self.scan(&cursor, wanted)?;
            if !self.show(&keys, wanted, each)? || next == b"0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    fn each_in_range(
        &mut self,
        wanted: &Wanted<'_>,
        direction: Direction,
        each: &mut dyn FnMut(&[u8], Found<'_>) -> io::Result<bool>,
    ) -> Result<(), Failure> {
        let (mut near, far) = ends(&wanted.range, direction);
        loop {
            let mut keys = self.keys_between(&near, &far, direction)?;
            let Some(last) = keys.last() else { return Ok(()) };
            near = [b"(", &last[..]].concat();
            keys.retain(|key| (wanted.key)(key));
            if !self.show(&keys, wanted, each)? {
                return Ok(());
            }
        }
    }

    /// The first keys of a range.
    fn keys_between(
        &mut self,
        near: &[u8],
        far: &[u8],
        direction: Direction,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        let mut words = vec![b"X.RANGE", near, far, b"LIMIT", b"0", KEYS];
        if direction == Direction::Backward {
            words.push(b"REV");
        }
        self.connection.queue(&words);
        let answer = match self.connection.send().and_then(|()| self.connection.answer()) {
            Ok(answer) => answer,
            Err(error) => return Err(self.lost(error)),
        };
        let Answer::Array(keys) = &answer else {
            let text = answer.error_text();
            return Err(self.refused(&text));
        };
        Ok(keys.iter().map(|key| key.last_bytes().to_vec()).collect())
    }

    /// Passes on the entries of `keys`.
    fn show(
        &mut self,
        keys: &[Vec<u8>],
        wanted: &Wanted<'_>,
        each: &mut dyn FnMut(&[u8], Found<'_>) -> io::Result<bool>,
    ) -> Result<bool, Failure> {
        if wanted.values { self.fetch(keys, each) } else { pass_keys(keys, each) }
    }

    /// One step of a scan: the next cursor, and the wanted keys.
    fn scan(&mut self, cursor: &[u8], wanted: &Wanted<'_>) -> Result<(Vec<u8>, Vec<Vec<u8>>), Failure> {
        let pattern = pattern_of(&wanted.range.prefix);
        self.connection.queue(&[b"SCAN", cursor, b"COUNT", KEYS, b"MATCH", &pattern]);
        let answer = match self.connection.send().and_then(|()| self.connection.answer()) {
            Ok(answer) => answer,
            Err(error) => return Err(self.lost(error)),
        };
        match &answer {
            Answer::Array(parts) => match parts.as_slice() {
                [Answer::Bytes(next), Answer::Array(keys)] => {
                    let keys = keys.iter().map(Answer::last_bytes).filter(|key| (wanted.key)(key));
                    Ok((next.to_vec(), keys.map(<[u8]>::to_vec).collect()))
                }
                _ => Err(Failure::new(answer.error_text())),
            },
            _ => {
                let text = answer.error_text();
                Err(self.refused(&text))
            }
        }
    }

    /// Fetches the entries of `keys` and passes on those that still exist.
    fn fetch(
        &mut self,
        keys: &[Vec<u8>],
        each: &mut dyn FnMut(&[u8], Found<'_>) -> io::Result<bool>,
    ) -> Result<bool, Failure> {
        let mut rest = keys;
        while let Some(first) = rest.first() {
            let mut together = 0;
            while together < rest.len() && (together == 0 || self.connection.queued() < SENT_AHEAD) {
                self.queue_entry(&rest[together]);
                together += 1;
            }
            debug_assert!(together > 0, "{first:?} is requested");
            self.connection.send().map_err(|error| self.lost(error))?;
            let (keys, later) = rest.split_at(together);
            for key in keys {
                if !self.show_entry(key, each)? {
                    return Ok(false);
                }
            }
            rest = later;
        }
        Ok(true)
    }

    /// Queues a transaction for one key. Without it, the value of one write could be paired with
    /// the expiry of the next.
    fn queue_entry(&mut self, key: &[u8]) {
        self.connection.queue(&[b"MULTI"]);
        self.connection.queue(&[b"GET", key]);
        self.connection.queue(&[b"PEXPIRETIME", key]);
        self.connection.queue(&[b"EXEC"]);
    }

    fn show_entry(
        &mut self,
        key: &[u8],
        each: &mut dyn FnMut(&[u8], Found<'_>) -> io::Result<bool>,
    ) -> Result<bool, Failure> {
        for _ in ["MULTI", "GET", "PEXPIRETIME"] {
            if let Err(error) = self.connection.answer() {
                return Err(self.lost(error));
            }
        }
        let answer = match self.connection.answer() {
            Ok(answer) => answer,
            Err(error) => return Err(self.lost(error)),
        };
        let Answer::Array(parts) = &answer else {
            let text = answer.error_text();
            return Err(self.refused(&text));
        };
        match parts.as_slice() {
            [Answer::Bytes(value), Answer::Integer(at)] => {
                Ok(each(key, Found { value, expires_at: u64::try_from(*at).ok() })?)
            }
            // Removed or expired since the scan.
            [Answer::Null, Answer::Integer(_)] => Ok(true),
            _ => {
                let text = answer.error_text();
                Err(self.refused(&text))
            }
        }
    }
}

/// The pattern of all keys with a prefix.
fn pattern_of(prefix: &[u8]) -> Vec<u8> {
    let escaped = prefix.iter().flat_map(|&byte| {
        let is_special = matches!(byte, b'*' | b'?' | b'[' | b'\\');
        is_special.then_some(b'\\').into_iter().chain([byte])
    });
    escaped.chain([b'*']).collect()
}

/// The end of a range where this direction begins, and the other one, as X.RANGE takes them.
fn ends(range: &Range, direction: Direction) -> (Vec<u8>, Vec<u8>) {
    let lower = [b"[", &range.from[..]].concat();
    let upper = range.to.as_ref().map_or(b"+".to_vec(), |to| [b"(", &to[..]].concat());
    match direction {
        Direction::Forward => (lower, upper),
        Direction::Backward => (upper, lower),
    }
}

/// Passes on keys without values.
fn pass_keys(
    keys: &[Vec<u8>],
    each: &mut dyn FnMut(&[u8], Found<'_>) -> io::Result<bool>,
) -> Result<bool, Failure> {
    for key in keys {
        if !each(key, Found::default())? {
            return Ok(false);
        }
    }
    Ok(true)
}
