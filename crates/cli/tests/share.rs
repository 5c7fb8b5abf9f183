//! One pool shared by two servers, a program that embeds it, and the commands of `terrace`.

mod common;

use common::{Place, Served};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use terrace::{Eviction, First, Policy, Store, Transaction, WriteError};

const SHARED: &[&str] = &["--shared"];

fn connect(served: &Served) -> redis::Connection {
    let client = redis::Client::open(("127.0.0.1", served.port)).unwrap();
    client.get_connection().unwrap()
}

fn text(value: Option<terrace::Value<'_>>) -> Option<String> {
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[test]
fn server_program_and_commands_share_a_pool() {
    let place = Place::new();
    let pool = place.pool();
    let served = Served::start(&pool, SHARED);
    let mut redis = connect(&served);
    let embedded = Store::options().path(&pool).shared(true).program("a program").open().unwrap();

    redis::cmd("SET").arg("from:server").arg("1").exec(&mut redis).unwrap();
    assert_eq!(text(embedded.get(b"from:server").unwrap()).as_deref(), Some("1"));
    embedded.put(b"from:program", b"2").unwrap();
    assert_eq!(redis::cmd("GET").arg("from:program").query(&mut redis), Ok("2".to_string()));
    place.run(&["put", "--shared", "from:command", "3"]).ok();
    assert_eq!(redis::cmd("GET").arg("from:command").query(&mut redis), Ok("3".to_string()));
    assert_eq!(place.run(&["get", "--shared", "from:server"]).ok().text(), "1");
    let scanned = place.run(&["scan", "--shared", "--prefix", "from:"]).ok();
    let mut lines: Vec<&str> = scanned.text().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["from:command", "from:program", "from:server"]);

    let stats = place.run(&["stats", "--shared"]).ok();
    assert_eq!(stats.text().matches("shared with").count(), 2, "{}", stats.text());
    assert!(stats.text().contains("(a program, since "), "{}", stats.text());
    // A command that does not share goes through the server.
    assert_eq!(place.run(&["get", "from:server"]).ok().text(), "1");
    place.run(&["del", "--shared", "from:server"]).ok();
    assert_eq!(text(embedded.get(b"from:server").unwrap()), None);
}

#[test]
fn watch_sees_changes_of_another_process() {
    let place = Place::new();
    let served = Served::start(&place.pool(), SHARED);
    let mut redis = connect(&served);
    let embedded = Store::options().path(place.pool()).shared(true).open().unwrap();
    for (key, changes) in [("watched", true), ("other", false)] {
        redis::cmd("WATCH").arg("watched").exec(&mut redis).unwrap();
        embedded.put(key.as_bytes(), b"by the program").unwrap();
        redis::cmd("MULTI").exec(&mut redis).unwrap();
        redis::cmd("SET").arg("a").arg("1").exec(&mut redis).unwrap();
        redis::cmd("SET").arg("b").arg("1").exec(&mut redis).unwrap();
        let done: redis::Value = redis::cmd("EXEC").query(&mut redis).unwrap();
        assert_eq!(done == redis::Value::Nil, changes, "{key}: {done:?}");
        assert_eq!(embedded.get(b"a").unwrap().is_some(), !changes);
    }
}

#[test]
fn server_continues_after_another_one_is_killed() {
    let place = Place::new();
    let pool = place.pool();
    let (mut first, second) = (Served::start(&pool, SHARED), Served::start(&pool, SHARED));
    assert!(first.heading.contains("created a new pool"), "{}", first.heading);
    assert!(
        second.heading.contains("joined 1 other process in a pool of 0 records, in "),
        "{}",
        second.heading
    );
    let mut redis = connect(&second);
    redis::cmd("SET").arg("kept").arg("1").exec(&mut connect(&first)).unwrap();
    first.signal("-KILL");
    first.end();
    assert_eq!(redis::cmd("GET").arg("kept").query(&mut redis), Ok("1".to_string()));
    redis::cmd("SET").arg("kept").arg("2").exec(&mut redis).unwrap();
    let third = Served::start(&pool, SHARED);
    assert_eq!(redis::cmd("GET").arg("kept").query(&mut connect(&third)), Ok("2".to_string()));
}

