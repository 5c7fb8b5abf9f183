//! Flags and environment variables made from the server's table of settings, so that a setting is written once.

use std::marker::PhantomData;

use clap::{Arg, ArgMatches, Args, FromArgMatches, parser::ValueSource};
use terrace_server::config::{Config, Key, Kind, Setting, TABLE};

use crate::failure::Failure;

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

/// What was said of a pool ([`OfPool`]), or of a server and its pool ([`OfServer`]).
#[derive(Clone, Debug)]
pub(crate) struct Settings<W> {
    said: Vec<(&'static Setting, String)>,
    wanted: PhantomData<W>,
}

/// Which lines of the table a command takes.
pub(crate) trait Wanted {
    fn wants(setting: &Setting) -> bool;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct OfPool;

#[derive(Clone, Copy, Debug)]
pub(crate) struct OfServer;

impl Wanted for OfPool {
    fn wants(setting: &Setting) -> bool {
        POOL.contains(&setting.key)
    }
}

impl Wanted for OfServer {
    fn wants(setting: &Setting) -> bool {
        !setting.flag.is_empty()
    }
}

impl<W: Wanted> Settings<W> {
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
}

impl<W: Wanted> Args for Settings<W> {
    fn augment_args(command: clap::Command) -> clap::Command {
        let wanted = TABLE.iter().filter(|setting| W::wants(setting));
        wanted.fold(command, |command, setting| command.arg(flag(setting)))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl<W: Wanted> FromArgMatches for Settings<W> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut said = Vec::new();
        for setting in TABLE.iter().filter(|setting| W::wants(setting)) {
            let source = matches.value_source(setting.flag);
            let given = source.is_some_and(|source| source != ValueSource::DefaultValue);
            if let Some(value) = matches.get_one::<String>(setting.flag).filter(|_| given) {
                said.push((setting, value.clone()));
            }
        }
        Ok(Settings { said, wanted: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn flag(setting: &'static Setting) -> Arg {
    let arg = Arg::new(setting.flag)
        .long(setting.flag)
        .env(setting.env)
        .help(setting.doc)
        .help_heading(heading(setting.key))
        .hide_env_values(true)
        .value_parser(move |text: &str| setting.check(text).map(|()| text.to_string()));
    let arg = if setting.default.is_empty() { arg } else { arg.default_value(setting.default) };
    let arg = if setting.name == setting.flag { arg } else { arg.alias(setting.name) };
    match setting.kind {
        Kind::Switch => {
            arg.num_args(0..=1).require_equals(true).default_missing_value("yes").value_name("yes|no")
        }
        Kind::Size { .. } => arg.value_name("SIZE"),
        Kind::Sizes => arg.value_name("MIN..MAX"),
        Kind::Number { .. } => arg.value_name("N"),
        Kind::Choice(choices) => {
            arg.value_name("NAME").help(format!("{}: {}", setting.doc, choices.join(" or ")))
        }
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
        Key::Bind | Key::Port | Key::UnixSocket | Key::UnixSocketPerm | Key::MetricsPort => "Where to listen",
        Key::Password | Key::AuthTimeout | Key::MaxClients | Key::Timeout | Key::TcpKeepalive => "Clients",
        Key::ProtoMaxBulkLen | Key::ClientOutputBuffer => "Clients",
        _ => "Program",
    }
}
