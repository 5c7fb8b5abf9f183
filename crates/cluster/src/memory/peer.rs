//! The ends of links that the memory node sends to. A thread sends for each, so that nobody waits
//! for a peer that does not read.

use crate::arbiter::Link;
use crate::link::{LinkError, Sender};
use crate::message::ToServing;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, mpsc};

/// Most requests of a link that are not answered.
pub(crate) const REQUESTS_MAX: usize = 256;

/// What the thread that sends does.
pub(crate) enum Out {
    Message(ToServing),
    Close,
}

/// The end of a link that the memory node sends to.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) out: mpsc::Sender<Out>,
    /// Requests that are not answered.
    pub(crate) requests: Arc<AtomicUsize>,
    /// The host that it comes from.
    pub(crate) host: Option<IpAddr>,
    /// Why this node has ended the session, if it has.
    pub(crate) ended: Arc<OnceLock<String>>,
}

impl Peer {
    /// Sends a message, after those before.
    pub(crate) fn send(&self, message: ToServing) {
        if let ToServing::Fenced { why } = &message {
            let _ = self.ended.set(why.clone());
        }
        // If the link has ended, its receiver says so.
        let _ = self.out.send(Out::Message(message));
    }

    /// Ends the link, after the messages before.
    fn close(&self) {
        let _ = self.out.send(Out::Close);
    }
}

/// The links that are there. Nothing stands below.
pub(crate) struct Links {
    peers: HashMap<Link, Peer>,
    next: Link,
}

impl Default for Links {
    fn default() -> Self {
        Self { peers: HashMap::new(), next: 1 }
    }
}

impl Links {
    /// A link is there.
    pub(crate) fn add(&mut self, peer: Peer) -> Link {
        let link = self.next;
        self.next += 1;
        self.peers.insert(link, peer);
        link
    }

    pub(crate) fn get(&self, link: Link) -> Option<&Peer> {
        self.peers.get(&link)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    /// Sends a message, if the link is there.
    pub(crate) fn send(&self, link: Link, message: ToServing) {
        if let Some(peer) = self.peers.get(&link) {
            peer.send(message);
        }
    }

    /// Ends a link, after the messages before.
    pub(crate) fn close(&mut self, link: Link) {
        if let Some(peer) = self.peers.remove(&link) {
            peer.close();
        }
    }

    /// A link has ended.
    pub(crate) fn remove(&mut self, link: Link) {
        self.peers.remove(&link);
    }

    /// Ends all links.
    pub(crate) fn close_all(&mut self) {
        self.peers.drain().for_each(|(_, peer)| peer.close());
    }
}

/// The work of the thread that sends to a peer.
pub(crate) fn send(sender: &Sender, messages: &mpsc::Receiver<Out>, requests: &AtomicUsize) {
    for out in messages {
        let Out::Message(message) = out else { break };
        if matches!(message, ToServing::Got { .. } | ToServing::Scanned { .. } | ToServing::Counted { .. }) {
            requests.fetch_sub(1, Relaxed);
        }
        match sender.send(&message) {
            Ok(()) => {}
            Err(error @ LinkError::TooLong(_)) => refuse(sender, &message, &error),
            Err(_) => break,
        }
    }
    sender.close();
}

/// Answers a request whose answer is too long.
fn refuse(sender: &Sender, message: &ToServing, error: &LinkError) {
    let why = error.to_string();
    let answer = match message {
        ToServing::Got { id, .. } => ToServing::Got { id: *id, found: Err(why.into()) },
        ToServing::Scanned { id, .. } => ToServing::Scanned { id: *id, page: Err(why) },
        _ => return,
    };
    // If the link has ended, its receiver says so.
    let _ = sender.send(&answer);
}
