//! COMMAND and its subcommands, beside those of Redis.

use super::*;

#[test]
fn command_info_equals_redis() {
    let Some(redis) = Redis::start() else { return };
    let shared = shared();
    let mut both = Both::new(&redis, &shared);
    let word = |text: &str| text.as_bytes().to_vec();
    for protocol in ["2", "3"] {
        both.send(&[vec![word("hello"), word(protocol)]], 0);
        for command in terrace_server::command::table::TABLE {
            // Containers have other subcommands here; Redis 7.0 has neither DELIFEQ nor the ranges.
            let is_ours =
                command.name == "delifeq" || command.name.starts_with("x.") || command.since >= "7.1";
            if command.subcommands.is_empty() && !is_ours {
                both.send(&[["command", "info", command.name].map(word).to_vec()], 0);
            }
            for sub in command.subcommands.iter().filter(|sub| sub.since < "7.1") {
                both.send(
                    &[["command", "info", &format!("{}|{}", command.name, sub.name)].map(word).to_vec()],
                    0,
                );
            }
        }
    }
}

#[test]
fn command_getkeys_equals_redis() {
    let Some(redis) = Redis::start() else { return };
    let shared = shared();
    let mut both = Both::new(&redis, &shared);
    for command in [
        "set a b",
        "set a b get",
        "set a b xx get",
        "mset a b c d",
        "mset a b c",
        "mget a b c",
        "del a b",
        "copy a b",
        "rename a b",
        "memory usage a",
        "object encoding a",
        "ping x",
        "get a b",
        "nosuch a",
        "object nosuch a",
        "getex a ex 1",
    ] {
        for ask in ["getkeys", "getkeysandflags"] {
            let words = ["command", ask].into_iter().chain(command.split(' '));
            both.send(&[words.map(|word| word.as_bytes().to_vec()).collect::<Command>()], 0);
        }
    }
}

/// An argument as COMMAND DOCS describes it: its fields except versions, and the parts of a group.
#[derive(Debug, PartialEq, Eq)]
struct Described(Vec<(String, String)>, Vec<Described>);

/// The `arguments` in a reply to COMMAND DOCS for one command, in RESP2.
fn described(reply: &[u8]) -> Vec<Described> {
    let items = |reply: &[u8]| frames(&reply[reply.iter().position(|byte| *byte == b'\n').unwrap() + 1..]);
    let text = |reply: &[u8]| {
        let text = String::from_utf8_lossy(reply).into_owned();
        text.trim_end().rsplit("\r\n").next().unwrap().trim_start_matches(['+', ':']).to_string()
    };
    fn field<'a>(map: &'a [Vec<u8>], name: &str, text: &dyn Fn(&[u8]) -> String) -> Option<&'a Vec<u8>> {
        map.chunks(2).find(|pair| text(&pair[0]) == name).map(|pair| &pair[1])
    }
    fn arguments(
        map: &[Vec<u8>],
        items: &dyn Fn(&[u8]) -> Vec<Vec<u8>>,
        text: &dyn Fn(&[u8]) -> String,
    ) -> Vec<Described> {
        let Some(found) = field(map, "arguments", text) else { return Vec::new() };
        let each = items(found).into_iter().map(|argument| {
            let argument = items(&argument);
            let fields = ["name", "type", "token", "key_spec_index"]
                .into_iter()
                .filter_map(|name| Some((name.to_string(), text(field(&argument, name, text)?))));
            let flags = field(&argument, "flags", text).map(|flags| items(flags)).unwrap_or_default();
            let flags = flags.iter().map(|flag| ("flag".to_string(), text(flag)));
            Described(fields.chain(flags).collect(), arguments(&argument, items, text))
        });
        each.collect()
    }
    items(reply).get(1).map_or(Vec::new(), |map| arguments(&items(map), &items, &text))
}

#[test]
fn command_docs_arguments_equal_redis() {
    let Some(redis) = Redis::start() else { return };
    let mut theirs = redis.connect();
    let mut session = Session::new(shared(), Peer::default(), now_ms());
    let mut compared = 0;
    for command in terrace_server::command::table::TABLE {
        let subs = command.subcommands.iter().map(|sub| format!("{}|{}", command.name, sub.name));
        for name in std::iter::once(command.name.to_string()).chain(subs) {
            let request =
                crate::redis::encode(&[b"command".to_vec(), b"docs".to_vec(), name.clone().into_bytes()]);
            let mut ours = Vec::new();
            session.process(&mut request.clone(), &mut ours, now_ms());
            let (ours, theirs) = (described(&ours), described(&theirs.ask(&request, 1)[0]));
            // These have more arguments here, or an order of Redis's own; or Redis describes none.
            let differs = ["set", "bgsave", "client|kill"].contains(&&*name);
            if !differs && !theirs.is_empty() {
                assert_eq!(ours, theirs, "{name}");
                compared += 1;
            }
        }
    }
    assert!(compared > 50, "{compared}");
}
