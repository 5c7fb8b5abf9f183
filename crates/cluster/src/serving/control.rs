//! The threads of a serving node: one keeps a link to the memory node and hears it, one renews the
//! lease, one lets writes arrive before slots leave.

use super::node::Node;
use crate::clock::now;
use crate::link::{self, LinkError, Receiver, Secret, Sender};
use crate::lock::lock;
use crate::message::ToServing;
use crate::slot::SlotRange;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Time between two looks at the clock. A lease is renewed six times before it is over.
const TICK: Duration = Duration::from_millis(5);
/// Ticks between two requests for segments that are missing.
const ASK_EVERY: u32 = 20;
/// Time between two tries to reach the memory node: the first ones, and later ones.
const TRY_SOON: Duration = Duration::from_millis(20);
const TRY_LATER: Duration = Duration::from_millis(200);
/// The same if it answers, but not as it should: somebody has to mend something first.
const TRY_SELDOM: Duration = Duration::from_secs(2);
/// How many are the first ones.
const FIRST: u32 = 50;

/// How often the thread of handovers looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long the memory node may take to answer a hello. If its machine has died just then, nothing
/// else ends the link.
const WELCOME_WAIT: Duration = Duration::from_secs(5);
/// How long the end of a session may take.
const END_WAIT: Duration = Duration::from_millis(500);

/// Is told `true` when a session has begun, and `false` when the memory node has refused one.
pub type OnSession = Box<dyn Fn(bool) + Send>;

/// Where the memory node is, and whether this node is to end.
#[derive(Default)]
pub(super) struct Wishes {
    state: Mutex<Wish>,
    changed: Condvar,
    pub(super) is_over: AtomicBool,
    news: Mutex<News>,
}

/// What is told of sessions, to the one that listens.
#[derive(Default)]
struct News {
    last: Option<bool>,
    listener: Option<OnSession>,
}

#[derive(Default)]
struct Wish {
    /// Where the memory node is, as the directory says.
    memory: Option<SocketAddr>,
    /// Where the last session was.
    known: Option<SocketAddr>,
    /// The link now, and where it leads.
    link: Option<(Sender, SocketAddr)>,
    /// Why this node has closed it, if it has.
    closed: Option<String>,
}

impl Wishes {
    /// The memory node is at this address, for the next link: one that works is kept, since the
    /// directory may be wrong.
    pub(super) fn set_memory(&self, address: SocketAddr) {
        lock(&self.state).memory = Some(address);
        self.changed.notify_all();
    }

    /// The address to try next. Every other time it is that of the last session, if the directory
    /// names another one: it may be wrong, or not know yet that the memory node is back.
    fn next_address(&self, tries: u32) -> Option<SocketAddr> {
        let state = lock(&self.state);
        match state.known.filter(|_| !tries.is_multiple_of(2)) {
            None => state.memory.or(state.known),
            known => known,
        }
    }

    /// A session has begun on the link to this address.
    fn has_session(&self, address: SocketAddr) {
        lock(&self.state).known = Some(address);
        self.tell(true);
    }

    fn tell(&self, has_session: bool) {
        let mut news = lock(&self.news);
        news.last = Some(has_session);
        news.listener.iter().for_each(|listener| listener(has_session));
    }

    /// Tells of sessions from now on, and first what was told last.
    pub(super) fn listen(&self, listener: OnSession) {
        let mut news = lock(&self.news);
        news.last.iter().for_each(|last| listener(*last));
        news.listener = Some(listener);
    }

    /// Whether the directory names another address than that of the link.
    fn is_moved(&self) -> bool {
        let state = lock(&self.state);
        state.link.as_ref().is_some_and(|(_, at)| state.memory.is_some_and(|wanted| wanted != *at))
    }

    /// Ends the threads.
    pub(super) fn end(&self) {
        self.is_over.store(true, Release);
        if let Some((link, _)) = &lock(&self.state).link {
            link.close();
        }
        self.changed.notify_all();
    }

    /// There is a link to this address. It is closed at once if the node is to end.
    fn set_link(&self, link: &Sender, address: SocketAddr) {
        let mut state = lock(&self.state);
        (state.link, state.closed) = (Some((link.clone(), address)), None);
        if self.is_over.load(Acquire) {
            link.close();
        }
    }

    /// Closes the link, for this reason.
    fn close_link(&self, why: &str) {
        let mut state = lock(&self.state);
        if let Some((link, _)) = &state.link {
            link.close();
            state.closed = Some(why.into());
        }
    }

    /// The link has ended. If it was not closed here before, `why` may tell that a session was.
    fn link_ended(&self, why: impl FnOnce() -> Option<String>) {
        let mut state = lock(&self.state);
        state.link = None;
        if state.closed.is_none() {
            state.closed = why();
        }
        drop(state);
        self.changed.notify_all();
    }

    pub(super) fn link(&self) -> Option<Sender> {
        lock(&self.state).link.as_ref().map(|(link, _)| link.clone())
    }

    /// Waits until the memory node has ended the link, but not long.
    pub(super) fn wait_for_end_of_link(&self) {
        let state = lock(&self.state);
        drop(self.changed.wait_timeout_while(state, END_WAIT, |state| state.link.is_some()));
    }

