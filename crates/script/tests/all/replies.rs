//! Conversions between replies and values of Lua, and errors: as Redis 7 makes them.

use terrace_script::Ended;

use crate::common::Bench;

#[test]
fn values_become_replies() {
    Bench::new().check(&[
        ("return 1", ":1"),
        ("return 3.9", ":3"),
        ("return -3.9", ":-3"),
        ("return 1e20", ":-9223372036854775808"),
        ("return 0/0", ":-9223372036854775808"),
        ("return 'a\\r\\nb'", "$4 a b"),
        ("return nil", "$-1"),
        ("return", "$-1"),
        ("return true", ":1"),
        ("return false", "$-1"),
        ("return function() end", "$-1"),
        ("return cjson.null", "$-1"),
        ("return {1,2,nil,4}", "*2 :1 :2"),
        ("return {1.7,'x',{2.9}}", "*3 :1 $1 x *1 :2"),
        ("return {a=1}", "*0"),
        ("return {ok='fine\\r\\nx'}", "+fine  x"),
        ("return {err='My err'}", "-My err"),
        ("return {double=3.5}", "$3 3.5"),
        ("return {map={a=1}}", "*2 $1 a :1"),
        ("return {set={a=true}}", "*1 $1 a"),
        ("return {big_number='123'}", "$3 123"),
        ("return {verbatim_string={format='txt',string='hi'}}", "$2 hi"),
        ("return {KEYS[1], ARGV[1], ARGV[2], #ARGV}", "*4 $3 key $3 one $3 two :2"),
        ("local t = {} t[1] = t return t", "-ERR reached lua stack limit"),
    ]);
}

#[test]
fn replies_become_values() {
    let mut bench = Bench::new();
    bench.check(&[
        ("return redis.call('set', 'a', 1).ok", "$2 OK"),
        ("return redis.call('get', 'a')", "$1 1"),
        ("redis.call('set', 'a', 1.5) return redis.call('get', 'a')", "$3 1.5"),
        ("redis.call('set', 'a', 3.3) return redis.call('get', 'a')", "$18 3.2999999999999998"),
        ("redis.call('set', 'a', 1e15) return redis.call('get', 'a')", "$16 1000000000000000"),
        ("return type(redis.call('get', 'none'))", "$7 boolean"),
        ("redis.setresp(3) return type(redis.call('get', 'none'))", "$3 nil"),
        ("return redis.call('all')", "*2 $1 a $16 1000000000000000"),
        ("redis.setresp(3) return redis.call('all').map.a", "$16 1000000000000000"),
        ("redis.setresp(3) return redis.call('double')", "$3 2.5"),
        ("return redis.call('double')", "$3 2.5"),
        ("return redis.setresp(4)", "-ERR RESP version must be 2 or 3."),
    ]);
    let text = "redis.setresp(3) return {redis.call('double'), true, redis.call('all'), false}";
    assert_eq!(bench.run_with(text, &[], true).unwrap(), "*4 ,2.5 #t %1 $1 a $16 1000000000000000 #f");
    assert_eq!(bench.run_with("return {true, false}", &[], true).unwrap(), "*2 :1 _");
}

#[test]
fn errors_are_those_of_redis() {
    Bench::new().check(&[
        ("return redis.call('wrong')", "-WRONG it is"),
        ("return redis.pcall('wrong')", "-WRONG it is"),
        ("return {redis.pcall('wrong').err}", "*1 $11 WRONG it is"),
        ("local ok, e = pcall(redis.call, 'wrong') return {type(e), e}", "*2 $6 string $11 WRONG it is"),
        ("return redis.call('nope')", "-ERR Unknown Redis command called from script"),
        ("return redis.call()", "-ERR Please specify at least one argument for this redis lib call"),
        ("return redis.call({})", "-ERR Lua redis lib command arguments must be strings or integers"),
        ("error('a')", "-ERR user_script:1: a"),
        ("error({err='My err'})", "-My err"),
        ("error({x=1})", "-ERR unknown error"),
        ("error()", "-ERR nil"),
        ("return {pcall(error, {err='x'})}", "*2 $-1 $1 x"),
        ("local _, e = pcall(error, {err='x'}) return e", "$1 x"),
        ("local x = nil + 1", "-ERR user_script:1: attempt to perform arithmetic on a nil value"),
        ("syntax error", "-ERR Error compiling script (new function): user_script:1: '=' expected near 'error'"),
        ("return redis.error_reply('abc')", "-ERR abc"),
        ("return redis.error_reply('-ABC abc')", "-ABC abc"),
        ("return redis.error_reply('My Err')", "-My Err"),
        ("return redis.error_reply('a','b')", "-ERR wrong number or type of arguments"),
        ("return redis.status_reply('fine')", "+fine"),
        ("return redis.status_reply(1)", "-ERR wrong number or type of arguments"),
        ("redis.log(1)", "-ERR redis.log() requires two arguments or more."),
        ("redis.log('x','y')", "-ERR First argument must be a number (log level)."),
        ("redis.log(9,'y')", "-ERR Invalid debug level."),
        ("return redis.log(redis.LOG_DEBUG,'y')", "$-1"),
        ("local _, e = xpcall(function() redis.call('wrong') end, function(e) return e.err end) return e", "$11 WRONG it is"),
        ("return coroutine.wrap(function() return redis.call('double') end)()", "$3 2.5"),
        ("local ok, e = coroutine.resume(coroutine.create(function() redis.call('wrong') end)) return e.err", "$11 WRONG it is"),
    ]);
}

#[test]
fn error_names_script_and_line() {
    let mut bench = Bench::new();
    let mut text_of = |text: &str| match bench.run_with(text, &[], false) {
        Err(Ended::Failed(text)) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{other:?}"),
    };
    let text = "return redis.call('wrong')";
    let sha = terrace_script::Script::sha(text.as_bytes());
    assert_eq!(text_of(text), format!("WRONG it is script: {sha}, on @user_script:1."));
    let text = "\nlocal function f()\n  return redis.call('wrong')\nend\nf()";
    assert!(text_of(text).ends_with(", on @user_script:3."), "{}", text_of(text));
    assert!(text_of("\n\nerror('x')").ends_with(", on @user_script:3."));
    assert!(
        text_of("#!lua\nreturn X").starts_with("ERR user_script:2: Script attempted to access nonexistent")
    );
    assert!(text_of("#!lua\nreturn X").ends_with(", on @user_script:2."), "{}", text_of("#!lua\nreturn X"));
}
