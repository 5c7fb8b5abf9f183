//! The arguments of each command, for the `arguments` of COMMAND DOCS, which redis-cli shows as
//! hints.
//!
//! A line of [`SYNTAX`] is written like the synopsis in a manual:
//!
//! ```text
//! key value            arguments: `key` is a key, any other name in lower case a string
//! seconds:integer      an argument of another type
//! NX                   a literal word (a token)
//! EX:seconds:integer   an argument after a token
//! [ ]   ( )            an optional part; a group
//! a|b                  alternatives
//! ...                  the preceding part may be repeated
//! condition=           after a bracket: the group's name; by default the names of its parts
//! ```

use terrace_protocol::Reply;

/// The arguments of commands and subcommands. One without a line here has no arguments.
static SYNTAX: &[(&str, &str)] = &[
    ("append", "key value"),
    ("auth", "[username] password"),
    (
        "client|kill",
        "[address] [ID:client-id:integer] [type=TYPE:(NORMAL|MASTER|REPLICA|PUBSUB)] [USER:username] [ADDR:addr] \
         [LADDR:laddr] [skipme=SKIPME:(YES|NO)] [MAXAGE:maxage:integer]",
    ),
    (
        "client|list",
        "[normal_master_replica_pubsub=TYPE:(NORMAL|MASTER|REPLICA|PUBSUB)] [id=ID:(client-id:integer...)]",
    ),
    ("client|no-evict", "(enabled=ON|OFF)"),
    ("client|no-touch", "(enabled=ON|OFF)"),
    ("client|reply", "(ON|OFF|SKIP)"),
    ("client|setinfo", "(attr=LIB-NAME:libname|LIB-VER:libver)"),
    ("client|setname", "connection-name"),
    ("cluster|count-failure-reports", "node-id"),
    ("cluster|countkeysinslot", "slot:integer"),
    ("cluster|getkeysinslot", "slot:integer count:integer"),
    // Any string is a key here, without a place in the key specifications.
    ("cluster|keyslot", "key:string"),
    ("cluster|replicas", "node-id"),
    ("command|docs", "[command-name]..."),
    ("command|getkeys", "command [arg]..."),
    ("command|getkeysandflags", "command [arg]..."),
    ("command|info", "[command-name]..."),
    ("command|list", "[filterby=FILTERBY:(MODULE:module-name|ACLCAT:category|PATTERN:pattern:pattern)]"),
    ("config|get", "(parameter=parameter)..."),
    ("config|set", "(parameter_value=parameter value)..."),
    ("copy", "source:key destination:key [DB:destination-db:integer] [REPLACE]"),
    ("decr", "key"),
    ("decrby", "key decrement:integer"),
    ("del", "key..."),
    ("delifeq", "key value"),
    ("echo", "message"),
    ("eval", "script numkeys:integer [key]... [arg]..."),
    ("eval_ro", "script numkeys:integer [key]... [arg]..."),
    ("evalsha", "sha1 numkeys:integer [key]... [arg]..."),
    ("evalsha_ro", "sha1 numkeys:integer [key]... [arg]..."),
    ("exists", "key..."),
    ("expire", "key seconds:integer [condition=NX|XX|GT|LT]"),
    ("expireat", "key unix-time-seconds:unix-time [condition=NX|XX|GT|LT]"),
    ("expiretime", "key"),
    ("flushall", "[async=ASYNC|SYNC]"),
    ("flushdb", "[async=ASYNC|SYNC]"),
    ("function|delete", "library-name"),
    ("function|flush", "[async=ASYNC|SYNC]"),
    ("function|list", "[LIBRARYNAME:library-name-pattern] [WITHCODE]"),
    ("function|load", "[REPLACE] function-code"),
    ("function|restore", "serialized-value [policy=FLUSH|APPEND|REPLACE]"),
    ("get", "key"),
    ("getdel", "key"),
    (
        "getex",
        "key [expiration=EX:seconds:integer|PX:milliseconds:integer|EXAT:unix-time-seconds:unix-time|\
         PXAT:unix-time-milliseconds:unix-time|PERSIST]",
    ),
    ("getrange", "key start:integer end:integer"),
    ("getset", "key value"),
    ("hello", "[arguments=protover:integer [AUTH:(username password)] [SETNAME:clientname]]"),
    ("incr", "key"),
    ("incrby", "key increment:integer"),
    ("incrbyfloat", "key increment:double"),
    ("info", "[section]..."),
    ("keys", "pattern:pattern"),
    ("memory|usage", "key [SAMPLES:count:integer]"),
    ("mget", "key..."),
    ("move", "key db:integer"),
    ("mset", "(key value)..."),
    ("msetnx", "(key value)..."),
    ("object|encoding", "key"),
    ("object|freq", "key"),
    ("object|idletime", "key"),
    ("object|refcount", "key"),
    ("persist", "key"),
    ("pexpire", "key milliseconds:integer [condition=NX|XX|GT|LT]"),
    ("pexpireat", "key unix-time-milliseconds:unix-time [condition=NX|XX|GT|LT]"),
    ("pexpiretime", "key"),
    ("ping", "[message]"),
    ("psetex", "key milliseconds:integer value"),
    ("pttl", "key"),
    ("rename", "key newkey:key"),
    ("renamenx", "key newkey:key"),
    ("scan", "cursor:integer [MATCH:pattern:pattern] [COUNT:count:integer] [TYPE:type]"),
    ("script|debug", "(mode=YES|SYNC|NO)"),
    ("script|exists", "sha1..."),
    ("script|flush", "[async=ASYNC|SYNC]"),
    ("script|load", "script"),
    ("select", "index:integer"),
    (
        "set",
        "key value [condition=NX|XX|IFEQ:comparison-value] [GET] [expiration=EX:seconds:integer|\
         PX:milliseconds:integer|EXAT:unix-time-seconds:unix-time|PXAT:unix-time-milliseconds:unix-time|KEEPTTL]",
    ),
    ("setex", "key seconds:integer value"),
    ("setnx", "key value"),
    ("setrange", "key offset:integer value"),
    ("shutdown", "[nosave_save=NOSAVE|SAVE] [NOW] [FORCE] [ABORT]"),
    ("strlen", "key"),
    ("substr", "key start:integer end:integer"),
    ("swapdb", "index1:integer index2:integer"),
    ("touch", "key..."),
    ("ttl", "key"),
    ("type", "key"),
    ("unlink", "key..."),
    ("wait", "numreplicas:integer timeout:integer"),
    ("waitaof", "numlocal:integer numreplicas:integer timeout:integer"),
    ("watch", "key..."),
    ("x.checkpoint", "path"),
    ("x.compact", "[range=(start end)]"),
    ("x.count", "start end [LIMIT:limit:integer]"),
    ("x.delprefix", "prefix [LIMIT:limit:integer]"),
    ("x.delrange", "start end [LIMIT:limit:integer]"),
    ("x.next", "key"),
    ("x.prefix", "prefix [REV] [limit=LIMIT:(offset:integer count:integer)] [WITHVALUES]"),
    ("x.prev", "key"),
    ("x.range", "start end [REV] [limit=LIMIT:(offset:integer count:integer)] [WITHVALUES]"),
];

