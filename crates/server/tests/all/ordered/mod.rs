//! Commands for ranges of keys, and what else an ordered store changes.

mod long;

use std::{
    collections::BTreeSet,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::common::{Client, Running, START_MS, ask, command, is_on_disk};
use terrace::{ByteSize, Clock, Index, ManualClock};
use terrace_server::{
    config::Config,
    session::{Flow, Peer, Session},
    shared::Shared,
};

const SYNTAX: &str = "-ERR syntax error";
const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range";
const NEGATIVE: &str = "-ERR the numbers of LIMIT must not be negative";
const NO_BOUND: &str = "-ERR min or max not valid string range item: write [KEY to include a key, (KEY to exclude it, \
                        - for the lowest key, + for the highest";

/// A client of an ordered store with the keys a, b, c, ca and d, whose values are their names
/// twice.
fn client(index: Index) -> Client {
    let mut client = Client::with_index(index);
    client.expect(&[("MSET b bb a aa d dd ca caca c cc", "+OK")]);
    client
}

/// The ordered indexes. A store on a disk is ordered by itself, once.
fn ordered() -> impl Iterator<Item = Index> {
    let some = if is_on_disk() { 1 } else { usize::MAX };
    Index::ALL.into_iter().filter(|index| index.is_ordered()).take(some)
}

/// A client as [`client`]'s for each ordered index.
fn clients() -> impl Iterator<Item = Client> {
    ordered().map(client)
}

/// The keys of an array of one-byte keys, and ca.
fn array(keys: &str) -> String {
    let keys: Vec<&str> = keys.split_whitespace().collect();
    let elements: Vec<String> = keys.iter().map(|key| format!(" ${} {key}", key.len())).collect();
    format!("*{}{}", keys.len(), elements.concat())
}

#[test]
fn range_has_bounds_of_each_kind() {
    for mut client in clients() {
        for (bounds, keys) in [
            ("- +", "a b c ca d"),
            ("[b [ca", "b c ca"),
            ("(b (ca", "c"),
            ("[b (d", "b c ca"),
            ("(a +", "b c ca d"),
            ("- (b", "a"),
            ("[bb [cz", "c ca"),
            ("[b [b", "b"),
            ("[b (b", ""),
            ("(b [b", ""),
            ("(b (b", ""),
            ("[ca [b", ""),
            ("+ -", ""),
            ("+ +", ""),
            ("- -", ""),
            ("[ +", "a b c ca d"),
            ("- [", ""),
            ("[e +", ""),
        ] {
            assert_eq!(client.ask(&format!("X.RANGE {bounds}")), array(keys), "{bounds}");
            let count = keys.split_whitespace().count();
            assert_eq!(client.ask(&format!("X.COUNT {bounds}")), format!(":{count}"), "{bounds}");
            // With REV, the upper end comes first.
            let (lower, upper) = bounds.split_once(' ').unwrap();
            let reversed: Vec<&str> = keys.split_whitespace().rev().collect();
            let reply = client.ask(&format!("X.RANGE {upper} {lower} REV"));
            assert_eq!(reply, array(&reversed.join(" ")), "{bounds}");
        }
    }
}

#[test]
fn range_takes_limit_and_values() {
    for mut client in clients() {
        client.expect(&[
            ("X.RANGE - + LIMIT 1 2", &array("b c")),
            ("x.range - + limit 0 100", &array("a b c ca d")),
            ("X.RANGE - + LIMIT 4 9223372036854775807", &array("d")),
            ("X.RANGE - + LIMIT 5 1", "*0"),
            ("X.RANGE - + LIMIT 9223372036854775807 9223372036854775807", "*0"),
            ("X.RANGE - + LIMIT 0 0", "*0"),
            ("X.RANGE + - REV LIMIT 1 2", &array("ca c")),
            ("X.RANGE [b [c WITHVALUES", "*4 $1 b $2 bb $1 c $2 cc"),
            ("X.RANGE [c [b LIMIT 1 1 WITHVALUES REV", "*2 $1 b $2 bb"),
            ("X.RANGE [x + WITHVALUES", "*0"),
            ("X.PREFIX c", &array("c ca")),
            ("X.PREFIX c REV WITHVALUES", "*4 $2 ca $4 caca $1 c $2 cc"),
            ("X.PREFIX c REV LIMIT 1 5", &array("c")),
            ("X.PREFIX ca LIMIT 0 1 WITHVALUES", "*2 $2 ca $4 caca"),
            ("X.PREFIX \"\" LIMIT 3 10", &array("ca d")),
            ("X.PREFIX e", "*0"),
            ("X.COUNT - + LIMIT 2", ":2"),
            ("X.COUNT - + LIMIT 100", ":5"),
            ("X.COUNT - + LIMIT 0", ":0"),
        ]);
        assert!(client.ask("HELLO 3").starts_with("%7"));
        client.expect(&[
            ("X.RANGE [b [c WITHVALUES", "%2 $1 b $2 bb $1 c $2 cc"),
            ("X.RANGE [b [c", "*2 $1 b $1 c"),
            ("X.PREFIX a WITHVALUES", "%1 $1 a $2 aa"),
            ("X.PREFIX e WITHVALUES", "%0"),
            ("X.NEXT d", "_"),
            ("X.PREV d", "*2 $2 ca $4 caca"),
            ("X.DELPREFIX e", "*2 :0 _"),
        ]);
    }
}

#[test]
fn next_and_prev_find_neighbours_of_any_key() {
    for mut client in clients() {
        client.expect(&[
            ("X.NEXT a", "*2 $1 b $2 bb"),
            ("X.NEXT bx", "*2 $1 c $2 cc"),
            ("X.NEXT \"\"", "*2 $1 a $2 aa"),
            ("X.NEXT d", "*-1"),
            ("X.NEXT e", "*-1"),
            ("X.PREV d", "*2 $2 ca $4 caca"),
            ("X.PREV cb", "*2 $2 ca $4 caca"),
            ("X.PREV a", "*-1"),
            ("X.PREV \"\"", "*-1"),
            ("SET \"\" empty", "+OK"),
            ("X.PREV a", "*2 $0  $5 empty"),
            ("X.NEXT \"\"", "*2 $1 a $2 aa"),
            ("X.RANGE - (b", "*2 $0  $1 a"),
            ("X.RANGE [ [", "*1 $0"),
        ]);
    }
}

#[test]
fn binary_keys_have_byte_order() {
    for mut client in ordered().map(Client::with_index) {
        let keys: [&[u8]; 8] = [b"", b"\0", b"\0\0", b"\0\xff", b"a", b"\xff", b"\xff\0", b"\xff\xff"];
        for key in keys.iter().rev() {
            assert_eq!(client.send(&command(&[b"SET", key, b"v"])).0, "+OK");
        }
        let array = |keys: &[&[u8]]| {
            // A reply is encoded like a command; `Client::send` shows it with spaces.
            String::from_utf8_lossy(&command(keys)).replace("\r\n", " ").trim_end().to_string()
        };
        assert_eq!(client.ask("X.RANGE - +"), array(&keys));
        assert_eq!(client.send(&command(&[b"X.PREFIX", b"\xff"])).0, array(&keys[5..]));
        assert_eq!(client.send(&command(&[b"X.PREFIX", b"\0"])).0, array(&keys[1..4]));
        assert_eq!(client.send(&command(&[b"X.RANGE", b"(\0", b"(\xff"])).0, array(&keys[2..5]));
        assert_eq!(client.send(&command(&[b"KEYS", b"\xff*"])).0, array(&keys[5..]));
        // A bound may be longer than any key.
        let long = [&b"[\0"[..], &[0xff; 70_000]].concat();
        assert_eq!(client.send(&command(&[b"X.RANGE", &long, b"+"])).0, array(&keys[4..]));
        assert_eq!(client.send(&command(&[b"X.PREV", &long[1..]])).0, "*2 $2 \0\u{fffd} $1 v");
        assert_eq!(client.send(&command(&[b"X.PREFIX", &long[1..]])).0, "*0");
    }
}

#[test]
fn ranges_are_removed_in_bounded_steps() {
    for mut client in clients() {
        client.expect(&[
            ("X.DELRANGE [b + LIMIT 2", "*2 :2 $3 [ca"),
            ("X.DELRANGE [ca + LIMIT 0", "*2 :0 $3 [ca"),
            ("X.DELRANGE [ca + LIMIT 1", "*2 :1 $2 [d"),
            ("X.RANGE - +", &array("a d")),
            ("X.DELRANGE [b (d", "*2 :0 $-1"),
            ("X.DELRANGE + -", "*2 :0 $-1"),
            ("X.DELRANGE - +", "*2 :2 $-1"),
            ("DBSIZE", ":0"),
            ("MSET pre 1 prefix 2 prefixes 3 other 4", "+OK"),
            ("X.DELPREFIX prefix LIMIT 1", "*2 :1 $9 [prefixes"),
            ("X.DELPREFIX prefix LIMIT 1", "*2 :1 $-1"),
            ("X.DELPREFIX nosuch", "*2 :0 $-1"),
            ("KEYS *", &array("other pre")),
            ("X.DELPREFIX \"\"", "*2 :2 $-1"),
        ]);
        let fill = |client: &Client, keys: u32| {
            (0..keys).for_each(|n| client.shared.store.put(n.to_be_bytes(), "").unwrap());
        };
        // A call removes at most 10,000 keys, also if it may remove more.
        for line in ["X.DELRANGE - +", "X.DELRANGE - + LIMIT 9223372036854775807", "X.DELPREFIX \"\""] {
            fill(&client, 10_001);
            assert_eq!(client.ask(line), "*2 :10000 $5 [\0\0'\u{10}", "{line}");
            assert_eq!(client.ask(line), "*2 :1 $-1", "{line}");
            fill(&client, 10_000);
            assert_eq!(client.ask(line), "*2 :10000 $-1", "{line}");
        }
    }
}

#[test]
fn invalid_ranges_are_refused() {
    for mut client in clients() {
        let arity = |name: &str| format!("-ERR wrong number of arguments for '{name}' command");
        client.expect(&[
            ("X.RANGE", &arity("x.range")),
            ("X.RANGE -", &arity("x.range")),
            ("X.PREFIX", &arity("x.prefix")),
            ("X.COUNT -", &arity("x.count")),
            ("X.NEXT", &arity("x.next")),
            ("X.NEXT a b", &arity("x.next")),
            ("X.PREV a b", &arity("x.prev")),
            ("X.DELRANGE -", &arity("x.delrange")),
            ("X.DELPREFIX", &arity("x.delprefix")),
            ("X.RANGE a +", NO_BOUND),
            ("X.RANGE - b", NO_BOUND),
            ("X.RANGE + x", NO_BOUND),
            ("X.RANGE \"\" +", NO_BOUND),
            ("X.RANGE - ++", NO_BOUND),
            ("X.COUNT a b", NO_BOUND),
            ("X.DELRANGE a b", NO_BOUND),
        ]);
        // The name of a command differs only in case.
        assert!(client.send(b"X\x0eRANGE - +\r\n").0.starts_with("-ERR unknown command"));
    }
}

#[test]
fn invalid_options_of_ranges_are_refused() {
    client(Index::ORDERED).expect(&[
        ("X.RANGE - + BYLEX", SYNTAX),
        ("X.RANGE - + LIMIT", SYNTAX),
        ("X.RANGE - + LIMIT 1", SYNTAX),
        ("X.RANGE - + LIMIT 0 1 2", SYNTAX),
        ("X.PREFIX a b", SYNTAX),
        ("X.COUNT - + LIMIT", SYNTAX),
        ("X.COUNT - + LIMIT 1 2", SYNTAX),
        ("X.COUNT - + REV", SYNTAX),
        ("X.DELRANGE - + 5", SYNTAX),
        ("X.DELPREFIX a LIMIT", SYNTAX),
        ("X.RANGE - + LIMIT a 1", NOT_AN_INTEGER),
        ("X.RANGE - + LIMIT 0 9223372036854775808", NOT_AN_INTEGER),
        ("X.COUNT - + LIMIT 1.5", NOT_AN_INTEGER),
        ("X.DELPREFIX a LIMIT x", NOT_AN_INTEGER),
        ("X.RANGE - + LIMIT -1 1", NEGATIVE),
        ("X.RANGE - + LIMIT 0 -1", NEGATIVE),
        ("X.PREFIX a LIMIT 0 -9223372036854775808", NEGATIVE),
        ("X.COUNT - + LIMIT -1", NEGATIVE),
        ("X.DELRANGE - + LIMIT -1", NEGATIVE),
        ("X.DELPREFIX a LIMIT -1", NEGATIVE),
        ("DBSIZE", ":5"),
    ]);
}

#[test]
fn info_says_what_serves_an_index_of_layers() {
    if is_on_disk() {
        return;
    }
    let info = |index| Client::with_index(index).ask("INFO stats");
    let said = info(Index::SpTree);
    assert!(said.contains("index_served_by:the pool alone: the medium is as fast as DRAM"), "{said}");
    for figure in terrace::LAYER_FIGURES {
        assert!(said.contains(&format!("index_layers_{}:0", figure.name)), "{said}");
    }
    let said = info(Index::Art);
    assert!(!said.contains("index_served_by") && !said.contains("index_layers"), "{said}");
}

#[test]
fn hash_index_names_the_ordered_ones() {
    if is_on_disk() {
        return;
    }
    const UNORDERED: &str = "-ERR the index of this pool, turbo, keeps no order of keys, so it has no ranges. Ordered \
                             indexes: art, hot, masstree, bwtree, sptree. Start `terrace serve --index ordered` with a new pool, and move the data with \
                             `terrace dump` and `terrace load`";
    const COMMANDS: [&str; 7] = [
        "X.RANGE - +",
        "X.PREFIX a",
        "X.COUNT - +",
        "X.NEXT a",
        "X.PREV a",
        "X.DELRANGE + -",
        "X.DELPREFIX a",
    ];
    let mut client = Client::with_index(Index::Turbo);
    client.expect(&[("SET a 1", "+OK")]);
    client.expect(&COMMANDS.map(|command| (command, UNORDERED)));
    client.expect(&[("MULTI", "+OK"), ("SET b 1", "+QUEUED")]);
    client.expect(&COMMANDS.map(|command| (command, "+QUEUED")));
    let replies = client.ask("EXEC");
    assert_eq!(replies, format!("*8 +OK{}", format!(" {UNORDERED}").repeat(COMMANDS.len())));
    client.expect(&[("KEYS a*", "*1 $1 a"), ("DBSIZE", ":2")]);
}

#[test]
fn reply_without_limit_has_at_most_10000_keys() {
    for mut client in ordered().map(Client::with_index) {
        let store = client.shared.store.clone();
        (0..10_000u32).for_each(|n| store.put(format!("key:{n:05}"), "v").unwrap());
        for line in ["X.RANGE - +", "X.RANGE + - REV", "X.PREFIX key:", "X.RANGE - + LIMIT 0 10000"] {
            assert!(client.ask(line).starts_with("*10000 $9 key:"), "{line}");
        }
        assert!(client.ask("X.RANGE - + WITHVALUES").starts_with("*20000 $9 key:00000 $1 v "));
        store.put("key:10000", "v").unwrap();
        const USE_LIMIT: &str = "-ERR the range has more than 10000 keys: use LIMIT 0 COUNT, and begin the next range \
                             behind the last key, at (KEY";
        client.expect(&[
            ("X.RANGE - +", USE_LIMIT),
            ("X.RANGE + - REV WITHVALUES", USE_LIMIT),
            ("X.PREFIX key:", USE_LIMIT),
            ("X.COUNT - +", ":10001"),
            ("X.RANGE [key:10000 + ", "*1 $9 key:10000"),
        ]);
        assert!(client.ask("X.RANGE - + LIMIT 0 10001").starts_with("*10001 $9 key:00000 "));
        assert!(client.ask("X.RANGE - + LIMIT 1 9223372036854775807").starts_with("*10000 $9 key:00001 "));
        // As the errors say, the whole range can be read in parts.
        let (mut from, mut keys) = (String::from("-"), 0);
        loop {
            let reply = client.ask(&format!("X.RANGE {from} + LIMIT 0 1000"));
            let part: Vec<&str> = reply.split_whitespace().skip(2).step_by(2).collect();
            keys += part.len();
            match part.last() {
                Some(last) => from = format!("({last}"),
                None => break,
            }
        }
        assert_eq!(keys, 10_001);
    }
}

#[test]
fn transaction_sees_its_own_writes_in_ranges() {
    for mut client in clients() {
        client.expect(&[
            ("MULTI", "+OK"),
            ("SET bb new", "+QUEUED"),
            ("DEL c nosuch", "+QUEUED"),
            ("SET d changed", "+QUEUED"),
            ("X.RANGE - + WITHVALUES", "+QUEUED"),
            ("X.RANGE + - REV LIMIT 1 3", "+QUEUED"),
            ("X.PREFIX c", "+QUEUED"),
            ("X.COUNT [b +", "+QUEUED"),
            ("X.NEXT b", "+QUEUED"),
            ("X.PREV ca", "+QUEUED"),
        ]);
        let expected = [
            "+OK",
            ":1",
            "+OK",
            "*10 $1 a $2 aa $1 b $2 bb $2 bb $3 new $2 ca $4 caca $1 d $7 changed",
            &array("ca bb b"),
            &array("ca"),
            ":4",
            "*2 $2 bb $3 new",
            "*2 $2 bb $3 new",
        ];
        assert_eq!(client.ask("EXEC"), format!("*{} {}", expected.len(), expected.join(" ")));
    }
}

#[test]
fn transaction_sees_its_own_removals_of_ranges() {
    for mut client in clients() {
        client.expect(&[
            ("MULTI", "+OK"),
            ("SET bb new", "+QUEUED"),
            ("DEL c nosuch", "+QUEUED"),
            ("X.DELRANGE [b [ca LIMIT 2", "+QUEUED"),
            ("X.RANGE - +", "+QUEUED"),
            ("X.DELPREFIX \"\"", "+QUEUED"),
            ("X.RANGE - +", "+QUEUED"),
            ("SET e last", "+QUEUED"),
            ("X.RANGE a +", "+QUEUED"),
            ("KEYS e*", "+QUEUED"),
            ("SCAN 0 MATCH e*", "+QUEUED"),
        ]);
        let expected = [
            "+OK",
            ":1",
            "*2 :2 $3 [ca",
            &array("a ca d"),
            "*2 :3 $-1",
            "*0",
            "+OK",
            NO_BOUND,
            "*1 $1 e",
            "*2 $1 0 *1 $1 e",
        ];
        assert_eq!(client.ask("EXEC"), format!("*{} {}", expected.len(), expected.join(" ")));
        client.expect(&[("X.RANGE - + WITHVALUES", "*2 $1 e $4 last")]);
    }
}

#[test]
fn ranges_after_flushall_and_in_aborted_transactions() {
    for mut client in clients() {
        let mut other = client.another();
        client.expect(&[("FLUSHALL", "+OK"), ("SET e last", "+OK")]);
        client.expect(&[("WATCH e", "+OK"), ("MULTI", "+OK"), ("X.DELRANGE - +", "+QUEUED")]);
        other.expect(&[("SET e again", "+OK")]);
        client.expect(&[
            ("EXEC", "*-1"),
            ("X.COUNT - +", ":1"),
            ("MULTI", "+OK"),
            ("FLUSHALL", "+QUEUED"),
            ("SET f 1", "+QUEUED"),
            ("X.RANGE - +", "+QUEUED"),
            ("X.DELRANGE - +", "+QUEUED"),
            ("X.PREV g", "+QUEUED"),
            ("EXEC", "*5 +OK +OK *1 $1 f *2 :1 $-1 *-1"),
            ("DBSIZE", ":0"),
            ("HELLO 3", &client_hello()),
            ("MULTI", "+OK"),
            ("SET f 1", "+QUEUED"),
            ("X.RANGE - + WITHVALUES", "+QUEUED"),
            ("EXEC", "*2 +OK %1 $1 f $1 1"),
        ]);
    }
}

fn client_hello() -> String {
    "%7 $6 server $5 redis $7 version $5 7.2.0 $5 proto :3 $2 id :1 $4 mode $10 standalone $4 role $6 master $7 modules *0"
        .into()
}

#[test]
fn expired_entries_are_in_no_range() {
    for mut client in clients() {
        client.expect(&[("PEXPIRE b 30", ":1"), ("PEXPIRE d 60", ":1"), ("X.COUNT - +", ":5")]);
        client.clock.advance(30);
        client.expect(&[
            ("X.RANGE - +", &array("a c ca d")),
            ("X.RANGE - + LIMIT 1 1", &array("c")),
            ("X.NEXT a", "*2 $1 c $2 cc"),
            ("X.COUNT - + LIMIT 2", ":2"),
            ("KEYS b*", "*0"),
            ("MULTI", "+OK"),
            ("X.RANGE - +", "+QUEUED"),
            ("PEXPIRE c 1", "+QUEUED"),
            ("X.PREV ca", "+QUEUED"),
            ("EXEC", &format!("*3 {} :1 *2 $1 c $2 cc", array("a c ca d"))),
        ]);
        client.clock.advance(30);
        client.expect(&[
            ("X.RANGE + - REV WITHVALUES", "*4 $2 ca $4 caca $1 a $2 aa"),
            ("X.DELRANGE - +", "*2 :2 $-1"),
            // On a disk, expired keys count until a merge removes them.
            ("DBSIZE", if is_on_disk() { ":3" } else { ":0" }),
        ]);
        assert_eq!(client.clock.now_ms(), START_MS + 60);
    }
}

/// A clock that counts how often it is read: once for each record that expires and is visited.
#[derive(Default)]
struct CountingClock(AtomicU64);

impl Clock for CountingClock {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1, Relaxed);
        1000
    }
}

