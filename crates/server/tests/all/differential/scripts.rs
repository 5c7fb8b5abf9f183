//! Scripts, beside those of Redis.

use terrace_script::Script;

use super::{
    commands::{KEYS, NUMBERS, VALUES},
    *,
};

/// Scripts, each run with two keys and two arguments that are chosen at random.
const SCRIPTS: &[&str] = &[
    "return redis.call('get', KEYS[1])",
    "return redis.pcall('incr', KEYS[1])",
    "return redis.call('set', KEYS[1], ARGV[1])",
    "return redis.call('set', KEYS[1], ARGV[1], 'PX', 100000, 'NX')",
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
    "local n = redis.call('incr', 'script:n') if n == 1 then redis.call('pexpire', 'script:n', 100000) end return n",
    "return redis.call('mget', KEYS[1], KEYS[2], 'none')",
    "return {redis.call('exists', KEYS[1], KEYS[2]), redis.call('type', KEYS[1]), redis.call('strlen', KEYS[2])}",
    "return redis.pcall('incrby', KEYS[1], ARGV[1])",
    "return redis.pcall('incrbyfloat', KEYS[1], 0.1)",
    "return redis.pcall('append', KEYS[1], 3.3)",
    "return redis.pcall('set', KEYS[1], 1e14 + 0.5)",
    "return redis.pcall('getrange', KEYS[1], 1, -2)",
    "return redis.pcall('setrange', KEYS[1], ARGV[2], 'x')",
    "return redis.call('incr', KEYS[1])",
    "return redis.call('rename', KEYS[1], KEYS[2])",
    "return redis.call('get')",
    "return redis.call('nope', KEYS[1])",
    "return redis.call('multi')",
    "return redis.call('set', KEYS[1], {})",
    "local x = ARGV[1] + 1 return x",
    "return tonumber(ARGV[1])",
    "return tostring(tonumber(ARGV[1]))",
    "return {1, 2.7, 'x', true, false, {ok = 'fine'}, {err = 'NO way'}, nil, 3}",
    "return {KEYS[1], KEYS[2], ARGV[1], ARGV[2], #KEYS, #ARGV}",
    "error(ARGV[1])",
    "error({err = ARGV[1]})",
    "return redis.error_reply(ARGV[1])",
    "return redis.status_reply(ARGV[1])",
    "return redis.sha1hex(ARGV[1])",
    "local ok, e = pcall(redis.call, 'incr', KEYS[1]) return {tostring(ok), e}",
    "local ok, e = pcall(redis.call, 'get') return {tostring(ok), e}",
    "return cjson.encode({ARGV[1], {ARGV[2]}, 0.1, 1e20, cjson.null})",
    "local ok, v = pcall(cjson.decode, ARGV[1]) return {tostring(ok), type(v), tostring(v)}",
    "return cmsgpack.pack({ARGV[1], 1, -300, 0.5, 0.1, true, {}})",
    "return {cmsgpack.unpack(cmsgpack.pack(ARGV[1], tonumber(ARGV[2]), {1, 2}))}",
    "return struct.pack('>I2hBsc0', 513, -2, 7, ARGV[1], ARGV[2])",
    "return {struct.unpack('<hBs', struct.pack('<hBs', -513, 200, 'abc'))}",
    "return {bit.bxor(#ARGV[1], 255), bit.tohex(#ARGV[2], 4), bit.arshift(-7, 1), bit.bswap(1)}",
    "return ('%5.1f|%s|%q'):format(1.25, ARGV[1], 'a\\nb')",
    "return {string.find(ARGV[1], '[0-9]+'), (string.gsub(ARGV[1], 'l', 'L'))}",
    "x = 1",
    "return undefined",
    "redis.call('set', 'script:n', 'x') return redis.pcall('incr', 'script:n')",
    "syntax error",
    "#!lua flags=no-writes\nreturn redis.call('set', KEYS[1], 1)",
    "#!lua flags=nothing\nreturn 1",
    "redis.setresp(3) return {redis.call('get', 'none') == nil, redis.pcall('incrbyfloat', 'float:n', 1)}",
    "return loadstring('return 1 + ' .. #ARGV[1])()",
    "return {math.floor(-1.5), math.fmod(7, 3), math.max(1, 2), math.huge == 1 / 0}",
    "return table.concat({ARGV[1], ARGV[2]}, '-')",
    "local t = {3, 1, 2} table.sort(t) return t",
    "return select('#', unpack({1, 2, 3}))",
    "redis.call('select', 3) return {redis.call('set', KEYS[1], ARGV[1]), redis.call('exists', KEYS[1], KEYS[2])}",
    "return {redis.pcall('move', KEYS[1], 3), redis.pcall('copy', KEYS[1], KEYS[2], 'DB', 3)}",
    "return redis.pcall('select', ARGV[2])",
];

#[test]
fn scripts_equal_redis() {
    let Some(redis) = Redis::start() else { return };
    let shared = shared();
    let mut both = Both::new(&redis, &shared);
    let words = |words: &[&str]| -> Command { words.iter().map(|word| word.as_bytes().to_vec()).collect() };
    for seed in 0..40 {
        let mut random = Random(seed);
        let mut commands = vec![words(&["set", random.of(&KEYS), random.of(&VALUES)])];
        for script in SCRIPTS {
            let name = *random.of(&[&"eval", &"eval", &"eval_ro"]);
            let (a, b) = (random.of(&KEYS), random.of(&KEYS));
            commands.push(words(&[name, script, "2", a, b, random.of(&VALUES), random.of(&NUMBERS)]));
        }
        let sha = Script::sha(SCRIPTS[0].as_bytes());
        commands.push(words(&["evalsha", &sha, "1", random.of(&KEYS)]));
        commands.push(words(&["evalsha", "ffffffffffffffffffffffffffffffffffffffff", "0"]));
        commands.push(words(&["script", "exists", &sha, "x"]));
        commands.push(words(&["eval", "return 1", random.of(&NUMBERS), "a"]));
        commands.push(words(&["multi"]));
        commands.push(words(&["eval", SCRIPTS[random.below(8)], "2", "k1", "k2", "1", "2"]));
        commands.push(words(&["exec"]));
        both.send(&commands, seed);
    }
}