/// An argument, or a group of arguments.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Argument {
    name: String,
    kind: &'static str,
    /// The literal word before the argument, or the word that the argument is.
    token: Option<String>,
    is_optional: bool,
    is_multiple: bool,
    /// The parts of a group.
    parts: Vec<Argument>,
}

/// The arguments of the command or subcommand with this full name.
pub(super) fn arguments(full_name: &str) -> Vec<Argument> {
    let line = SYNTAX.iter().find(|(name, _)| *name == full_name);
    line.map_or(Vec::new(), |(_, syntax)| Reader { rest: syntax }.sequence())
}

/// Writes arguments in the format of COMMAND DOCS. `keys` counts the keys so far; the command has
/// `most` key specifications.
pub(super) fn describe(reply: &mut Reply<'_>, arguments: &[Argument], keys: &mut i64, most: i64) {
    reply.array(arguments.len());
    for argument in arguments {
        argument.describe(reply, keys, most);
    }
}

impl Argument {
    fn describe(&self, reply: &mut Reply<'_>, keys: &mut i64, most: i64) {
        let flags = [(self.is_optional, "optional"), (self.is_multiple, "multiple")];
        let flags: Vec<&str> = flags.iter().filter(|(holds, _)| *holds).map(|(_, name)| *name).collect();
        let (is_key, is_group) = (self.kind == "key", !self.parts.is_empty());
        let extra = [is_key, self.token.is_some(), !flags.is_empty(), is_group];
        reply.map(2 + extra.iter().filter(|holds| **holds).count());
        for (name, text) in [("name", Some(&self.name[..])), ("type", Some(self.kind)), ("token", None)] {
            let text = text.or(self.token.as_deref());
            if name == "token" && is_key {
                reply.bulk(b"key_spec_index");
                reply.integer((*keys).min(most - 1).max(0));
                *keys += 1;
            }
            if let Some(text) = text {
                reply.bulk(name.as_bytes());
                reply.bulk(text.as_bytes());
            }
        }
        if !flags.is_empty() {
            reply.bulk(b"flags");
            reply.set(flags.len());
            flags.iter().for_each(|flag| reply.simple(flag));
        }
        if is_group {
            reply.bulk(b"arguments");
            describe(reply, &self.parts, keys, most);
        }
    }
}