    /// Waits for so long, or until something has changed.
    fn wait(&self, time: Duration) {
        let state = lock(&self.state);
        if !self.is_over.load(Acquire) {
            drop(self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// How a try to reach the memory node has ended.
struct Tried {
    /// Why there is no link.
    why: String,
    /// Whether there was a session.
    had_session: bool,
    /// Time until a later try.
    pause: Duration,
    /// Whether soon is in vain: somebody has to mend something first.
    is_lasting: bool,
}

/// Makes a link to the memory node, and hears it until it ends.
fn try_link(node: &Node, wishes: &Wishes, memory: Option<SocketAddr>, secret: &Secret) -> Tried {
    let failed = |why, is_lasting| Tried {
        why,
        had_session: false,
        pause: if is_lasting { TRY_SELDOM } else { TRY_LATER },
        is_lasting,
    };
    let Some(address) = memory else {
        return failed("the address of the memory node is not known yet".to_owned(), false);
    };
    let (sender, receiver) = match link::dial(address, secret) {
        Err(error) => return failed(error.to_string(), error.is_lasting()),
        Ok(link) => link,
    };
    wishes.set_link(&sender, address);
    let (error, had_session) = hear(node, wishes, address, sender, receiver);
    let why = match lock(&wishes.state).closed.take() {
        Some(why) => format!("this node has ended the link to the memory node: {why}"),
        None => format!("the link to the memory node has ended: {error}"),
    };
    let pause = if had_session { TRY_LATER } else { TRY_SELDOM };
    Tried { why, had_session, pause, is_lasting: false }
}

/// Keeps a link to the memory node until the end.
pub(super) fn keep_link(node: &Node, wishes: &Wishes, secret: &Secret) {
    // What was told last of each address.
    let mut told: HashMap<Option<SocketAddr>, String> = HashMap::new();
    let mut tries = 0;
    while !wishes.is_over.load(Acquire) {
        let memory = wishes.next_address(tries);
        let Tried { why, had_session, pause, is_lasting } = try_link(node, wishes, memory, secret);
        if had_session {
            told.clear();
            tries = 0;
        } else if is_lasting {
            tries = FIRST;
        }
        if wishes.is_over.load(Acquire) {
            break;
        }
        if told.get(&memory) != Some(&why) {
            log::warn!("{why}; trying again");
            told.insert(memory, why);
        }
        tries += 1;
        wishes.wait(if tries < FIRST { TRY_SOON } else { pause });
    }
}

/// Hears the memory node until the link ends. Tells also whether a session has begun on it.
fn hear(
    node: &Node,
    wishes: &Wishes,
    address: SocketAddr,
    sender: Sender,
    mut receiver: Receiver,
) -> (LinkError, bool) {
    node.ownership.tell(Some(&sender), |owner| owner.hello());
    let mut had_session = false;
    let error = loop {
        match receiver.receive::<ToServing>() {
            // This node has asked for it.
            Ok(ToServing::Fenced { .. }) if node.gate().check_writable().is_err() => {}
            Ok(message) => {
                if !had_session && matches!(message, ToServing::Fenced { .. }) {
                    wishes.tell(false);
                }
                hear_one(node, &sender, message);
            }
            Err(error) => break error,
        }
        if !had_session && node.gate().session().is_some() {
            had_session = true;
            wishes.has_session(address);
        }
    };
    sender.close();
    wishes.link_ended(|| node.gate().session().and_then(|session| session.logs.ended()));
    node.ownership.tell(None, |owner| owner.lost());
    (error, had_session)
}

fn hear_one(node: &Node, sender: &Sender, message: ToServing) {
    match message {
        ToServing::Got { id, .. } | ToServing::Scanned { id, .. } | ToServing::Counted { id, .. } => {
            if let Some(session) = node.gate().session() {
                session.answered(id, message);
            }
        }
        ToServing::Full { free, size } => {
            node.gate().session().iter().for_each(|session| session.logs.set_full(Some((free, size))));
        }
        ToServing::Space(space) => node.space.set(space),
        ToServing::Roomy => {
            node.gate().session().iter().for_each(|session| session.logs.set_full(None));
        }
        ToServing::Fenced { why } => {
            node.ownership.complain(format!("the memory node has ended the session: {why}"));
            node.ownership.tell(Some(sender), |owner| owner.heard(ToServing::Fenced { why }));
            // Another session needs another link.
            sender.close();
        }
        message => node.ownership.tell(Some(sender), |owner| owner.heard(message)),
    }
}

/// Renews the lease, and asks for segments.
pub(super) fn tick(node: &Node, wishes: &Wishes) {
    let (mut ticks, mut since) = (0, now());
    // When the link was there last with a lease, or was not there.
    let mut worked = now();
    while !wishes.is_over.load(Acquire) {
        if wishes.link().is_none() || node.gate().slots.may_answer(now()) {
            worked = now();
        } else if now() > worked + WELCOME_WAIT && wishes.is_moved() {
            // It does not work, and the directory knows another place.
            worked = now();
            wishes.close_link("the lease is over, and etcd names another address");
        }
        match wishes.link() {
            Some(link) if node.ownership.tick(&link) => {
                since = now();
                if let Some(session) = node.gate().session().filter(|_| ticks % ASK_EVERY == 0) {
                    session.logs.short().into_iter().for_each(|shard| session.ask_for_segment(shard));
                }
            }
            Some(_) if now() > since + WELCOME_WAIT => {
                since = now();
                wishes.close_link("it was not given a session within 5 s");
            }
            Some(_) => {}
            None => since = now(),
        }
        ticks += 1;
        wishes.wait(TICK);
    }
}

/// Lets writes to slots arrive that are to leave.
pub(super) fn drain(node: &Arc<Node>, wishes: &Wishes, drains: &mpsc::Receiver<Vec<SlotRange>>) {
    while !wishes.is_over.load(Acquire) {
        let Ok(ranges) = drains.recv_timeout(LOOK_EVERY) else { continue };
        let Some(session) = node.gate().session() else { continue };
        session.pending.wait_for_writers();
        // If the session has ended, so has its ownership.
        if session.settle(session.logs.ticket()).is_ok() {
            let durable = session.logs.durable();
            node.ownership.tell(wishes.link().as_ref(), |owner| owner.drained(ranges, durable));
        }
    }
}
