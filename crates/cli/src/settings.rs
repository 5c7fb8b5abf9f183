//! Flags and environment variables made from the server's table of settings, so that a setting is
//! written once.

use std::marker::PhantomData;

use clap::{Arg, ArgMatches, Args, FromArgMatches, error::ErrorKind, parser::ValueSource};
use terrace_server::config::{Config, Key, Kind, Setting, TABLE};

use crate::{environment, failure::Failure};

/// Settings that say which pool, and how to make one.
const POOL: &[Key] = &[
    Key::Pool,
    Key::Size,
    Key::MaxSize,
    Key::Index,
    Key::IndexCache,
    Key::Engine,
    Key::Durability,
    Key::HugePages,
    Key::Salvage,
    Key::Shared,
    Key::Participants,
    Key::EndStopped,
];

/// Settings that matter to a command that only reads a pool.
const READING: &[Key] = &[Key::Pool, Key::Durability, Key::Salvage, Key::Shared, Key::EndStopped];

/// What was said of a pool ([`OfPool`], [`OfChange`], [`OfReader`]), or of a server and its pool
/// ([`OfServer`]).
#[derive(Clone, Debug)]
pub(crate) struct Settings<W> {
    said: Vec<(&'static Setting, String)>,
    /// Settings given on the command line.
    on_line: Vec<Key>,
    wanted: PhantomData<W>,
}

/// Which lines of the table a command takes.
pub(crate) trait Wanted {
    /// Whether `--help` shows what a setting is by default.
    const SHOWS_DEFAULTS: bool = true;

    fn wants(setting: &Setting) -> bool;

    /// The line of `--help`, and the heading that it is under.
    fn help(setting: &'static Setting) -> (&'static str, Option<&'static str>) {
        (setting.doc, Some(heading(setting.key)))
    }

    /// Whether `--help` lists it. Settings without meaning for a command are accepted, since the
    /// environment may set them for all commands, and ignored.
    fn lists(_: &Setting) -> bool {
        true
    }
}

/// A command that may make the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfPool;

/// A command that changes a pool that exists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfChange;

/// A command that reads one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfReader;

#[derive(Clone, Copy, Debug)]
pub(crate) struct OfServer;

impl Wanted for OfPool {
    fn wants(setting: &Setting) -> bool {
        POOL.contains(&setting.key)
    }
}

impl Wanted for OfChange {
    fn wants(setting: &Setting) -> bool {
        OfPool::wants(setting)
    }

    fn lists(setting: &Setting) -> bool {
        OfReader::lists(setting) || [Key::MaxSize, Key::HugePages].contains(&setting.key)
    }
}

impl Wanted for OfReader {
    fn wants(setting: &Setting) -> bool {
        OfPool::wants(setting)
    }

    fn lists(setting: &Setting) -> bool {
        READING.contains(&setting.key)
    }
}

impl Wanted for OfServer {
    fn wants(setting: &Setting) -> bool {
        !setting.flag.is_empty()
    }
}

/// Threads of `bench`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfThreads;

impl Wanted for OfThreads {
    fn wants(setting: &Setting) -> bool {
        setting.key == Key::Threads
    }

    fn help(_: &'static Setting) -> (&'static str, Option<&'static str>) {
        ("Threads; 0: one a core", None)
    }
}

/// Where `stats` finds a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfMetrics;

impl Wanted for OfMetrics {
    // Without the flag, the server's notice in the pool tells.
    const SHOWS_DEFAULTS: bool = false;

    fn wants(setting: &Setting) -> bool {
        setting.key == Key::MetricsPort
    }

    fn help(_: &'static Setting) -> (&'static str, Option<&'static str>) {
        (
            "Port at which the server that holds the pool shows its metrics; without it, the server has said so in the pool",
            None,
        )
    }
}

impl<W: Wanted> Settings<W> {
    /// The value of a setting that is a number.
    pub(crate) fn number(&self, key: Key) -> u64 {
        // The values were checked when they were read.
        self.config().unwrap_or_default().number(key)
    }

    /// Whether the setting was given, by a flag or in the environment.
    pub(crate) fn is_given(&self, key: Key) -> bool {
        self.said.iter().any(|(setting, _)| setting.key == key)
    }

