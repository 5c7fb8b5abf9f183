//! Scripts that want to break the state, the thread or its time: each ends with a value or an
//! error, and the next script runs as usual.

use terrace_script::{Ended, Stop};

use crate::common::Bench;

/// Scripts, and what their replies begin with.
const CASES: &[(&str, &str)] = &[
    // Ranges of 32 bits with a sign.
    ("return {unpack({}, 0, 2147483647)}", "-ERR user_script:1: too many results to unpack"),
    ("return {unpack({}, -2147483648, 2147483647)}", "-ERR user_script:1: too many results to unpack"),
    ("return {unpack({}, 1, 1e300)}", "-ERR user_script:1: too many results to unpack"),
    ("return {unpack({}, 0/0, 2147483647)}", "-ERR user_script:1: too many results to unpack"),
    ("return {unpack({}, -1/0, 1/0)}", "-ERR user_script:1: too many results to unpack"),
    ("return #{unpack({}, 2147483647, 2147483647)}", ":0"),
    ("return {unpack({}, '0', '2147483647')}", "-ERR user_script:1: too many results to unpack"),
    ("local x = unpack(1)", "-ERR user_script:1: bad argument #1 to 'unpack' (table expected, got number)"),
    ("return select(-2147483648, 1)", "-ERR user_script:1: bad argument #1 to 'select'"),
    ("return select(2147483647, 1)", "$-1"),
    ("return string.byte(('x'):rep(9000), 1, -1)", "-ERR user_script:1: stack overflow"),
    ("return ('x'):sub(-2147483648, 2147483647)", "$1 x"),
    ("return ('x'):byte(-2147483648, 2147483647)", ":120"),
    ("return tostring(string.char(256))", "-ERR user_script:1: bad argument #1 to 'char'"),
    ("return tonumber('z', 37)", "-ERR user_script:1: bad argument #2 to 'tonumber'"),
    ("return tonumber('7fffffffffffffffffff', 16)", ":"),
    ("return ('%99.99f'):format(1e308)", "$4"),
    ("return ('%100d'):format(1)", "-ERR user_script:1: invalid format"),
    ("return ('%'):format(1)", "-ERR user_script:1: invalid option"),
    ("return ('x'):rep(2^31)", "-ERR not enough memory"),
    ("return ('x'):rep(0/0)", "$0"),
    ("return ('x'):rep(-2^31)", "$0"),
    ("return bit.tohex(65535, -2147483648)", "$8 0000FFFF"),
    ("return bit.tohex(1, 2147483647)", "$8 00000001"),
    ("return bit.lshift(1, -2147483648)", ":1"),
    ("return math.random(-2^53, 2^53) and 1", ":1"),
    // Libraries that read bytes.
    ("return struct.pack('i99999999999999999999', 1)", "-ERR user_script:1: integral size"),
    ("return struct.pack('c2147483648', 'x')", "-ERR user_script:1: bad argument #3 to 'pack'"),
    ("return struct.unpack('c0', 'x')", "-ERR user_script:1: format 'c0' needs a previous size"),
    ("return struct.unpack('i4', 'xxxx', 2147483647)", "-ERR user_script:1: bad argument #2 to 'unpack'"),
    ("return struct.unpack('i4', 'xxxx', 18446744073709551615)", "-ERR user_script:1: bad argument #2"),
    ("return struct.unpack('Bc0', '\\255x')", "-ERR user_script:1: bad argument #2 to 'unpack'"),
    ("return struct.size(('c2147483647'):rep(9)) and 1", ":1"),
    ("return struct.pack('!2147483648 i4', 1) and 1", ":1"),
    ("return {struct.unpack(('c1'):rep(9000), ('x'):rep(9000))}", "-ERR user_script:1: too many results"),
    (
        "local s = ('x'):rep(1e6) local t = {} for i = 1, 99 do t[i] = s end return struct.pack(('s'):rep(99), unpack(t))",
        "-ERR not enough memory",
    ),
    ("return {cmsgpack.unpack('\\221\\255\\255\\255\\255')}", "-ERR user_script:1: Missing bytes in input."),
    ("return {cmsgpack.unpack('\\198\\255\\255\\255\\255x')}", "-ERR user_script:1: Missing bytes in input."),
    ("return {cmsgpack.unpack(('\\145'):rep(1e5))}", "-ERR user_script:1: Bad data format in input."),
    ("return {cmsgpack.unpack(('\\144'):rep(1e5))}", "-ERR user_script:1: too many results to unpack"),
    ("return #{cmsgpack.unpack(('\\144'):rep(7000))}", ":7000"),
    ("local t = {} t[1] = t return #cmsgpack.pack(t)", ":17"),
    (
        "local s = ('x'):rep(1e6) local t = {} for i = 1, 99 do t[i] = s end return cmsgpack.pack(t)",
        "-ERR not enough memory",
    ),
    ("return cmsgpack.unpack_one('x', 2147483647)", "-ERR user_script:1: Start offset 2147483647"),
    ("return {cmsgpack.unpack_limit('x', 2147483647, 0)}", "*2"),
    ("return cjson.decode(('['):rep(1e5))", "-ERR user_script:1: Found too many nested data structures"),
    ("return cjson.decode(('{\"a\":'):rep(1e5))", "-ERR user_script:1: Found too many nested data"),
    (
        "local t = {} for i = 1, 1e5 do t = {t} end return cjson.encode(t)",
        "-ERR user_script:1: Cannot serialise",
    ),
    (
        "local t = {} t[1] = t return cjson.encode(t)",
        "-ERR user_script:1: Cannot serialise, excessive nesting",
    ),
    ("local s = ('\\1'):rep(4e6) return cjson.encode(s)", "-ERR not enough memory"),
    (
        "cjson.encode_keep_buffer(false) return cjson.encode({[1e15]=1})",
        "-ERR user_script:1: Cannot serialise table",
    ),
    ("return cjson.decode('1' .. ('0'):rep(1e5)) == 1/0", ":1"),
    // Depth of calls, of patterns, of replies.
    ("local function f() return string.gsub('x', 'x', f) end f()", "-ERR "),
    ("local function f() table.sort({2, 1}, f) end f()", "-ERR "),
    ("local function f() return (pcall(f)) end return tostring(f())", "$4 true"),
    ("local function f() coroutine.wrap(f)() end f()", "-ERR "),
    ("local function f() return coroutine.resume(coroutine.create(f)) end return {f()}", "*"),
    (
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(_, k) return t[k] end return t.x",
        "-ERR ",
    ),
    ("return tostring(setmetatable({}, {__tostring = function(t) return tostring(t) end}))", "-ERR "),
    ("local t = {} for i = 1, 1e5 do t = {t} end return t", "-ERR reached lua stack limit"),
    ("return loadstring('return ' .. ('('):rep(1e5))", "$-1"),
    ("return (loadstring(('x='):rep(10) .. ('{'):rep(1e5)))", "$-1"),
    ("return loadstring('local ' .. ('a,'):rep(300) .. 'a')", "$-1"),
    ("return ('x'):rep(1e5):find(('x?'):rep(5e4))", "-ERR user_script:1: pattern too complex"),
    ("return ('x'):find(('('):rep(33) .. (')'):rep(33))", "-ERR user_script:1: too many captures"),
    ("return ('x'):find('%f')", "-ERR user_script:1: missing '[' after '%f' in pattern"),
    ("return ('x'):find('[%')", "-ERR user_script:1: malformed pattern (missing ']')"),
    ("return ('x'):find('%')", "-ERR user_script:1: malformed pattern (ends with '%')"),
    ("return ('x'):find('%b')", "-ERR user_script:1: unbalanced pattern"),
    ("return ('x'):find('(()%1)')", "-ERR user_script:1: "),
    // Tables: order functions that lie, lengths that are wrong, texts that take all memory.
    (
        "local t = {} for i = 1, 2000 do t[i] = i end table.sort(t, function() return true end)",
        "-ERR user_script:1: invalid order function for sorting",
    ),
    ("table.sort({3, 'x', 1})", "-ERR attempt to compare string with number"),
    ("return table.concat({}, 'x', 1, 2147483647)", "-ERR user_script:1: invalid value (nil) at index 1"),
    (
        "local s = ('x'):rep(1e6) local t = {} for i = 1, 99 do t[i] = s end return table.concat(t)",
        "-ERR not enough memory",
    ),
    ("local s = ('x'):rep(1e6) return (('x'):rep(99):gsub('x', s))", "-ERR not enough memory"),
    (
        "local s = ('x'):rep(1e6) return (('x'):rep(99):gsub('x', function() return s end))",
        "-ERR not enough memory",
    ),
];

