//! Settings that have no effect as given: the pool was created with other values, or they depend on
//! another setting. CONFIG GET returns the effective value, and each difference is reported.

use terrace::{Engine, Index, Start, Store};
use terrace_server::config::{Config, Key, TABLE, format_size, parse_size, parse_sizes};

use crate::{failure::say, location::is_on_disk};

/// Stores the effective settings of an opened store in `config`. Returns one warning for each given
/// setting that has no effect.
pub(crate) fn record(config: &Config, store: &Store) -> Vec<String> {
    let mut warnings = Vec::new();
    config.record_durability(store.durability());
    if store.is_on_disk() {
        config.record_text(Key::AppendOnly, "yes");
        warn_on_files(config, store, &mut warnings);
        return warnings;
    }
    warn_without_effect(config, OF_DIRECTORY, "without --dir", &mut warnings);
    record_fixed(config, store, &mut warnings);
    record_dependent(config, store, &mut warnings);
    warnings
}

/// Warns of settings of other stores than one on files: in a directory, or over DRAM and a pool.
fn warn_on_files(config: &Config, store: &Store, warnings: &mut Vec<String>) {
    match is_on_disk(config) {
        true => {
            let is_tiered = store.stats().tier.is_some();
            let index: &[Key] = if is_tiered { &[] } else { &[Key::Index] };
            let (of_other, engine) = match is_tiered {
                true => (&[Key::Memory, Key::MergeRate][..], Engine::Tiered.name()),
                false => (&[Key::Dram][..], Engine::Wip.name()),
            };
            warn_without_effect(config, of_other, &format!("with the engine {engine}"), warnings);
            warn_without_effect(
                config,
                &[OF_ANY_POOL, OF_POOL, index].concat(),
                "with --dir: the store lies in no pool",
                warnings,
            );
        }
        false => {
            warn_without_effect(
                config,
                &[OF_POOL, &[Key::Memory, Key::SyncInterval, Key::MergeRate]].concat(),
                "on a store over DRAM and a pool",
                warnings,
            );
            warn_of_size(config, store, warnings);
        }
    }
}

/// Warns of each given setting that has no effect, for a command that does nothing else with them.
/// To look takes time in a large pool, so it looks only if there are some.
pub(crate) fn warn(config: &Config, store: &Store) {
    let all = [OF_ANY_POOL, OF_POOL, OF_DIRECTORY, &[Key::Index]].concat();
    if all.into_iter().any(|key| config.is_explicit(key)) {
        record(config, store).iter().for_each(|text| say(&format!("warning: {text}")));
    }
}

/// Reports that the pool below a store has another size than is asked for.
fn warn_of_size(config: &Config, store: &Store, warnings: &mut Vec<String>) {
    let file = store.path().and_then(|path| path.metadata().ok());
    let Some(has) = file.map(|file| file.len()).filter(|_| config.is_explicit(Key::Size)) else { return };
    let asked = config.number(Key::Size);
    if has.abs_diff(asked) >= ROUNDED {
        warnings.push(format!(
            "--size {} applies only when a pool is created; this pool has {}: {REMAKE}",
            bytes(asked),
            bytes(has)
        ));
    }
}

/// At creation, a size is rounded to whole pages, perhaps huge ones.
const ROUNDED: u64 = 2 << 20;
const REMAKE: &str = "to change it, `terrace dump` and `terrace load` into a new pool";

/// Settings of any pool, of one that has all of the store, and of a directory only.
const OF_ANY_POOL: &[Key] = &[Key::Size, Key::MaxSize, Key::HugePages];
const OF_POOL: &[Key] = &[Key::IndexCache, Key::IndexDram, Key::Shared, Key::Participants, Key::EndStopped];
const OF_DIRECTORY: &[Key] = &[Key::Memory, Key::Dram, Key::SyncInterval, Key::MergeRate];

