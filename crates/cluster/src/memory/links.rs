//! Links to serving nodes: a thread listens, and for each link one receives and one sends.

use super::peer::{Peer, send};
use super::sessions::Sessions;
use super::threads::AGAIN;
use crate::link::{Receiver, Secret, Sender, accept};
use crate::message::ToMemory;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock, mpsc};
use terrace_fabric::Fabric;

/// Most links at one time.
const LINKS_MAX: usize = 256;
/// Accepts links until the node stops.
pub(crate) fn listen<F>(sessions: &Arc<Sessions<F>>, listener: &TcpListener, secret: &Secret)
where
    F: Fabric<Endpoint: Send + 'static> + Send + Sync + 'static,
{
    while !sessions.threads().is_stopping() {
        match listener.accept() {
            Ok(_) if sessions.threads().is_stopping() => return,
            Ok((stream, _)) if sessions.links() < LINKS_MAX => serve(sessions, stream, secret.clone()),
            Ok((_, peer)) => log::warn!("refused {peer}: {LINKS_MAX} nodes are connected already"),
            Err(error) => {
                log::warn!("could not accept a node: {error}");
                sessions.threads().sleep_for(AGAIN);
            }
        }
    }
}

fn serve<F>(sessions: &Arc<Sessions<F>>, stream: TcpStream, secret: Secret)
where
    F: Fabric<Endpoint: Send + 'static> + Send + Sync + 'static,
{
    let serving = sessions.clone();
    sessions.threads().spawn("terrace-link", move || match accept(stream, &secret) {
        Ok((sender, receiver)) => receive(&serving, sender, receiver),
        Err(error) => log::warn!("refused a node: {error}"),
    });
}

fn receive<F>(sessions: &Arc<Sessions<F>>, sender: Sender, mut receiver: Receiver)
where
    F: Fabric<Endpoint: Send + 'static> + Send + Sync + 'static,
{
    let (out, messages) = mpsc::channel();
    let requests = Arc::new(AtomicUsize::new(0));
    let why = Arc::new(OnceLock::new());
    let peer = Peer { out, requests: requests.clone(), host: sender.host(), ended: why.clone() };
    let to_peer = sender.clone();
    sessions.threads().spawn("terrace-sender", move || send(&to_peer, &messages, &requests));
    let Some(link) = sessions.connected(peer) else { return sender.close() };
    let ended = loop {
        match receiver.receive::<ToMemory>() {
            Ok(message) => sessions.heard(link, message),
            Err(error) => break error,
        }
    };
    match why.get() {
        Some(why) if sessions.is_told(why) => {}
        Some(why) => log::info!("the link to {} was ended: {why}", sender.peer()),
        None => log::info!("the link to {} has ended: {ended}", sender.peer()),
    }
    sessions.lost(link);
}
