//! CLIENT ID | INFO | KILL | LIST | REPLY | SETNAME | GETNAME | SETINFO | NO-EVICT | NO-TOUCH

use std::{collections::HashSet, sync::atomic::Ordering::Relaxed};

use terrace_protocol::{Args, parse_i64, parse_u64};

use super::*;
use crate::state::{
    clients::{Client, Names},
    flow::Flow,
    replies::Replies,
};

pub(super) static CLIENT: Command = Command {
    since: "2.4.0",
    complexity: "Depends on subcommand.",
    is_long: Some(has_many_clients),
    summary: "Commands about connections.",
    subcommands: &SUBCOMMANDS,
    ..Command::new("client", -2, group::CONNECTION, Run::Container)
};

static SUBCOMMANDS: [Command; 11] = [
    Command { since: "5.0.0", summary: "The id of this connection.", ..own("id", 2, id) },
    Command {
        since: "6.2.0",
        tips: &["nondeterministic_output"],
        summary: "Information about this connection.",
        ..own("info", 2, info)
    },
    Command {
        flags: PLAIN | flag::ADMIN,
        since: "2.4.0",
        tips: &["nondeterministic_output"],
        complexity: "O(N) where N is the number of connections",
        summary: "Information about all connections.",
        ..own("list", -2, list)
    },
    Command {
        flags: PLAIN | flag::ADMIN,
        since: "2.4.0",
        complexity: "O(N) where N is the number of connections",
        summary: "Closes connections.",
        ..own("kill", -3, kill)
    },
    Command {
        since: "3.2.0",
        summary: "Sets whether this connection gets replies.",
        ..own("reply", 3, reply)
    },
    Command { since: "2.6.9", summary: "Names this connection.", ..own("setname", 3, setname) },
    Command { since: "2.6.9", summary: "The name of this connection.", ..own("getname", 2, getname) },
    Command {
        since: "7.2.0",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        summary: "Sets the name or version of the client's library.",
        ..own("setinfo", 4, setinfo)
    },
    Command {
        flags: PLAIN | flag::ADMIN,
        since: "7.0.0",
        summary: "Sets the no-evict flag of this connection; Terrace never evicts clients.",
        ..own("no-evict", 3, no_evict)
    },
    Command {
        since: "7.2.0",
        summary: "Sets the no-touch flag of this connection: its reads do not count as uses of keys.",
        ..own("no-touch", 3, no_touch)
    },
    help::help(group::CONNECTION, category::CONNECTION),
];

const PLAIN: u32 = flag::NOSCRIPT | flag::LOADING | flag::STALE;

const fn own(name: &'static str, arity: i32, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        flags: PLAIN,
        categories: category::CONNECTION,
        ..Command::new(name, arity, group::CONNECTION, Run::General(run))
    }
}

fn id(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    cx.reply.integer(i64::try_from(cx.state.client.id).unwrap_or(i64::MAX));
    Ok(())
}

fn info(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    cx.state.publish(cx.now_ms);
    let line = describe(&cx.state.client, cx.now_ms);
    cx.reply.verbatim(b"txt", &line);
    Ok(())
}

fn list(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let wanted = wanted(args)?;
    cx.state.publish(cx.now_ms);
    let mut text = Vec::new();
    for client in cx.shared.clients.all() {
        if wanted.as_ref().is_none_or(|ids| ids.contains(&client.id)) {
            text.extend_from_slice(&describe(&client, cx.now_ms));
        }
    }
    cx.reply.verbatim(b"txt", &text);
    Ok(())
}

/// Whether an argument names the type of all clients here: there are no replicas, masters or
/// subscribers.
fn is_normal(args: Args<'_>, at: usize) -> Result<bool, Failure> {
    match () {
        () if args.is(at, "normal") => Ok(true),
        () if ["master", "replica", "slave", "pubsub"].iter().any(|kind| args.is(at, kind)) => Ok(false),
        () => Err(Failure::of(&[b"ERR Unknown client type '", Failure::printed(args.at(at)), b"'"])),
    }
}