#[test]
fn patterns_with_a_prefix_visit_only_its_keys() {
    if is_on_disk() {
        return;
    }
    let visits = |index: Index, line: &str| {
        let clock = Arc::new(CountingClock::default());
        let options = crate::common::fresh().index(index).clock(clock.clone()).expiry_thread(false);
        let store = options.size(ByteSize::mib(64)).create().unwrap();
        for n in 0..3000 {
            store.put_expiring(format!("user:{n:04}"), "v", Duration::from_secs(1 << 30)).unwrap();
        }
        let mut client =
            Client::of(Arc::new(Shared::new(store, Config::default())), Arc::new(ManualClock::at(1000)));
        clock.0.store(0, Relaxed);
        let reply = client.ask(line);
        (reply, clock.0.load(Relaxed))
    };
    for index in ordered() {
        for line in ["KEYS user:0042", "KEYS user:004[2]", "SCAN 0 MATCH user:0042* COUNT 1000"] {
            let (reply, visited) = visits(index, line);
            assert!(reply.ends_with("*1 $9 user:0042"), "{line}: {reply}");
            assert!(visited <= 10, "{line}: {visited} records");
        }
        let (reply, visited) = visits(index, "KEYS user:12*");
        assert!(reply.starts_with("*100 ") && visited == 100, "{visited} records");
        let (reply, visited) = visits(index, "SCAN 0 MATCH user:1* COUNT 50");
        assert!(reply.contains(" *50 $9 user:1000 ") && visited == 50, "{visited} records");
        let (_, visited) = visits(index, "KEYS *7");
        assert_eq!(visited, 3000);
    }
    let (reply, visited) = visits(Index::Clht, "KEYS user:12*");
    assert!(reply.starts_with("*100 ") && visited == 3000, "{visited} records");
}

