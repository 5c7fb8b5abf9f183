//! The server's settings, by name.

use std::sync::RwLock;

/// Every setting, readable and (some) changeable while the server runs.
pub struct Config {
    password: RwLock<Vec<u8>>,
    proto_max_bulk_len: RwLock<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Config { password: RwLock::new(Vec::new()), proto_max_bulk_len: RwLock::new(64 << 20) }
    }
}

impl Config {
    /// The password clients must give (`requirepass`); empty: none is asked for.
    pub fn password(&self) -> Vec<u8> {
        self.password.read().map(|p| p.clone()).unwrap_or_default()
    }

    /// The longest bulk string a client may send, bytes.
    pub fn proto_max_bulk_len(&self) -> usize {
        self.proto_max_bulk_len.read().map_or(64 << 20, |n| *n)
    }

    /// Calls `each` with the name and value of every setting whose name `wanted` accepts (names in lower case).
    pub fn for_each(&self, wanted: &mut dyn FnMut(&str) -> bool, each: &mut dyn FnMut(&str, &str)) {
        let settings = [
            ("proto-max-bulk-len", self.proto_max_bulk_len().to_string()),
            ("requirepass", String::from_utf8_lossy(&self.password()).into_owned()),
        ];
        settings.iter().filter(|(name, _)| wanted(name)).for_each(|(name, value)| each(name, value));
    }

    /// Changes one setting; the error is the text after `ERR CONFIG SET failed (possibly related to argument 'NAME') - `.
    pub fn set(&self, name: &str, value: &[u8]) -> Result<(), SetError> {
        let _ = (name, value);
        Err(SetError::Unknown)
    }
}

/// Why CONFIG SET refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum SetError {
    /// There is no setting of this name.
    Unknown,
    /// It is fixed once the server runs.
    Immutable,
    /// The value does not fit: why, in the user's words.
    Invalid(String),
}
