//! The static description of a command: everything that COMMAND INFO and COMMAND DOCS report.

use terrace_protocol::{Args, Reply, parse_i64};

use super::{Context, Nested, Outcome};
use crate::{
    keyspace::Found,
    state::{session_state::State, shared::Shared},
};

/// A command or subcommand.
pub struct Command {
    /// The name in lower case; of a subcommand, only its own word.
    pub name: &'static str,
    /// Number of arguments including the name; if negative, the minimum number.
    pub arity: i32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Bits of [`category`], without those that follow from the flags.
    pub categories: u32,
    /// The positions of its keys.
    pub keys: &'static [KeySpec],
    /// Redis's command tips, for proxies and clients.
    pub tips: &'static [&'static str],
    /// One of [`group`].
    pub group: &'static str,
    /// The first Redis version that has the command; of the commands that only Terrace has, the
    /// first version of Terrace.
    pub since: &'static str,
    /// Its time complexity.
    pub complexity: &'static str,
    /// One line about what it does.
    pub summary: &'static str,
    /// Its subcommands, if it is a container.
    pub subcommands: &'static [Command],
    /// How it runs.
    pub run: Run,
    /// For commands that can be written in a group with others.
    pub as_put: Option<AsPut>,
    /// For commands that may take long despite few arguments: whether this one does.
    pub is_long: Option<IsLong>,
}

/// How a command runs.
#[derive(Clone, Copy)]
pub enum Run {
    /// Only reads the entry of its first argument, so it can be read in a group with others.
    Read(Read),
    /// Any other command.
    General(fn(&mut Context<'_>, Args<'_>) -> Outcome),
    /// Executes other commands.
    Nested(fn(&mut Context<'_>, Args<'_>, &Nested) -> Outcome),
    /// Has subcommands; the first argument selects one.
    Container,
}

/// Encodes a command's reply from the entry of its first argument, at a time in Unix milliseconds.
pub type Read = fn(&mut Reply<'_>, Args<'_>, Option<Found<'_>>, u64) -> Outcome;

/// Returns what a command writes, if it does only that: no condition, and no reply but OK.
pub type AsPut = for<'a> fn(Args<'a>, u64) -> Option<terrace::Put<'a>>;

/// Whether a command with these arguments takes long.
pub type IsLong = fn(&Shared, &State, Args<'_>) -> bool;

/// The positions of a command's keys among its arguments, and how it uses them.
pub struct KeySpec {
    /// Index of the first key.
    pub first: i64,
    /// Index of the last key, relative to the first; -1: the last argument.
    pub last: i64,
    /// Distance from one key to the next.
    pub step: i64,
    /// Redis's names for the use of the keys.
    pub access: &'static [&'static str],
    /// Notes on that use; may be empty.
    pub notes: &'static str,
    /// Whether the first one is the number of keys, which follow it.
    pub is_counted: bool,
}

impl Command {
    /// A command without flags, keys or tips; set these with struct update syntax.
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

    /// Whether the command accepts this many arguments, including its name.
    pub fn accepts(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        let arity = i64::from(self.arity);
        if arity >= 0 { arguments == arity } else { arguments >= -arity }
    }

    /// Whether the command has this flag.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether a call may take less time than two readings of the clock.
    pub(crate) fn is_quick(&self) -> bool {
        matches!(self.run, Run::Read(_)) || self.as_put.is_some() || self.has(flag::FAST)
    }

    /// The subcommand with this name, in any case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Command> {
        self.subcommands.iter().find(|sub| sub.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Index of the first key, of the last key, and the step, as in COMMAND INFO.
    pub fn key_range(&self) -> (i64, i64, i64) {
        let (Some(first), Some(last)) = (self.keys.first(), self.keys.last()) else { return (0, 0, 0) };
        if first.is_counted {
            return (0, 0, 0);
        }
        let end = if last.last < 0 { last.last } else { last.first + last.last };
        (first.first, end, first.step)
    }

    /// The ACL categories, in Redis's order.
    pub fn category_names(&self) -> impl Iterator<Item = &'static str> {
        let implied = [
            (self.has(flag::READONLY) && self.categories & category::SCRIPTING == 0, category::READ),
            (self.has(flag::WRITE), category::WRITE),
            (self.has(flag::ADMIN), category::ADMIN | category::DANGEROUS),
            (self.has(flag::FAST), category::FAST),
            (!self.has(flag::FAST), category::SLOW),
        ];
        let all = implied.iter().filter(|(holds, _)| *holds).fold(self.categories, |all, (_, bit)| all | bit);
        category::NAMES.iter().filter(move |(bit, _)| all & bit != 0).map(|(_, name)| *name)
    }

