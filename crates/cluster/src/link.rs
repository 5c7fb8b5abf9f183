//! The control channel: messages over a TCP connection, proved by a key that both sides have.
//!
//! ```text
//!   client   "terrace" 0  WIRE u32  nonce [32]
//!   server   "terrace" 0  WIRE u32  nonce [32]  proof [32]
//!   client                                      proof [32]
//!   then     bytes of the message u32  tag [16]  message: postcard
//! ```
//! A proof is the keyed BLAKE3 hash of the side and both nonces. A tag is that of the direction,
//! the number of the message in it, and the message, under a key of this connection. So nobody
//! without the key joins in, changes, repeats or drops a message unnoticed. Nothing is secret.

use crate::message::WIRE;
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;

/// Bytes of the longest message.
pub const MESSAGE_MAX: usize = 16 << 20;
const MAGIC: [u8; 8] = *b"terrace\0";
/// How long a handshake, or a message that has begun, may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The key of a cluster's control channel.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// The key that a text stands for. A random text of 32 letters or more is safe.
    pub fn new(text: &str) -> Self {
        Self(blake3::derive_key("terrace control channel, version 1", text.trim().as_bytes()))
    }

    fn hash(&self, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        parts.iter().for_each(|part| _ = hasher.update(part));
        hasher.finalize()
    }
}

/// A link could not be made, or has ended.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The connection has failed.
    #[error("the control connection to {peer} failed: {error}")]
    Io {
        /// The peer.
        peer: String,
        /// The error that the operating system reported.
        error: io::Error,
    },
    /// The peer closed it.
    #[error("the control connection to {0} was closed")]
    Closed(String),
    /// The peer is something else.
    #[error("{0} is no node of a Terrace cluster, or this is not its control port")]
    Stranger(String),
    /// The peer's release is too old or too new.
    #[error("{peer} speaks version {theirs} of the cluster's protocol, this node version {WIRE}; update one")]
    Version {
        /// The peer.
        peer: String,
        /// Its version.
        theirs: u32,
    },
    /// The peer has another key.
    #[error("{0} has another key for the control channel; give all nodes of a cluster the same one")]
    WrongKey(String),
    /// A message that was changed on its way, or makes no sense.
    #[error("a message of {0} is damaged")]
    Damaged(String),
    /// A message that is too long to be sent.
    #[error("a message of {0} bytes is too long for the control channel")]
    TooLong(usize),
}

impl LinkError {
    /// Whether another try soon would be in vain: somebody has to change a node first.
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Stranger(_) | Self::Version { .. } | Self::WrongKey(_))
    }
}

/// The end of a link that sends. Clones share it.
#[derive(Clone)]
pub struct Sender(Arc<Sending>);

struct Sending {
    stream: TcpStream,
    peer: String,
    key: Secret,
    direction: u8,
    next: Mutex<u64>,
}

/// The end of a link that receives.
pub struct Receiver {
    stream: BufReader<TcpStream>,
    peer: String,
    key: Secret,
    direction: u8,
    next: u64,
}

const TO_SERVER: u8 = 0;
const TO_CLIENT: u8 = 1;

/// Makes a link to the server at this address.
///
/// # Errors
/// If nobody answers, or it is no node of this version with this key.
pub fn dial(address: SocketAddr, secret: &Secret) -> Result<(Sender, Receiver), LinkError> {
    let peer = address.to_string();
    let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(io_of(&peer))?;
    let mut handshake = Handshake::begin(stream, peer)?;
    handshake.send_hello(&[])?;
    handshake.hear_hello()?;
    let theirs = handshake.read::<32>()?;
    // Before the look at theirs, so that the server can say, too, that the keys differ.
    let proof = handshake.proof(secret, TO_SERVER);
    handshake.send(proof.as_bytes())?;
    handshake.check(secret, TO_CLIENT, theirs)?;
    handshake.finish(secret, TO_SERVER)
}

/// Makes a link with a client that has connected.
///
/// # Errors
/// If it is no node of this version with this key.
pub fn accept(stream: TcpStream, secret: &Secret) -> Result<(Sender, Receiver), LinkError> {
    let peer = stream.peer_addr().map_or_else(|_| "a client".to_owned(), |address| address.to_string());
    let mut handshake = Handshake::begin(stream, peer)?;
    let heard = handshake.hear_hello();
    if let Err(LinkError::Version { .. }) = heard {
        // So that the client can say so, too.
        handshake.send_hello(&[0; 32])?;
    }
    heard?;
    let proof = handshake.proof(secret, TO_CLIENT);
    handshake.send_hello(proof.as_bytes())?;
    let theirs = handshake.read::<32>()?;
    handshake.check(secret, TO_SERVER, theirs)?;
    handshake.finish(secret, TO_CLIENT)
}

fn io_of(peer: &str) -> impl Fn(io::Error) -> LinkError + use<> {
    let peer = peer.to_owned();
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof => LinkError::Closed(peer.clone()),
        _ => LinkError::Io { peer: peer.clone(), error },
    }
}

struct Handshake {
    stream: TcpStream,
    peer: String,
    mine: [u8; 32],
    theirs: [u8; 32],
}