#[test]
fn stats_explain_a_missing_index_cache() {
    const CACHE: [&str; 2] = ["--index-cache", "64kb..1mb"];
    let place = Place::new();
    let cache_of = |pool: &std::path::Path, arguments: &[&str]| {
        let stats = place.run_on(pool, &[&["stats"], arguments].concat(), b"").ok();
        let row = stats.text().lines().find_map(|line| line.strip_prefix("index cache")).unwrap().trim();
        row.to_owned()
    };
    for (index, why) in [("rewo", "off (shared)"), ("clht", "off")] {
        let pool = place.path(index);
        place.run_on(&pool, &["load", "--index", index, "-"], b"key,value\na,1\n").ok();
        assert_eq!(cache_of(&pool, &[]), "off", "{index}, without a requested cache");
        assert_eq!(cache_of(&pool, &[SHARED, &CACHE].concat()), why, "{index}");
        let served = Served::start(&pool, &[SHARED, &CACHE].concat());
        let port = served.metrics_port.to_string();
        assert_eq!(cache_of(&pool, &["--metrics-port", &port]), why, "a server's {index}");
        drop(served);
        let alone = cache_of(&pool, &CACHE);
        assert_eq!(alone.contains("searches"), index == "rewo", "{index}: {alone}");
        let served = Served::start(&pool, &CACHE);
        let port = served.metrics_port.to_string();
        let alone = cache_of(&pool, &["--metrics-port", &port]);
        assert_eq!(alone.contains("searches"), index == "rewo", "a server's {index}: {alone}");
    }
}

const DRAM: [&str; 2] = ["--index-dram", "64mb"];

/// What serves the index of a pool, as `stats` says.
fn served_by(place: &Place, pool: &Path, arguments: &[&str]) -> Option<String> {
    let stats = place.run_on(pool, &[&["stats"], arguments].concat(), b"").ok();
    let row = stats.text().lines().find_map(|line| line.strip_prefix("index served by"));
    row.map(|row| row.trim().to_owned())
}

/// The same while a server has the pool open, and what that server says.
fn served_by_in_server(place: &Place, pool: &Path, arguments: &[&str]) -> (Option<String>, String) {
    let mut served = Served::start(pool, arguments);
    let row = served_by(place, pool, &["--metrics-port", &served.metrics_port.to_string()]);
    served.signal("-TERM");
    (row, served.end().1)
}

/// A pool with this index and one key.
fn pool_with(place: &Place, index: &str) -> PathBuf {
    let pool = place.path(index);
    place.run_on(&pool, &["load", "--index", index, "-"], b"key,value\na,1\n").ok();
    pool
}

#[test]
fn stats_say_why_an_index_has_no_layers() {
    let place = Place::new();
    let alone = |why: &str| Some(format!("the pool alone: {why}"));
    let pool = pool_with(&place, "sptree");
    assert_eq!(served_by(&place, &pool, &[]), alone("the medium is as fast as DRAM"));
    assert_eq!(served_by(&place, &pool, &["--index-dram", "0"]), alone("not asked for"));
    assert_eq!(served_by(&place, &pool, &[SHARED, &DRAM].concat()), alone("shared"));
    let (row, said) = served_by_in_server(&place, &pool, &[]);
    assert_eq!(row, alone("the medium is as fast as DRAM"));
    assert!(!said.contains("warning"), "{said}");
    let (row, said) = served_by_in_server(&place, &pool, &[SHARED, &DRAM].concat());
    assert_eq!(row, alone("shared"));
    let why = "warning: --index-dram has no effect in a shared pool: no process has layers of its index";
    assert!(said.contains(why), "{said}");
    let pool = pool_with(&place, "clht");
    assert_eq!(served_by(&place, &pool, &[]), None);
    let (row, said) = served_by_in_server(&place, &pool, &DRAM);
    assert_eq!(row, None);
    let why = "--index-dram has no effect with the index clht: only sptree has layers in DRAM";
    assert!(said.contains(&format!("warning: {why}")), "{said}");
}

#[test]
fn stats_have_what_serves_an_index_as_json() {
    let place = Place::new();
    let json = |index| {
        let pool = pool_with(&place, index);
        let stats = place.run_on(&pool, &["stats", "--json"], b"").ok();
        serde_json::from_str::<serde_json::Value>(stats.text()).unwrap()
    };
    let stats = json("sptree");
    assert_eq!(stats["index_served_by"], "the pool alone: the medium is as fast as DRAM");
    assert_eq!(stats["index_layers_budget_bytes"], 0);
    let stats = json("art");
    assert!(stats.get("index_served_by").is_none() && stats.get("index_layers_bytes").is_none());
}

#[test]
fn index_dram_gives_layers_to_one_that_has_the_pool_alone() {
    let place = Place::new();
    let pool = pool_with(&place, "sptree");
    let has_layers = |row: Option<String>| row.is_some_and(|row| row.starts_with("layers in DRAM, "));
    // `stats` alone only reads the pool.
    let alone = Some("the pool alone: the index has made none".to_string());
    assert_eq!(served_by(&place, &pool, &DRAM), alone);
    let (row, said) = served_by_in_server(&place, &pool, &DRAM);
    assert!(has_layers(row) && !said.contains("warning"), "{said}");
    let served = Served::start(&pool, &DRAM);
    let kept = redis::cmd("CONFIG").arg(&["GET", "index-dram"]).query(&mut connect(&served));
    assert_eq!(kept, Ok(("index-dram".to_owned(), (64 << 20).to_string())));
}

