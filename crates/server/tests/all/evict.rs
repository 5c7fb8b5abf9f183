//! A cache that may be full: maxmemory and its policies.

use std::sync::Arc;

use terrace::{ByteSize, ManualClock, Store};
use terrace_server::{config::Config, shared::Shared};

use crate::{
    common::{Client, START_MS, is_on_disk},
    redis::{Connection, Redis, encode},
};

/// A client of a server with these settings, over a pool of so many MiB.
fn client(mebibytes: u64, settings: &[(&str, &str)]) -> Client {
    let clock = Arc::new(ManualClock::at(START_MS));
    let options = Store::options().anonymous().size(ByteSize::mib(mebibytes)).clock(clock.clone());
    let config = Config::default();
    settings.iter().for_each(|(name, value)| config.assign(name, value).unwrap());
    Client::of(Arc::new(Shared::new(options.create().unwrap(), config)), clock)
}

fn info(client: &mut Client, field: &str) -> String {
    let (text, _) = client.send(b"INFO everything\r\n");
    let (_, rest) = text.split_once(&format!(" {field}:")).unwrap_or_else(|| panic!("{field} in {text}"));
    rest.split(' ').next().unwrap().to_string()
}

fn number(client: &mut Client, field: &str) -> u64 {
    info(client, field).parse().unwrap()
}

/// Sets keys from `from` to `to`, and checks that all are accepted.
fn fill(client: &mut Client, from: u32, to: u32) {
    for n in (from..to).step_by(10) {
        let lines: String = (n..n + 10).map(|n| format!("SET key:{n} {n:0100}\r\n")).collect();
        assert_eq!(client.send(lines.as_bytes()).0, ["+OK"; 10].join(" "));
    }
}

#[test]
fn full_pool_takes_writes_under_a_policy() {
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        let mut client = client(4, &[("maxmemory-policy", policy)]);
        fill(&mut client, 0, 100_000);
        client.expect(&[("GET key:99999", &format!("$100 {:0100}", 99_999))]);
        let (evicted, left) = (number(&mut client, "evicted_keys"), client.shared.store.len());
        assert!(evicted > 10_000 && evicted + left == 100_000, "{policy}: {evicted} {left}");
        assert_eq!(info(&mut client, "maxmemory_policy"), policy);
        client.expect(&[("CONFIG RESETSTAT", "+OK")]);
        assert_eq!(info(&mut client, "evicted_keys"), "0");
        assert!(client.shared.store.check(&mut |_, _| {}).is_sound());
    }
}

#[test]
fn settings_change_while_the_server_runs() {
    let mut client = client(16, &[("size", "16mb")]);
    client.expect(&[
        ("CONFIG GET maxmemory", "*2 $9 maxmemory $8 16777216"),
        ("CONFIG SET maxmemory 3mb", "+OK"),
        ("CONFIG GET maxmemory", "*2 $9 maxmemory $7 3145728"),
    ]);
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
    let until_full = |client: &mut Client, from: u32| {
        (from..from + 100_000).find(|n| client.ask(&format!("SET k{n} {n:0100}")).starts_with(oom))
    };
    let full = until_full(&mut client, 0);
    assert!(full.is_some_and(|full| full > 1000), "{full:?}");
    assert!(client.ask("MSET a 1 b 2").starts_with(oom) && client.ask("INCR n").starts_with(oom));
    // What takes no memory for long is possible, as in Redis.
    client.expect(&[
        ("EXPIRE k10 1000", ":1"),
        ("PERSIST k10", ":1"),
        ("RENAME k10 renamed", "+OK"),
        ("GETEX k11 EX 1000", &format!("$100 {:0100}", 11)),
        ("MOVE k12 9", ":1"),
        ("SWAPDB 0 9", "+OK"),
        ("SWAPDB 0 9", "+OK"),
        ("CLIENT NO-TOUCH ON", "+OK"),
        ("EXPIRE k13 1000", ":1"),
        ("CLIENT NO-TOUCH OFF", "+OK"),
    ]);
    // These commands may have freed a little: replaced records, or a table of the index.
    assert!(until_full(&mut client, 200_000).is_some());
    assert!(client.ask("COPY k13 copy").starts_with(oom));
    client.expect(&[("GETDEL renamed", &format!("$100 {:0100}", 10))]);
    client.expect(&[("GET k7", &format!("$100 {:0100}", 7)), ("DEL k1 k2 k3 k4", ":4"), ("DEL k5", ":1")]);
    client.expect(&[("CONFIG SET maxmemory-policy allkeys-lru maxmemory-samples 10", "+OK")]);
    fill(&mut client, 0, 20_000);
    let (used, limit) = (number(&mut client, "used_memory"), number(&mut client, "maxmemory"));
    assert!(limit == 3 << 20 && used < limit + limit / 16 && used > limit * 9 / 10, "{used} of {limit}");
    client.expect(&[("CONFIG SET maxmemory 0", "+OK"), ("CONFIG SET maxmemory-policy noeviction", "+OK")]);
    for line in ["maxmemory-policy some-lru", "maxmemory-samples 0", "maxmemory x", "lfu-log-factor -1"] {
        assert!(client.ask(&format!("CONFIG SET {line}")).starts_with("-ERR CONFIG SET failed"), "{line}");
    }
}

