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
        ("getmetatable(_G).__index = {}", READ_ONLY),
        ("getmetatable(getmetatable(redis)).__index = {}", READ_ONLY),
        ("rawset(getmetatable(string), '__index', {})", "-ERR Attempt to modify a readonly table"),
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
        ("return tostring(loadstring(string.dump(function() end)))", "$3 nil"),
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
        ("return tostring(redis.x)", "$3 nil"),
    ]);
}

#[test]
fn libraries_are_listed_and_refuse_changes() {
    let refused = "-ERR user_script:1: Attempt to modify a readonly table";
    Bench::new().check(&[
        ("local n = 0 for k in pairs(string) do n = n + 1 end return n > 14", ":1"),
        ("local n = 0 for k in pairs(redis) do n = n + 1 end return n > 20", ":1"),
        ("return type(next(math))", "$6 string"),
        ("for name, value in pairs(table) do if table[name] ~= value then return name end end", "$-1"),
        ("local next, list = pairs(string) list.rep = 1", refused),
        ("local next, list = pairs(string) return tostring(rawget(list, 'rep') == string.rep)", "$4 true"),
        ("table.insert(string, 'x')", refused),
        ("table.insert(redis, 1, 1)", refused),
        ("table.remove(redis)", refused),
        ("table.sort(redis)", refused),
        ("local n = 0 for k in pairs({1, 2, a = 3}) do n = n + 1 end return n", ":3"),
        (
            "for _ in pairs(nil) do end",
            "-ERR user_script:1: bad argument #1 to 'pairs' (table expected, got nil)",
        ),
        (
            "local x = string.find(nil, 'x')",
            "-ERR user_script:1: bad argument #1 to 'find' (string expected, got nil)",
        ),
        (
            "return string.find()",
            "-ERR user_script:1: bad argument #1 to 'find' (string expected, got no value)",
        ),
        (
            "local x = string.gsub('x')",
            "-ERR user_script:1: bad argument #2 to 'gsub' (string expected, got nil)",
        ),
    ]);
}

#[test]
fn errors_show_nothing_of_the_sandbox() {
    Bench::new().check(&[
        (
            "local ok, f, e = pcall(load, function() error('x') end) return {ok, tostring(f), e}",
            "*3 :1 $3 nil $16 user_script:1: x",
        ),
        (
            "local f = load('return 1')",
            "-ERR user_script:1: bad argument #1 to 'load' (function expected, got string)",
        ),
        (
            "local s = setmetatable('', {})",
            "-ERR user_script:1: bad argument #1 to 'setmetatable' (table expected, got string)",
        ),
        ("error(true)", "-ERR true"),
        (
            "local x = rawset(1, 2, 3)",
            "-ERR user_script:1: bad argument #1 to 'rawset' (table expected, got number)",
        ),
        (
            "local x = table.concat({{}})",
            "-ERR user_script:1: invalid value (table) at index 1 in table for 'concat'",
        ),
        ("local x = string.rep()", "-ERR user_script:1: bad argument #1 to 'rep' (string expected, got nil)"),
    ]);
}

#[test]
fn errors_of_arguments_name_the_function_alone() {
    Bench::new().check(&[
        (
            "local x = coroutine.resume(1)",
            "-ERR user_script:1: bad argument #1 to 'resume' (coroutine expected)",
        ),
        (
            "local ok, e = pcall(table.insert, 1, 1, 1) return e",
            "$56 bad argument #1 to 'insert' (table expected, got number)",
        ),
        (
            "local ok, e = pcall(string.rep) return e",
            "$51 bad argument #1 to 'rep' (string expected, got nil)",
        ),
    ]);
}

#[test]
fn random_numbers_differ_between_runs() {
    let mut bench = Bench::new();
    bench.check(&[
        ("math.randomseed(42) return math.random(1000)..' '..math.random()", "$20 745 0.34270147855519"),
        ("return math.random(0)", "-ERR user_script:1: bad argument #1 to 'random' (interval is empty)"),
    ]);
    let draw = "return math.random(2^31) .. ' ' .. math.random(2^31) .. ' ' .. math.random(2^31)";
    let drawn = bench.run(draw);
    assert_ne!(bench.run(draw), drawn);
    assert_ne!(Bench::new().run(draw), drawn);
    bench.run("math.randomseed(42)");
    let seeded = bench.run("math.randomseed(42) return math.random(2^31)");
    assert_ne!(bench.run("return math.random(2^31)"), seeded);
}
