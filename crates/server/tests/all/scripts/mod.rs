//! Lua scripts: each is one transaction, and all of it or nothing.

mod room;
mod threads;

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use terrace::{Clock, ManualClock, SystemClock};
use terrace_script::Script;
use terrace_server::{
    config::Config,
    session::{Peer, Session},
    shared::Shared,
};

use crate::common::{Client, Running, START_MS, ask, command, fresh, is_on_disk};

/// Sends a command; returns its reply in one line.
fn send(client: &mut Client, words: &[&str]) -> String {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    client.send(&command(&words)).0
}

/// Without the end of an error that names the script.
fn short(reply: &str) -> &str {
    reply.split(" script: ").next().unwrap_or_default()
}

/// Checks the replies to commands, which begin with EVAL's text.
fn check(client: &mut Client, cases: &[(&[&str], &str)]) {
    for (words, reply) in cases {
        let found = send(client, words);
        assert_eq!(short(&found), *reply, "{words:?}");
    }
}

/// Counts calls within a window.
const RATE_LIMIT: &str = "local count = redis.call('INCR', KEYS[1]) \
     if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end \
     return {count, redis.call('PTTL', KEYS[1]), count <= tonumber(ARGV[2])}";

#[test]
fn eval_runs_a_rate_limit() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            (&["EVAL", RATE_LIMIT, "1", "user:1", "1000", "2"], "*3 :1 :1000 :1"),
            (&["EVAL", RATE_LIMIT, "1", "user:1", "1000", "2"], "*3 :2 :1000 :1"),
            (&["EVAL", RATE_LIMIT, "1", "user:1", "1000", "2"], "*3 :3 :1000 $-1"),
        ],
    );
    client.clock.advance(1001);
    check(&mut client, &[(&["EVAL", RATE_LIMIT, "1", "user:1", "1000", "2"], "*3 :1 :1000 :1")]);
}

#[test]
fn evalsha_and_script_share_a_cache() {
    let mut client = Client::new();
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let none = "-NOSCRIPT No matching script. Please use EVAL.";
    check(
        &mut client,
        &[
            (&["EVALSHA", sha, "0"], none),
            (&["SCRIPT", "EXISTS", sha, "x"], "*2 :0 :0"),
            (&["SCRIPT", "LOAD", "return 1"], &format!("$40 {sha}")),
            (&["EVALSHA", &sha.to_uppercase(), "0"], ":1"),
            (&["SCRIPT", "EXISTS", sha, "x"], "*2 :1 :0"),
        ],
    );
    let mut another = client.another();
    check(
        &mut another,
        &[
            (&["EVALSHA_RO", sha, "0"], ":1"),
            (&["SCRIPT", "FLUSH", "ASYNC"], "+OK"),
            (&["SCRIPT", "FLUSH", "foo"], "-ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
            (&["EVALSHA", sha, "0"], none),
            (&["EVAL", "return 1", "0"], ":1"),
            (&["EVALSHA", sha, "0"], ":1"),
            (
                &["SCRIPT", "LOAD", "syntax error"],
                "-ERR Error compiling script (new function): user_script:1: '=' expected near 'error'",
            ),
            (&["SCRIPT", "KILL"], "-NOTBUSY No scripts in execution right now."),
            (&["SCRIPT", "DEBUG", "NO"], "+OK"),
            (&["SCRIPT", "DEBUG", "foo"], "-ERR Use SCRIPT DEBUG YES/SYNC/NO"),
            (&["FUNCTION", "FLUSH"], "+OK"),
            (&["FUNCTION", "LIST"], "*0"),
            (&["FUNCTION", "KILL"], "-NOTBUSY No scripts in execution right now."),
        ],
    );
}

#[test]
fn wrong_calls_are_refused_as_in_redis() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            (&["EVAL", "return 1", "-1"], "-ERR Number of keys can't be negative"),
            (&["EVAL", "return 1", "1"], "-ERR Number of keys can't be greater than number of args"),
            (&["EVAL", "return 1", "a"], "-ERR value is not an integer or out of range"),
            (&["EVAL", "return 1"], "-ERR wrong number of arguments for 'eval' command"),
            (
                &["EVAL", "return redis.call('get')", "0"],
                "-ERR Wrong number of args calling Redis command from script",
            ),
            (
                &["EVAL", "return redis.call('multi')", "0"],
                "-ERR This Redis command is not allowed from script",
            ),
            (
                &["EVAL", "return redis.call('eval', 'return 1', 0)", "0"],
                "-ERR This Redis command is not allowed from script",
            ),
            (
                &["EVAL", "return redis.call('cluster', 'reset', 'hard')", "0"],
                "-ERR This Redis command is not allowed from script",
            ),
            (&["EVAL", "return redis.call('nope')", "0"], "-ERR Unknown Redis command called from script"),
        ],
    );
    assert!(
        send(&mut client, &["EVAL", "return redis.call('hget', 'a', 'b')", "0"])
            .contains("Terrace holds strings")
    );
}

