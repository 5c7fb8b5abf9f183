//! Scripts beside other clients: long ones, endless ones, and many at once.

use super::*;

const ACCOUNTS: usize = 8;
/// Moves money from one account to another one.
const MOVE: &str = "local from, to = tonumber(redis.call('get', ARGV[1])), tonumber(redis.call('get', ARGV[2])) \
     redis.call('set', ARGV[1], from - 1) if ARGV[1] ~= ARGV[2] then redis.call('set', ARGV[2], to + 1) \
     else redis.call('set', ARGV[1], from) end return 1";
const SUM: &str =
    "local sum = 0 for n = 0, 7 do sum = sum + redis.call('get', 'account:' .. n) end return sum";

#[test]
fn concurrent_scripts_are_atomic() {
    let running = Running::start(&[("threads", "2")]);
    let mut client = running.connect();
    for account in 0..ACCOUNTS {
        ask(&mut client, format!("SET account:{account} 100\r\n").as_bytes(), b"+OK\r\n");
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let movers: Vec<_> = (0..3)
            .map(|seed| {
                let mut stream = running.connect();
                scope.spawn(move || {
                    for nth in 0..1000 {
                        let (from, to) = ((nth * 7 + seed) % ACCOUNTS, (nth * 3 + seed * 5) % ACCOUNTS);
                        let (from, to) = (format!("account:{from}"), format!("account:{to}"));
                        ask(&mut stream, &eval(MOVE, &[&from, &to]), b":1\r\n");
                    }
                })
            })
            .collect();
        let mut stream = running.connect();
        let ended = &ended;
        scope.spawn(move || {
            while !ended.load(Relaxed) {
                ask(&mut stream, &eval(SUM, &[]), b":800\r\n");
            }
        });
        movers.into_iter().for_each(|mover| mover.join().unwrap());
        ended.store(true, Relaxed);
    });
}

/// Reads a counter, works for some milliseconds, and writes it.
const SLOW: &str = "local n = redis.call('get', 'hot') for _ = 1, 3000000 do end \
                    redis.call('set', 'copy', n) return 'done'";

#[test]
fn long_script_commits_beside_writers_and_delays_no_reader() {
    let running = Running::start(&[("threads", "2")]);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let (mut writer, mut reader) = (running.connect(), running.connect());
        // The script copies it, so it is there.
        ask(&mut writer, b"INCR hot\r\n", b":1\r\n");
        let ended = &ended;
        scope.spawn(move || {
            while !ended.load(Relaxed) {
                writer.write_all(b"INCR hot\r\n").unwrap();
                assert!(line(&mut writer).starts_with(':'));
            }
        });
        scope.spawn(move || {
            while !ended.load(Relaxed) {
                ask(&mut reader, b"GET none\r\n", b"$-1\r\n");
            }
        });
        let mut client = running.connect();
        for _ in 0..5 {
            ask(&mut client, &eval(SLOW, &[]), b"$4\r\ndone\r\n");
        }
        ended.store(true, Relaxed);
    });
}

#[test]
fn endless_script_is_killed_and_has_done_nothing() {
    let running = Running::start(&[("threads", "1")]);
    let (mut client, mut other) = (running.connect(), running.connect());
    client
        .write_all(&eval(
            "redis.call('set', 'a', 1) while true do pcall(function() while true do end end) end",
            &[],
        ))
        .unwrap();
    // The one loop serves others while a worker runs the script.
    while {
        other.write_all(b"SCRIPT KILL\r\n").unwrap();
        line(&mut other).starts_with("-NOTBUSY")
    } {}
    assert!(line(&mut client).starts_with("-ERR Script killed by user with SCRIPT KILL"));
    ask(&mut client, b"EXISTS a\r\n", b":0\r\n");
}

#[test]
fn long_script_is_refused_while_endless_ones_have_all_threads() {
    let running = Running::start(&[("threads", "1"), ("busy-reply-threshold", "50")]);
    let endless = eval("while true do end", &[]);
    let mut clients: Vec<_> = (0..4).map(|_| running.connect()).collect();
    clients.iter_mut().for_each(|client| client.write_all(&endless).unwrap());
    let mut other = running.connect();
    loop {
        other.write_all(&eval("for _ = 1, 1000000 do end return 1", &[])).unwrap();
        match line(&mut other).as_str() {
            ":1" => {}
            reply => break assert!(reply.starts_with("-BUSY Redis is busy running a script"), "{reply}"),
        }
    }
    // Short ones, and all other commands, go on.
    ask(&mut other, &eval("return redis.call('incr', 'n')", &[]), b":1\r\n");
    ask(&mut other, b"MULTI\r\nINCR n\r\nEXEC\r\nMSET a 1 b 2\r\n", b"+OK\r\n+QUEUED\r\n*1\r\n:2\r\n+OK\r\n");
    // It ends those that have run for the threshold, and the last one may just have begun.
    while {
        other.write_all(b"SCRIPT KILL\r\n").unwrap();
        !line(&mut other).starts_with("-NOTBUSY")
    } {}
    clients.iter_mut().for_each(|client| assert!(line(client).contains("killed by user")));
    ask(&mut other, &eval("for _ = 1, 1000000 do end return 1", &[]), b":1\r\n");
}

