//! One pool, used at once by two servers, a program that embeds it, and the commands of `terrace`.

mod common;

use common::{Place, Served};
use terrace::Store;

const SHARED: &[&str] = &["--shared"];

fn connect(served: &Served) -> redis::Connection {
    let client = redis::Client::open(("127.0.0.1", served.port)).unwrap();
    client.get_connection().unwrap()
}

fn text(value: Option<terrace::Value<'_>>) -> Option<String> {
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[test]
fn a_server_a_program_and_commands_use_one_pool_at_once() {
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
    // Who does not share is told who has it.
    place.run(&["get", "from:server"]).fails(1, "--shared");
    place.run(&["del", "--shared", "from:server"]).ok();
    assert_eq!(text(embedded.get(b"from:server").unwrap()), None);
}

#[test]
fn a_transaction_of_one_process_sees_what_another_one_changes() {
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
fn a_server_goes_on_when_another_one_is_killed() {
    let place = Place::new();
    let pool = place.pool();
    let (mut first, second) = (Served::start(&pool, SHARED), Served::start(&pool, SHARED));
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
fn stats_say_why_an_index_that_could_have_a_cache_has_none() {
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
        assert_eq!(cache_of(&pool, &[]), "off", "{index}, of which no cache was asked");
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

#[test]
fn a_stopped_process_is_named() {
    let place = Place::new();
    let served = Served::start(&place.pool(), SHARED);
    served.stop();
    let stats = place.run(&["stats", "--shared"]).ok();
    assert!(stats.text().contains("which stands still"), "{}", stats.text());
    // What it does not hold can be read and written.
    place.run(&["put", "--shared", "key", "value"]).ok();
    served.signal("-CONT");
    assert_eq!(redis::cmd("GET").arg("key").query(&mut connect(&served)), Ok("value".to_string()));
}