#[test]
fn read_only_scripts_and_engines_are_as_in_redis() {
    let mut client = Client::new();
    check(
        &mut client,
        &[
            (
                &["EVAL_RO", "return redis.call('set', 'a', 'b')", "0"],
                "-ERR Write commands are not allowed from read-only scripts.",
            ),
            (
                &["EVAL", "#!lua flags=no-writes\nreturn redis.call('set', 'a', 'b')", "0"],
                "-ERR Write commands are not allowed from read-only scripts.",
            ),
            (&["EVAL", "#!js\nreturn 1", "0"], "-ERR Unexpected engine in script shebang: #!js"),
            (&["EVAL_RO", "return redis.call('get', 'a')", "0"], "$-1"),
            (&["EVAL", "return redis.call('incr', KEYS[1])", "1", "n"], ":1"),
            (&["COMMAND", "GETKEYS", "EVAL", "x", "2", "a", "b", "c"], "*2 $1 a $1 b"),
        ],
    );
}

#[test]
fn failed_script_changes_nothing() {
    let mut client = Client::new();
    send(&mut client, &["SET", "kept", "1"]);
    for end in ["error('x')", "redis.call('incr', 'text')", "return redis.call('get')", "local a = nil + 1"] {
        let text = format!(
            "redis.call('set', 'text', 'abc') redis.call('del', 'kept') redis.call('set', 'new', 1) {end}"
        );
        let reply = send(&mut client, &["EVAL", &text, "0"]);
        assert!(reply.starts_with("-ERR"), "{reply}");
        assert_eq!(send(&mut client, &["MGET", "kept", "text", "new"]), "*3 $1 1 $-1 $-1", "{end}");
    }
    // An error that the script catches is none, nor one that it returns.
    let text = "redis.call('set', 'kept', 2) return redis.error_reply('x')";
    assert!(send(&mut client, &["EVAL", text, "0"]).starts_with("-ERR x"));
    assert_eq!(send(&mut client, &["GET", "kept"]), "$1 2");
    let text = "redis.call('set', 'new', 1) redis.pcall('incr', 'nope', 'x') return redis.call('get', 'new')";
    assert_eq!(send(&mut client, &["EVAL", text, "0"]), "$1 1");
}

#[test]
fn failed_script_in_exec_takes_back_its_own_writes_only() {
    let mut client = Client::new();
    let failing = "redis.call('set', 'a', 2) redis.call('expire', 'b', 100) redis.call('flushall') \
                   redis.call('set', 'c', 2) error('x')";
    client.expect(&[
        ("SET b 0", "+OK"),
        ("SET old 0", "+OK"),
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("SET b 1", "+QUEUED"),
    ]);
    assert_eq!(send(&mut client, &["EVAL", failing, "0"]), "+QUEUED");
    client.expect(&[
        ("DBSIZE", "+QUEUED"),
        ("MGET a b c old", "+QUEUED"),
        ("TTL b", "+QUEUED"),
        ("INCR a", "+QUEUED"),
    ]);
    let reply = send(&mut client, &["EXEC"]);
    let (before, after) =
        (reply.split(" -ERR").next().unwrap(), reply.rsplit("user_script:1. ").next().unwrap());
    assert_eq!(before, "*7 +OK +OK");
    assert_eq!(after, ":3 *4 $1 1 $1 1 $-1 $1 0 :-1 :2");
    client.expect(&[("MGET a b c old", "*4 $1 2 $1 1 $-1 $1 0"), ("DBSIZE", ":3"), ("TTL b", ":-1")]);
}