#[test]
fn volatile_policy_evicts_keys_with_an_expiry() {
    let mut client = client(4, &[("maxmemory-policy", "volatile-lru")]);
    (0..1000).for_each(|n| assert_eq!(client.ask(&format!("SET stays:{n} {n:0100}")), "+OK"));
    for n in 0..60_000 {
        assert_eq!(client.ask(&format!("SET goes:{n} {n:0100} EX 1000")), "+OK");
    }
    assert_eq!(client.ask("EXISTS stays:0 stays:999 goes:59999"), ":3");
    assert!((0..1000).all(|n| client.ask(&format!("EXISTS stays:{n}")) == ":1"));
}

#[test]
fn databases_are_evicted_alike_and_keep_their_record() {
    let mut client = client(4, &[("maxmemory-policy", "allkeys-random")]);
    client.expect(&[("SWAPDB 0 1", "+OK"), ("SELECT 3", "+OK")]);
    fill(&mut client, 0, 50_000);
    client.expect(&[("SELECT 0", "+OK")]);
    fill(&mut client, 0, 100_000);
    let record: Vec<_> = client
        .shared
        .store
        .keys()
        .map(|key| key.unwrap().to_vec())
        .filter(|key| key[0] == 0xfe && key[7] == 0xff)
        .collect();
    assert_eq!(record.len(), 1);
}

#[test]
fn use_of_a_key_is_shown_by_policy() {
    let mut client = client(4, &[("maxmemory-policy", "allkeys-lru")]);
    client.expect(&[("SET k v", "+OK"), ("SELECT 1", "+OK"), ("SET k one", "+OK"), ("SELECT 0", "+OK")]);
    client.clock.advance(60_000);
    client.expect(&[
        ("OBJECT IDLETIME k", ":60"),
        ("TTL k", ":-1"),
        ("OBJECT ENCODING k", "$6 embstr"),
        ("EXISTS k", ":1"),
        ("CLIENT NO-TOUCH ON", "+OK"),
        ("GET k", "$1 v"),
        ("OBJECT IDLETIME k", ":60"),
        ("TOUCH k", ":1"),
        ("OBJECT IDLETIME k", ":0"),
        ("CLIENT NO-TOUCH OFF", "+OK"),
        ("OBJECT IDLETIME nosuch", "$-1"),
        ("OBJECT FREQ nosuch", "$-1"),
        ("SELECT 1", "+OK"),
        ("OBJECT IDLETIME k", ":60"),
        ("GET k", "$3 one"),
        ("OBJECT IDLETIME k", ":0"),
        ("MULTI", "+OK"),
        ("SET new v", "+QUEUED"),
        ("OBJECT IDLETIME new", "+QUEUED"),
        ("DEL k", "+QUEUED"),
        ("OBJECT IDLETIME k", "+QUEUED"),
        ("EXEC", "*4 +OK :0 :1 $-1"),
        ("SET k v", "+OK"),
    ]);
    assert!(client.ask("OBJECT FREQ k").starts_with("-ERR An LFU maxmemory policy is not selected, "));
    client.expect(&[
        ("CONFIG SET maxmemory-policy allkeys-lfu", "+OK"),
        ("SET n v", "+OK"),
        ("OBJECT FREQ n", ":5"),
    ]);
    assert!(client.ask("OBJECT IDLETIME n").starts_with("-ERR An LFU maxmemory policy is selected, "));
}