    /// The flags, in Redis's order.
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
        KeySpec { first: index, last: 0, step: 1, access, notes: "", is_counted: false }
    }

    /// As many keys as the argument at `index` says, behind it.
    pub const fn counted(index: i64, access: &'static [&'static str], notes: &'static str) -> KeySpec {
        KeySpec { first: index, last: 0, step: 1, access, notes, is_counted: true }
    }

    /// A key at every `step`th argument, from the first on.
    pub const fn every(step: i64, access: &'static [&'static str]) -> KeySpec {
        KeySpec { first: 1, last: -1, step, access, notes: "", is_counted: false }
    }

    /// The positions of the keys in a command with these arguments, including its name.
    pub fn places(&self, args: Args<'_>) -> impl Iterator<Item = usize> + use<> {
        let place = |index: i64| usize::try_from(index).unwrap_or(usize::MAX);
        let (first, end) = (place(self.first), args.len());
        let last = if self.last < 0 { end.saturating_sub(1) } else { first + place(self.last) };
        let count = if self.is_counted { parse_i64(args.at(first)).unwrap_or(0) } else { 0 };
        let range = match usize::try_from(count) {
            Ok(count) if self.is_counted => first + 1..(first + 1).saturating_add(count).min(end),
            _ if self.is_counted => first..first,
            _ => first..last + 1,
        };
        range.step_by(place(self.step))
    }
}

/// Bits of [`Command::flags`].
pub mod flag {
    /// May change keys.
    pub const WRITE: u32 = 1 << 0;
    /// Changes no key.
    pub const READONLY: u32 = 1 << 1;
    /// May need memory, so the command can fail in a full pool.
    pub const DENYOOM: u32 = 1 << 2;
    /// For administrators.
    pub const ADMIN: u32 = 1 << 3;
    /// Not allowed in scripts.
    pub const NOSCRIPT: u32 = 1 << 4;
    /// Allowed while loading.
    pub const LOADING: u32 = 1 << 5;
    /// Allowed on a stale replica.
    pub const STALE: u32 = 1 << 6;
    /// Not recorded in the slow log.
    pub const SKIP_SLOWLOG: u32 = 1 << 7;
    /// Takes constant or logarithmic time.
    pub const FAST: u32 = 1 << 8;
    /// Allowed before authentication.
    pub const NO_AUTH: u32 = 1 << 9;
    /// Not allowed while loading in the background.
    pub const NO_ASYNC_LOADING: u32 = 1 << 10;
    /// Not allowed inside MULTI.
    pub const NO_MULTI: u32 = 1 << 11;
    /// Allowed while a script does not return.
    pub const ALLOW_BUSY: u32 = 1 << 12;
    /// Not shown by MONITOR.
    pub const SKIP_MONITOR: u32 = 1 << 13;
    /// May have no key.
    pub const NO_MANDATORY_KEYS: u32 = 1 << 14;
    /// The positions of its keys depend on its arguments.
    pub const MOVABLE_KEYS: u32 = 1 << 15;
    /// What it reads does not count as used. Clients do not see this flag.
    pub const NO_USE: u32 = 1 << 16;

    /// The names of the flags, in Redis's order.
    pub const NAMES: [(u32, &str); 16] = [
        (WRITE, "write"),
        (READONLY, "readonly"),
        (DENYOOM, "denyoom"),
        (ADMIN, "admin"),
        (NOSCRIPT, "noscript"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (SKIP_MONITOR, "skip_monitor"),
        (SKIP_SLOWLOG, "skip_slowlog"),
        (FAST, "fast"),
        (NO_AUTH, "no_auth"),
        (NO_ASYNC_LOADING, "no_async_loading"),
        (NO_MULTI, "no_multi"),
        (NO_MANDATORY_KEYS, "no_mandatory_keys"),
        (MOVABLE_KEYS, "movablekeys"),
        (ALLOW_BUSY, "allow_busy"),
    ];
}

/// Bits of [`Command::categories`].
pub mod category {
    /// Concerns keys of any type.
    pub const KEYSPACE: u32 = 1 << 0;
    /// Implied by `readonly`.
    pub const READ: u32 = 1 << 1;
    /// Implied by `write`.
    pub const WRITE: u32 = 1 << 2;
    /// Concerns strings.
    pub const STRING: u32 = 1 << 3;
    /// Implied by `admin`.
    pub const ADMIN: u32 = 1 << 4;
    /// Implied by `fast`.
    pub const FAST: u32 = 1 << 5;
    /// Implied by the lack of `fast`.
    pub const SLOW: u32 = 1 << 6;
    /// Dangerous in production.
    pub const DANGEROUS: u32 = 1 << 7;
    /// Concerns the connection.
    pub const CONNECTION: u32 = 1 << 8;
    /// Concerns transactions.
    pub const TRANSACTION: u32 = 1 << 9;
    /// Concerns scripts.
    pub const SCRIPTING: u32 = 1 << 10;

    /// The names of the categories, in Redis's order.
    pub const NAMES: [(u32, &str); 11] = [
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
        (SCRIPTING, "@scripting"),
    ];
}

/// Values of [`Command::group`].
pub mod group {
    /// Commands for strings.
    pub const STRING: &str = "string";
    /// Commands for keys of any type.
    pub const GENERIC: &str = "generic";
    /// Commands about the connection.
    pub const CONNECTION: &str = "connection";
    /// Commands about the server.
    pub const SERVER: &str = "server";
    /// Commands for transactions.
    pub const TRANSACTIONS: &str = "transactions";
    /// Commands for scripts.
    pub const SCRIPTING: &str = "scripting";
    /// Commands about the cluster.
    pub const CLUSTER: &str = "cluster";
}
