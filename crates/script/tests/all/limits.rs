//! What ends a script.

use terrace_script::{Ended, Stop};

use crate::common::Bench;

fn stop_of(bench: &mut Bench, text: &str) -> Stop {
    match bench.run_with(text, &[], false) {
        Err(Ended::Stopped(stop, _)) => stop,
        other => panic!("{text}: {other:?}"),
    }
}

/// Scripts that do not end, whatever they catch.
const ENDLESS: [&str; 7] = [
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "while true do xpcall(function() while true do end end, function() while true do end end) end",
    "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
    "coroutine.wrap(function() while true do end end)()",
    "local function f() return f() end f()",
    "string.gsub(('x'):rep(1000), 'x', function() while true do end end)",
];

#[test]
fn instructions_are_limited() {
    let mut bench = Bench::new();
    bench.limits.instructions = 1_000_000;
    for text in ENDLESS {
        assert_eq!(stop_of(&mut bench, text), Stop::OverLimit, "{text}");
    }
    bench.limits.budget = 10_000;
    assert_eq!(stop_of(&mut bench, "while true do end"), Stop::OverBudget);
    bench.check(&[("return 1", ":1")]);
}

#[test]
fn flag_ends_a_run() {
    for text in ENDLESS {
        let mut bench = Bench::new();
        bench.limits.instructions = 0;
        let flag = bench.flag.clone();
        std::thread::scope(|scope| {
            scope.spawn(|| flag.kill());
            assert_eq!(stop_of(&mut bench, text), Stop::Killed, "{text}");
        });
    }
}

#[test]
fn host_ends_a_run() {
    let mut bench = Bench::new();
    bench.host.gives_up = true;
    assert_eq!(stop_of(&mut bench, "while true do pcall(redis.call, 'get', 'a') end"), Stop::Abandoned);
    assert_eq!(stop_of(&mut bench, "pcall(redis.call, 'get', 'a') return 1"), Stop::Abandoned);
}

#[test]
fn memory_is_limited() {
    let mut bench = Bench::new();
    for text in [
        "return ('x'):rep(1e10)",
        "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end",
        "local s = 'x' while true do s = s .. s end",
        "return cjson.encode({('x'):rep(12e6)})",
        "return {pcall(string.rep, 'x', 1e10)}[1] or error('out of memory')",
    ] {
        let reply = bench.run(text);
        assert!(reply.starts_with('-'), "{text}: {}", &reply[..reply.len().min(80)]);
    }
    let mut bench = Bench::new();
    bench.check(&[("return ('').rep('', 1e18)", "$0"), ("return 1", ":1")]);
    bench.check(&[("local function f() return 1 + f() end f()", "-ERR user_script:1: stack overflow")]);
}

#[test]
fn reply_is_limited() {
    let mut bench = Bench::new();
    let doubled = "local t = {'x'} for _ = 1, 40 do t = {t, t} end return t";
    assert!(bench.run(doubled).starts_with("-ERR the reply of the script is larger than"));
}

#[test]
fn many_arguments_and_results_are_possible() {
    let mut bench = Bench::new();
    // Scripts that are kept take nothing of what arguments need.
    for n in 0..450 {
        bench.check(&[(&format!("return {n}"), &format!(":{n}"))]);
    }
    bench.check(&[
        ("local t = {} for i = 1, 7999 do t[i] = i end return select('#', unpack(t))", ":7999"),
        (
            "local t = {} for i = 1, 7900 do t[i] = 'x' .. i end return redis.call('set', unpack(t)).ok",
            "$2 OK",
        ),
    ]);
    bench.limits.memory = 64 << 20;
    for count in [8000, 100_000] {
        let pairs = format!("local a = {{}} for i = 1, {count} do a['k' .. i] = i end");
        assert_eq!(bench.run(&format!("{pairs} return #cmsgpack.pack(a) > {count}")), ":1", "{count}");
        let list = format!("local a = {{}} for i = 1, {count} do a[i] = 'x' .. i end");
        assert_eq!(
            bench.run(&format!("{list} return #cmsgpack.unpack(cmsgpack.pack(a))")),
            format!(":{count}")
        );
    }
}