#[test]
fn use_goes_along_with_a_new_name() {
    let mut client = client(16, &[("maxmemory-policy", "allkeys-lfu")]);
    client.expect(&[("SET a 1", "+OK")]);
    assert!(client.send("GET a\r\n".repeat(2000).as_bytes()).0.ends_with("$1 1"));
    let freq = |client: &mut Client, key: &str| -> u64 {
        client.ask(&format!("OBJECT FREQ {key}")).strip_prefix(':').unwrap().parse().unwrap()
    };
    let used = freq(&mut client, "a");
    assert!(used > 10, "{used}");
    // A new name counts as one more use.
    let kept = |client: &mut Client, key: &str| {
        let now = freq(client, key);
        assert!((used..used + 8).contains(&now), "{key}: {used} {now}");
    };
    client.expect(&[("SET b 1", "+OK"), ("RENAME a b", "+OK")]);
    kept(&mut client, "b");
    client.expect(&[("MOVE b 1", ":1"), ("SELECT 1", "+OK")]);
    kept(&mut client, "b");
    client.expect(&[("SWAPDB 0 1", "+OK"), ("SELECT 0", "+OK")]);
    kept(&mut client, "b");
    client.expect(&[("MULTI", "+OK"), ("RENAME b c", "+QUEUED"), ("RENAMENX c d", "+QUEUED")]);
    client.expect(&[("MOVE d 2", "+QUEUED"), ("EXEC", "*3 +OK :1 :1"), ("SELECT 2", "+OK")]);
    kept(&mut client, "d");
    client.expect(&[("COPY d copy", ":1"), ("RENAME nosuch d", "-ERR no such key")]);
    kept(&mut client, "d");
    assert!(freq(&mut client, "copy") < 8);

    client.expect(&[("CONFIG SET maxmemory-policy allkeys-lru", "+OK"), ("SET old 1", "+OK")]);
    client.clock.advance(60_000);
    client.expect(&[("SET new 1", "+OK"), ("RENAME new newer", "+OK"), ("OBJECT IDLETIME newer", ":0")]);
    client.expect(&[("OBJECT IDLETIME old", ":60"), ("CLIENT NO-TOUCH ON", "+OK")]);
    client.expect(&[("RENAME old older", "+OK"), ("OBJECT IDLETIME older", ":60")]);
}

#[test]
fn full_pool_without_a_key_to_evict_has_the_text_of_redis() {
    for policy in ["noeviction", "volatile-ttl", "volatile-lru"] {
        let mut client = client(4, &[("maxmemory-policy", policy)]);
        let mut replies = (0..100_000).map(|n| client.ask(&format!("SET key:{n} {n:0300}")));
        let refused = replies.find(|reply| reply != "+OK").unwrap();
        let text = "-OOM command not allowed when used memory > 'maxmemory'. The pool is full: ";
        assert!(refused.starts_with(text), "{policy}: {refused}");
    }
}

#[test]
fn store_on_a_disk_refuses_to_evict() {
    let directory = tempfile::tempdir().unwrap();
    let options = Store::options().engine(terrace::Engine::Wip).directory(directory.path().join("store"));
    let shared = Shared::new(options.create().unwrap(), Config::default());
    let mut client = Client::of(Arc::new(shared), Arc::new(ManualClock::at(START_MS)));
    let refused = client.ask("CONFIG SET maxmemory-policy allkeys-lru");
    assert!(refused.contains("only a store in a pool of its own evicts"), "{refused}");
    client.expect(&[("CONFIG GET maxmemory-policy", "*2 $16 maxmemory-policy $10 noeviction")]);
    client.expect(&[("CONFIG SET maxmemory-policy noeviction", "+OK")]);
    // It has no limit, and says so.
    client.expect(&[("CONFIG GET maxmemory", "*2 $9 maxmemory $1 0"), ("CONFIG SET maxmemory 0", "+OK")]);
    assert!(client.ask("INFO memory").contains("maxmemory:0"));
}

/// Keys of a trace with zipf frequencies.
struct Zipf {
    /// Sums of the frequencies up to each key.
    sums: Vec<f64>,
    state: u64,
}

impl Zipf {
    fn new(keys: usize, skew: f64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-skew);
            sum
        });
        Zipf { sums: sums.collect(), state: 5 }
    }

    fn next(&mut self) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = (self.state >> 11) as f64 / (1u64 << 53) as f64 * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum < draw)
    }
}

const KEYS: usize = 100_000;
const REQUESTS: usize = 600_000;
const TOGETHER: usize = 100;
const VALUE: usize = 200;