/// The ids that the arguments of LIST select; `None`: all.
fn wanted(args: Args<'_>) -> Result<Option<HashSet<u64>>, Failure> {
    if args.len() == 2 {
        return Ok(None);
    }
    if args.is(2, "TYPE") && args.len() == 4 {
        return Ok(if is_normal(args, 3)? { None } else { Some(HashSet::new()) });
    }
    if !args.is(2, "ID") || args.len() < 4 {
        return Err(Failure::SYNTAX);
    }
    let id = |arg| parse_u64(arg).filter(|id| *id > 0).ok_or(Failure::Text("ERR Invalid client ID"));
    args.from(3).iter().map(id).collect::<Result<_, _>>().map(Some)
}

/// Which connections KILL closes.
#[derive(Default)]
struct Filter<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    /// There are none of another type than normal.
    is_of_other_type: bool,
    /// Seconds since it connected, at least.
    age: u64,
    spares_own: bool,
}

impl<'a> Filter<'a> {
    fn parse(args: Args<'a>) -> Result<Filter<'a>, Failure> {
        if args.len() == 3 {
            return Ok(Filter { address: Some(args.at(2)), ..Filter::default() });
        }
        let mut filter = Filter { spares_own: true, ..Filter::default() };
        for at in (2..args.len()).step_by(2) {
            if at + 1 == args.len() {
                return Err(Failure::SYNTAX);
            }
            let value = args.at(at + 1);
            match () {
                () if args.is(at, "ID") => {
                    let id = parse_u64(value).filter(|id| (1..=i64::MAX.unsigned_abs()).contains(id));
                    filter.id = Some(id.ok_or(Failure::Text("ERR client-id should be greater than 0"))?);
                }
                () if args.is(at, "ADDR") => filter.address = Some(value),
                () if args.is(at, "LADDR") => filter.local_address = Some(value),
                () if args.is(at, "TYPE") => filter.is_of_other_type = !is_normal(args, at + 1)?,
                () if args.is(at, "USER") && value == b"default" => {}
                () if args.is(at, "USER") => {
                    return Err(Failure::of(&[b"ERR No such user '", Failure::printed(value), b"'"]));
                }
                () if args.is(at, "MAXAGE") => filter.age = age(value)?,
                () if args.is(at, "SKIPME") && args.is(at + 1, "YES") => filter.spares_own = true,
                () if args.is(at, "SKIPME") && args.is(at + 1, "NO") => filter.spares_own = false,
                () => return Err(Failure::SYNTAX),
            }
        }
        Ok(filter)
    }

    fn selects(&self, client: &Client, now_ms: u64) -> bool {
        let is = |wanted: Option<&[u8]>, has: &str| wanted.is_none_or(|wanted| wanted == has.as_bytes());
        self.id.is_none_or(|id| id == client.id)
            && is(self.address, &client.peer.address)
            && is(self.local_address, &client.peer.local_address)
            && !self.is_of_other_type
            && now_ms.saturating_sub(client.connected_at_ms) / 1000 >= self.age
    }
}

fn age(text: &[u8]) -> Result<u64, Failure> {
    let seconds = parse_i64(text).ok_or(Failure::Text("ERR maxage is not an integer or out of range"))?;
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    seconds.ok_or(Failure::Text("ERR maxage should be greater than 0"))
}

fn kill(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let filter = Filter::parse(args)?;
    let own = cx.state.client.id;
    let mut killed = 0;
    for client in cx.shared.clients.all() {
        match client.id == own {
            _ if !filter.selects(&client, cx.now_ms) => {}
            true if filter.spares_own => {}
            true => {
                // The reply is sent before.
                cx.state.flow = Flow::Close;
                killed += 1;
            }
            false => killed += usize::from(cx.shared.clients.kill(&client)),
        }
    }
    match args.len() {
        3 if killed == 0 => return Err(Failure::Text("ERR No such client")),
        3 => cx.reply.ok(),
        _ => cx.reply.count(killed),
    }
    Ok(())
}

fn reply(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match () {
        () if args.is(2, "ON") => {
            cx.state.replies = Replies::On;
            cx.reply.ok();
        }
        () if args.is(2, "OFF") => cx.state.replies = Replies::Off,
        // As in Redis, without effect while there are none.
        () if args.is(2, "SKIP") && cx.state.replies == Replies::Off => {}
        () if args.is(2, "SKIP") => cx.state.replies = Replies::SkipNext,
        () => return Err(Failure::SYNTAX),
    }
    Ok(())
}

fn setname(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    set_name(cx, args.at(2))?;
    cx.reply.ok();
    Ok(())
}

/// Names the connection; an empty name removes the name.
pub(super) fn set_name(cx: &mut Context<'_>, name: &[u8]) -> Outcome {
    if !is_printable(name) {
        return Err(Failure::Text("ERR Client names cannot contain spaces, newlines or special characters."));
    }
    cx.state.client.names(|names| names.name = name.to_vec());
    Ok(())
}

fn getname(cx: &mut Context<'_>, _: Args<'_>) -> Outcome {
    let name = cx.state.client.names(|names| names.name.clone());
    get::copied(&mut cx.reply, Some(name.as_slice()).filter(|name| !name.is_empty()));
    Ok(())
}

fn setinfo(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (what, value) = (args.at(2), args.at(3));
    let field: fn(&mut Names) -> &mut Vec<u8> = match () {
        () if args.is(2, "LIB-NAME") => |names| &mut names.library,
        () if args.is(2, "LIB-VER") => |names| &mut names.library_version,
        () => return Err(Failure::of(&[b"ERR Unrecognized option '", Failure::printed(what), b"'"])),
    };
    if !is_printable(value) {
        let what = what.to_ascii_lowercase();
        return Err(Failure::of(&[
            b"ERR ",
            &what,
            b" cannot contain spaces, newlines or special characters.",
        ]));
    }
    cx.state.client.names(|names| *field(names) = value.to_vec());
    cx.reply.ok();
    Ok(())
}

fn no_evict(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let on = on_or_off(args)?;
    // ORDER: Relaxed: for CLIENT LIST only.
    cx.state.client.no_evict.store(on, Relaxed);
    cx.reply.ok();
    Ok(())
}

fn no_touch(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let on = on_or_off(args)?;
    // ORDER: Relaxed: for CLIENT LIST only.
    cx.state.client.no_touch.store(on, Relaxed);
    cx.reply.ok();
    Ok(())
}

fn on_or_off(args: Args<'_>) -> Result<bool, Failure> {
    match (args.is(2, "ON"), args.is(2, "OFF")) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(Failure::SYNTAX),
    }
}