#[test]
fn stats_name_a_stopped_process() {
    let place = Place::new();
    let served = Served::start(&place.pool(), SHARED);
    served.stop();
    let stats = place.run(&["stats", "--shared"]).ok();
    assert!(stats.text().contains("which is stopped"), "{}", stats.text());
    // Keys that the stopped process has not locked can be read and written.
    place.run(&["put", "--shared", "key", "value"]).ok();
    served.signal("-CONT");
    assert_eq!(redis::cmd("GET").arg("key").query(&mut connect(&served)), Ok("value".to_string()));
}

/// The server and a program fill one pool, and each evicts for its writes what either has written.
#[test]
fn processes_evict_from_one_pool() {
    let place = Place::new();
    let pool = place.pool();
    let served = Served::start(&pool, &[SHARED, &["--maxmemory-policy", "allkeys-lru"]].concat());
    let mut redis = connect(&served);
    let embedded = Store::options().path(&pool).shared(true).open().unwrap();
    let policy = Some(Policy { only_volatile: false, first: First::LeastRecent });
    embedded.evictor().set(&Eviction { policy, ..Eviction::default() }).unwrap();
    let idle = || embedded.evictor().key_use(b"key").unwrap().unwrap().idle_ms.unwrap();
    embedded.put(b"key", b"value").unwrap();
    while idle() < 1024 {
        std::thread::yield_now();
    }
    // A use that one records is there for the other.
    assert_eq!(redis::cmd("GET").arg("key").query(&mut redis), Ok("value".to_string()));
    assert!(idle() < 1024);

    const KEYS: u64 = 80_000;
    let value = |n: u64| n.to_string().repeat(1000 / n.to_string().len());
    let check = |n: u64, found: Option<String>| assert!(found.is_none_or(|found| found == value(n)), "{n}");
    let by_the_server = || {
        for first in (0..KEYS).step_by(100) {
            let mut pipe = redis::pipe();
            (first..first + 100).for_each(|n| {
                pipe.set(format!("server:{n}"), value(n)).ignore().get(format!("program:{n}"));
            });
            let found: Vec<Option<String>> = pipe.query(&mut redis).unwrap();
            (first..).zip(found).for_each(|(n, found)| check(n, found));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(by_the_server);
        for n in 0..KEYS {
            embedded.put(format!("program:{n}"), value(n)).unwrap();
            check(n, text(embedded.get(format!("server:{n}")).unwrap()));
        }
    });
    let info: redis::InfoDict = redis::cmd("INFO").query(&mut connect(&served)).unwrap();
    let evicted = info.get::<u64>("evicted_keys").unwrap();
    assert!(
        evicted > 10_000 && embedded.evictor().evicted() > 10_000,
        "{evicted} {}",
        embedded.evictor().evicted()
    );
    drop(embedded);
    drop(served);
    assert!(place.run(&["check"]).ok().text().ends_with(": sound\n"));
}

/// Writes until `done` is set; signals the first write by `has_begun`.
fn write_until(done: &AtomicBool, has_begun: &Sender<()>, mut write: impl FnMut(u64)) {
    write(0);
    has_begun.send(()).unwrap();
    (1..).take_while(|_| !done.load(Relaxed)).for_each(write);
}

/// Does `work` while a client of the server and a program that embeds the store write continuously.
fn while_others_write(served: &Served, embedded: &Store, work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    let [(one, one_writes), (other, other_writes)] = [channel(), channel()];
    let mut redis = connect(served);
    let through_the_server =
        |n| redis::cmd("SET").arg(format!("changing:{}", n % 50)).arg(n).exec(&mut redis).unwrap();
    let embedded = |n: u64| {
        let key = format!("changing:{}", n % 70);
        if n.is_multiple_of(3) {
            embedded.remove(key.as_bytes()).unwrap();
        }
        let mut batch = embedded.batch();
        batch.put(key.as_bytes(), n.to_string().as_bytes()).put(b"changing:newest", b"one");
        batch.commit().unwrap();
    };
    let work = AssertUnwindSafe(|| {
        [one_writes, other_writes].iter().for_each(|writes| writes.recv().unwrap());
        work();
    });
    let worked = std::thread::scope(|scope| {
        scope.spawn(|| write_until(&done, &{ one }, through_the_server));
        scope.spawn(|| write_until(&done, &{ other }, embedded));
        let worked = catch_unwind(work);
        done.store(true, Relaxed);
        worked
    });
    worked.unwrap_or_else(|panic| resume_unwind(panic));
}