fn words(words: &[&str]) -> Vec<u8> {
    encode(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
}

/// The share of hits of a cache: gets of a trace, and a set for each key that is missing. `ask`
/// sends commands and returns for each whether the reply is null.
fn hit_rate(skew: f64, mut ask: impl FnMut(&[u8], usize) -> Vec<bool>) -> f64 {
    let (mut zipf, value, mut hits) = (Zipf::new(KEYS, skew), "v".repeat(VALUE), 0);
    for nth in 0..REQUESTS / TOGETHER {
        let keys: Vec<String> = (0..TOGETHER).map(|_| format!("key:{}", zipf.next())).collect();
        let gets: Vec<u8> = keys.iter().flat_map(|key| words(&["GET", key])).collect();
        let missing = ask(&gets, TOGETHER);
        let sets: Vec<Vec<u8>> = keys
            .iter()
            .zip(&missing)
            .filter(|(_, is)| **is)
            .map(|(key, _)| words(&["SET", key, &value]))
            .collect();
        if !sets.is_empty() {
            ask(&sets.concat(), sets.len());
        }
        // The first half fills the cache.
        if nth >= REQUESTS / TOGETHER / 2 {
            hits += missing.iter().filter(|is| !**is).count();
        }
    }
    hits as f64 / (REQUESTS / 2) as f64
}

fn of_redis(policy: &str, bytes: u64, skew: f64) -> Option<f64> {
    // What an empty server uses does not count.
    let bytes = bytes + (1 << 20);
    let arguments = ["--port", "0", "--maxmemory", &bytes.to_string(), "--maxmemory-policy", policy];
    let redis = Redis::start_with(&arguments)?;
    let mut connection: Connection = redis.connect();
    let is_null = |reply: &Vec<u8>| {
        assert!(reply[0] != b'-', "{}", reply.escape_ascii());
        reply == b"$-1\r\n"
    };
    Some(hit_rate(skew, |bytes, count| connection.ask(bytes, count).iter().map(is_null).collect()))
}

fn of_terrace(policy: &str, bytes: u64, skew: f64) -> f64 {
    let mut client = client(64, &[("maxmemory-policy", policy)]);
    // Nor what an empty store uses.
    let bytes = bytes + client.shared.store.evictor().used_bytes().unwrap();
    assert_eq!(client.ask(&format!("CONFIG SET maxmemory {bytes}")), "+OK");
    let rate = hit_rate(skew, |bytes, count| {
        client.clock.advance(10);
        let mut output = Vec::new();
        client.session.process(&mut bytes.to_vec(), &mut output, terrace::Clock::now_ms(&*client.clock));
        let replies = crate::redis::frames(&output);
        assert_eq!(replies.len(), count);
        replies.iter().map(|reply| reply == b"$-1\r\n").collect()
    });
    assert!(client.shared.store.check(&mut |_, _| {}).is_sound());
    assert!(number(&mut client, "used_memory") < bytes + bytes / 16);
    rate
}

/// In the same memory, a cache of ours finds as many keys as one of Redis, or more.
#[test]
#[expect(clippy::print_stderr, reason = "the figures are what a reader of a failure wants")]
fn hit_rates_are_within_2_percent_of_redis() {
    if is_on_disk() {
        return;
    }
    for (policy, skew) in
        [("allkeys-lru", 0.99), ("allkeys-lfu", 0.99), ("allkeys-lru", 0.7), ("allkeys-lfu", 0.7)]
    {
        let bytes = 6 << 20;
        let Some(theirs) = of_redis(policy, bytes, skew) else { return };
        let ours = of_terrace(policy, bytes, skew);
        eprintln!("{policy}, skew {skew}: {:.2}% of gets hit, Redis {:.2}%", 100.0 * ours, 100.0 * theirs);
        assert!(ours > theirs - 0.02, "{policy} {skew}: {ours} {theirs}");
    }
}

/// As in Redis: a command that needs memory above the limit has not run.
#[test]
fn refusal_above_maxmemory_counts_as_rejection() {
    let mut client = client(16, &[]);
    client.expect(&[("CONFIG SET maxmemory 1", "+OK"), ("CONFIG RESETSTAT", "+OK")]);
    // The limit is measured after a write.
    while client.ask("SET k v") == "+OK" {}
    client.ask("CONFIG RESETSTAT");
    assert!(client.ask("APPEND k v").starts_with("-OOM command not allowed"));
    // In a pipeline they go together.
    client.send(&b"SET k v\r\n".repeat(3));
    let stats = client.ask("INFO commandstats");
    for (name, rejected) in [("append", 1), ("set", 3)] {
        let line = stats.split(' ').find(|line| line.starts_with(&format!("cmdstat_{name}:")));
        let line = line.unwrap_or(&stats);
        let end = format!(",rejected_calls={rejected},failed_calls=0");
        assert!(line.contains(":calls=0,") && line.ends_with(&end), "{line}");
    }
}
