//! Settings that do not hold as they were given: the pool was made with others, or they need
//! another setting to mean anything. CONFIG GET tells what holds, and each difference is said.

use terrace::{Start, Store};
use terrace_server::config::{Config, Key, TABLE, format_size, parse_sizes};

/// Records what is in force in an opened store, and returns what to say, a line each: settings that
/// were given and do not hold.
pub(crate) fn record(config: &Config, store: &Store) -> Vec<String> {
    let mut said = Vec::new();
    made_with(config, store, &mut said);
    without_meaning(config, store, &mut said);
    said
}

/// What a pool keeps from when it was made.
fn made_with(config: &Config, store: &Store, said: &mut Vec<String>) {
    const REMAKE: &str = "to change it, `terrace dump` and `terrace load` into a new pool";
    let stats = store.stats();
    let (pool, index) = (stats.pool.unwrap_or_default(), stats.index.unwrap_or_default().name);
    // A process that joins others finds the pool as the first of them did.
    let existed = pool.found != Start::Created || !store.others().is_empty();
    let mut differs = |key: Key, has: String, asked: String, how: &str| {
        if existed && config.given(key) && has != asked {
            said.push(format!(
                "{} {asked} is for a pool that is created; this pool has {has}: {how}",
                flag(key)
            ));
        }
    };
    differs(Key::Index, index.into(), config.text(Key::Index), REMAKE);
    let (has, asked) = (u64::from(pool.participants), config.number(Key::Participants));
    config.record(Key::Participants, has);
    if asked != 0 {
        differs(Key::Participants, has.to_string(), asked.to_string(), REMAKE);
    }
    let (has, asked) = (pool.size_bytes, config.number(Key::Size));
    // A size is rounded to whole pages when the pool is made, which may be huge ones.
    if has.abs_diff(asked) >= 2 << 20 {
        let how = format!("CONFIG SET size {asked} makes it grow");
        let how = if asked > has { &how } else { "a pool cannot shrink" };
        differs(Key::Size, bytes(has), bytes(asked), how);
    }
    config.record_text(Key::Index, index);
    config.record(Key::Size, pool.size_bytes);
    config.record(Key::MaxSize, pool.reserved_bytes);
}

/// What means nothing without another setting.
fn without_meaning(config: &Config, store: &Store, said: &mut Vec<String>) {
    let shared = config.is_on(Key::Shared);
    let index = store.stats().index.unwrap_or_default().name;
    let mut nothing = |key: Key, is_so: bool, why: &str| {
        if is_so && config.given(key) {
            said.push(format!("{} means nothing {why}", flag(key)));
        }
    };
    let caches = parse_sizes(&config.text(Key::IndexCache)).is_some_and(|(_, most)| most > 0);
    nothing(
        Key::IndexCache,
        caches && index != "rewo",
        &format!("to the index {index}: only rewo has a cache"),
    );
    nothing(Key::IndexCache, caches && shared, "in a pool that is shared: no process caches its index");
    nothing(Key::EndStopped, config.number(Key::EndStopped) > 0 && !shared, "without --shared");
    let no_socket = config.text(Key::UnixSocket).is_empty();
    nothing(Key::UnixSocketPerm, no_socket, "without --unix");
    nothing(Key::Bind, config.number(Key::Port) == 0, "with --port 0");
    if caches && (index != "rewo" || shared) {
        config.record_text(Key::IndexCache, "0");
    }
    if !shared {
        config.record(Key::EndStopped, 0);
    }
}

/// Exact, and for people.
fn bytes(count: u64) -> String {
    format!("{count} ({})", format_size(count))
}

fn flag(key: Key) -> String {
    format!("--{}", TABLE[key as usize].flag)
}
