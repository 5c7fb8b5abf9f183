//! What is known of a command besides how it runs: the shape of COMMAND INFO and COMMAND DOCS.

use terrace_protocol::{Args, Reply};

use super::{Context, Outcome};
use crate::{keyspace::Found, session::State, shared::Shared};

/// A command, or a subcommand of one.
pub struct Command {
    /// In lower case; of a subcommand, its own word.
    pub name: &'static str,
    /// Arguments with the name; if negative, that many at least.
    pub arity: i32,
    /// Of [`flag`].
    pub flags: u32,
    /// Of [`category`]: those that do not follow from the flags.
    pub categories: u32,
    /// Where the keys are.
    pub keys: &'static [KeySpec],
    /// Hints for proxies.
    pub tips: &'static [&'static str],
    /// Of [`group`].
    pub group: &'static str,
    /// The Redis version that first had it.
    pub since: &'static str,
    /// What it costs.
    pub complexity: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// Its subcommands, if it is a container.
    pub subcommands: &'static [Command],
    /// How it runs.
    pub run: Run,
    /// For commands of which a run may be written together.
    pub as_put: Option<AsPut>,
    /// Whether it takes long though it has few arguments, for commands that may.
    pub is_long: Option<IsLong>,
}

/// How a command runs.
#[derive(Clone, Copy)]
pub enum Run {
    /// It only looks at the entry of its first argument, so that a run of such commands can be read together.
    Read(Read),
    /// Anything else.
    General(fn(&mut Context<'_>, Args<'_>) -> Outcome),
    /// Its first argument chooses a subcommand.
    Container,
}

/// Encodes the reply of a command to the entry of its first argument, at a time in Unix milliseconds.
pub type Read = fn(&mut Reply<'_>, Args<'_>, Option<Found<'_>>, u64) -> Outcome;

/// Says what a command writes, if that is all it does: no condition, no reply but OK.
pub type AsPut = for<'a> fn(Args<'a>, u64) -> Option<terrace::Put<'a>>;

/// Says whether a command with these arguments takes long.
pub type IsLong = fn(&Shared, &State, Args<'_>) -> bool;

/// Where a command's keys are among its arguments, and what it does with them.
pub struct KeySpec {
    /// The first key.
    pub first: i64,
    /// The last key, counted from the first; -1: the last argument.
    pub last: i64,
    /// From one key to the next.
    pub step: i64,
    /// As Redis names it.
    pub access: &'static [&'static str],
    /// Anything to say about that.
    pub notes: &'static str,
}

impl Command {
    /// A command without flags, keys or tips, to be completed with `..`.
    pub const fn new(name: &'static str, arity: i32, group: &'static str, run: Run) -> Command {
        Command {
            name,
            arity,
            flags: 0,
            categories: 0,
            keys: &[],
            tips: &[],
            group,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "",
            subcommands: &[],
            run,
            as_put: None,
            is_long: None,
        }
    }

    /// Whether it takes this many arguments, its name among them.
    pub fn takes(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        let arity = i64::from(self.arity);
        if arity >= 0 { arguments == arity } else { arguments >= -arity }
    }

    /// Whether it has this flag.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The subcommand of this name, in any case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Command> {
        self.subcommands.iter().find(|sub| sub.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The first key, the last key and the step, as COMMAND INFO gives them.
    pub fn key_range(&self) -> (i64, i64, i64) {
        let (Some(first), Some(last)) = (self.keys.first(), self.keys.last()) else { return (0, 0, 0) };
        let end = if last.last < 0 { last.last } else { last.first + last.last };
        (first.first, end, first.step)
    }

    /// Its categories for access control, in Redis's order.
    pub fn category_names(&self) -> impl Iterator<Item = &'static str> {
        let implied = [
            (self.has(flag::READONLY), category::READ),
            (self.has(flag::WRITE), category::WRITE),
            (self.has(flag::ADMIN), category::ADMIN | category::DANGEROUS),
            (self.has(flag::FAST), category::FAST),
            (!self.has(flag::FAST), category::SLOW),
        ];
        let all = implied.iter().filter(|(holds, _)| *holds).fold(self.categories, |all, (_, bit)| all | bit);
        category::NAMES.iter().filter(move |(bit, _)| all & bit != 0).map(|(_, name)| *name)
    }

