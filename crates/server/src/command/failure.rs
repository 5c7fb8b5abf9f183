//! Error replies of commands: Redis's texts where Redis has the error, plain words where it does not.

use terrace::{ReadError, WriteError};

/// What a command returns: its reply is written, or this is the reply.
pub type Outcome = Result<(), Failure>;

/// The text of an error reply, its code first.
#[derive(Debug)]
pub enum Failure {
    /// Always the same.
    Text(&'static str),
    /// Made for the occasion; bytes, since it may quote the client's.
    Made(Box<[u8]>),
}

impl Failure {
    /// Options that make no sense together, or are unknown.
    pub const SYNTAX: Failure = Failure::Text("ERR syntax error");
    /// An argument or value that should be a 64-bit integer.
    pub const NOT_AN_INTEGER: Failure = Failure::Text("ERR value is not an integer or out of range");
    /// An argument or value that should be a floating-point number.
    pub const NOT_A_FLOAT: Failure = Failure::Text("ERR value is not a valid float");
    /// The source of RENAME.
    pub const NO_SUCH_KEY: Failure = Failure::Text("ERR no such key");
    /// A database other than 0.
    pub const NO_SUCH_DATABASE: Failure = Failure::Text("ERR DB index is out of range");

    /// A text made of parts.
    pub fn of(parts: &[&[u8]]) -> Failure {
        Failure::Made(parts.concat().into())
    }

    /// As much of a client's text as Redis prints with `%s`: up to a NUL.
    pub fn printed(text: &[u8]) -> &[u8] {
        text.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// A value that would be longer than `proto-max-bulk-len`, which is `most` bytes.
    pub fn too_long(most: usize) -> Failure {
        let text =
            format!("ERR string exceeds maximum allowed size (proto-max-bulk-len), which is {most} bytes");
        Failure::Made(text.into_bytes().into())
    }

    /// The wrong number of arguments for the command of this full name.
    pub fn arity(name: &str) -> Failure {
        Failure::of(&[b"ERR wrong number of arguments for '", name.as_bytes(), b"' command"])
    }

    /// An expiry of this command that is not positive, or past the end of time.
    pub fn expire_time(name: &str) -> Failure {
        Failure::of(&[b"ERR invalid expire time in '", name.as_bytes(), b"' command"])
    }

    /// The text.
    pub fn message(&self) -> &[u8] {
        match self {
            Failure::Text(text) => text.as_bytes(),
            Failure::Made(text) => text,
        }
    }

    /// Whether the pool has no room.
    pub fn is_full(&self) -> bool {
        self.message().starts_with(b"OOM ")
    }

    /// A store's error under Redis's code for it.
    fn coded(code: &str, error: &dyn std::fmt::Display) -> Failure {
        let text = error.to_string();
        let text = text.strip_prefix("the ").filter(|_| code == "OOM").unwrap_or(&text);
        Failure::Made(format!("{code} {text}").into_bytes().into())
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        Failure::coded("ERR", &error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Failure {
        let code = match &error {
            WriteError::PoolFull { .. } => "OOM",
            WriteError::ReadOnly => "READONLY",
            _ => "ERR",
        };
        Failure::coded(code, &error)
    }
}
