//! The server's settings. Each is a line of [`TABLE`], which the command line, the environment,
//! CONFIG GET and CONFIG SET read.
//!
//! A value is kept as a number or as text, so reading a number is one atomic load. Names and values
//! are those of Redis where Redis has the setting.

mod table;
mod value;

use std::{
    fmt,
    sync::{
        OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use terrace::{Durability, Eviction, First, Policy};

use crate::state::databases;

pub use table::{Key, Setting, TABLE, setting};
pub use value::{Kind, format_size, parse_size, parse_sizes};

/// The values of all settings. Some can change while the server runs.
pub struct Config {
    values: Vec<Value>,
    grow: OnceLock<Grow>,
    evict: OnceLock<Evict>,
    promise: OnceLock<Promise>,
    clients: OnceLock<AllowClients>,
    measure: OnceLock<Measure>,
}

/// Grows the pool to a size and returns its new size. The error is a text for the user.
type Grow = Box<dyn Fn(u64) -> Result<u64, String> + Send + Sync>;

/// Applies the settings about eviction to the store. The error is a text for the user.
type Evict = Box<dyn Fn(&Config) -> Result<(), String> + Send + Sync>;

/// Sets what an answered write survives from now on. The error is a text for the user.
type Promise = Box<dyn Fn(Durability) -> Result<(), String> + Send + Sync>;

/// Prepares for so many clients. The error is a text for the user.
type AllowClients = Box<dyn Fn(u64) -> Result<(), String> + Send + Sync>;

/// The size of the store's pool now; 0: it has none. `None`: not known yet.
type Measure = Box<dyn Fn() -> Option<u64> + Send + Sync>;

struct Value {
    number: AtomicU64,
    text: RwLock<String>,
    given: AtomicBool,
}

impl Default for Config {
    fn default() -> Self {
        let in_order = |(at, setting): (usize, &Setting)| setting.key as usize == at;
        assert!(TABLE.iter().enumerate().all(in_order), "a setting's key is its place in the table");
        let values = TABLE.iter().map(|setting| {
            let (number, text) = match setting.kind.parse(setting.default) {
                Ok(value::Parsed::Number(number)) => (number, String::new()),
                Ok(value::Parsed::Text(text)) => (0, text),
                Err(_) => (0, setting.default.into()),
            };
            Value { number: number.into(), text: text.into(), given: false.into() }
        });
        Config {
            values: values.collect(),
            grow: OnceLock::new(),
            evict: OnceLock::new(),
            promise: OnceLock::new(),
            clients: OnceLock::new(),
            measure: OnceLock::new(),
        }
    }
}

impl Config {
    /// The password that clients must give (`requirepass`); empty: none.
    pub fn password(&self) -> Vec<u8> {
        self.text(Key::Password).into_bytes()
    }

    /// Maximum length of a bulk string from a client, bytes.
    pub fn proto_max_bulk_len(&self) -> usize {
        usize::try_from(self.number(Key::ProtoMaxBulkLen)).unwrap_or(usize::MAX)
    }

    /// The value of a setting that is a number, a size or a switch (0 or 1).
    pub fn number(&self, key: Key) -> u64 {
        // ORDER: Relaxed: a setting stands alone, it publishes nothing else.
        self.values[key as usize].number.load(Ordering::Relaxed)
    }

    /// The value of a setting that is text.
    pub fn text(&self, key: Key) -> String {
        // A text is replaced whole, so a panic elsewhere leaves no partial change.
        self.values[key as usize].text.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a switch is on.
    pub fn is_on(&self, key: Key) -> bool {
        self.number(key) != 0
    }

    /// Calls `each` with the name and value of every setting whose name, in lower case, `wanted`
    /// accepts.
    pub fn for_each(&self, wanted: &mut dyn FnMut(&str) -> bool, each: &mut dyn FnMut(&str, &str)) {
        for setting in TABLE.iter().filter(|setting| wanted(setting.name)) {
            each(setting.name, &self.shown(setting));
        }
        for (older, _) in table::OLDER_NAMES.iter().filter(|(older, _)| wanted(older)) {
            setting(older).into_iter().for_each(|setting| each(older, &self.shown(setting)));
        }
    }

    /// Changes one setting while the server runs (CONFIG SET). The error is the text after `ERR
    /// CONFIG SET failed (possibly related to argument 'NAME') - `.
    pub fn set(&self, name: &str, value: &[u8]) -> Result<(), SetError> {
        let Some((key, parsed)) = self.read(name, value)? else { return Ok(()) };
        let parsed = match (key, parsed) {
            (Key::Size, value::Parsed::Number(bytes)) => value::Parsed::Number(self.grow(bytes)?),
            (Key::AppendFsync, value::Parsed::Text(word)) => {
                self.promise(&word)?;
                value::Parsed::Text(word)
            }
            (_, parsed) => parsed,
        };
        if key.is_about_eviction() {
            return self.set_about_eviction(key, parsed);
        }
        self.store(key, parsed);
        if key == Key::LogLevel {
            log::set_max_level(self.log_level());
        }
        Ok(())
    }

    /// Changes several settings while the server runs, all or none. The error comes with the name
    /// that it is about, as it was given.
    pub fn set_all<'a>(&self, changes: &[(&'a [u8], &'a [u8])]) -> Result<(), (&'a [u8], SetError)> {
        let mut known = Vec::with_capacity(changes.len());
        for (name, value) in changes {
            let setting =
                std::str::from_utf8(name).ok().and_then(setting).ok_or((*name, SetError::Unknown))?;
            if known.iter().any(|(_, _, other): &(&[u8], &[u8], &Setting)| other.key == setting.key) {
                return Err((name, invalid("duplicate parameter")));
            }
            known.push((*name, *value, setting));
        }
        for (name, value, setting) in &known {
            self.check(setting.name, value).map_err(|error| (*name, error))?;
        }
        // A pool that has grown does not shrink, so this comes when nothing can fail any more.
        known.sort_by_key(|(_, _, setting)| setting.key == Key::Size);
        let mut before = Vec::new();
        for (name, value, setting) in known {
            before.push((setting.name, self.kept(setting)));
            if let Err(error) = self.set(setting.name, value) {
                before.pop();
                before.iter().rev().for_each(|(name, value)| _ = self.set(name, value.as_bytes()));
                return Err((name, error));
            }
        }
        Ok(())
    }

    /// The level of messages on standard error.
    pub fn log_level(&self) -> log::LevelFilter {
        match self.text(Key::LogLevel).as_str() {
            "debug" => log::LevelFilter::Trace,
            "verbose" => log::LevelFilter::Debug,
            "warning" => log::LevelFilter::Warn,
            _ => log::LevelFilter::Info,
        }
    }

    /// Whether [`Config::set`] would succeed, as far as that is known without doing it. Lets CONFIG
    /// SET change all of several settings or none.
    pub fn check(&self, name: &str, value: &[u8]) -> Result<(), SetError> {
        self.read(name, value).map(|_| ())
    }

    /// Parses a change; `None`: the setting has that value anyway.
    fn read(&self, name: &str, value: &[u8]) -> Result<Option<(Key, value::Parsed)>, SetError> {
        let setting = setting(name).ok_or(SetError::Unknown)?;
        let text = std::str::from_utf8(value).map_err(|_| invalid("argument must be UTF-8 text"))?;
        // A client may set what holds anyway, and gets OK.
        let holds = || text.eq_ignore_ascii_case(&self.shown(setting));
        match setting.kind {
            Kind::Fixed(_) if holds() => return Ok(None),
            Kind::Fixed(why) => return Err(invalid(why)),
            _ if setting.is_live => {}
            _ if holds() => return Ok(None),
            _ => return Err(SetError::Immutable),
        }
        let parsed = setting.kind.parse(text).map_err(SetError::Invalid)?;
        if let (Key::MaxClients, value::Parsed::Number(clients)) = (setting.key, &parsed)
            && let Some(allow) = self.clients.get()
        {
            allow(*clients).map_err(SetError::Invalid)?;
        }
        Ok(Some((setting.key, parsed)))
    }

    /// Sets a value before the server starts: from a flag, the environment or a program.
    pub fn assign(&self, name: &str, value: &str) -> Result<(), SetError> {
        let setting = setting(name).ok_or(SetError::Unknown)?;
        if let Kind::Fixed(why) = setting.kind {
            return Err(invalid(why));
        }
        self.store(setting.key, setting.kind.parse(value).map_err(SetError::Invalid)?);
        // ORDER: Relaxed: as in `number`.
        self.values[setting.key as usize].given.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether [`Config::assign`] set the value. A default that is not available may be replaced,
    /// an explicit value may not.
    pub fn is_explicit(&self, key: Key) -> bool {
        self.values[key as usize].given.load(Ordering::Relaxed)
    }

    /// Records the actual value of a setting: the size of an existing pool, the number of threads
    /// chosen.
    pub fn record(&self, key: Key, number: u64) {
        self.store(key, value::Parsed::Number(number));
    }

    /// As [`Config::record`], for a text: the index of an existing pool.
    pub fn record_text(&self, key: Key, text: &str) {
        self.store(key, value::Parsed::Text(text.into()));
    }

    /// Sets the function that applies the settings about eviction. Only the first call counts.
    pub(crate) fn set_evict(&self, evict: impl Fn(&Config) -> Result<(), String> + Send + Sync + 'static) {
        let _ = self.evict.set(Box::new(evict));
    }

    /// Changes a setting about eviction, or leaves it if the store refuses.
    fn set_about_eviction(&self, key: Key, parsed: value::Parsed) -> Result<(), SetError> {
        let before = (self.number(key), self.text(key));
        self.store(key, parsed);
        self.evict.get().map_or(Ok(()), |evict| evict(self)).map_err(|why| {
            self.store(key, value::Parsed::Number(before.0));
            self.store(key, value::Parsed::Text(before.1));
            SetError::Invalid(why)
        })
    }

    /// How the store is to evict.
    pub(crate) fn eviction(&self) -> Eviction {
        let (only_volatile, first) = match self.text(Key::MaxMemoryPolicy).as_str() {
            "allkeys-lru" => (false, Some(First::LeastRecent)),
            "allkeys-lfu" => (false, Some(First::LeastFrequent)),
            "allkeys-random" => (false, Some(First::Random)),
            "volatile-lru" => (true, Some(First::LeastRecent)),
            "volatile-lfu" => (true, Some(First::LeastFrequent)),
            "volatile-random" => (true, Some(First::Random)),
            "volatile-ttl" => (true, Some(First::NextToExpire)),
            _ => (false, None),
        };
        let number = |key| u32::try_from(self.number(key)).unwrap_or(u32::MAX);
        Eviction {
            policy: first.map(|first| Policy { only_volatile, first }),
            limit_bytes: self.number(Key::MaxMemory),
            samples: number(Key::MaxMemorySamples),
            tenacity: number(Key::MaxMemoryEvictionTenacity),
            log_factor: number(Key::LfuLogFactor),
            decay_minutes: number(Key::LfuDecayTime),
            spared: Some(databases::RECORD_KEY),
        }
    }

    /// Sets the function by which CONFIG SET size grows the pool. Only the first call counts.
    pub fn set_grow(&self, grow: impl Fn(u64) -> Result<u64, String> + Send + Sync + 'static) {
        let _ = self.grow.set(Box::new(grow));
    }

    /// Sets the function that prepares for a number of clients (CONFIG SET maxclients), or says why
    /// so many are not possible. Only the first call counts.
    pub(crate) fn set_allow_clients(
        &self,
        allow: impl Fn(u64) -> Result<(), String> + Send + Sync + 'static,
    ) {
        let _ = self.clients.set(Box::new(allow));
    }

    /// Sets the function that tells the size of the pool, which other processes may change; 0:
    /// there is no pool, `None`: it is not known yet. Only the first call counts.
    pub(crate) fn set_measure(&self, measure: impl Fn() -> Option<u64> + Send + Sync + 'static) {
        let _ = self.measure.set(Box::new(measure));
    }

    /// The size of the pool now; 0: the store has none.
    fn size(&self) -> u64 {
        self.measure.get().and_then(|measure| measure()).unwrap_or_else(|| self.number(Key::Size))
    }

    fn grow(&self, bytes: u64) -> Result<u64, SetError> {
        match self.grow.get() {
            _ if bytes == self.size() => Ok(bytes),
            Some(grow) => grow(bytes).map_err(SetError::Invalid),
            None => Err(invalid("this store cannot grow")),
        }
    }

    /// Sets the function by which CONFIG SET appendfsync changes what an answered write survives.
    /// Only the first call counts.
    pub fn set_promise(&self, promise: impl Fn(Durability) -> Result<(), String> + Send + Sync + 'static) {
        let _ = self.promise.set(Box::new(promise));
    }

    /// Changes the durability to that which `word` stands for in Redis.
    fn promise(&self, word: &str) -> Result<(), SetError> {
        let durability = match word.to_ascii_lowercase().as_str() {
            "always" => Durability::Power,
            "everysec" => Durability::Interval,
            _ => Durability::Process,
        };
        match self.promise.get() {
            _ if durability.to_string() == self.text(Key::Durability) => {}
            Some(promise) => promise(durability).map_err(SetError::Invalid)?,
            None => {
                return Err(invalid("the durability of a pool is chosen when it is opened, by --durability"));
            }
        }
        self.record_durability(durability);
        Ok(())
    }

    /// Records what an answered write survives.
    pub fn record_durability(&self, durability: Durability) {
        let word = match durability {
            Durability::Power => "always",
            Durability::Interval => "everysec",
            Durability::None | Durability::Process => "no",
        };
        self.record_text(Key::Durability, &durability.to_string());
        self.record_text(Key::AppendFsync, word);
    }

    fn store(&self, key: Key, parsed: value::Parsed) {
        let slot = &self.values[key as usize];
        match parsed {
            // ORDER: Relaxed: as in `number`.
            value::Parsed::Number(number) => slot.number.store(number, Ordering::Relaxed),
            value::Parsed::Text(text) => {
                *slot.text.write().unwrap_or_else(PoisonError::into_inner) = text;
            }
        }
    }

    /// The value as CONFIG GET shows it.
    fn shown(&self, setting: &Setting) -> String {
        match setting.key {
            Key::MaxMemory if self.number(Key::MaxMemory) == 0 => self.size().to_string(),
            Key::Size if self.size() > 0 => self.size().to_string(),
            _ => self.kept(setting),
        }
    }

    /// The value as it is kept, in the form in which it can be set.
    fn kept(&self, setting: &Setting) -> String {
        match (setting.key, setting.kind) {
            (_, Kind::Switch) => if self.is_on(setting.key) { "yes" } else { "no" }.into(),
            (_, Kind::Octal) => format!("{:o}", self.number(setting.key)),
            (_, Kind::Number { .. } | Kind::Size { .. }) => self.number(setting.key).to_string(),
            (
                _,
                Kind::Text
                | Kind::Signed
                | Kind::Password
                | Kind::Sizes
                | Kind::SizeOrAuto
                | Kind::Choice(_)
                | Kind::Fixed(_),
            ) => self.text(setting.key),
        }
    }
}

fn invalid(text: &str) -> SetError {
    SetError::Invalid(text.into())
}

/// The reason why a change was refused.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetError {
    /// There is no setting of this name.
    Unknown,
    /// The setting cannot change while the server runs.
    Immutable,
    /// The value is not valid; a text for the user says why.
    Invalid(String),
}

impl fmt::Display for SetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetError::Unknown => "there is no setting of this name",
            SetError::Immutable => "can't set immutable config",
            SetError::Invalid(why) => why,
        })
    }
}