#[test]
fn script_changes_watched_keys() {
    let mut client = Client::new();
    client.expect(&[("SET a 1", "+OK"), ("WATCH a", "+OK")]);
    assert_eq!(send(&mut client, &["EVAL", "return redis.call('get', 'a')", "0"]), "$1 1");
    client.expect(&[("MULTI", "+OK"), ("GET a", "+QUEUED"), ("EXEC", "*1 $1 1"), ("WATCH a", "+OK")]);
    assert_eq!(send(&mut client, &["EVAL", "return redis.call('incr', 'a')", "0"]), ":2");
    client.expect(&[("MULTI", "+OK"), ("GET a", "+QUEUED"), ("EXEC", "*-1")]);
}

#[test]
fn script_sees_resp3_only_if_it_asks() {
    let mut client = Client::new();
    send(&mut client, &["HELLO", "3"]);
    check(
        &mut client,
        &[
            (&["EVAL", "return redis.call('get', 'none') == false", "0"], ":1"),
            (&["EVAL", "redis.setresp(3) return redis.call('get', 'none') == nil", "0"], "#t"),
            (&["EVAL", "return nil", "0"], "_"),
            (&["EVAL", "return {double=2.5}", "0"], ",2.5"),
        ],
    );
}

#[test]
fn limits_are_settings() {
    let mut client = Client::new();
    client.expect(&[
        ("CONFIG SET script-instructions 1000000", "+OK"),
        ("CONFIG SET lua-time-limit 100", "+OK"),
        ("CONFIG GET busy-reply-threshold", "*2 $20 busy-reply-threshold $3 100"),
        ("CONFIG GET lua-time-limit", "*2 $14 lua-time-limit $3 100"),
        ("CONFIG SET script-memory 4mb", "+OK"),
    ]);
    let endless = "redis.call('set', 'a', 1) while true do end";
    let reply = send(&mut client, &["EVAL", endless, "0"]);
    assert!(reply.starts_with("-ERR the script executed more instructions"), "{reply}");
    let reply = send(&mut client, &["EVAL", "redis.call('set', 'a', 1) return ('x'):rep(1e9)", "0"]);
    assert!(reply.starts_with("-ERR not enough memory"), "{reply}");
    client.expect(&[("EXISTS a", ":0")]);
}

/// A line of a reply.
fn line(stream: &mut UnixStream) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).trim_end().to_string()
}

fn eval(text: &str, args: &[&str]) -> Vec<u8> {
    let words: Vec<&[u8]> = ["EVAL", text, "0"].iter().chain(args).map(|word| word.as_bytes()).collect();
    command(&words)
}

/// What a session over this store replies to a command at this time.
fn ask_at(session: &mut Session, words: &[&str], now_ms: u64) -> String {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let mut output = Vec::new();
    session.process(&mut command(&words), &mut output, now_ms);
    String::from_utf8_lossy(&output).replace("\r\n", " ").trim_end().into()
}

#[test]
fn script_and_exec_happen_at_one_instant() {
    let shared = Arc::new(Shared::new(fresh().create().unwrap(), Config::default()));
    let now_ms = SystemClock.now_ms();
    let mut session = Session::new(Arc::clone(&shared), Peer::default(), now_ms);
    // The store's clock is the system's; the time of a command is what the server says.
    let at = now_ms + 3_600_000;
    let (seconds, past) = (((at + 1) / 1000).to_string(), at + 1);
    ask_at(&mut session, &["SET", "e", "5", "PXAT", &at.to_string()], now_ms);
    let look = "local e = redis.call('get', 'e') \
                return {e, redis.call('pttl', 'e'), redis.call('exists', 'e'), redis.call('time')[1]}";
    let found = ask_at(&mut session, &["EVAL", look, "0"], at - 1);
    assert_eq!(found, format!("*4 $1 5 :1 :1 $10 {}", (at - 1) / 1000));
    let found = ask_at(&mut session, &["EVAL", look, "0"], past);
    assert_eq!(found, format!("*4 $-1 :-2 :0 $10 {seconds}"));
    ask_at(&mut session, &["MULTI"], past);
    for words in [&["GET", "e"][..], &["PTTL", "e"], &["TIME"]] {
        ask_at(&mut session, words, past);
    }
    let found = ask_at(&mut session, &["EXEC"], past);
    assert!(found.starts_with(&format!("*3 $-1 :-2 *2 $10 {seconds} ")), "{found}");
    // A key that the script itself gives an expiry lives on while it runs.
    let busy = "redis.call('set', 'f', 5, 'px', 1) for _ = 1, 1000 do redis.call('time') end \
                return redis.call('incr', 'f')";
    assert_eq!(ask_at(&mut session, &["EVAL", busy, "0"], at), ":6");
}

