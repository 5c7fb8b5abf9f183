//! A client of the server that has a pool open. The server posts its addresses in the pool;
//! commands find them there and connect like any other Redis client.

mod connection;
mod contact;
mod entries;
mod reply;

use std::{io, path::Path};

pub(crate) use connection::Connection;
pub(crate) use contact::{Contact, Place};
pub(crate) use reply::{Answer, parse};

use crate::{failure::Failure, record::Record, text::escaped};

/// A connection to the server that has the pool open.
pub(crate) struct Client {
    connection: Connection,
    place: Place,
    /// Length of the longest value that the server accepts.
    value_max: u64,
    /// The selected database.
    database: u8,
    /// Number of damaged records that scans have left out.
    pub(crate) left_out: u64,
    /// Whether the store lies in a directory.
    pub(crate) is_on_disk: bool,
}

/// Why a record was not written.
pub(crate) enum Refused {
    /// This record was refused; others may succeed.
    Record(String),
    /// No record can be written.
    All(Failure),
}

/// The servers of the pool at `path`, from the notices that they posted in it.
pub(crate) fn contacts(path: &Path) -> Vec<Contact> {
    // An unreadable pool has no notices here; opening it reports the error.
    let notices = terrace::notices(path).unwrap_or_default();
    notices.iter().filter_map(|notice| Contact::parse(notice)).collect()
}

/// Connects to the server that has the pool at `path` open; `None` if no such server answers.
pub(crate) fn find(path: &Path, password: &[u8]) -> Result<Option<Client>, Failure> {
    let mut refused = None;
    for contact in contacts(path) {
        for place in &contact.places {
            let Ok(connection) = Connection::open(place) else { continue };
            let place = place.clone();
            let (value_max, is_on_disk) = (u64::MAX, path.is_dir());
            let mut client = Client { connection, place, value_max, database: 0, left_out: 0, is_on_disk };
            match client.greet(&contact.run_id, password) {
                Ok(true) => return Ok(Some(client)),
                // In this network namespace, another server has the address.
                Ok(false) => {}
                Err(failure) => refused = refused.or(Some(failure)),
            }
        }
    }
    refused.map_or(Ok(None), Err)
}