#[test]
fn whole_store_commands_run_beside_writers() {
    let place = Place::new();
    let pool = place.pool();
    let served = Served::start(&pool, SHARED);
    let embedded = Store::options().path(&pool).shared(true).open().unwrap();
    let records = || (0..3000).map(|n| (format!("kept:{n}"), format!("value {n}")));
    let keys: BTreeSet<String> = records().map(|(key, _)| key).collect();
    while_others_write(&served, &embedded, || {
        let csv: String = records().map(|(key, value)| format!("{key},{value}\n")).collect();
        let loaded = place.run_with(&["load", "--shared", "-"], format!("key,value\n{csv}").as_bytes()).ok();
        assert!(loaded.err.starts_with("loaded 3,000 records in "), "{}", loaded.err);
        let scanned = place.run(&["scan", "--shared", "--prefix", "kept:"]).ok();
        assert_eq!(scanned.text().lines().map(String::from).collect::<BTreeSet<_>>(), keys);

        let dumped = place.run(&["dump", "--shared"]).ok();
        let kept = dumped.text().lines().filter(|line| line.contains("kept:"));
        let expected = records().map(|(key, value)| format!(r#"{{"key":"{key}","value":"{value}"}}"#));
        assert_eq!(kept.map(String::from).collect::<BTreeSet<_>>(), expected.collect());

        let checked = place.run(&["check", "--shared"]).ok();
        let says = checked.text();
        assert!(says.contains("beside other processes") && says.ends_with(": sound\n"), "{says}");
    });
    let mut redis = connect(&served);
    assert_eq!(redis::cmd("GET").arg("kept:7").query(&mut redis), Ok("value 7".to_string()));
    assert_eq!(text(embedded.get(b"kept:2999").unwrap()).as_deref(), Some("value 2999"));
}

#[test]
fn server_kills_a_stopped_process_and_logs_it() {
    let place = Place::new();
    let pool = place.pool();
    let mut killer = Served::start(&pool, &["--shared", "--end-stopped", "1"]);
    let (mut stopped, other) = (Served::start(&pool, SHARED), Served::start(&pool, SHARED));
    redis::cmd("SET").arg("kept").arg("1").exec(&mut connect(&stopped)).unwrap();
    // Without waiting until it is stopped: on a busy machine it may have been killed by then.
    stopped.signal("-STOP");
    assert_eq!(stopped.end().0, None, "it was killed");
    for served in [&killer, &other] {
        assert_eq!(redis::cmd("GET").arg("kept").query(&mut connect(served)), Ok("1".to_string()));
        redis::cmd("SET").arg("written").arg("1").exec(&mut connect(served)).unwrap();
    }
    killer.signal("-TERM");
    let (code, log) = killer.end();
    assert_eq!(code, Some(0), "{log}");
    let ended = format!("ended process {} (terrace, since ", stopped.child.id());
    assert_eq!(log.matches("ended process").count(), 1, "{log}");
    assert!(log.contains(&ended) && log.contains("stopped for 1s"), "{log}");
}

/// Increments `n` this many times, each time by a Redis transaction that fails if `n` has changed.
fn add_through(served: &Served, times: u32) {
    let mut redis = connect(served);
    let mut left = times;
    while left > 0 {
        let (n,): (i64,) =
            redis::pipe().cmd("WATCH").arg("n").ignore().cmd("GET").arg("n").query(&mut redis).unwrap();
        let mut transaction = redis::pipe();
        transaction.atomic().cmd("SET").arg("n").arg(n + 1).cmd("INCR").arg("transactions");
        let done: redis::Value = transaction.query(&mut redis).unwrap();
        left -= u32::from(done != redis::Value::Nil);
    }
}

#[test]
fn transactions_of_several_processes_lose_no_update() {
    const TIMES: u32 = 100;
    let place = Place::new();
    let pool = place.pool();
    let (one, other) = (Served::start(&pool, SHARED), Served::start(&pool, SHARED));
    let embedded = Store::options().path(&pool).shared(true).open().unwrap();
    embedded.put(b"n", b"0").unwrap();
    let number = |key: &[u8]| text(embedded.get(key).unwrap()).map(|text| text.parse::<u32>().unwrap());
    let add = |transaction: &mut Transaction<'_>| {
        for key in [b"n".as_slice(), b"transactions"] {
            let old = text(transaction.get(key).unwrap()).map_or(0, |text| text.parse().unwrap());
            transaction.put(key, (old + 1u32).to_string().as_bytes())?;
        }
        Ok::<(), WriteError>(())
    };
    std::thread::scope(|scope| {
        scope.spawn(|| add_through(&one, TIMES));
        scope.spawn(|| add_through(&other, TIMES));
        scope.spawn(|| (0..TIMES).for_each(|_| embedded.transaction(add).unwrap()));
        scope.spawn(|| (0..TIMES).for_each(|_| _ = embedded.increment(b"n", 1).unwrap()));
    });
    assert_eq!((number(b"n"), number(b"transactions")), (Some(4 * TIMES), Some(3 * TIMES)));
}