impl std::error::Error for SetError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(config: &Config, pattern: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        config.for_each(&mut |name| name == pattern, &mut |name, value| {
            found.push((name.to_string(), value.to_string()));
        });
        found
    }

    #[test]
    fn setting_defaults_are_valid_and_keys_match_table() {
        for (at, setting) in TABLE.iter().enumerate() {
            assert_eq!(setting.key as usize, at, "{}", setting.name);
            assert!(setting.kind.parse(setting.default).is_ok(), "{}", setting.name);
            assert_eq!(
                super::setting(&setting.name.to_uppercase()).map(|found| found.key),
                Some(setting.key)
            );
        }
    }

    #[test]
    fn set_changes_only_live_settings() {
        let config = Config::default();
        assert_eq!(config.set("MaxClients", b"12"), Ok(()));
        assert_eq!(get(&config, "maxclients"), [("maxclients".into(), "12".into())]);
        assert_eq!(config.set("port", b"1"), Err(SetError::Immutable));
        assert_eq!(config.set("colour", b"1"), Err(SetError::Unknown));
        assert_eq!(config.set("proto-max-bulk-len", b"8mb"), Ok(()));
        assert_eq!(config.proto_max_bulk_len(), 8 << 20);
        assert!(matches!(config.set("maxclients", b"0"), Err(SetError::Invalid(_))));
        assert!(matches!(config.set("requirepass", &[0xff]), Err(SetError::Invalid(_))));
    }

    #[test]
    fn check_changes_nothing() {
        let config = Config::default();
        assert_eq!(config.check("maxclients", b"12"), Ok(()));
        assert_eq!(config.check("appendonly", b"no"), Ok(()));
        assert_eq!(config.check("port", b"1"), Err(SetError::Immutable));
        assert_eq!(config.number(Key::MaxClients), 10_000);
    }

    #[test]
    fn fact_refuses_other_values_and_confirms_its_own() {
        let config = Config::default();
        assert_eq!(config.set("appendonly", b"no"), Ok(()));
        assert!(
            matches!(config.set("appendonly", b"yes"), Err(SetError::Invalid(why)) if why.contains("pool"))
        );
        assert!(matches!(config.assign("save", "900 1"), Err(SetError::Invalid(_))));
        assert_eq!(get(&config, "save"), [("save".into(), String::new())]);
    }

    #[test]
    fn set_all_changes_all_or_none() {
        let config = Config::default();
        config.set_evict(|config| match config.number(Key::MaxMemory) {
            1.. => Err("this store cannot evict".into()),
            0 => Ok(()),
        });
        config.set_grow(Ok);
        let refused = config.set_all(&[(b"size", b"8gb"), (b"MaxClients", b"12"), (b"maxmemory", b"1gb")]);
        assert_eq!(refused, Err((&b"maxmemory"[..], invalid("this store cannot evict"))));
        let kept = [Key::Size, Key::MaxClients, Key::MaxMemory].map(|key| config.number(key));
        assert_eq!(kept, [4 << 30, 10_000, 0]);
        assert_eq!(
            config.set_all(&[(b"size", b"8gb"), (b"maxclients", b"12"), (b"maxmemory", b"0")]),
            Ok(())
        );
        assert_eq!([Key::Size, Key::MaxClients].map(|key| config.number(key)), [8 << 30, 12]);
        // Two names of one setting.
        let twice = config.set_all(&[(b"lua-time-limit", b"1"), (b"busy-reply-threshold", b"2")]);
        assert_eq!(twice, Err((&b"busy-reply-threshold"[..], invalid("duplicate parameter"))));
        // As in Redis, an unknown name is reported before a bad value.
        let unknown = config.set_all(&[(b"maxclients", b"x"), (b"colour", b"1")]);
        assert_eq!(unknown, Err((&b"colour"[..], SetError::Unknown)));
    }

    #[test]
    fn size_is_that_of_the_pool_now() {
        let config = Config::default();
        let size = std::sync::Arc::new(AtomicU64::new(1 << 20));
        let measured = std::sync::Arc::clone(&size);
        config.set_measure(move || Some(measured.load(Ordering::Relaxed)));
        let shown = || ["size", "maxmemory"].map(|name| get(&config, name)[0].1.clone());
        assert_eq!(shown(), ["1048576", "1048576"]);
        size.store(2 << 20, Ordering::Relaxed);
        assert_eq!(shown(), ["2097152", "2097152"]);
        // A store on files has no limit.
        size.store(0, Ordering::Relaxed);
        assert_eq!(shown()[1], "0");
    }

    #[test]
    fn size_grows_pool_or_keeps_old_value() {
        let config = Config::default();
        config.set_grow(|bytes| if bytes > 8 << 30 { Err("the disk is full".into()) } else { Ok(bytes) });
        assert_eq!(config.set("size", b"8gb"), Ok(()));
        assert_eq!(get(&config, "maxmemory"), [("maxmemory".into(), (8u64 << 30).to_string())]);
        assert_eq!(config.set("size", b"16gb"), Err(SetError::Invalid("the disk is full".into())));
        assert_eq!(config.number(Key::Size), 8 << 30);
    }
}
