//! Flags and environment variables, generated from the server's table of settings, so that each
//! setting is defined once.

use std::marker::PhantomData;

use clap::{Arg, ArgMatches, Args, FromArgMatches, error::ErrorKind, parser::ValueSource};
use terrace_server::config::{Config, Key, Kind, Setting, TABLE};

use crate::{environment, failure::Failure, location::another_engine};

/// Settings that name a pool, and those for creating one.
const POOL: &[Key] = &[
    Key::Pool,
    Key::Size,
    Key::MaxSize,
    Key::Index,
    Key::IndexCache,
    Key::IndexDram,
    Key::Engine,
    Key::Dir,
    Key::Memory,
    Key::Dram,
    Key::Durability,
    Key::SyncInterval,
    Key::MergeRate,
    Key::HugePages,
    Key::Salvage,
    Key::Shared,
    Key::Participants,
    Key::EndStopped,
];

/// Settings that affect a command that only reads a pool.
const READING: &[Key] = &[
    Key::Pool,
    Key::Dir,
    Key::Memory,
    Key::Dram,
    Key::Durability,
    Key::Salvage,
    Key::Shared,
    Key::EndStopped,
];

/// The given settings of a pool ([`OfPool`], [`OfChange`], [`OfReader`]), or of a server and its
/// pool ([`OfServer`]).
#[derive(Clone, Debug)]
pub(crate) struct Settings<W> {
    /// Settings given by a flag or in the environment.
    given: Vec<(&'static Setting, String)>,
    /// Those given on the command line.
    on_line: Vec<Key>,
    wanted: PhantomData<W>,
}

/// Selects the settings of the table that a command accepts.
pub(crate) trait Wanted {
    /// Whether `--help` shows default values.
    const SHOWS_DEFAULTS: bool = true;

    fn wants(setting: &Setting) -> bool;

    /// The line of `--help`, and its heading.
    fn help(setting: &'static Setting) -> (&'static str, Option<&'static str>) {
        (setting.doc, Some(heading(setting.key)))
    }

    /// Whether `--help` lists a setting. Settings without effect on a command are accepted and
    /// ignored, since the environment may set them for all commands.
    fn lists(_: &Setting) -> bool {
        true
    }
}

/// A command that may create the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfPool;

/// A command that changes an existing pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfChange;

/// A command that only reads a pool.
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

/// A node of a cluster: the pool of a memory node, or the server of a serving node.
#[cfg(feature = "cluster")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfNode;

#[cfg(feature = "cluster")]
impl Wanted for OfNode {
    fn wants(setting: &Setting) -> bool {
        let of_pool = [Key::Pool, Key::Size, Key::HugePages].contains(&setting.key);
        let of_server = !OfPool::wants(setting) && setting.key != Key::IoUring;
        !setting.flag.is_empty() && (of_pool || of_server)
    }

    fn help(setting: &'static Setting) -> (&'static str, Option<&'static str>) {
        match (setting.key, heading(setting.key)) {
            (Key::Size, _) => (
                "Size of the pool (4GiB, 512mb): of a new one, or that one that has less grows to at a start",
                Some("Memory node"),
            ),
            (_, "Pool") => (setting.doc, Some("Memory node")),
            (_, heading) => (setting.doc, Some(heading)),
        }
    }

    /// A node evicts nothing: it refuses settings about that.
    fn lists(setting: &Setting) -> bool {
        !setting.key.is_about_eviction()
    }
}

/// The number of threads of `bench`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfThreads;

impl Wanted for OfThreads {
    fn wants(setting: &Setting) -> bool {
        setting.key == Key::Threads
    }

    fn help(_: &'static Setting) -> (&'static str, Option<&'static str>) {
        ("Threads; 0: one per core", None)
    }
}

/// The port at which `stats` finds a server's metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfMetrics;

impl Wanted for OfMetrics {
    // Without the flag, the port comes from the server's notice in the pool.
    const SHOWS_DEFAULTS: bool = false;

    fn wants(setting: &Setting) -> bool {
        setting.key == Key::MetricsPort
    }

    fn help(_: &'static Setting) -> (&'static str, Option<&'static str>) {
        (
            "Metrics port of the server that has the pool open; default: the one that the server has posted in the pool",
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
        self.given.iter().any(|(setting, _)| setting.key == key)
    }

    /// The settings as a [`Config`], in which the given ones are marked.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let config = Config::default();
        for (setting, value) in self.given.iter().filter(|(setting, _)| self.counts(setting)) {
            config
                .assign(setting.name, value)
                .map_err(|error| Failure::usage(format!("--{} {value}: {error}", setting.flag)))?;
        }
        self.choose_place(&config)?;
        Ok(config)
    }

    /// Whether a given setting counts. The environment may set settings for all commands: those
    /// without effect on this one are ignored.
    fn counts(&self, setting: &Setting) -> bool {
        W::lists(setting) || self.on_line.contains(&setting.key)
    }

