//! What scripts can reach.

use crate::common::Bench;

const READ_ONLY: &str = "-ERR user_script:1: Attempt to modify a readonly table";

#[test]
fn libraries_and_globals_are_read_only() {
    Bench::new().check(&[
        ("x = 1", READ_ONLY),
        ("redis = nil", READ_ONLY),
        ("string.rep = 1", READ_ONLY),
        ("redis.call = 1", READ_ONLY),
        ("getmetatable('').__index = 1", READ_ONLY),
        ("getmetatable('').__index.rep = 1", READ_ONLY),
        ("_G.x = 1", READ_ONLY),
        ("rawset(_G, 'x', 1)", "-ERR Attempt to modify a readonly table"),
        ("setmetatable(_G, {})", "-ERR Attempt to modify a readonly table"),
        ("return y", "-ERR user_script:1: Script attempted to access nonexistent global variable 'y'"),
        ("return rawget(_G, 'y')", "$-1"),
        ("return type(rawget(_G, 'redis'))", "$5 table"),
        ("return ('a'):rep(3)", "$3 aaa"),
    ]);
}

#[test]
fn nothing_outside_is_to_be_had() {
    let mut bench = Bench::new();
    for name in [
        "io", "debug", "package", "require", "module", "dofile", "loadfile", "print", "getfenv", "setfenv",
        "newproxy",
    ] {
        let reply = bench.run(&format!("return type({name})"));
        assert!(reply.contains("nonexistent global variable"), "{name}: {reply}");
    }
    bench.check(&[
        ("return type(os.clock())", "$6 number"),
        ("return type(os.execute)", "$3 nil"),
        ("return loadstring('return 1')()", ":1"),
        ("return loadstring('x = 1')()", "-ERR [string \"x = 1\"]:1: Attempt to modify a readonly table"),
        ("local f, e = loadstring('x x') return e", "$39 [string \"x x\"]:1: '=' expected near 'x'"),
        ("return tostring(loadstring('\\27Lua'))", "$3 nil"),
        ("return pcall(string.dump, function() end)", "$-1"),
        ("local n = 0 return load(function() n = n + 1 return ({'return ', '7'})[n] end)()", ":7"),
    ]);
}

#[test]
fn no_run_sees_another_one() {
    let mut bench = Bench::new();
    bench.check(&[
        ("cjson.encode_sparse_array(true) redis.setresp(3) math.randomseed(7) collectgarbage('stop')", "$-1"),
        (
            "return cjson.encode({[1]=1,[20]=2})",
            "-ERR user_script:1: Cannot serialise table: excessively sparse array",
        ),
        ("return math.random(1000)", ":171"),
    ]);
    bench.run("table.insert(redis, 1)");
    assert!(bench.machine.is_spoilt(), "a state that a script has written to is given up");
}

#[test]
fn random_numbers_begin_anew_with_each_run() {
    Bench::new().check(&[
        (
            "return math.random(1000)..' '..math.random()..' '..math.random(5,10)",
            "$22 171 0.74990198051087 5",
        ),
        ("math.randomseed(42) return math.random(1000)..' '..math.random()", "$20 745 0.34270147855519"),
        ("return math.random(0)", "-ERR user_script:1: bad argument #1 to 'random' (interval is empty)"),
    ]);
}