impl Handshake {
    #[allow(clippy::disallowed_methods, reason = "a nonce that nobody has used before")]
    fn begin(stream: TcpStream, peer: String) -> Result<Self, LinkError> {
        let set = || {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))
        };
        set().map_err(io_of(&peer))?;
        let mut mine = [0; 32];
        let drawn = getrandom::fill(&mut mine).map_err(io::Error::other);
        drawn.map_err(io_of(&peer))?;
        Ok(Self { stream, peer, mine, theirs: [0; 32] })
    }

    fn read<const N: usize>(&mut self) -> Result<[u8; N], LinkError> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).map_err(io_of(&self.peer))?;
        Ok(bytes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.stream.write_all(bytes).map_err(io_of(&self.peer))
    }

    fn send_hello(&mut self, proof: &[u8]) -> Result<(), LinkError> {
        self.send(&[&MAGIC[..], &WIRE.to_le_bytes(), &self.mine, proof].concat())
    }

    fn hear_hello(&mut self) -> Result<(), LinkError> {
        if self.read::<8>()? != MAGIC {
            return Err(LinkError::Stranger(self.peer.clone()));
        }
        let theirs = u32::from_le_bytes(self.read()?);
        if theirs != WIRE {
            return Err(LinkError::Version { peer: self.peer.clone(), theirs });
        }
        self.theirs = self.read()?;
        Ok(())
    }

    /// The nonces, that of the client first.
    fn nonces(&self, is_client: bool) -> [&[u8]; 2] {
        if is_client { [&self.mine, &self.theirs] } else { [&self.theirs, &self.mine] }
    }

    fn proof(&mut self, secret: &Secret, direction: u8) -> blake3::Hash {
        let [client, server] = self.nonces(direction == TO_SERVER);
        secret.hash(&[b"proof", &[direction], client, server])
    }

    fn check(&mut self, secret: &Secret, direction: u8, theirs: [u8; 32]) -> Result<(), LinkError> {
        let [client, server] = self.nonces(direction == TO_CLIENT);
        // Compared in constant time.
        if secret.hash(&[b"proof", &[direction], client, server]) == theirs {
            return Ok(());
        }
        Err(LinkError::WrongKey(self.peer.clone()))
    }

    fn finish(self, secret: &Secret, direction: u8) -> Result<(Sender, Receiver), LinkError> {
        let [client, server] = self.nonces(direction == TO_SERVER);
        let key = Secret(*secret.hash(&[b"session", client, server]).as_bytes());
        let fail = io_of(&self.peer);
        self.stream.set_read_timeout(None).map_err(&fail)?;
        let other = self.stream.try_clone().map_err(fail)?;
        let sending = Sending {
            stream: self.stream,
            peer: self.peer.clone(),
            key: key.clone(),
            direction,
            next: Mutex::new(0),
        };
        let stream = BufReader::with_capacity(64 << 10, other);
        let receiver = Receiver { stream, peer: self.peer, key, direction: 1 - direction, next: 0 };
        Ok((Sender(Arc::new(sending)), receiver))
    }
}

/// The tag of a message.
fn tag(key: &Secret, direction: u8, number: u64, message: &[u8]) -> [u8; 16] {
    let hash = key.hash(&[&[direction], &number.to_le_bytes(), message]);
    *hash.as_bytes().first_chunk().expect("32 bytes")
}

impl Sender {
    /// Sends a message. Messages arrive in the order of these calls.
    ///
    /// # Errors
    /// If the link has ended, or the message is too long. After the former, so does the receiver.
    pub fn send<T: Serialize>(&self, message: &T) -> Result<(), LinkError> {
        let message = postcard::to_stdvec(message).expect("messages have known lengths");
        if message.len() > MESSAGE_MAX {
            return Err(LinkError::TooLong(message.len()));
        }
        let Sending { stream, peer, key, direction, next } = &*self.0;
        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
        let len = u32::try_from(message.len()).expect("checked above");
        let frame = [&len.to_le_bytes()[..], &tag(key, *direction, *next, &message), &message].concat();
        *next += 1;
        (&*stream).write_all(&frame).map_err(|error| {
            // A part of it may have gone: nothing can follow.
            self.close();
            io_of(peer)(error)
        })
    }

    /// Ends the link, at both ends.
    pub fn close(&self) {
        // It may have ended already.
        let _ = self.0.stream.shutdown(Shutdown::Both);
    }

    /// The peer's address.
    pub fn peer(&self) -> &str {
        &self.0.peer
    }

    /// The peer's host.
    pub fn host(&self) -> Option<IpAddr> {
        self.0.stream.peer_addr().ok().map(|address| address.ip().to_canonical())
    }
}

impl Receiver {
    /// Waits for the next message.
    ///
    /// # Errors
    /// If the link has ended, or the message is damaged.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T, LinkError> {
        let fail = io_of(&self.peer);
        let mut head = [0; 20];
        self.stream.read_exact(&mut head).map_err(&fail)?;
        let (len, theirs) = head.split_first_chunk().expect("20 bytes");
        let len = u32::from_le_bytes(*len) as usize;
        if len > MESSAGE_MAX {
            return Err(LinkError::Damaged(self.peer.clone()));
        }
        let mut message = vec![0; len];
        self.stream.read_exact(&mut message).map_err(fail)?;
        let number = self.next;
        self.next += 1;
        // A forger has no second try: a difference ends the link.
        if tag(&self.key, self.direction, number, &message) != theirs {
            return Err(LinkError::Damaged(self.peer.clone()));
        }
        postcard::from_bytes(&message).map_err(|_| LinkError::Damaged(self.peer.clone()))
    }
}
