//! `cluster backup`: copies of a cluster under writes, and of one with damage.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::FileExt,
    path::Path,
    thread,
};

use serde_json::Value;
use terrace_cluster::directory::parse_ranges;
use terrace_protocol::slot;

use super::up::{Up, is_whole, nodes, signal};
use crate::common::{Place, run};

/// Sends commands for keys to the nodes that serve them, and returns how many answer OK. On a busy
/// machine a node may lose its lease meanwhile, and refuse some: then all are sent again.
fn put_many(up: &Up, keys: impl Iterator<Item = String>, words: impl Fn(&str) -> Vec<String>) -> usize {
    let keys: Vec<String> = keys.collect();
    let mut tries = (0..5).map(|_| put_once(up, &keys, &words));
    tries.find(|done| *done == keys.len()).unwrap_or_default()
}

fn put_once(up: &Up, keys: &[String], words: impl Fn(&str) -> Vec<String>) -> usize {
    let status = up.wait(is_whole);
    let owner = |slot: u16| {
        let has = |node: &&Value| {
            let ranges = parse_ranges(node["ranges"].as_str().unwrap()).unwrap();
            ranges.iter().any(|range| range.first <= slot && slot <= range.last)
        };
        nodes(&status).iter().find(has).unwrap()["address"].as_str().unwrap().to_owned()
    };
    let owners: Vec<String> = (0..16_384).map(owner).collect();
    let mut commands = BTreeMap::<&str, (String, usize)>::new();
    for key in keys {
        let words = words(key);
        let (text, count) = commands.entry(&owners[usize::from(slot(key.as_bytes()))]).or_default();
        *count += 1;
        text.push_str(&format!("*{}\r\n", words.len()));
        words.iter().for_each(|word| text.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    }
    let send = |(address, (text, count)): (&&str, &(String, usize))| {
        let mut stream = TcpStream::connect(*address).unwrap();
        let mut replies = stream.try_clone().unwrap();
        let count = *count;
        #[allow(clippy::disallowed_methods, reason = "replies are read while commands are sent")]
        let reader = thread::spawn(move || {
            let mut reply = vec![0; 5 * count];
            replies.read_exact(&mut reply).map(|()| reply)
        });
        stream.write_all(text.as_bytes()).unwrap();
        let replies = reader.join().unwrap().unwrap();
        replies.chunks(5).filter(|reply| *reply == b"+OK\r\n").count()
    };
    commands.iter().map(send).sum()
}

const KEYS: usize = 20_000;
const EXPIRES: u64 = 4_000_000_000_000;

fn has_expiry(key: &str) -> bool {
    key.ends_with('7')
}

/// The command that writes a key of [`KEYS`].
fn put(key: &str) -> Vec<String> {
    let mut words = vec!["SET".to_owned(), key.to_owned(), format!("value of {key}")];
    if has_expiry(key) {
        words.extend(["PXAT".to_owned(), EXPIRES.to_string()]);
    }
    words
}

/// Makes a copy while slots move, a node dies and other keys are written. Returns the last value
/// that was written to them.
fn copy_under_writes(up: &Up, file: &Path) -> u64 {
    let (dies, first) = (up.process(&(up.port + 1).to_string()), up.port);
    let mut hot = 0_u64;
    #[allow(clippy::disallowed_methods, reason = "all of it at one time")]
    thread::scope(|scope| {
        let etcd = &up.etcd;
        let run = move |words: &[&str]| run(["cluster"].iter().chain(words).chain(&["--etcd", etcd]), b"");
        let to = file.to_str().unwrap();
        let copies = scope.spawn(move || run(&["backup", to]).ok());
        let moves = scope.spawn(move || {
            for (slots, node) in [("0-2000", 1), ("0-2000", 2), ("9000-9500", 0)] {
                run(&["move", slots, &format!("127.0.0.1:{}", first + node)]).ok();
            }
            signal("-KILL", dies);
        });
        while !(copies.is_finished() && moves.is_finished()) {
            hot += 1;
            for nth in 0..5 {
                assert_eq!(up.redis(first, &["set", &format!("hot{nth}"), &hot.to_string()]), "OK");
            }
        }
        let copied = copies.join().unwrap();
        assert!(copied.err.contains(" of all 16384 slots to "), "{}", copied.err);
        moves.join().unwrap();
    });
    hot
}

/// The copy has each key once, with a value that it had meanwhile.
fn check_copy(file: &Path, hot: u64) {
    let text = fs::read_to_string(file).unwrap();
    let mut copied: BTreeMap<String, Value> = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let before = copied.insert(line["key"].as_str().unwrap().into(), line.clone());
        assert_eq!(before, None, "{line} is there twice");
    }
    for key in (0..KEYS).map(|nth| format!("still{nth}")) {
        let found = copied.remove(&key).unwrap_or_else(|| panic!("{key} is missing"));
        assert_eq!(found["value"], format!("value of {key}"));
        let expiry = if has_expiry(&key) { EXPIRES.into() } else { Value::Null };
        assert_eq!(found["expires_at_ms"], expiry, "{key}");
    }
    // Keys that were written meanwhile have what was acknowledged at some time.
    for (key, line) in copied {
        let value: u64 = line["value"].as_str().unwrap().parse().unwrap();
        assert!(key.starts_with("hot") && (1..=hot).contains(&value), "{line}");
    }
}