#[test]
fn transaction_that_outlives_a_key_does_not_revive_it() {
    let shared = Arc::new(Shared::new(fresh().create().unwrap(), Config::default()));
    let mut session = Session::new(Arc::clone(&shared), Peer::default(), SystemClock.now_ms());
    // Each begins before the key expires, and ends after it.
    let expired = |session: &mut Session| {
        let at = SystemClock.now_ms() + 50;
        ask_at(session, &["SET", "k", "v", "PXAT", &at.to_string()], at - 50);
        while SystemClock.now_ms() <= at {
            std::thread::yield_now();
        }
        at - 1
    };
    for ends in ["'persist', 'k'", "'append', 'k', 'more'", "'exists', 'k', 'b'"] {
        let script =
            format!("if redis.call('exists', 'k') == 0 then return 'gone' end return redis.call({ends})");
        let at = expired(&mut session);
        assert_eq!(ask_at(&mut session, &["EVAL", &script, "0"], at), "$4 gone", "{ends}");
        assert_eq!(ask_at(&mut session, &["EXISTS", "k"], at), ":0", "{ends}");
    }
    let at = expired(&mut session);
    ask_at(&mut session, &["MULTI"], at);
    for words in [&["GET", "k"][..], &["SET", "other", "1", "PX", "1"], &["INCR", "other"], &["PERSIST", "k"]]
    {
        ask_at(&mut session, words, at);
    }
    assert_eq!(ask_at(&mut session, &["EXEC"], at), "*4 $-1 +OK :2 :0");
}

#[test]
fn memory_held_by_a_script_is_limited() {
    let mut client = Client::new();
    client.expect(&[("CONFIG SET script-memory 4mb", "+OK")]);
    let refused = "-OOM the writes of the script take more than script-memory";
    let many = "local v = ('x'):rep(100000) for i = 1, 1000 do redis.call('set', 'w' .. i, v) end return 1";
    assert!(send(&mut client, &["EVAL", many, "0"]).starts_with(refused));
    let caught = "local v = ('x'):rep(100000) \
                  for i = 1, 1000 do redis.pcall('set', 'w' .. i, v) end return 1";
    assert!(send(&mut client, &["EVAL", caught, "0"]).starts_with(refused));
    let read = "for i = 1, 1000000 do redis.call('get', 'a key of the script' .. i) end return 1";
    assert!(send(&mut client, &["EVAL", read, "0"]).starts_with(refused));
    let same = "local v = ('x'):rep(100000) for i = 1, 1000 do redis.call('set', 'w', v) end return 1";
    assert_eq!(send(&mut client, &["EVAL", same, "0"]), ":1");
    client.expect(&[("DBSIZE", ":1"), ("MULTI", "+OK"), ("SET a 1", "+QUEUED")]);
    // Each script of a transaction has its own limit.
    send(&mut client, &["EVAL", many, "0"]);
    send(&mut client, &["EVAL", "return redis.call('set', 'b', 1)", "0"]);
    let reply = send(&mut client, &["EXEC"]);
    assert!(reply.starts_with(&format!("*3 +OK {refused}")) && reply.ends_with("+OK"), "{reply}");
    client.expect(&[("DBSIZE", ":3")]);
}

