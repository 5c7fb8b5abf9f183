//! One connection's side of the conversation, without any I/O: bytes in, bytes out.

use std::sync::Arc;

pub use crate::clients::Peer;
use crate::{clients::Client, shared::Shared};

/// What the event loop does after [`Session::process`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Everything complete was executed: read more.
    Continue,
    /// `output` has grown to [`OUTPUT_HIGH_WATER`]: write it out, then call `process` again before reading more,
    /// since `input` may hold further whole commands.
    More,
    /// Write `output`, then close the connection.
    Close,
    /// SHUTDOWN: write `output`, then end the server (`Shared::shut_down` was called).
    Shutdown,
}

/// `process` stops between two commands when `output` holds this many bytes.
pub const OUTPUT_HIGH_WATER: usize = 1 << 20;

/// One per connection.
pub struct Session {
    shared: Arc<Shared>,
    client: Arc<Client>,
}

impl Session {
    /// A session for a connection just accepted; it is in `shared.clients` until dropped.
    pub fn new(shared: Arc<Shared>, peer: Peer, now_ms: u64) -> Session {
        let client = shared.clients.enter(peer, now_ms);
        Session { shared, client }
    }

    /// Executes every command that `input` holds whole, removes their bytes from its front, appends the replies to `output`.
    ///
    /// `input` keeps the beginning of a command that has not arrived wholly; append what is read next to it and call again.
    /// `now_ms` is Unix time in milliseconds, asked of the clock once a call.
    pub fn process(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, now_ms: u64) -> Flow {
        let _ = (input, output, now_ms);
        Flow::Close
    }

    /// Whether the client may do all it likes: it gave the password, or none is asked for. Until then the event loop
    /// holds it to 4 KiB of output and 10 seconds.
    pub fn authenticated(&self) -> bool {
        self.shared.config.password().is_empty()
    }

    /// The client's number.
    pub fn id(&self) -> u64 {
        self.client.id
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.clients.leave(self.client.id);
    }
}
