//! Decides whether this node of a cluster executes a command, by the slot of its keys.

use terrace_protocol::{Args, Reply, slot};

use crate::{
    command::{Command, Context},
    state::{
        failure::Failure,
        routing::{HELD_MOST_MS, Place, Routing},
        session_state::State,
        shared::Shared,
    },
};

/// Why a command is not executed now.
pub(super) enum Refusal {
    /// The reply.
    Failure(Failure),
    /// Its slot is being moved: it is to be tried again in a moment.
    Held,
}

/// Whether this node serves the keys of a command, which is to be queued or executed. Returns their
/// slot, if the server belongs to a cluster and the command has keys.
pub(super) fn check(
    cx: &mut Context<'_>,
    command: &Command,
    args: Args<'_>,
    is_queued: bool,
) -> Result<Option<u16>, Refusal> {
    let Some(routing) = cx.shared.routing() else { return Ok(None) };
    let slot = match &cx.state.multi {
        // The commands that were queued: their slot may have left meanwhile.
        Some(multi) if command.name == "exec" => multi.slot(),
        _ => slot_of(command, args),
    };
    let Some(slot) = slot.map_err(Refusal::Failure)? else { return Ok(None) };
    match routing.place(slot, cx.state.asking) {
        // The slot may have come after the command. Another node may have answered for it in
        // between, also to the client that has gone.
        Place::Here if cx.state.closed_before.is_some_and(|arrivals| arrivals != routing.arrivals()) => {
            return Err(Refusal::Failure(Failure::NotOwner { slot }));
        }
        Place::Here if cx.shared.lines().may_go(slot, cx.state.waits.in_line(), cx.now_ms) => {}
        // EXEC will wait.
        Place::Here | Place::Held if is_queued => {}
        Place::Here if may_wait(cx) => return Err(Refusal::Held),
        Place::Held if may_wait(cx) => {
            join_line(cx, slot);
            return Err(Refusal::Held);
        }
        place => {
            cx.state.waits.end();
            return Err(Refusal::Failure(elsewhere(slot, &place)));
        }
    }
    Ok(Some(slot))
}

/// Whether this node serves a key now, as far as a client may know that has not sent ASKING.
pub(super) fn is_here(routing: &dyn Routing, key: &[u8]) -> bool {
    matches!(routing.place(slot(key), false), Place::Here)
}

/// Replies with an error. If the store refused a command because its slot has left, the reply says
/// where it is.
pub(super) fn fail(shared: &Shared, state: &mut State, reply: &mut Reply<'_>, failure: Failure) {
    let told = match (shared.routing(), failure) {
        (Some(routing), Failure::NotOwner { slot }) => elsewhere(slot, &routing.place(slot, false)),
        (_, failure) => failure,
    };
    state.reply_error(reply, told.message());
}

/// The slot of a command's keys, which must be the same for all of them.
pub(super) fn slot_of(command: &Command, args: Args<'_>) -> Result<Option<u16>, Failure> {
    let mut found = None;
    for key in command.keys.iter().flat_map(|spec| spec.places(args)) {
        let slot = slot(args.at(key));
        if found.is_some_and(|found| found != slot) {
            return Err(Failure::CROSS_SLOT);
        }
        found = Some(slot);
    }
    Ok(found)
}

/// Whether a command may wait on for its slot.
pub(super) fn may_wait(cx: &mut Context<'_>) -> bool {
    let now_ms = cx.now_ms;
    now_ms - cx.state.waits.begin_again(now_ms) < HELD_MOST_MS
}

/// Puts a command at the end of the line of its slot, unless it has a place already.
pub(super) fn join_line(cx: &mut Context<'_>, slot: u16) {
    cx.state.waits.join_line(cx.shared.lines(), slot, cx.now_ms);
}

/// The reply to a command for a slot that is not served here.
fn elsewhere(slot: u16, place: &Place) -> Failure {
    let text = match place {
        Place::There(node) => format!("MOVED {slot} {}:{}", node.endpoint(), node.port),
        Place::Ask(node) => format!("ASK {slot} {}:{}", node.endpoint(), node.port),
        // A slot that the store has refused came back, or will be somewhere in a moment.
        Place::Here | Place::Held => return Failure::NotOwner { slot },
        Place::Nowhere => return Failure::Text("CLUSTERDOWN Hash slot not served"),
    };
    Failure::Made(text.into_bytes().into())
}