#[test]
fn swapdb_waits_for_no_endless_script() {
    let running = Running::start(&[("threads", "1"), ("busy-reply-threshold", "50")]);
    let (mut client, mut other) = (running.connect(), running.connect());
    client.write_all(&eval("while true do end", &[])).unwrap();
    let mut swap = |words: &[u8], reply: &str| loop {
        other.write_all(words).unwrap();
        let last = words.split(|byte| *byte == b'\n').map(|_| ()).skip(1).map(|()| line(&mut other)).last();
        let last = last.expect("a reply");
        if last.starts_with(reply) {
            break;
        }
        assert!(last.starts_with("+OK") || last.starts_with("*1"), "{last}");
    };
    // The script is on its worker a moment later.
    swap(b"SWAPDB 0 1\r\n", "-BUSY SWAPDB has to wait");
    swap(b"MULTI\r\nSWAPDB 0 1\r\nEXEC\r\n", "-BUSY SWAPDB has to wait");
    ask(&mut other, b"SELECT 1\r\n", b"+OK\r\n");
    ask(&mut other, b"SET a 1\r\nSCRIPT KILL\r\n", b"+OK\r\n+OK\r\n");
    assert!(line(&mut client).starts_with("-ERR Script killed by user with SCRIPT KILL"));
    ask(&mut other, b"SWAPDB 0 1\r\nGET a\r\nSELECT 0\r\n", b"+OK\r\n$-1\r\n+OK\r\n");
    ask(&mut other, b"GET a\r\n", b"$1\r\n1\r\n");
}

#[test]
fn server_stops_though_a_script_does_not() {
    let mut running = Running::start(&[("threads", "1")]);
    let mut client = running.connect();
    client.write_all(&eval("redis.call('set', 'a', 1) while true do end", &[])).unwrap();
    ask(&mut running.connect(), b"PING\r\n", b"+PONG\r\n");
    running.stop();
    let reply = crate::common::rest(&mut client);
    assert!(reply.is_empty() || reply.starts_with(b"-ERR the script was ended"), "{}", reply.escape_ascii());
}

#[test]
fn writes_are_refused_while_a_script_runs_alone_for_long() {
    let running = Running::start(&[("threads", "2"), ("busy-reply-threshold", "50")]);
    let text = "redis.call('get', 'hot') for _ = 1, 60000000 do end redis.call('set', 'hot', 0) return 1";
    let (mut client, mut writer, mut other) = (running.connect(), running.connect(), running.connect());
    client.write_all(&eval(text, &[])).unwrap();
    // The writer makes the script run again, until that runs alone.
    loop {
        writer.write_all(b"INCR hot\r\n").unwrap();
        let reply = line(&mut writer);
        if reply.starts_with("-BUSY") {
            break;
        }
        assert!(reply.starts_with(':'), "{reply}");
    }
    ask(&mut other, b"GET none\r\n", b"$-1\r\n");
    ask(&mut client, b"", b":1\r\n");
    ask(&mut writer, b"INCR hot\r\n", b":1\r\n");
}

/// Scripts each of which took its loop for minutes, in one call of a function or while compiled.
const LONG: [&str; 5] = [
    "return string.find(string.rep('a', 3000), '.-.-.-.-b')",
    "table.insert({1}, -2147483648, 1)",
    "local s = string.rep('x', 1000000) while true do s:upper() end",
    "local s = string.rep('x', 1000000) while true do local t = s .. 'x' end",
    "local t = {} for i = 1, 100000 do t[i] = i % 2 end while true do table.sort(t) end",
];

#[test]
fn long_calls_of_functions_delay_no_other_client() {
    let running = Running::start(&[("threads", "1")]);
    for text in LONG {
        let (mut client, mut other) = (running.connect(), running.connect());
        client.write_all(&eval(text, &[])).unwrap();
        while {
            ask(&mut other, b"PING\r\n", b"+PONG\r\n");
            other.write_all(b"SCRIPT KILL\r\n").unwrap();
            line(&mut other).starts_with("-NOTBUSY")
        } {}
        let reply = line(&mut client);
        assert!(reply.starts_with("-ERR Script killed by user with SCRIPT KILL"), "{text}: {reply}");
    }
}

#[test]
fn long_text_is_compiled_beside_other_clients() {
    let running = Running::start(&[("threads", "1")]);
    let (mut client, mut other) = (running.connect(), running.connect());
    let text = format!("if 1 then {} end return 7", "elseif 1 then ".repeat(5000));
    client.write_all(&eval(&text, &[])).unwrap();
    ask(&mut other, b"PING\r\n", b"+PONG\r\n");
    ask(&mut client, b"", b":7\r\n");
    let name = Script::sha(text.as_bytes());
    ask(&mut other, format!("EVALSHA {name} 0\r\n").as_bytes(), b":7\r\n");
    ask(&mut other, b"SCRIPT FLUSH\r\n", b"+OK\r\n");
    let loads = command(&[b"SCRIPT", b"LOAD", text.as_bytes()]);
    ask(&mut other, &loads, format!("$40\r\n{name}\r\n").as_bytes());
    ask(&mut other, b"MULTI\r\n", b"+OK\r\n");
    ask(&mut other, &eval(&text, &[]), b"+QUEUED\r\n");
    ask(&mut other, b"EXEC\r\n", b"*1\r\n:7\r\n");
    let text = format!("if 1 then {} end", "elseif 1 then ".repeat(100_000));
    client.write_all(&eval(&text, &[])).unwrap();
    assert!(line(&mut client).starts_with("-ERR Error compiling script (new function): the text has more"));
}