/// The next cursor and the keys in a reply to SCAN.
fn scanned(reply: &str) -> (String, Vec<String>) {
    let mut words = reply.split(' ').map(String::from);
    let cursor = words.nth(2).unwrap();
    (cursor, words.skip(2).step_by(2).collect())
}

#[test]
fn scan_of_a_prefix_continues_in_order() {
    for mut client in ordered().map(Client::with_index) {
        for n in 0..500 {
            client.shared.store.put(format!("{}:{n:03}", ["a", "b", "c"][n % 3]), "v").unwrap();
        }
        let expected: Vec<String> = (0..500).filter(|n| n % 3 == 1).map(|n| format!("b:{n:03}")).collect();
        for count in [1, 7, 166, 167, 1000] {
            let (mut cursor, mut found) = (String::from("0"), Vec::new());
            loop {
                let (next, keys) = scanned(&client.ask(&format!("SCAN {cursor} MATCH b:* COUNT {count}")));
                assert!(keys.len() <= count);
                found.extend(keys);
                if next == "0" {
                    break;
                }
                cursor = next;
            }
            assert_eq!(found, expected, "{count}");
        }
        // A cursor is a place among all keys, whatever the pattern was.
        let (cursor, _) = scanned(&client.ask("SCAN 0 MATCH b:* COUNT 10"));
        client.expect(&[
            (&format!("SCAN {cursor} MATCH a:*"), "*2 $1 0 *0"),
            (&format!("SCAN {cursor} MATCH c:002"), "*2 $1 0 *1 $5 c:002"),
        ]);
        let (_, keys) = scanned(&client.ask(&format!("SCAN {cursor} COUNT 2")));
        assert_eq!(keys, ["b:031", "b:034"]);
        let another = cursor.parse::<u64>().unwrap() ^ 1;
        for unknown in [another.to_string(), "1".into()] {
            let reply = client.ask(&format!("SCAN {unknown} MATCH b:*"));
            assert!(reply.starts_with("-ERR unknown cursor: ") && reply.ends_with("again from 0"), "{reply}");
        }
    }
}