    /// Its flags, in Redis's order.
    pub fn flag_names(&self) -> impl Iterator<Item = &'static str> {
        flag::NAMES.iter().filter(|(bit, _)| self.has(*bit)).map(|(_, name)| *name)
    }
}

impl KeySpec {
    /// One key, the first argument.
    pub const fn first(access: &'static [&'static str]) -> KeySpec {
        KeySpec::at(1, access)
    }

    /// One key, the argument at `index`.
    pub const fn at(index: i64, access: &'static [&'static str]) -> KeySpec {
        KeySpec { first: index, last: 0, step: 1, access, notes: "" }
    }

    /// Every `step`th argument from the first on.
    pub const fn every(step: i64, access: &'static [&'static str]) -> KeySpec {
        KeySpec { first: 1, last: -1, step, access, notes: "" }
    }
}

/// Bits of [`Command::flags`].
pub mod flag {
    /// May change keys.
    pub const WRITE: u32 = 1 << 0;
    /// Changes no key.
    pub const READONLY: u32 = 1 << 1;
    /// May need memory, so it can fail in a full pool.
    pub const DENYOOM: u32 = 1 << 2;
    /// For administrators.
    pub const ADMIN: u32 = 1 << 3;
    /// Not for scripts.
    pub const NOSCRIPT: u32 = 1 << 4;
    /// Allowed while loading.
    pub const LOADING: u32 = 1 << 5;
    /// Allowed on a stale replica.
    pub const STALE: u32 = 1 << 6;
    /// Not in the slow log.
    pub const SKIP_SLOWLOG: u32 = 1 << 7;
    /// Takes constant or logarithmic time.
    pub const FAST: u32 = 1 << 8;
    /// Allowed before authentication.
    pub const NO_AUTH: u32 = 1 << 9;
    /// Not while loading in the background.
    pub const NO_ASYNC_LOADING: u32 = 1 << 10;
    /// Not inside MULTI.
    pub const NO_MULTI: u32 = 1 << 11;
    /// Allowed while a script hangs.
    pub const ALLOW_BUSY: u32 = 1 << 12;

    /// Their names, in Redis's order.
    pub const NAMES: [(u32, &str); 13] = [
        (WRITE, "write"),
        (READONLY, "readonly"),
        (DENYOOM, "denyoom"),
        (ADMIN, "admin"),
        (NOSCRIPT, "noscript"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (SKIP_SLOWLOG, "skip_slowlog"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (NO_ASYNC_LOADING, "no_async_loading"),
        (NO_MULTI, "no_multi"),
        (ALLOW_BUSY, "allow_busy"),
    ];
}

/// Bits of [`Command::categories`].
pub mod category {
    /// About keys, whatever they hold.
    pub const KEYSPACE: u32 = 1 << 0;
    /// Follows from `readonly`.
    pub const READ: u32 = 1 << 1;
    /// Follows from `write`.
    pub const WRITE: u32 = 1 << 2;
    /// About strings.
    pub const STRING: u32 = 1 << 3;
    /// Follows from `admin`.
    pub const ADMIN: u32 = 1 << 4;
    /// Follows from `fast`.
    pub const FAST: u32 = 1 << 5;
    /// Follows from the lack of `fast`.
    pub const SLOW: u32 = 1 << 6;
    /// To be thought about first.
    pub const DANGEROUS: u32 = 1 << 7;
    /// About the connection.
    pub const CONNECTION: u32 = 1 << 8;
    /// About transactions.
    pub const TRANSACTION: u32 = 1 << 9;

    /// Their names, in Redis's order.
    pub const NAMES: [(u32, &str); 10] = [
        (KEYSPACE, "@keyspace"),
        (READ, "@read"),
        (WRITE, "@write"),
        (STRING, "@string"),
        (ADMIN, "@admin"),
        (FAST, "@fast"),
        (SLOW, "@slow"),
        (DANGEROUS, "@dangerous"),
        (CONNECTION, "@connection"),
        (TRANSACTION, "@transaction"),
    ];
}

/// Values of [`Command::group`].
pub mod group {
    /// Strings.
    pub const STRING: &str = "string";
    /// Any key.
    pub const GENERIC: &str = "generic";
    /// The connection.
    pub const CONNECTION: &str = "connection";
    /// The server.
    pub const SERVER: &str = "server";
    /// Transactions.
    pub const TRANSACTIONS: &str = "transactions";
}