#[test]
fn hostile_scripts_get_an_answer() {
    let mut bench = Bench::new();
    let mut wrong = Vec::new();
    for (text, begin) in CASES {
        let reply = bench.run(text);
        if !reply.starts_with(begin) {
            wrong.push(format!("{text}: {}", reply.chars().take(120).collect::<String>()));
        }
        if bench.machine.is_spoilt() {
            bench = Bench::new();
        }
        assert_eq!(bench.run("return ('a'):rep(3)"), "$3 aaa", "after {text}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn code_that_is_compiled_is_refused() {
    let mut bench = Bench::new();
    bench.check(&[("return tostring(loadstring('\\27Lua'))", "$3 nil")]);
    bench.check(&[
        (
            "local n = 0 return tostring(load(function() n = n + 1 return n == 1 and '\\27LuaQ' or nil end))",
            "$3 nil",
        ),
        ("return tostring(loadstring(string.dump(function() end)))", "$3 nil"),
        ("return string.dump(string.len)", "-ERR user_script:1: unable to dump given function"),
        (
            "setmetatable(1, {})",
            "-ERR user_script:1: bad argument #1 to 'setmetatable' (table expected, got number)",
        ),
        (
            "setmetatable('', {})",
            "-ERR user_script:1: bad argument #1 to 'setmetatable' (table expected, got string)",
        ),
        ("return tostring(getmetatable(1)) .. tostring(getmetatable(pcall))", "$6 nilnil"),
    ]);
    assert!(bench.run_bytes(b"\x1bLua", &[], false).is_err());
}

/// Calls that took minutes within one function of Lua's. LIST is a table that Lua takes for one of
/// 671,088,640 elements.
const LONG: [&str; 10] = [
    "return string.find(string.rep('a', 3000), '.-.-.-.-b')",
    "return string.match(string.rep('a', 3000), '.-.-.-.-b')",
    "return string.gsub(string.rep('a', 3000), '.-.-.-.-b', 'x')",
    "return string.gsub(string.rep('a', 3000), '.-.-.-.-b', function() end)",
    "for _ in string.gmatch(string.rep('a', 3000), '.-.-.-.-b') do end",
    "return string.find(string.rep('a', 500000), string.rep('a', 200000) .. 'b', 1, true)",
    "table.insert({1}, -2147483648, 1)",
    "table.insert(LIST, 1, 1)",
    "table.remove(LIST, 1)",
    "local s = string.rep('x', 1000000) while true do s:upper() end",
];

fn long_list() -> String {
    let far: String = (0..=27).map(|n| format!(",[{}]=1", 5_u64 << n)).collect();
    format!("{{1,2,3,4{far}}}")
}

#[test]
fn long_calls_of_functions_are_ended() {
    for text in LONG {
        let mut bench = Bench::new();
        bench.limits.instructions = 3_000_000;
        match bench.run_with(&text.replace("LIST", &long_list()), &[], false) {
            Err(Ended::Stopped(Stop::OverLimit, _)) => {}
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn texts_that_compile_for_long_are_refused() {
    let mut bench = Bench::new();
    let chain = |count| format!("if 1 then {} end return 7", "elseif 1 then ".repeat(count));
    assert_eq!(bench.run(&chain(1000)), ":7");
    assert!(bench.run(&chain(300_000)).contains("has more than 16384 words"));
    let nested = "return loadstring('return ' .. ('1 and '):rep(300000) .. '1')";
    let reply = bench.run(&format!("{nested} == nil"));
    assert_eq!(reply, ":1");
    bench.limits.instructions = 1_000_000;
    let compiled = "local s = 'return ' .. ('1 and '):rep(10000) .. '1' return loadstring(s)";
    assert!(matches!(bench.run_with(compiled, &[], false), Err(Ended::Stopped(Stop::OverLimit, _))));
}

#[test]
fn memory_beyond_a_budget_puts_a_run_off() {
    let mut bench = Bench::new();
    bench.limits.budget = 1_000_000;
    for text in [
        "return #('x'):rep(8000000)",
        "return pcall(string.rep, 'x', 8000000)",
        "local s = ('x'):rep(1000000) for _ = 1, 3 do s = s .. s end",
        "return pcall(function() local s = ('x'):rep(1000000) for _ = 1, 3 do s = s .. s end end)",
        "local s = ('x'):rep(1000000) return {s, s, s, s, s, s}",
        "return #cjson.encode(('\\1'):rep(1000000))",
    ] {
        match bench.run_with(text, &[], false) {
            Err(Ended::Stopped(Stop::OverBudget, _)) => {}
            other => panic!("{text}: {other:?}"),
        }
    }
    bench = Bench::new();
    bench.limits.memory = 64 << 20;
    assert_eq!(bench.run("return #('x'):rep(8000000)"), ":8000000");
}
