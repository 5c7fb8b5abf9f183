//! Databases 0 to 15.

use std::sync::Arc;

use terrace::{ByteSize, Index, ManualClock, Store};
use terrace_server::{config::Config, databases::Map, shared::Shared};

use crate::common::{Client, START_MS, command, fresh, is_on_disk, is_tiered};

/// A client of this store.
fn client(store: Store) -> Client {
    Client::of(Arc::new(Shared::new(store, Config::default())), Arc::new(ManualClock::at(START_MS)))
}

/// The keys of a store, as they are stored, but for the record of the databases.
fn stored(store: &Store) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = store.iter().map(|entry| entry.unwrap().0.to_vec()).collect();
    keys.retain(|key| !(key.len() == 8 && key[0] == 0xfe && key[7] == 0xff));
    keys.sort();
    keys
}

fn info(client: &mut Client) -> String {
    let reply = client.ask("INFO keyspace");
    reply.split_once("# Keyspace").unwrap().1.trim().replace(",avg_ttl=0", "")
}

#[test]
fn keys_of_databases_do_not_meet() {
    let mut client = Client::new();
    client.expect(&[
        ("SET k zero", "+OK"),
        ("SELECT 1", "+OK"),
        ("GET k", "$-1"),
        ("SET k one", "+OK"),
        ("APPEND k !", ":4"),
        ("MSET a 1 b 2", "+OK"),
        ("MSETNX b 3 c 4", ":0"),
        ("MGET k a b c", "*4 $4 one! $1 1 $1 2 $-1"),
        ("EXISTS k a c", ":2"),
        ("INCR a", ":2"),
        ("DEL a b x", ":2"),
        ("RENAME k r", "+OK"),
        ("DBSIZE", ":1"),
        ("KEYS *", "*1 $1 r"),
        ("RANDOMKEY", "$1 r"),
        ("SELECT 15", "+OK"),
        ("RANDOMKEY", "$-1"),
        ("KEYS *", "*0"),
        ("DBSIZE", ":0"),
        ("SELECT 0", "+OK"),
        ("KEYS *", "*1 $1 k"),
        ("DBSIZE", ":1"),
        ("GET k", "$4 zero"),
    ]);
    assert_eq!(info(&mut client), "db0:keys=1,expires=0 db1:keys=1,expires=0");
    assert!(client.ask("CLIENT INFO").contains(" db=0 "));
    client.expect(&[("SELECT 3", "+OK")]);
    assert!(client.ask("CLIENT LIST").contains(" db=3 "));
    client.expect(&[("RESET", "+RESET"), ("GET k", "$4 zero")]);
}

#[test]
fn pipelines_stay_in_their_database() {
    let mut client = Client::new();
    let (replies, _) = client.send(
        b"SET a 0\r\nSET b 0\r\nSELECT 1\r\nSET a 1\r\nSET b 1\r\nSET c 1\r\nGET a\r\nGET b\r\nTTL c\r\nSELECT 0\r\n\
          GET a\r\nGET b\r\nGET c\r\n",
    );
    assert_eq!(replies, "+OK +OK +OK +OK +OK +OK $1 1 $1 1 :-1 +OK $1 0 $1 0 $-1");
}

/// The mark that begins stored keys of other databases.
fn mark() -> Vec<u8> {
    let mut client = Client::new();
    client.expect(&[("SELECT 5", "+OK"), ("SET k v", "+OK")]);
    let keys = stored(&client.shared.store);
    let [key] = &keys[..] else { panic!("{keys:?}") };
    key.strip_suffix(b"\x05k").unwrap().to_vec()
}

