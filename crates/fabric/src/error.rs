//! Errors of calls. How operations end is a [`Completion`](crate::Completion).

use crate::Ports;
use std::fmt;

/// A call did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The library of the fabric refused a call.
    Library {
        /// What the call was to do.
        call: &'static str,
        /// The library's reason.
        reason: String,
        /// What to look at.
        advice: String,
    },
    /// The library of the fabric cannot be opened, or is too old.
    NoLibrary {
        /// What the attempt met.
        reason: String,
    },
    /// Another socket listens on the port.
    PortTaken {
        /// What to look at.
        advice: String,
    },
    /// No port of the range is free.
    NoPort {
        /// The range.
        ports: Ports,
        /// The address of this machine.
        host: String,
    },
    /// The bytes are no address of an endpoint, or of another kind of fabric.
    Address(&'static str),
    /// An atomic operation at an offset that is no multiple of 8.
    Unaligned(u64),
    /// A read or write of no bytes.
    Empty,
    /// The fabric cannot tell when a write has become persistent.
    NotPersistent,
    /// The range does not lie in the memory, or begins or ends inside of a word.
    Range,
    /// The endpoint has no such region.
    NoRegion,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library { call, reason, advice } => write!(f, "cannot {call}: {reason}; {advice}"),
            Self::NoLibrary { reason } => write!(
                f,
                "a cluster's nodes need libfabric 1.17 or later, which cannot be used here: {reason}; install the \
                 package libfabric1 (Debian, Ubuntu) or libfabric (Fedora, Arch)"
            ),
            Self::PortTaken { advice } => {
                write!(f, "cannot listen: another socket has the port; {advice}")
            }
            Self::NoPort { ports, host } => write!(
                f,
                "none of the fabric's ports {ports} ({} of them) is free at {host}: each connection to the memory \
                 needs one at both ends, so a serving node needs as many as it has lanes, and the memory node the lanes \
                 of all serving nodes together; give a wider range, or end what has its ports",
                ports.count()
            ),
            Self::Address(why) => {
                write!(
                    f,
                    "the address of the peer's endpoint {why}; both sides need the same fabric and release"
                )
            }
            Self::Unaligned(offset) => {
                write!(f, "an atomic operation at offset {offset}, which is no multiple of 8")
            }
            Self::Empty => f.write_str("a read or write of no bytes"),
            Self::NotPersistent => f.write_str(
                "this fabric cannot tell when a write is persistent; write until it has arrived, and ask the \
                 target to persist it",
            ),
            Self::Range => f.write_str("the range does not lie in the memory, or is not made of whole words"),
            Self::NoRegion => f.write_str("the endpoint has no such region; it was revoked already"),
        }
    }
}

impl std::error::Error for Error {}