impl Client {
    /// Authenticates if the server asks for it, and checks that this is the server of that run. A
    /// server that identifies itself as another one before authentication does not get the
    /// password.
    fn greet(&mut self, run_id: &str, password: &[u8]) -> Result<bool, Failure> {
        match self.introduce(run_id, password) {
            Ok(answer) => answer,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::InvalidData => {
                    Err(self.lost(error))
                }
                // The server is shutting down.
                _ => Ok(false),
            },
        }
    }

    fn introduce(&mut self, run_id: &str, password: &[u8]) -> io::Result<Result<bool, Failure>> {
        self.connection.set_timeout(true)?;
        let mut info = self.ask(&[b"INFO", b"server"])?;
        if info.as_ref().is_err_and(|error| error.starts_with(b"NOAUTH")) {
            if let Err(failure) = self.authenticate(password)? {
                return Ok(Err(failure));
            }
            info = self.ask(&[b"INFO", b"server"])?;
        }
        let info = match info {
            Ok(info) => info,
            Err(error) => return Ok(Err(self.refused(&escaped(&error)))),
        };
        let wanted = format!("run_id:{run_id}");
        if !info.split(|&byte| byte == b'\n').any(|line| line.trim_ascii() == wanted.as_bytes()) {
            return Ok(Ok(false));
        }
        // If the setting cannot be read, the server itself refuses long values.
        let limit = self.ask(&[b"CONFIG", b"GET", b"proto-max-bulk-len"])?.unwrap_or_default();
        self.value_max =
            std::str::from_utf8(&limit).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        self.connection.set_timeout(false)?;
        Ok(Ok(true))
    }

    fn authenticate(&mut self, password: &[u8]) -> io::Result<Result<(), Failure>> {
        const HOW: &str = "set TERRACE_PASSWORD or REDISCLI_AUTH, or use --password-file FILE";
        if password.is_empty() {
            return Ok(Err(Failure::new(format!("{self} requires a password")).hint(HOW)));
        }
        Ok(self.ask(&[b"AUTH", password])?.map(drop).map_err(|error| {
            Failure::new(format!("{self} rejected the password: {}", escaped(&error))).hint(HOW)
        }))
    }

    /// Sends a command; returns the last string of its reply, or the text of an error.
    fn ask(&mut self, words: &[&[u8]]) -> io::Result<Result<Vec<u8>, Vec<u8>>> {
        self.connection.queue(words);
        self.connection.send()?;
        Ok(match self.connection.answer()? {
            Answer::Error(text) => Err(text.to_vec()),
            answer => Ok(answer.last_bytes().to_vec()),
        })
    }

    /// Executes a command that replies OK.
    pub(crate) fn command(&mut self, words: &[&[u8]]) -> Result<(), Failure> {
        match self.ask(words) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(text)) => Err(self.refused(&escaped(&text))),
            Err(error) => Err(self.lost_write(error)),
        }
    }

    /// Selects a database.
    pub(crate) fn select(&mut self, database: u8) -> Result<(), Failure> {
        if self.database != database {
            self.command(&[b"SELECT", database.to_string().as_bytes()])?;
            self.database = database;
        }
        Ok(())
    }

    /// The databases with keys.
    pub(crate) fn databases(&mut self) -> Result<Vec<u8>, Failure> {
        let info = match self.ask(&[b"INFO", b"keyspace"]) {
            Ok(Ok(info)) => info,
            Ok(Err(text)) => return Err(self.refused(&escaped(&text))),
            Err(error) => return Err(self.lost(error)),
        };
        let info = String::from_utf8_lossy(&info);
        let number = |line: &str| line.strip_prefix("db")?.split(':').next()?.parse().ok();
        Ok(info.lines().filter_map(number).collect())
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        self.connection.queue(&[b"GET", key]);
        match self.connection.send().and_then(|()| self.connection.answer()) {
            Ok(Answer::Bytes(value)) => Ok(Some(value.to_vec())),
            Ok(Answer::Null) => Ok(None),
            Ok(other) => {
                let text = other.error_text();
                Err(self.refused(&text))
            }
            Err(error) => Err(self.lost(error)),
        }
    }

    /// Removes keys; returns how many of them existed.
    pub(crate) fn remove(&mut self, keys: &[&[u8]]) -> Result<u64, Failure> {
        const TOGETHER: usize = 256;
        let mut removed = 0;
        for keys in keys.chunks(TOGETHER) {
            let words: Vec<&[u8]> = [&b"DEL"[..]].into_iter().chain(keys.iter().copied()).collect();
            self.connection.queue(&words);
            removed += match self.connection.send().and_then(|()| self.connection.answer()) {
                Ok(Answer::Integer(count)) => u64::try_from(count).unwrap_or(0),
                Ok(other) => {
                    let text = other.error_text();
                    return Err(self.refused(&text));
                }
                Err(error) => return Err(self.lost_write(error)),
            };
        }
        Ok(removed)
    }

    /// Writes records in order; returns one result per record.
    pub(crate) fn put_many(&mut self, records: &[&Record]) -> Vec<Result<(), Refused>> {
        let takes = |value: &[u8]| value.len() as u64 <= self.value_max;
        for record in records.iter().filter(|record| takes(&record.value)) {
            let at = record.expires_at.map(|at| at.to_string());
            let plain = [&b"SET"[..], &record.key, &record.value];
            match &at {
                None => self.connection.queue(&plain),
                Some(at) => self.connection.queue(&[plain[0], plain[1], plain[2], b"PXAT", at.as_bytes()]),
            }
        }
        let sent = self.connection.send();
        let mut lost = sent.err();
        let mut results = Vec::with_capacity(records.len());
        for record in records {
            let result = match &lost {
                _ if record.value.len() as u64 > self.value_max => Err(self.too_long(record.value.len())),
                Some(error) => Err(Refused::All(self.lost_write(error))),
                None => self.written(),
            };
            if let Err(Refused::All(_)) = &result {
                lost = lost.or(Some(io::ErrorKind::ConnectionAborted.into()));
            }
            results.push(result);
        }
        results
    }

    fn written(&mut self) -> Result<(), Refused> {
        match self.connection.answer() {
            Ok(Answer::Bytes(_)) => Ok(()),
            Ok(Answer::Error(text)) if !text.starts_with(b"OOM") => Err(Refused::Record(escaped(text))),
            Ok(other) => {
                let text = other.error_text();
                Err(Refused::All(self.refused(&text)))
            }
            Err(error) => Err(Refused::All(self.lost_write(error))),
        }
    }

    fn too_long(&self, bytes: usize) -> Refused {
        Refused::Record(format!(
            "the value has {bytes} bytes, but the server accepts at most {}: CONFIG SET proto-max-bulk-len 512mb",
            self.value_max
        ))
    }

    /// Executes the `count` commands in `stream`, and passes each reply to `each`.
    pub(crate) fn execute(
        &mut self,
        stream: &[u8],
        count: usize,
        each: &mut dyn FnMut(&Answer<'_>),
    ) -> Result<(), Failure> {
        let mut execute = || {
            self.connection.send_raw(stream)?;
            (0..count).try_for_each(|_| self.connection.answer().map(|answer| each(&answer)))
        };
        let executed: io::Result<()> = execute();
        executed.map_err(|error| self.lost_write(error))
    }

    fn refused(&self, text: &str) -> Failure {
        Failure::new(format!("{self} refused: {text}"))
    }

    fn lost(&self, error: impl std::borrow::Borrow<io::Error>) -> Failure {
        let error = error.borrow();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Failure::new(format!("{self} does not answer"))
            }
            io::ErrorKind::UnexpectedEof => Failure::new(format!("{self} closed the connection")),
            _ => Failure::new(format!("the connection to {self} broke: {error}")),
        }
    }

    /// As [`Client::lost`], for a write.
    fn lost_write(&self, error: impl std::borrow::Borrow<io::Error>) -> Failure {
        self.lost(error).hint("the last commands may or may not have been executed")
    }
}

impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the server that has the store open ({})", self.place)
    }
}
