//! HELLO [protover [AUTH username password] [SETNAME name]]

use terrace_protocol::{Args, parse_i64};

use super::*;
use crate::command::info::REDIS_VERSION;

pub(super) static HELLO: Command = Command {
    flags: flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::NO_AUTH | flag::ALLOW_BUSY,
    categories: category::CONNECTION,
    since: "6.0.0",
    summary: "Chooses the protocol version, may authenticate and name the client; replies with a description of the server.",
    ..Command::new("hello", -1, group::CONNECTION, Run::General(hello))
};

fn hello(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let resp3 = match args.get(1) {
        None => cx.reply.resp3(),
        Some(version) => protocol(version)?,
    };
    options(cx, args)?;
    if !cx.state.access.is_granted() {
        return Err(Failure::Text(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
             option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    cx.state.set_resp3(resp3);
    cx.reply.set_resp3(resp3);
    answer(cx);
    Ok(())
}

fn protocol(version: &[u8]) -> Result<bool, Failure> {
    match parse_i64(version) {
        None => Err(Failure::Text("ERR Protocol version is not an integer or out of range")),
        Some(2) => Ok(false),
        Some(3) => Ok(true),
        Some(_) => Err(Failure::Text("NOPROTO unsupported protocol version")),
    }
}

fn options(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "AUTH") && at + 2 < args.len() {
            auth::check(cx.shared, args.at(at + 1), args.at(at + 2))?;
            cx.state.access.grant();
            at += 3;
        } else if args.is(at, "SETNAME") && at + 1 < args.len() {
            client::set_name(cx, args.at(at + 1))?;
            at += 2;
        } else {
            return Err(Failure::of(&[
                b"ERR Syntax error in HELLO option '",
                Failure::printed(args.at(at)),
                b"'",
            ]));
        }
    }
    Ok(())
}

fn answer(cx: &mut Context<'_>) {
    let id = i64::try_from(cx.state.client.id).unwrap_or(i64::MAX);
    let (protocol, reply) = (if cx.reply.resp3() { 3 } else { 2 }, &mut cx.reply);
    reply.map(7);
    for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    for (name, value) in [("proto", protocol), ("id", id)] {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    }
    for (name, value) in [("mode", cx.shared.mode()), ("role", "master")] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
}