fn is_printable(text: &[u8]) -> bool {
    text.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// Full name of the last command, `client|list`; `NULL` if there was none, as in Redis.
fn last_command(client: &Client) -> String {
    let last = client.last_command();
    if last & 0xffff < table::TABLE.len() { table::full_name(last) } else { "NULL".into() }
}

/// A connection's line in CLIENT LIST, in Redis's order. Fields about features that Terrace lacks
/// are constant or left out.
fn describe(client: &Client, now_ms: u64) -> Vec<u8> {
    let names = client.names(|names| names.clone());
    // ORDER: Relaxed, here and below: statistics.
    let active = client.active_at_ms.load(Relaxed);
    let queued = client.queued.load(Relaxed);
    let multi = if queued == 0 { -1 } else { i64::try_from(queued - 1).unwrap_or(i64::MAX) };
    let mut flags = String::new();
    for (holds, flag) in [
        (queued > 0, 'x'),
        (client.peer.is_unix, 'U'),
        (client.no_evict.load(Relaxed), 'e'),
        (client.no_touch.load(Relaxed), 'T'),
    ] {
        flags.extend(holds.then_some(flag));
    }
    let flags = if flags.is_empty() { "N" } else { &flags };
    let text = format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub=0 psub=0 ssub=0 multi={multi} watch={} cmd={} \
         user=default redir=-1 resp={} lib-name={} lib-ver={}\n",
        client.id,
        client.peer.address,
        client.peer.local_address,
        client.peer.fd,
        String::from_utf8_lossy(&names.name),
        now_ms.saturating_sub(client.connected_at_ms) / 1000,
        now_ms.saturating_sub(active) / 1000,
        client.database.load(Relaxed),
        client.watched.load(Relaxed),
        last_command(client),
        client.protocol.load(Relaxed),
        String::from_utf8_lossy(&names.library),
        String::from_utf8_lossy(&names.library_version),
    );
    text.into_bytes()
}
