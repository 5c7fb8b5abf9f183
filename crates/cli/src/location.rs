//! Where the settings place the store of a command: in a pool, or in a directory.

use std::path::PathBuf;

use terrace_server::config::{Config, Key};

use crate::failure::Failure;

/// Whether the store lies in a directory.
pub(crate) fn is_on_disk(config: &Config) -> bool {
    !config.text(Key::Dir).is_empty()
}

/// The path of the store's directory, or of its pool.
pub(crate) fn path(config: &Config) -> PathBuf {
    config.text(if is_on_disk(config) { Key::Dir } else { Key::Pool }).into()
}

/// The failure if the store at the path has the engine `has`, and `asked` is asked for.
pub(crate) fn another_engine(config: &Config, has: &str, asked: &str) -> Failure {
    let (kind, other) = if is_on_disk(config) { ("directory", "--dir") } else { ("pool", "--pool") };
    Failure::new(format!("the {kind} {} has the engine {has}, not {asked}", path(config).display()))
        .hint(format!("to use it as it is, leave --engine {asked} out; {other} names another {kind}"))
        .hint("to change the engine, `terrace dump` and `terrace load` into a new store")
}