#[test]
fn stored_keys_of_database_0_are_as_they_were() {
    let mark = mark();
    let store = fresh().create().unwrap();
    let keys: [&[u8]; 5] = [b"", b"k", b"\xff\xff", &mark[..6], &[0xfe; 9]];
    keys.iter().for_each(|key| store.put(key, key).unwrap());
    let mut client = client(store);
    client.expect(&[("DBSIZE", ":5"), ("GET k", "$1 k"), ("SELECT 1", "+OK"), ("SET k 1", "+OK")]);
    client.expect(&[("SELECT 0", "+OK"), ("GET k", "$1 k")]);
    let found = stored(&client.shared.store);
    assert!(found.len() == 6 && keys.iter().all(|key| found.contains(&key.to_vec())));
    // A key that begins with the mark is a key of database 0 like any other.
    let word = |word: &[u8]| [format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat();
    let key = [&mark[..], b"\x05k"].concat();
    for piped in [1, 2] {
        let set = [&b"*3\r\n"[..], &word(b"SET"), &word(&key), &word(b"mine")].concat();
        let get = [&b"*2\r\n"[..], &word(b"GET"), &word(&key)].concat();
        assert_eq!(client.send(&set.repeat(piped)).0, ["+OK"; 2][..piped].join(" "));
        assert_eq!(client.send(&get.repeat(piped)).0, ["$4 mine"; 2][..piped].join(" "));
    }
    client.expect(&[("SELECT 5", "+OK"), ("GET k", "$-1"), ("KEYS *", "*0")]);
}

#[test]
fn keys_move_and_are_copied_between_databases() {
    let mut client = Client::new();
    client.expect(&[
        ("SET k v PX 5000", "+OK"),
        ("COPY k k", "-ERR source and destination objects are the same"),
        ("COPY k k DB 2", ":1"),
        ("COPY k k DB 2", ":0"),
        ("COPY k k DB 2 REPLACE", ":1"),
        ("COPY k other DB 2", ":1"),
        ("MOVE k 2", ":0"),
        ("MOVE k 0", "-ERR source and destination objects are the same"),
        ("MOVE k 16", "-ERR DB index is out of range"),
        ("MOVE k x", "-ERR value is not an integer or out of range"),
        ("MOVE k 3", ":1"),
        ("MOVE k 3", ":0"),
        ("EXISTS k", ":0"),
        ("SELECT 3", "+OK"),
        ("PTTL k", ":5000"),
        ("SELECT 2", "+OK"),
        ("PTTL other", ":5000"),
    ]);
    assert_eq!(info(&mut client), "db2:keys=2,expires=2 db3:keys=1,expires=1");
    client.clock.advance(5001);
    client.expect(&[("GET k", "$-1"), ("KEYS *", "*0"), ("SELECT 3", "+OK"), ("GET k", "$-1")]);
}

#[test]
fn flushdb_leaves_other_databases() {
    for piece in ["FLUSHDB", "MULTI\r\nSET new 1\r\nFLUSHDB\r\nEXEC"] {
        let mut client = Client::new();
        for database in 0..3 {
            client.ask(&format!("SELECT {database}"));
            (0..3000).for_each(|n| assert_eq!(client.ask(&format!("SET {n} {database}")), "+OK"));
        }
        client.expect(&[("SELECT 1", "+OK")]);
        client.ask(piece);
        client.expect(&[("KEYS *", "*0"), ("SELECT 0", "+OK"), ("GET 2999", "$1 0")]);
        assert_eq!(info(&mut client), "db0:keys=3000,expires=0 db2:keys=3000,expires=0");
        client.ask(piece);
        assert_eq!(info(&mut client), "db2:keys=3000,expires=0");
        client.expect(&[("FLUSHALL", "+OK"), ("SELECT 2", "+OK"), ("DBSIZE", ":0"), ("SET k v", "+OK")]);
        assert_eq!(info(&mut client), "db2:keys=1,expires=0");
    }
}

#[test]
fn scan_lists_one_database() {
    let mut client = Client::new();
    for database in [0, 7] {
        client.ask(&format!("SELECT {database}"));
        (0..500).for_each(|n| assert_eq!(client.ask(&format!("SET {database}:{n} v")), "+OK"));
    }
    let (mut cursor, mut keys) = ("0".to_string(), std::collections::BTreeSet::new());
    loop {
        let reply = client.ask(&format!("SCAN {cursor} COUNT 50"));
        let words: Vec<&str> = reply.split(' ').collect();
        cursor = words[2].to_string();
        keys.extend(words[4..].iter().skip(1).step_by(2).map(ToString::to_string));
        if cursor == "0" {
            break;
        }
    }
    assert!(keys.len() == 500 && keys.iter().all(|key| key.starts_with("7:")), "{keys:?}");
}

/// A client of three databases with three keys each, and one with a high key.
fn with_three() -> Client {
    let mut client = Client::with_index(Index::ORDERED);
    for database in [0, 1, 2] {
        client.ask(&format!("SELECT {database}"));
        ["a", "b", "c"]
            .iter()
            .for_each(|key| assert_eq!(client.ask(&format!("SET {key}{database} v")), "+OK"));
    }
    let high = "SET \"\\xff\" v";
    client.expect(&[("SELECT 0", "+OK"), (high, "+OK")]);
    client
}

#[test]
fn ranges_stay_in_their_database() {
    if is_tiered() {
        return;
    }
    let mut client = with_three();
    for database in [1, 2] {
        client.ask(&format!("SELECT {database}"));
        let key = |name: &str| format!("$2 {name}{database}");
        let (a, b, c) = (key("a"), key("b"), key("c"));
        client.expect(&[
            ("X.RANGE - +", &format!("*3 {a} {b} {c}")),
            ("X.RANGE + - REV LIMIT 1 5", &format!("*2 {b} {a}")),
            ("X.RANGE (a [b~", &format!("*2 {a} {b}")),
            ("X.PREFIX b", &format!("*1 {b}")),
            ("X.COUNT - +", ":3"),
            ("X.NEXT b~", &format!("*2 {c} $1 v")),
            ("X.PREV a", "*-1"),
            ("X.NEXT c~", "*-1"),
            ("KEYS *", &format!("*3 {a} {b} {c}")),
        ]);
    }
}

#[test]
fn ranges_are_removed_in_their_database() {
    if is_tiered() {
        return;
    }
    with_three().expect(&[
        ("SELECT 2", "+OK"),
        ("X.DELRANGE - + LIMIT 1", "*2 :1 $3 [b2"),
        ("X.DELRANGE [b2 +", "*2 :2 $-1"),
        ("DBSIZE", ":0"),
        ("SELECT 0", "+OK"),
        ("X.COUNT - +", ":4"),
        ("X.COUNT [c0 +", ":2"),
        ("X.DELPREFIX c", "*2 :1 $-1"),
        ("SELECT 1", "+OK"),
        ("X.COUNT - +", ":3"),
        ("SELECT 0", "+OK"),
        ("X.DELRANGE - +", "*2 :3 $-1"),
        ("SELECT 1", "+OK"),
        ("FLUSHDB", "+OK"),
        ("X.COUNT - +", ":0"),
    ]);
}

#[test]
fn transactions_select_and_start_over() {
    let mut client = Client::new();
    client.expect(&[
        ("MULTI", "+OK"),
        ("SET k 0", "+QUEUED"),
        ("SELECT 4", "+QUEUED"),
        ("SET k 4", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        ("MOVE k 0", "+QUEUED"),
        ("KEYS *", "+QUEUED"),
        ("EXEC", "*6 +OK +OK +OK :1 :0 *1 $1 k"),
        ("GET k", "$1 4"),
        ("MULTI", "+OK"),
        ("SELECT 0", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("GET k", "$1 4"),
        ("WATCH k", "+OK"),
        ("SELECT 0", "+OK"),
        ("SET k new", "+OK"),
        ("MULTI", "+OK"),
        ("SELECT 9", "+QUEUED"),
        ("EXEC", "*1 +OK"),
        ("SELECT 4", "+OK"),
        ("WATCH k", "+OK"),
        ("SET k changed", "+OK"),
        ("MULTI", "+OK"),
        ("SELECT 9", "+QUEUED"),
        ("EXEC", "*-1"),
        ("GET k", "$7 changed"),
    ]);
}

#[test]
fn swapdb_exchanges_databases_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let options = if is_on_disk() { fresh() } else { Store::options().size(ByteSize::mib(16)) };
    let options = options.path(directory.path().join("pool"));
    let mut client = client(options.clone().open_or_create().unwrap());
    let mut other = client.another();
    other.expect(&[("SELECT 1", "+OK"), ("SET k one", "+OK"), ("SET only 1", "+OK")]);
    client.expect(&[
        ("SET k zero", "+OK"),
        ("SWAPDB 0 0", "+OK"),
        ("SWAPDB 0 16", "-ERR DB index is out of range"),
        ("SWAPDB x 1", "-ERR invalid first DB index"),
        ("SWAPDB 0 x", "-ERR invalid second DB index"),
        ("SWAPDB 0 1", "+OK"),
        ("GET k", "$3 one"),
        ("DBSIZE", ":2"),
        ("SWAPDB 3 1", "+OK"),
    ]);
    other.expect(&[("GET k", "$-1"), ("SELECT 3", "+OK"), ("GET k", "$4 zero"), ("FLUSHDB", "+OK")]);
    assert_eq!(info(&mut client), "db0:keys=2,expires=0");
    other.expect(&[("SET k zero", "+OK")]);
    let store = client.shared.store.clone();
    drop((client, other));
    store.close().unwrap();
    let store = options.open().unwrap();
    assert_eq!(store.get(Map::of(&store).unwrap().place(0).encode(b"k")).unwrap().unwrap(), b"one");
    let mut client = self::client(store);
    client.expect(&[("GET k", "$3 one"), ("SELECT 3", "+OK"), ("GET k", "$4 zero"), ("FLUSHALL", "+OK")]);
    client.expect(&[("SET k 3", "+OK"), ("SWAPDB 0 3", "+OK"), ("SELECT 0", "+OK"), ("GET k", "$1 3")]);
    assert!(client.shared.store.check(&mut |_, _| {}).is_sound());
}

#[test]
fn swapdb_in_a_transaction_is_part_of_it() {
    let mut client = Client::new();
    let mut other = client.another();
    client.expect(&[
        ("SET k zero", "+OK"),
        ("MULTI", "+OK"),
        ("SWAPDB 0 1", "+QUEUED"),
        ("GET k", "+QUEUED"),
        ("SET k new", "+QUEUED"),
        ("EXEC", "*3 +OK $-1 +OK"),
        ("GET k", "$3 new"),
        ("SELECT 1", "+OK"),
        ("GET k", "$4 zero"),
        ("WATCH k", "+OK"),
    ]);
    other.expect(&[("SELECT 1", "+OK"), ("SET k changed", "+OK")]);
    client.expect(&[
        ("MULTI", "+OK"),
        ("SWAPDB 0 1", "+QUEUED"),
        ("EXEC", "*-1"),
        ("GET k", "$7 changed"),
        ("WATCH k", "+OK"),
    ]);
    other.expect(&[("SWAPDB 1 2", "+OK")]);
    client.expect(&[("MULTI", "+OK"), ("GET k", "+QUEUED"), ("EXEC", "*-1"), ("WATCH nosuch", "+OK")]);
    other.expect(&[("SWAPDB 1 2", "+OK")]);
    client.expect(&[("MULTI", "+OK"), ("GET k", "+QUEUED"), ("EXEC", "*1 $7 changed")]);
}

#[test]
fn watch_belongs_to_a_key_of_a_database() {
    let mut client = Client::new();
    let mut other = client.another();
    let run = [("MULTI", "+OK"), ("PING", "+QUEUED")];
    let watch = |client: &mut Client, key: &str| client.expect(&[(&format!("WATCH {key}"), "+OK")]);
    let ends = |client: &mut Client, reply| {
        client.expect(&run);
        client.expect(&[("EXEC", reply)]);
    };
    // The key of the other database, which is stored where this one was.
    watch(&mut client, "a");
    other.expect(&[("SWAPDB 0 1", "+OK"), ("SELECT 1", "+OK"), ("SET a 1", "+OK")]);
    ends(&mut client, "*1 +PONG");
    // It comes and goes: after SWAPDB, before it, by it.
    watch(&mut client, "b");
    other.expect(&[("SWAPDB 0 1", "+OK"), ("SELECT 0", "+OK"), ("SET b 1", "+OK"), ("DEL b", ":1")]);
    ends(&mut client, "*-1");
    watch(&mut client, "c");
    other.expect(&[("SET c 1", "+OK"), ("DEL c", ":1"), ("SWAPDB 0 1", "+OK")]);
    ends(&mut client, "*-1");
    watch(&mut client, "d");
    other.expect(&[("SELECT 1", "+OK"), ("SET d 1", "+OK"), ("SWAPDB 0 1", "+OK"), ("SELECT 0", "+OK")]);
    other.expect(&[("FLUSHDB", "+OK")]);
    ends(&mut client, "*-1");
    // Exchanged back, in a transaction, and in other databases.
    watch(&mut client, "e f");
    client.expect(&[("SELECT 1", "+OK"), ("WATCH e", "+OK")]);
    other.expect(&[("SWAPDB 0 1", "+OK"), ("MULTI", "+OK"), ("SWAPDB 0 1", "+QUEUED")]);
    other.expect(&[("EXEC", "*1 +OK"), ("SWAPDB 2 3", "+OK"), ("SELECT 2", "+OK"), ("SET e 1", "+OK")]);
    ends(&mut client, "*1 +PONG");
    watch(&mut client, "e");
    other.expect(&[("SWAPDB 0 1", "+OK"), ("SELECT 0", "+OK"), ("SET e 1", "+OK")]);
    ends(&mut client, "*1 +PONG");
    watch(&mut client, "e");
    other.expect(&[("MULTI", "+OK"), ("SWAPDB 0 1", "+QUEUED"), ("EXEC", "*1 +OK")]);
    ends(&mut client, "*-1");
    watch(&mut client, "g");
    client.expect(&[("UNWATCH", "+OK")]);
    other.expect(&[("SWAPDB 0 1", "+OK"), ("SET g 1", "+OK"), ("SWAPDB 0 1", "+OK")]);
    ends(&mut client, "*1 +PONG");
}

#[test]
fn removal_of_absent_keys_aborts_no_transaction() {
    let mut client = Client::new();
    let mut other = client.another();
    client.expect(&[("WATCH k", "+OK")]);
    other.expect(&[("DEL k j", ":0"), ("UNLINK k j", ":0"), ("MULTI", "+OK"), ("DEL k", "+QUEUED")]);
    other.expect(&[("DEL j", "+QUEUED"), ("EXEC", "*2 :0 :0")]);
    client.expect(&[("MULTI", "+OK"), ("SET k 1", "+QUEUED"), ("EXEC", "*1 +OK"), ("WATCH k", "+OK")]);
    other.expect(&[("DEL k j", ":1")]);
    client.expect(&[("MULTI", "+OK"), ("SET k 1", "+QUEUED"), ("EXEC", "*-1")]);
}

/// While databases are exchanged all the time, no command sees half of it, and no write gets lost.
#[test]
fn swapdb_happens_at_one_instant() {
    const ROUNDS: u64 = 500;
    let client = Client::new();
    let mut first = client.another();
    first.expect(&[("SET name a", "+OK"), ("SELECT 1", "+OK"), ("SET name b", "+OK")]);
    std::thread::scope(|scope| {
        for nth in 0..3 {
            let mut client = client.another();
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    match nth {
                        0 => client.expect(&[("SWAPDB 0 1", "+OK")]),
                        _ => {
                            let (both, _) = client.send(
                                b"MULTI\r\nSELECT 0\r\nGET name\r\nINCR n\r\nSELECT 1\r\nGET name\r\nINCR n\r\nEXEC\r\n",
                            );
                            let names: String = both.chars().filter(|c| ['a', 'b'].contains(c)).collect();
                            assert!(["ab", "ba"].contains(&&*names), "{both}");
                        }
                    }
                }
            });
        }
    });
    let count = format!(":{}", 2 * ROUNDS + 1);
    first.expect(&[("INCR n", &count), ("SELECT 0", "+OK"), ("INCR n", &count), ("GET name", "$1 a")]);
}