#[test]
fn commands_for_ranges_describe_themselves() {
    for mut client in clients() {
        for (name, arity, access) in [
            ("x.range", -3, "readonly"),
            ("x.prefix", -2, "readonly"),
            ("x.count", -3, "readonly"),
            ("x.delrange", -3, "write"),
            ("x.delprefix", -2, "write"),
        ] {
            let info = client.ask(&format!("COMMAND INFO {name}"));
            let kind = if access == "write" { "+@write" } else { "+@read" };
            let head = format!("*1 *10 ${} {name} :{arity} *1 +{access} :0 :0 :0 ", name.len());
            assert!(info.starts_with(&head) && info.contains("+@keyspace") && info.contains(kind), "{info}");
        }
        let info = client.ask("COMMAND INFO X.NEXT");
        assert!(info.starts_with("*1 *10 $6 x.next :2 *2 +readonly +fast :1 :1 :1 "), "{info}");
        client.expect(&[("COMMAND GETKEYS X.PREV key", "*1 $3 key")]);
        assert!(
            client.ask("COMMAND GETKEYS X.RANGE - +").starts_with("-ERR The command has no key arguments")
        );
        let docs = client.ask("COMMAND DOCS X.RANGE");
        for part in ["+REV", "$5 LIMIT", "$6 offset", "$10 WITHVALUES", "$3 end", "$7 generic"] {
            assert!(docs.contains(part) || docs.contains(&part.replace('+', "$3 ")), "{part}: {docs}");
        }
        client.expect(&[("COMMAND LIST FILTERBY PATTERN x.n*", "*1 $6 x.next")]);
        client.ask("X.COUNT - +");
        assert!(client.ask("INFO commandstats").contains("cmdstat_x.count:calls=1"));
    }
}