fn warn_without_effect(config: &Config, keys: &[Key], why: &str, warnings: &mut Vec<String>) {
    let given = keys.iter().filter(|key| config.is_explicit(**key));
    warnings.extend(given.map(|key| format!("{} has no effect {why}", flag(*key))));
}

/// Settings that are fixed when a pool is created.
fn record_fixed(config: &Config, store: &Store, warnings: &mut Vec<String>) {
    let stats = store.stats();
    let (pool, index) = (stats.pool.unwrap_or_default(), stats.index.unwrap_or_default().name);
    // A process that joins others gets the `found` of the process that opened the pool first.
    let existed = pool.found != Start::Created || !store.sharing().other_processes().is_empty();
    let mut differs = |key: Key, has: String, asked: String, how: &str| {
        if existed && config.is_explicit(key) && has != asked {
            warnings.push(format!(
                "{} {asked} applies only when a pool is created; this pool has {has}: {how}",
                flag(key)
            ));
        }
    };
    // Any ordered index is what `ordered` asks for.
    let asked = config.text(Key::Index);
    let is_met = asked == "ordered" && Index::named(index).is_some_and(Index::is_ordered);
    differs(Key::Index, index.into(), if is_met { index.into() } else { asked }, REMAKE);
    let (has, asked) = (u64::from(pool.participants), config.number(Key::Participants));
    config.record(Key::Participants, has);
    if asked != 0 {
        differs(Key::Participants, has.to_string(), asked.to_string(), REMAKE);
    }
    let (has, asked) = (pool.size_bytes, config.number(Key::Size));
    if has.abs_diff(asked) >= ROUNDED {
        let how = format!("CONFIG SET size {asked} makes it grow");
        let how = if asked > has { &how } else { "a pool cannot shrink" };
        differs(Key::Size, bytes(has), bytes(asked), how);
    }
    config.record_text(Key::Index, index);
    config.record(Key::Size, pool.size_bytes);
    config.record(Key::MaxSize, pool.reserved_bytes);
}

/// Settings that have no effect without another setting.
fn record_dependent(config: &Config, store: &Store, warnings: &mut Vec<String>) {
    let shared = config.is_on(Key::Shared);
    let figures = store.stats().index.unwrap_or_default();
    let index = figures.name;
    let mut warn_if = |key: Key, is_so: bool, why: &str| {
        if is_so && config.is_explicit(key) {
            warnings.push(format!("{} has no effect {why}", flag(key)));
        }
    };
    let caches = parse_sizes(&config.text(Key::IndexCache)).is_some_and(|(_, most)| most > 0);
    warn_if(
        Key::IndexCache,
        caches && index != "rewo",
        &format!("with the index {index}: only rewo has a cache"),
    );
    warn_if(Key::IndexCache, caches && shared, "in a shared pool: no process caches its index");
    let layers = parse_size(&config.text(Key::IndexDram)).is_some_and(|bytes| bytes > 0);
    let why = format!("with the index {index}: only sptree has layers in DRAM");
    warn_if(Key::IndexDram, layers && figures.layers.is_none(), &why);
    warn_if(Key::IndexDram, layers && shared, "in a shared pool: no process has layers of its index");
    warn_if(Key::EndStopped, config.number(Key::EndStopped) > 0 && !shared, "without --shared");
    let no_socket = config.text(Key::UnixSocket).is_empty();
    warn_if(Key::UnixSocketPerm, no_socket, "without --unix");
    warn_if(Key::Bind, config.number(Key::Port) == 0, "with --port 0");
    if caches && (index != "rewo" || shared) {
        config.record_text(Key::IndexCache, "0");
    }
    let budget = figures.layers.map_or(0, |layers| layers.stats().budget);
    config.record_text(Key::IndexDram, &budget.to_string());
    if !shared {
        config.record(Key::EndStopped, 0);
    }
}

/// A number of bytes, exact and rounded.
fn bytes(count: u64) -> String {
    format!("{count} ({})", format_size(count))
}

fn flag(key: Key) -> String {
    format!("--{}", TABLE[key as usize].flag)
}