/// Parses a line of the table.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// Parses arguments up to the end, `|` or a closing bracket.
    fn sequence(&mut self) -> Vec<Argument> {
        let mut found = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            if self.rest.is_empty() || self.rest.starts_with(['|', ')', ']']) {
                return found;
            }
            let mut argument = self.one();
            argument.is_multiple = self.takes("...");
            found.push(argument);
        }
    }

    fn one(&mut self) -> Argument {
        match self.rest.as_bytes()[0] {
            b'[' => Argument { is_optional: true, ..self.group(None) },
            b'(' => self.group(None),
            _ => {
                let word = self.word();
                match word.strip_suffix(':').filter(|_| self.rest.starts_with('(')) {
                    Some(token) => self.group(Some(token.into())),
                    None => single(word),
                }
            }
        }
    }

    /// Parses a bracketed group, after the word `token` if there is one.
    fn group(&mut self, token: Option<String>) -> Argument {
        self.rest = &self.rest[1..];
        let before = self.rest;
        let name = self.word();
        let name = if self.takes("=") { Some(name) } else { None };
        if name.is_none() {
            self.rest = before;
        }
        let mut choices = vec![self.sequence()];
        while self.takes("|") {
            choices.push(self.sequence());
        }
        self.rest = self.rest.get(1..).unwrap_or_default();
        let kind = if choices.len() > 1 { "oneof" } else { "block" };
        let mut parts: Vec<Argument> = match choices.len() {
            1 => choices.remove(0),
            _ => choices.into_iter().map(together).collect(),
        };
        // Brackets around one argument only make it optional. Brackets around a group with a token
        // may also name it.
        let names_a_group = name.is_some() && parts[0].token.is_some() && !parts[0].parts.is_empty();
        if parts.len() == 1 && token.is_none() && (name.is_none() || names_a_group) {
            let part = parts.remove(0);
            return Argument { name: name.map_or(part.name, String::from), ..part };
        }
        let name = name.map_or_else(|| joined(&parts), String::from);
        Argument { name, kind, token, parts, ..Argument::default() }
    }

    /// Parses characters up to the next one with a special meaning.
    fn word(&mut self) -> &'a str {
        let end = self.rest.find([' ', '[', ']', '(', ')', '|', '=', '.']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn takes(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

/// One argument as it is, several as a group.
fn together(mut parts: Vec<Argument>) -> Argument {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    Argument { name: joined(&parts), kind: "block", parts, ..Argument::default() }
}

fn joined(parts: &[Argument]) -> String {
    parts.iter().map(|part| &part.name[..]).collect::<Vec<_>>().join("_")
}

/// Parses `NX`, `seconds:integer` or `EX:seconds:integer`.
fn single(word: &str) -> Argument {
    const KINDS: [&str; 6] = ["key", "string", "integer", "double", "pattern", "unix-time"];
    let is_token = |word: &str| word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    let mut words: Vec<&str> = word.split(':').collect();
    let token = if is_token(words[0]) { Some(words.remove(0).to_string()) } else { None };
    let Some(name) = words.first() else {
        let name = word.to_ascii_lowercase();
        return Argument { name, kind: "pure-token", token, ..Argument::default() };
    };
    let kind = words.get(1).copied().unwrap_or(if *name == "key" { "key" } else { "string" });
    let kind = KINDS.into_iter().find(|known| *known == kind).unwrap_or("string");
    Argument { name: (*name).into(), kind, token, ..Argument::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::table;

    #[test]
    fn syntax_lines_match_commands_and_arities() {
        let names: Vec<String> = table::names().collect();
        for (name, _) in SYNTAX {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        let all = table::TABLE.iter().flat_map(|command| {
            let subs =
                command.subcommands.iter().map(|sub| (format!("{}|{}", command.name, sub.name), sub, 2));
            std::iter::once((command.name.to_string(), *command, 1)).chain(subs)
        });
        for (name, command, words) in all {
            let arguments = arguments(&name);
            let least = |argument: &Argument| match argument.kind {
                _ if argument.is_optional => 0,
                "block" => argument.parts.len(),
                _ => 1 + usize::from(argument.token.is_some() && argument.kind != "pure-token"),
            };
            let most_is_open = arguments.iter().any(|argument| argument.is_optional || argument.is_multiple);
            let fixed: usize = arguments.iter().map(least).sum();
            // Some accept more words than they use, or a number that depends on an option.
            if command.arity > 0 && name != "client|setinfo" {
                assert_eq!(
                    (fixed + words, most_is_open),
                    (command.arity.unsigned_abs() as usize, false),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn syntax_lines_are_parsed() {
        let read = |syntax| Reader { rest: syntax }.sequence();
        let names = |arguments: &[Argument]| {
            arguments.iter().map(|argument| argument.name.clone()).collect::<Vec<_>>()
        };
        let set = arguments("set");
        assert_eq!(names(&set), ["key", "value", "condition", "get", "expiration"]);
        assert_eq!((set[2].kind, set[2].is_optional, set[3].kind), ("oneof", true, "pure-token"));
        assert_eq!(set[4].parts[0].token.as_deref(), Some("EX"));
        let pairs = read("(key value)...");
        assert_eq!((&pairs[0].name[..], pairs[0].kind, pairs[0].is_multiple), ("key_value", "block", true));
        let hello = arguments("hello");
        assert_eq!(names(&hello[0].parts), ["protover", "username_password", "clientname"]);
        assert_eq!(hello[0].parts[1].token.as_deref(), Some("AUTH"));
    }
}