/// Slots move, and a node dies, while the copy is made and keys are written.
#[test]
fn backup_of_a_cluster_under_writes_has_every_key() {
    let up = Up::start(Place::new());
    assert_eq!(put_many(&up, (0..KEYS).map(|nth| format!("still{nth}")), put), KEYS);
    let file = up.place.path("copy.jsonl");
    let hot = copy_under_writes(&up, &file);
    up.hears("was killed by signal 9");
    check_copy(&file, hot);
    // A pool gets all of it, and becomes a cluster's by --adopt.
    let pool = up.place.path("restored");
    let on_pool = |words: &[&str]| run([words, &["--pool", pool.to_str().unwrap()]].concat(), b"");
    on_pool(&["load", file.to_str().unwrap(), "--size", "256mb"]).ok();
    assert_eq!(on_pool(&["get", "still1"]).ok().text().trim(), "value of still1");
    up.cluster(&["backup", file.to_str().unwrap()]).fails(1, "cannot write");
    up.in_time("the node that was killed", || is_whole(&up.status()).then_some(()));
    up.end();
}

/// Also of keys that begin as those of other databases are stored.
#[test]
fn dump_of_a_cluster_s_pool_has_what_its_backup_has() {
    let up = Up::start(Place::new());
    let keys = (0..20).map(|byte| [b"\xfe\xa7<\xd1^\x92\x0b", &[byte][..], b"key"].concat());
    for key in keys.chain([b"plain".to_vec()]) {
        let set =
            [format!("*3\r\n$3\r\nSET\r\n${}\r\n", key.len()).as_bytes(), &key, b"\r\n$1\r\nv\r\n"].concat();
        let is_taken = |port: u16| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(&set).unwrap();
            let mut reply = [0; 5];
            stream.read_exact(&mut reply).unwrap();
            reply == *b"+OK\r\n"
        };
        up.in_time("the reply", || (0..3).any(|nth| is_taken(up.port + nth)).then_some(()));
    }
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(Into::into).collect();
        lines.sort();
        lines
    };
    let copied = up.cluster(&["backup", "-"]).ok();
    assert!(copied.err.contains("copied 21 keys of all 16384 slots to standard output"), "{}", copied.err);
    let copied = sorted(copied.text());
    assert_eq!(copied.len(), 21);
    let place = up.end();
    let pool = place.path("cluster/pool");
    let dumped = run(["dump", "--pool", pool.to_str().unwrap(), "--output", "-"], b"").ok();
    assert_eq!(sorted(dumped.text()), copied);
    assert!(!Path::new("-").exists());
}

/// The copy has all other keys.
#[test]
fn backup_of_a_damaged_pool_says_so() {
    let up = Up::start(Place::new());
    up.put_all("value");
    assert_eq!(up.redis(up.port, &["set", "key7", "a value that is damaged"]), "OK");
    let copy = |name: &str| {
        let to = up.place.path(name);
        (up.cluster(&["backup", to.to_str().unwrap()]), to)
    };
    // By then it is in the pool.
    copy("first").0.ok();
    let pool = up.place.path("cluster/pool");
    let (text, bytes) = (b"a value that is damaged", fs::read(&pool).unwrap());
    let mut places = bytes.windows(text.len()).enumerate().filter(|(_, part)| part == text);
    let (at, _) = places.next().expect("the value");
    assert!(places.next().is_none());
    let file = fs::File::options().write(true).open(&pool).unwrap();
    file.write_all_at(b"A", at as u64).unwrap();
    let (second, to) = copy("second");
    let said = second.fails(1, "has damage, and the copy lacks 1 record").err;
    assert!(said.contains("copied 29 keys of all 16384 slots") && said.contains("terrace check"), "{said}");
    let copied = fs::read_to_string(to).unwrap();
    assert!(copied.lines().count() == 29 && !copied.contains("key7\""), "{copied}");
}
