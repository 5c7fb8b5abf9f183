//! Patterns give what Lua's own functions give.

use mlua::{Lua, LuaOptions, StdLib};
use proptest::{collection::vec, prelude::*, sample::select};

use crate::common::Bench;

/// Pieces of patterns.
const PIECES: [&str; 40] = [
    "a", "b", "ab", ".", ".*", ".-", "a*", "a+", "a-", "a?", "b*", "[ab]", "[^a]", "[a-c]", "[%a]", "[]]",
    "[^]]", "[a-]", "[%]]", "%a", "%A", "%d+", "%s*", "%w", "%x", "%p", "%z", "%.", "(", ")", "()", "%1",
    "%2", "%bab", "%f[a]", "%f[^a]", "^", "$", "%", "\\0",
];
/// Pieces of texts.
const TEXTS: [&str; 12] = ["a", "b", "ab", "aab", "c", "1", " ", ".", "]", "-", "\\0", "A"];
/// What looks for a pattern.
const LOOKS: [&str; 9] = [
    "return {string.find(T, P)}",
    "return {string.find(T, P, I)}",
    "return {string.find(T, P, I, true)}",
    "return {string.match(T, P)}",
    "return {string.match(T, P, I)}",
    "local t = {} for a, b in string.gmatch(T, P) do t[#t + 1] = tostring(a) .. '/' .. tostring(b) end return t",
    "return {string.gsub(T, P, '<%0%1>')}",
    "return {string.gsub(T, P, function(...) return select('#', ...) .. tostring((...)) end, 3)}",
    "return {string.gsub(T, P, {a = 'x', b = false, ab = 1})}",
];

/// Runs a body in Lua as it is; the result in one line, as the machine shows it.
fn in_lua(lua: &Lua, body: &str) -> String {
    lua.load(body).set_name("@user_script").eval::<String>().expect("it catches errors")
}

/// A body that shows the elements of the list that `look` returns, or its error.
fn shown(look: &str, text: &str, pattern: &str, start: i32) -> String {
    let look = look.replace("T,", &format!("'{text}',")).replace("P)", &format!("'{pattern}')"));
    let look = look.replace("P,", &format!("'{pattern}',")).replace(" I", &format!(" {start}"));
    format!(
        "local ok, found = pcall(function() {look} end) \
         if not ok then return 'error: ' .. (string.gsub(found, '^user_script:1: ', '')) end \
         local t = {{}} for i = 1, 40 do t[i] = tostring(found[i]) end return table.concat(t, ';')"
    )
}

#[test]
fn captures_fail_only_where_they_are_used() {
    Bench::new().check(&[
        ("return {('a'):gsub('()(', {'x'})}", "*2 $2 xa :2"),
        ("return {(''):gsub('()(', '<%1>')}", "*2 $3 <1> :1"),
        ("local x = ('a'):gsub('()(', '<%2>')", "-ERR user_script:1: unfinished capture"),
        ("local x = ('a'):gsub('()(', function() end)", "-ERR user_script:1: unfinished capture"),
    ]);
}

#[test]
fn patterns_find_what_lua_finds() {
    let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE, LuaOptions::new()).unwrap();
    let bench = std::cell::RefCell::new(Bench::new());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4096) };
    proptest!(config, |(
        look in select(&LOOKS[..]),
        text in vec(select(&TEXTS[..]), 0..8),
        pattern in vec(select(&PIECES[..]), 0..6),
        start in -3..6,
    )| {
        let body = shown(look, &text.concat(), &pattern.concat(), start);
        let wanted = in_lua(&lua, &body);
        let mut bench = bench.borrow_mut();
        let found = bench.run(&body);
        let found = found.split_once(' ').map_or("", |(_, found)| found);
        prop_assert_eq!(found.trim_end(), wanted.trim_end(), "{}", body);
    });
}
