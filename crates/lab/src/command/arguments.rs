//! What several commands read from their arguments.

use std::io::Write;
use std::process::ExitCode;
use terrace_lab::{SUITES, Suite, suite};
use terrace_testkit::crash::Profile;

/// A number, decimal or hexadecimal.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_err(|error| format!("`{text}` is not a number: {error}"))
}

/// The kind of memory with this name.
pub(crate) fn profile(text: &str) -> Result<Profile, String> {
    let names = || Profile::ALL.map(Profile::name).join(", ");
    Profile::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| format!("there are {}", names()))
}

/// The target with this name, or all.
pub(crate) fn targets(name: &str) -> Result<Vec<(usize, &'static Suite)>, String> {
    let all = || SUITES.iter().filter_map(|each| suite(each.name));
    match (name, suite(name)) {
        ("all", _) => Ok(all().collect()),
        (_, Some(found)) => Ok(vec![found]),
        _ => {
            let names: Vec<&str> = all().map(|(_, suite)| suite.name).collect();
            Err(format!("there is no target `{name}`; there are {}, and all", names.join(", ")))
        }
    }
}

/// Jobs at a time, unless told otherwise.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Reports a mistake in the arguments.
pub(crate) fn failed(why: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {why}");
    ExitCode::from(2)
}
