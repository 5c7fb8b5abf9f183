//! The mutants of a package, as cargo-mutants lists them.

use crate::Outcome;
use serde::Deserialize;
use std::process::Command;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Mutant {
    /// Path from the root of the workspace.
    pub(crate) file: String,
    /// Its position and its change, for people.
    pub(crate) name: String,
    /// The text that the mutant puts there.
    pub(crate) replacement: String,
    pub(crate) genre: Genre,
    pub(crate) span: Span,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    #[serde(other)]
    Other,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Span {
    pub(crate) start: Place,
    pub(crate) end: Place,
}

/// A position in a file: line and column from 1, columns in characters.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// Runs cargo-mutants, which reads `.cargo/mutants.toml`.
pub(crate) fn list(package: &str) -> Outcome<Vec<Mutant>> {
    let output =
        Command::new("cargo").args(["mutants", "--list", "--json", "--package", package]).output()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "cargo mutants failed: {stderr}\n  to install it: cargo install --locked cargo-mutants"
        )
        .into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
