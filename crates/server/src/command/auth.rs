//! AUTH [username] password

use terrace_protocol::{Args, same_secret};

use super::*;
use crate::state::shared::Shared;

pub(super) static AUTH: Command = Command {
    flags: flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::NO_AUTH | flag::ALLOW_BUSY,
    categories: category::CONNECTION,
    summary: "Authenticates the client.",
    ..Command::new("auth", -2, group::CONNECTION, Run::General(auth))
};

fn auth(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        2 if cx.shared.config.password().is_empty() => {
            return Err(Failure::Text(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        }
        2 => check(cx.shared, b"default", args.at(1))?,
        3 => check(cx.shared, args.at(1), args.at(2))?,
        _ => return Err(Failure::SYNTAX),
    }
    cx.state.access.grant();
    cx.reply.ok();
    Ok(())
}

/// The only user is `default`. It accepts any password while none is configured.
pub(super) fn check(shared: &Shared, user: &[u8], password: &[u8]) -> Outcome {
    let secret = shared.config.password();
    let right = same_secret(password, &secret) || secret.is_empty();
    if right && user == b"default" {
        return Ok(());
    }
    Err(Failure::Text("WRONGPASS invalid username-password pair or user is disabled."))
}
