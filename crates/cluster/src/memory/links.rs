//! Links to serving nodes: a thread that receives for each, and one that sends, so that nobody
//! waits for a peer that does not read.

use super::node::Node;
use crate::link::{LinkError, Receiver, Secret, Sender, accept};
use crate::message::{ToMemory, ToServing};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, mpsc};
use terrace_fabric::Fabric;

/// Most links at one time.
const LINKS_MAX: usize = 256;
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
    pub(crate) fn close(&self) {
        let _ = self.out.send(Out::Close);
    }
}

/// Accepts links until the node stops.
pub(crate) fn listen<F>(node: &Arc<Node<F>>, listener: &TcpListener, secret: &Secret)
where
    F: Fabric<Endpoint: Send + 'static> + Send + Sync + 'static,
{
    while !node.is_stopping() {
        match listener.accept() {
            Ok(_) if node.is_stopping() => return,
            Ok((stream, _)) if node.links() < LINKS_MAX => serve(node, stream, secret.clone()),
            Ok((_, peer)) => log::warn!("refused {peer}: {LINKS_MAX} nodes are connected already"),
            Err(error) => {
                log::warn!("could not accept a node: {error}");
                node.sleep();
            }
        }
    }
}

fn serve<F>(node: &Arc<Node<F>>, stream: TcpStream, secret: Secret)
where
    F: Fabric<Endpoint: Send + 'static> + Send + Sync + 'static,
{
    let serving = node.clone();
    node.spawn("terrace-link", move || match accept(stream, &secret) {
        Ok((sender, receiver)) => receive(&serving, sender, receiver),
        Err(error) => log::warn!("refused a node: {error}"),
    });
}

fn receive<F>(node: &Arc<Node<F>>, sender: Sender, mut receiver: Receiver)
where
    F: Fabric<Endpoint: Send + 'static> + Send + Sync + 'static,
{
    let (out, messages) = mpsc::channel();
    let requests = Arc::new(AtomicUsize::new(0));
    let why = Arc::new(OnceLock::new());
    let peer = Peer { out, requests: requests.clone(), host: sender.host(), ended: why.clone() };
    let to_peer = sender.clone();
    node.spawn("terrace-sender", move || send(&to_peer, &messages, &requests));
    let Some(link) = node.connected(peer) else { return sender.close() };
    let ended = loop {
        match receiver.receive::<ToMemory>() {
            Ok(message) => node.heard(link, message),
            Err(error) => break error,
        }
    };
    match why.get() {
        Some(why) if node.is_told(why) => {}
        Some(why) => log::info!("the link to {} was ended: {why}", sender.peer()),
        None => log::info!("the link to {} has ended: {ended}", sender.peer()),
    }
    node.lost(link);
}

fn send(sender: &Sender, messages: &mpsc::Receiver<Out>, requests: &AtomicUsize) {
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