#[test]
fn arguments_of_a_command_are_limited() {
    let mut client = Client::new();
    client.expect(&[("CONFIG SET script-memory 4mb", "+OK")]);
    let text = "local v = ('x'):rep(1000000) local t = {} for i = 1, 1000 do t[i] = v end \
                return redis.call('mset', unpack(t))";
    assert!(send(&mut client, &["EVAL", text, "0"]).starts_with("-ERR not enough memory"));
}

#[test]
fn appends_in_a_script_copy_what_they_append() {
    let mut client = Client::new();
    // Each append of a copy of all before it would make this take minutes.
    let text = "local tail = ('x'):rep(1000) for _ = 1, 40000 do redis.call('append', 'a', tail) end \
                return redis.call('strlen', 'a')";
    assert_eq!(send(&mut client, &["EVAL", text, "0"]), ":40000000");
    client.expect(&[("STRLEN a", ":40000000"), ("SET a 1", "+OK"), ("MULTI", "+OK")]);
    client.expect(&[("APPEND a 2", "+QUEUED"), ("APPEND b 1", "+QUEUED")]);
    send(&mut client, &["EVAL", "redis.call('append', 'a', 3) redis.call('append', 'b', 2) error('x')", "0"]);
    send(&mut client, &["EVAL", "redis.call('append', 'a', 4) return redis.call('append', 'b', 3)", "0"]);
    let reply = send(&mut client, &["EXEC"]);
    assert!(reply.starts_with("*4 :2 :1 -ERR") && reply.ends_with(":2"), "{reply}");
    client.expect(&[("MGET a b", "*2 $3 124 $2 13")]);
}

#[test]
fn errors_of_scripts_are_counted() {
    let mut client = Client::new();
    let field = |client: &mut Client, section: &str, name: &str| {
        let info = client.ask(&format!("INFO {section}"));
        info.split(' ').find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_string()
    };
    send(&mut client, &["EVAL", "return redis.error_reply('OOM x')", "0"]);
    assert_eq!(field(&mut client, "errorstats", "errorstat_OOM:"), "count=1");
    let lua: u64 = field(&mut client, "memory", "used_memory_lua:").parse().unwrap();
    assert!(lua > 10_000, "{lua}");
    let eval: u64 = field(&mut client, "memory", "used_memory_vm_eval:").parse().unwrap();
    assert!(eval > 10_000, "{eval}");
}

/// The lines of INFO about errors and calls, without times.
fn counted(client: &mut Client) -> String {
    let info = client.ask("INFO errorstats commandstats stats");
    let is_wanted = |line: &&str| {
        ["errorstat_", "cmdstat_", "total_error_replies"].iter().any(|name| line.starts_with(name))
            && !["resetstat", "cmdstat_info"].iter().any(|own| line.contains(own))
    };
    let (_, lines) = info.split_once(' ').unwrap();
    let mut lines: Vec<&str> = lines.split(' ').filter(is_wanted).collect();
    lines.sort_unstable();
    let parts = |line: &str| {
        let is_time = |part: &&str| part.starts_with("usec");
        line.split(',').filter(|part| !is_time(part)).collect::<Vec<_>>().join(",")
    };
    lines.into_iter().map(parts).collect::<Vec<_>>().join(" ")
}

