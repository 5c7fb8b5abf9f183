//! Scripts and transactions in a full pool, or above `maxmemory`.

use super::*;

#[test]
fn script_with_flags_is_refused_above_the_limit() {
    if is_on_disk() {
        return;
    }
    let mut client = Client::new();
    client.expect(&[("SET a 1", "+OK"), ("CONFIG SET maxmemory 1", "+OK")]);
    let refused =
        "-OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";
    check(
        &mut client,
        &[
            (&["EVAL", "#!lua\nreturn 1", "0"], refused),
            (&["EVAL", "#!lua flags=no-cluster\nreturn 1", "0"], refused),
            (
                &["EVAL", "redis.call('set','a',5) return 1", "0"],
                "-OOM command not allowed when used memory > 'maxmemory'.",
            ),
            (
                &["EVAL", "return redis.pcall('set','a',5).err", "0"],
                "$55 OOM command not allowed when used memory > 'maxmemory'.",
            ),
            (&["EVAL", "#!lua flags=allow-oom\nreturn redis.call('incr','a')", "0"], ":2"),
            (&["EVAL", "#!lua flags=no-writes\nreturn 1", "0"], ":1"),
            (&["EVAL", "return 1", "0"], ":1"),
        ],
    );
    client.expect(&[("MULTI", "+OK"), ("GET a", "+QUEUED"), ("DEL b", "+QUEUED")]);
    let full = "-OOM command not allowed when used memory > 'maxmemory'.";
    assert!(client.ask("INCR a").starts_with(full));
    assert!(client.ask("EXEC").starts_with("-EXECABORT"));
    let info = client.ask("INFO commandstats");
    let eval = info.split(' ').find(|line| line.starts_with("cmdstat_eval:")).unwrap();
    assert!(eval.contains("calls=5,") && eval.contains("rejected_calls=2,failed_calls=1"), "{eval}");
}

/// A commit may refuse what a script has answered: then that is no reply.
#[test]
fn script_whose_commit_is_refused_has_one_reply() {
    if is_on_disk() {
        return;
    }
    let mut client = Client::new();
    client.expect(&[("SET a 1", "+OK")]);
    let limit = (client.shared.store.evictor().used_bytes().unwrap() + 4096).to_string();
    client.expect(&[(&*format!("CONFIG SET maxmemory {limit}"), "+OK")]);
    let write = "redis.call('set', 'a', string.rep('x', 60000)) return 1";
    for _ in 0..3 {
        assert!(send(&mut client, &["EVAL", write, "0"]).starts_with("-OOM "));
        client.expect(&[("PING", "+PONG")]);
    }
    assert_eq!(client.ask("STRLEN a"), ":1");
}

/// A client of a full pool, and how many keys it has.
fn full() -> (Client, usize) {
    let clock = Arc::new(ManualClock::at(START_MS));
    let options = fresh().size(terrace::ByteSize::mib(4)).clock(clock.clone());
    let mut client = Client::of(Arc::new(Shared::new(options.create().unwrap(), Config::default())), clock);
    let mut count = 0;
    for len in [300, 100, 1] {
        let value = "x".repeat(len);
        while client.ask(&format!("SET key:{count} {value}")) == "+OK" {
            count += 1;
        }
    }
    (client, count)
}

/// Removes keys by number, from the first to the last, by a command.
const REMOVE: &str =
    "for n = ARGV[1], ARGV[2] do redis.call(ARGV[3], 'key:' .. n) end return redis.call('dbsize')";

#[test]
fn scripts_that_only_remove_succeed_in_a_full_pool() {
    if is_on_disk() {
        return;
    }
    let (mut client, count) = full();
    // It puts, so it is refused, and has removed nothing.
    let puts = "for n = 0, 99 do redis.call('del', 'key:' .. n) end redis.call('set', 'key:1', 'y') return 1";
    let reply = send(&mut client, &["EVAL", puts, "0"]);
    if reply.starts_with("-OOM") {
        client.expect(&[("EXISTS key:0 key:1 key:99", ":3")]);
    }
    let (mut client, count) = if reply == ":1" { full() } else { (client, count) };
    let left = |removed: usize| format!(":{}", count - removed);
    for (nth, name) in ["del", "unlink", "getdel"].into_iter().enumerate() {
        let (first, last) = ((nth * 10).to_string(), (nth * 10 + 9).to_string());
        let reply = send(&mut client, &["EVAL", REMOVE, "0", &first, &last, name]);
        assert_eq!(reply, left(nth * 10 + 10), "{name}");
    }
}

#[test]
fn exec_that_only_removes_succeeds_in_a_full_pool() {
    if is_on_disk() {
        return;
    }
    let (mut client, count) = full();
    client.expect(&[("MULTI", "+OK")]);
    for n in 0..200 {
        client.expect(&[(&format!("DEL key:{n}"), "+QUEUED")]);
    }
    client.expect(&[("DBSIZE", "+QUEUED")]);
    let reply = client.ask("EXEC");
    assert_eq!(reply, format!("*201{} :{}", " :1".repeat(200), count - 200));
    client.expect(&[("MULTI", "+OK"), ("DEL key:200", "+QUEUED")]);
    send(&mut client, &["EVAL", REMOVE, "0", "201", "300", "unlink"]);
    assert_eq!(client.ask("EXEC"), format!("*2 :1 :{}", count - 301));
}

/// A script that writes stands behind one that removes: nothing happens.
#[test]
fn exec_that_also_writes_is_refused_in_a_full_pool() {
    if is_on_disk() {
        return;
    }
    let (mut client, _) = full();
    client.expect(&[("MULTI", "+OK")]);
    send(&mut client, &["EVAL", REMOVE, "0", "0", "99", "del"]);
    send(&mut client, &["EVAL", "return redis.call('set', 'key:1', string.rep('y', 200000))", "0"]);
    let reply = client.ask("EXEC");
    assert!(reply.starts_with("-OOM"), "{reply}");
    client.expect(&[("EXISTS key:0 key:1 key:99", ":3")]);
}

/// A watched key is looked at there, too.
#[test]
fn flush_in_a_transaction_succeeds_in_a_full_pool() {
    if is_on_disk() {
        return;
    }
    let (mut client, count) = full();
    let mut other = client.another();
    client.expect(&[("WATCH key:1", "+OK"), ("MULTI", "+OK"), ("FLUSHDB", "+QUEUED"), ("DBSIZE", "+QUEUED")]);
    other.expect(&[("DEL key:1", ":1")]);
    client.expect(&[("EXEC", "*-1"), ("DBSIZE", &format!(":{}", count - 1))]);
    client.expect(&[("MULTI", "+OK"), ("FLUSHDB", "+QUEUED"), ("DBSIZE", "+QUEUED"), ("EXEC", "*2 +OK :0")]);
    client.expect(&[("DBSIZE", ":0"), ("SET more 1", "+OK")]);
    let (mut client, _) = full();
    check(&mut client, &[(&["EVAL", "redis.call('flushdb') return redis.call('dbsize')", "0"], ":0")]);
    client.expect(&[("DBSIZE", ":0")]);
}