#[test]
fn swapdb_is_refused_in_a_shared_pool() {
    if is_on_disk() {
        return;
    }
    let config = Config::default();
    config.assign("shared", "yes").unwrap();
    let shared = Shared::new(fresh().create().unwrap(), config);
    let mut client = Client::of(Arc::new(shared), Arc::new(ManualClock::at(START_MS)));
    assert!(client.ask("SWAPDB 0 1").starts_with("-ERR SWAPDB is not possible while the pool is shared"));
    client.expect(&[("SELECT 1", "+OK"), ("SET k v", "+OK"), ("GET k", "$1 v")]);
}

#[test]
fn script_selects_for_itself() {
    const NOPE: &str = "-ERR Unknown Redis command called from script";
    let mut client = Client::new();
    let mut eval = |text: &str, reply: &str| {
        let found = client.send(&command(&[b"EVAL", text.as_bytes(), b"1", b"k"])).0;
        assert!(found.starts_with(reply), "{text}: {found}");
    };
    eval(
        "redis.call('set', KEYS[1], 'zero') redis.call('select', 2) redis.call('set', KEYS[1], 'two')",
        "$-1",
    );
    eval("redis.call('select', 2) return redis.call('get', KEYS[1])", "$3 two");
    eval("return redis.call('get', KEYS[1])", "$4 zero");
    eval("redis.call('select', 2) return {redis.call('move', KEYS[1], 3), redis.call('dbsize')}", "*2 :1 :0");
    eval("redis.call('select', 3) redis.call('del', KEYS[1]) return redis.call('nope')", NOPE);
    eval("redis.call('select', 3) return redis.call('get', KEYS[1])", "$3 two");
    eval(
        "return redis.pcall('swapdb', 0, 3)",
        "-ERR SWAPDB is not possible from a script: all other commands wait for it",
    );
    client.expect(&[
        ("GET k", "$4 zero"),
        ("MULTI", "+OK"),
        ("SELECT 3", "+QUEUED"),
        ("EVAL redis.call([[select]],4) 0", "+QUEUED"),
        ("GET k", "+QUEUED"),
        ("EXEC", "*3 +OK $-1 $3 two"),
        ("MULTI", "+OK"),
        ("SWAPDB 5 6", "+QUEUED"),
        ("EVAL return(1) 0", "+QUEUED"),
        (
            "EXEC",
            "*2 +OK -ERR a transaction with SWAPDB runs no scripts: all other commands wait for its end",
        ),
        ("GET k", "$3 two"),
        ("SELECT 4", "+OK"),
        ("GET k", "$-1"),
    ]);
}

/// Without the record, a key might be looked for in the wrong place.
#[test]
fn unreadable_record_refuses_commands() {
    let mut client = Client::new();
    client.expect(&[("SWAPDB 0 1", "+OK")]);
    let store = client.shared.store.clone();
    let record = store.keys().map(|key| key.unwrap().to_vec()).find(|key| key[7] == 0xff).unwrap();
    store.put(&record, b"\x02 of a later version").unwrap();
    let mut client = self::client(store);
    let why = "-ERR the record of the databases cannot be read, so no key can be found";
    for line in ["GET k", "SET k v", "GET k\r\nGET k", "DBSIZE", "FLUSHALL", "MGET a b", "EVAL return(1) 0"] {
        assert!(client.ask(line).starts_with(why), "{line}: {}", client.ask(line));
    }
    client.expect(&[("PING", "+PONG")]);
}
