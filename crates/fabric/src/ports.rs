//! A range of ports.

use std::fmt;
use std::str::FromStr;

/// The ports that endpoints and connections of a fabric may listen on: each takes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// The ports from `first` to `last`; `None` if there are none, or port 0 is one of them.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (0 < first && first <= last).then_some(Self { first, last })
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        u32::from(self.last - self.first) + 1
    }

    /// The `nth` one, round and round.
    pub fn nth(&self, nth: u32) -> u16 {
        let ahead = u16::try_from(nth % self.count()).expect("a range of 16-bit numbers");
        self.first + ahead
    }

    /// Whether it has a port.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for Ports {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse().ok();
        let ports = port(first).zip(port(last)).and_then(|(first, last)| Self::new(first, last));
        ports.ok_or("it must be a range of ports: 7200-7231")
    }
}