    /// Whether the store lies in a pool or in a directory. What the command line names counts
    /// before what the environment names.
    fn choose_place(&self, config: &Config) -> Result<(), Failure> {
        let is_on_line = |key| self.on_line.contains(&key);
        match (self.is_given(Key::Dir), config.text(Key::Engine).as_str()) {
            (true, _) if is_on_line(Key::Dir) && is_on_line(Key::Pool) => {
                Err(Failure::usage("a store lies in a pool or in a directory: give --pool or --dir"))
            }
            (true, _) if is_on_line(Key::Pool) => config.assign("dir", "").map_err(Failure::new),
            (true, _) if self.is_given(Key::Pool) && !is_on_line(Key::Dir) => Err(Failure::usage(
                "TERRACE_POOL and TERRACE_DIR each name a store: unset one of them, or give --pool or --dir",
            )),
            (true, "direct") if config.is_explicit(Key::Engine) => Err(Failure::usage(
                "the engine direct keeps a store in a pool: --engine wip, or --pool instead of --dir",
            )),
            (true, given) => {
                // An existing store knows its own.
                let there = terrace::Engine::in_directory(config.text(Key::Dir)).map(terrace::Engine::name);
                let asked = if given == "tiered" { given } else { "wip" };
                if let Some(there) = there.filter(|there| config.is_explicit(Key::Engine) && *there != asked)
                {
                    return Err(another_engine(config, there, asked));
                }
                config.assign("engine", there.unwrap_or(asked)).map_err(Failure::new)
            }
            (false, "wip") => {
                Err(Failure::usage("the engine wip keeps a store in a directory: name it with --dir"))
            }
            (false, "tiered") if !self.is_given(Key::Pool) => Err(Failure::usage(
                "the engine tiered keeps a store in a directory or in a pool beside DRAM: name it with --dir or --pool",
            )),
            (false, _) => Ok(()),
        }
    }

    /// Sets the pool that the command line names before the command.
    pub(crate) fn name_pool(&mut self, pool: &str) -> Result<(), Failure> {
        self.on_line.push(Key::Pool);
        if self.on_line.iter().filter(|key| **key == Key::Pool).count() > 1 {
            return Err(Failure::usage("--pool is given twice"));
        }
        self.given.retain(|(setting, _)| setting.key != Key::Pool);
        self.given.push((&TABLE[Key::Pool as usize], pool.into()));
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
        let (mut given, mut on_line) = (Vec::new(), Vec::new());
        for setting in TABLE.iter().filter(|setting| W::wants(setting)) {
            let is_given = matches.value_source(setting.flag) == Some(ValueSource::CommandLine);
            let flag = matches.get_one::<String>(setting.flag).filter(|_| is_given);
            let variable = || environment::value(setting).map_err(refused);
            if let Some(value) = flag.map_or_else(variable, |flag| Ok(Some(flag.clone())))? {
                given.push((setting, value));
            }
            if is_given {
                on_line.push(setting.key);
            }
        }
        Ok(Settings { given, on_line, wanted: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The error for an invalid environment variable, as clap reports an invalid flag.
fn refused(why: String) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, why + "\n")
}

fn flag(setting: &'static Setting, (doc, heading): (&'static str, Option<&'static str>)) -> Arg {
    let doc = match setting.kind {
        Kind::Choice(choices) => format!("{doc}: {}", choices.join(" or ")),
        _ => doc.into(),
    };
    let check = move |text: &str| {
        let refuse = |_| format!("it must be {}", setting.kind.describe());
        setting.check(text).map(|()| text.to_string()).map_err(refuse)
    };
    let arg = Arg::new(setting.flag)
        .long(setting.flag)
        // Not clap's `env`: it treats an empty variable as a value, and its errors do not name the
        // variable.
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
        Kind::SizeOrAuto => arg.value_name("SIZE|auto"),
        Kind::Sizes => arg.value_name("MIN..MAX"),
        Kind::Number { .. } | Kind::Signed => arg.value_name("N"),
        Kind::Choice(_) => arg.value_name("NAME"),
        Kind::Octal => arg.value_name("MODE"),
        Kind::Password => arg.value_name("PASSWORD"),
        Kind::Text | Kind::Fixed(_) => arg.value_name(match setting.key {
            Key::Bind => "ADDRESSES",
            Key::MetricsBind => "ADDRESS",
            _ => "PATH",
        }),
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
        | Key::MetricsPort
        | Key::MetricsBind => "Where to listen",
        Key::Password | Key::AuthTimeout | Key::MaxClients | Key::Timeout | Key::TcpKeepalive => "Clients",
        Key::ProtoMaxBulkLen | Key::ClientOutputBuffer => "Clients",
        _ => "Program",
    }
}
