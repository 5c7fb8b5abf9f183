//! RENAME key newkey, RENAMENX key newkey

use terrace::Put;
use terrace_protocol::Args;

use super::*;
use crate::keyspace::{Keyspace, check_key};

pub(super) static RENAME: Command = Command {
    flags: flag::WRITE,
    keys: &[KeySpec::at(1, &["RW", "access", "delete"]), KeySpec::at(2, &["OW", "update"])],
    summary: "Renames a key; replaces the key that had the new name.",
    ..family("rename", rename)
};

pub(super) static RENAMENX: Command = Command {
    flags: flag::WRITE | flag::FAST,
    keys: &[KeySpec::at(1, &["RW", "access", "delete"]), KeySpec::at(2, &["OW", "insert"])],
    summary: "Renames a key unless the new name exists; 1 if renamed, 0 if not.",
    ..family("renamenx", renamenx)
};

const fn family(name: &'static str, run: fn(&mut Context<'_>, Args<'_>) -> Outcome) -> Command {
    Command {
        categories: category::KEYSPACE,
        is_long: Some(may_wait),
        ..Command::new(name, 3, group::GENERIC, Run::General(run))
    }
}

fn rename(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check_key(args.at(2))?;
    cx.keys.atomically(&mut |keys| move_key(keys, args.at(1), args.at(2), true).map(drop))?;
    cx.reply.ok();
    Ok(())
}

fn renamenx(cx: &mut Context<'_>, args: Args<'_>) -> Outcome {
    check_key(args.at(2))?;
    let mut moved = false;
    cx.keys.atomically(&mut |keys| {
        moved = move_key(keys, args.at(1), args.at(2), false)?;
        Ok(())
    })?;
    cx.reply.integer(i64::from(moved));
    Ok(())
}

/// Moves a key with its expiry; returns whether it did.
fn move_key(keys: &mut dyn Keyspace, from: &[u8], to: &[u8], replace: bool) -> Result<bool, Failure> {
    let mut source = None;
    keys.read(from, &mut |found| source = found.map(|found| (found.value.to_vec(), found.expires_at)))?;
    let Some((value, expires_at)) = source else { return Err(Failure::NO_SUCH_KEY) };
    if from == to {
        return Ok(replace);
    }
    let mut taken = false;
    if !replace {
        keys.read(to, &mut |found| taken = found.is_some())?;
    }
    if taken {
        return Ok(false);
    }
    keys.put(Put { key: to, value: &value, expires_at })?;
    keys.remove(from)?;
    keys.carry_use(from, None, to);
    Ok(true)
}