/// The counts are those of Redis 7.0.15.
#[test]
fn errors_of_scripts_count_as_in_redis() {
    const EVAL_FAILED: &str = "cmdstat_eval:calls=1,rejected_calls=0,failed_calls=1";
    const EVAL_DONE: &str = "cmdstat_eval:calls=1,rejected_calls=0,failed_calls=0";
    const INCR_FAILED: &str = "cmdstat_incr:calls=1,rejected_calls=0,failed_calls=1";
    const INCR_REJECTED: &str = "cmdstat_incr:calls=0,rejected_calls=1,failed_calls=0";
    const AUTH_REJECTED: &str = "cmdstat_auth:calls=0,rejected_calls=1,failed_calls=0";
    let mut client = Client::new();
    client.ask("SET a x");
    for (script, lines) in [
        ("return redis.error_reply('MY_ERR x')", &[EVAL_FAILED, "errorstat_MY_ERR:count=1"][..]),
        ("return redis.error_reply('MYERR')", &[EVAL_FAILED, "errorstat_ERR:count=1"]),
        ("return {err='FOO bar'}", &[EVAL_FAILED, "errorstat_FOO:count=1"]),
        ("return {1, redis.error_reply('IN side'), 2}", &[EVAL_FAILED, "errorstat_IN:count=1"]),
        ("error({err='MY2 hello'})", &[EVAL_FAILED, "errorstat_MY2:count=1"]),
        ("error('my error')", &[EVAL_FAILED, "errorstat_ERR:count=1"]),
        ("return redis.call('incr', 'a', 'b')", &[EVAL_FAILED, INCR_REJECTED, "errorstat_ERR:count=1"]),
        ("return redis.call('auth', 'a')", &[AUTH_REJECTED, EVAL_FAILED, "errorstat_ERR:count=1"]),
        ("return redis.call('incr', 'a')", &[EVAL_FAILED, INCR_FAILED, "errorstat_ERR:count=1"]),
        ("return redis.pcall('incr', 'a')", &[EVAL_FAILED, INCR_FAILED, "errorstat_ERR:count=1"]),
        ("local e = redis.pcall('incr', 'a')", &[EVAL_DONE, INCR_FAILED, "errorstat_ERR:count=1"]),
        ("return redis.pcall('nosuch', 'a')", &[EVAL_FAILED, "errorstat_ERR:count=1"]),
        ("return redis.call('nosuch', 'a')", &[EVAL_FAILED, "errorstat_ERR:count=1"]),
    ] {
        client.ask("CONFIG RESETSTAT");
        send(&mut client, &["EVAL", script, "0"]);
        assert_eq!(counted(&mut client), format!("{} total_error_replies:1", lines.join(" ")), "{script}");
    }
    // A script sees by the same field as in Redis that an error is counted.
    let field = "local e = redis.pcall('incr', 'a') return tostring(e.ignore_error_stats_update)";
    assert_eq!(send(&mut client, &["EVAL", field, "0"]), "$4 true");
}

/// What a transaction holds until its end is limited: the replies of all its commands and what it
/// writes. So is the reply of one command in a script.
#[test]
fn replies_of_transactions_and_scripts_are_limited() {
    let mut client = Client::new();
    let value = "v".repeat(600_000);
    assert_eq!(send(&mut client, &["SET", "a", &value]), "+OK");
    client.expect(&[("CONFIG SET transaction-memory 1mb", "+OK"), ("MULTI", "+OK")]);
    client.expect(&[("SET b 1", "+QUEUED"), ("GET a", "+QUEUED"), ("GET a", "+QUEUED")]);
    let refused = client.ask("EXEC");
    assert!(refused.starts_with("-OOM ") && refused.contains("more than transaction-memory"), "{refused}");
    client.expect(&[("GET b", "$-1"), ("MULTI", "+OK"), ("SET b 1", "+QUEUED"), ("MGET a a a", "+QUEUED")]);
    let refused = "-ERR the values in total are larger than transaction-memory: request fewer keys at a time";
    client.expect(&[("EXEC", &format!("*2 +OK {refused}")), ("GET b", "$1 1")]);
    // What it writes counts as well.
    client.ask("MULTI");
    (0..3).for_each(|nth| _ = send(&mut client, &["SET", &format!("w{nth}"), &value]));
    assert!(client.ask("EXEC").starts_with("-OOM the replies and the writes of the transaction"));
    client.expect(&[
        ("EXISTS w0 w1 w2", ":0"),
        ("CONFIG SET transaction-memory 8mb", "+OK"),
        ("MULTI", "+OK"),
    ]);
    (0..3).for_each(|nth| _ = send(&mut client, &["SET", &format!("w{nth}"), &value]));
    client.expect(&[("EXEC", "*3 +OK +OK +OK"), ("CONFIG SET script-memory 2mb", "+OK")]);
    let script = "local r = redis.pcall('MGET', 'a', 'a', 'a', 'a', 'a', 'a', 'a') return r.err";
    let refused = refused[1..].replace("transaction-memory", "script-memory");
    assert_eq!(send(&mut client, &["EVAL", script, "0"]), format!("${} {refused}", refused.len()));
    // Outside, the limits do not count.
    assert!(client.ask("MGET a a a a a a a").starts_with("*7 $600000 "));
}