    /// The settings as the server keeps them: those that were said are marked as given.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let config = Config::default();
        for (setting, value) in &self.said {
            config
                .assign(setting.name, value)
                .map_err(|error| Failure::usage(format!("--{} {value}: {error}", setting.flag)))?;
        }
        Ok(config)
    }

    /// Sets the pool that was named before the command.
    pub(crate) fn name_pool(&mut self, pool: &str) -> Result<(), Failure> {
        if self.on_line.contains(&Key::Pool) {
            return Err(Failure::usage("--pool is given twice"));
        }
        self.said.retain(|(setting, _)| setting.key != Key::Pool);
        self.said.push((&TABLE[Key::Pool as usize], pool.into()));
        Ok(())
    }
}

impl<W: Wanted> Args for Settings<W> {
    fn augment_args(command: clap::Command) -> clap::Command {
        let wanted = TABLE.iter().filter(|setting| W::wants(setting));
        wanted.fold(command, |command, setting| {
            let flag = flag(setting, W::help(setting)).hide(!W::lists(setting));
            command.arg(flag.hide_default_value(!W::SHOWS_DEFAULTS))
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl<W: Wanted> FromArgMatches for Settings<W> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (mut said, mut on_line) = (Vec::new(), Vec::new());
        for setting in TABLE.iter().filter(|setting| W::wants(setting)) {
            let is_given = matches.value_source(setting.flag) == Some(ValueSource::CommandLine);
            let flag = matches.get_one::<String>(setting.flag).filter(|_| is_given);
            let variable = || environment::value(setting).map_err(refused);
            if let Some(value) = flag.map_or_else(variable, |flag| Ok(Some(flag.clone())))? {
                said.push((setting, value));
            }
            if is_given {
                on_line.push(setting.key);
            }
        }
        Ok(Settings { said, on_line, wanted: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A variable with a value that will not do, as clap says it of a flag.
fn refused(why: String) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, why + "\n")
}

fn flag(setting: &'static Setting, (doc, heading): (&'static str, Option<&'static str>)) -> Arg {
    let doc = match setting.kind {
        Kind::Choice(choices) => format!("{doc}: {}", choices.join(" or ")),
        _ => doc.into(),
    };
    let check = move |text: &str| {
        let refuse = |_| format!("it must be {}", setting.kind.wanted());
        setting.check(text).map(|()| text.to_string()).map_err(refuse)
    };
    let arg = Arg::new(setting.flag)
        .long(setting.flag)
        // Not clap's `env`, which takes an empty variable for a value and does not name the
        // variable in its errors.
        .help(format!("{doc} [env: {}]", setting.env))
        .help_heading(heading)
        .value_parser(check);
    let arg = if setting.default.is_empty() { arg } else { arg.default_value(setting.default) };
    let arg = if setting.name == setting.flag { arg } else { arg.alias(setting.name) };
    match setting.kind {
        Kind::Switch => {
            arg.num_args(0..=1).require_equals(true).default_missing_value("yes").value_name("yes|no")
        }
        Kind::Size { .. } => arg.value_name("SIZE"),
        Kind::Sizes => arg.value_name("MIN..MAX"),
        Kind::Number { .. } => arg.value_name("N"),
        Kind::Choice(_) => arg.value_name("NAME"),
        Kind::Octal => arg.value_name("MODE"),
        Kind::Password => arg.value_name("PASSWORD"),
        Kind::Text | Kind::Fact(_) => {
            arg.value_name(if setting.key == Key::Bind { "ADDRESSES" } else { "PATH" })
        }
    }
}

fn heading(key: Key) -> &'static str {
    match key {
        key if POOL.contains(&key) => "Pool",
        Key::Bind
        | Key::Port
        | Key::TcpBacklog
        | Key::UnixSocket
        | Key::UnixSocketPerm
        | Key::MetricsPort => "Where to listen",
        Key::Password | Key::AuthTimeout | Key::MaxClients | Key::Timeout | Key::TcpKeepalive => "Clients",
        Key::ProtoMaxBulkLen | Key::ClientOutputBuffer => "Clients",
        _ => "Program",
    }
}
