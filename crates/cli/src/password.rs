//! Passwords: of the server that a command connects to, and of the clients of a server.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use terrace_server::config::{Config, Key};

use crate::{
    environment::{self, PASSWORD_FILE},
    failure::Failure,
};

/// The password for the server that has the pool open, if there is such a server and it requires
/// one.
#[derive(Debug, Args)]
pub(crate) struct Password {
    /// Password for the server that has the pool open; prefer the environment or a file, as other
    /// users can see flags [env: TERRACE_PASSWORD, REDISCLI_AUTH]
    #[arg(long, value_name = "PASSWORD", help_heading = "Server")]
    password: Option<String>,
    /// File whose first line is that password [env: TERRACE_PASSWORD_FILE]
    #[arg(long, value_name = "PATH", help_heading = "Server", conflicts_with = "password")]
    password_file: Option<PathBuf>,
}

impl Password {
    /// The password from a flag, or else from the environment; empty if there is none.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, Failure> {
        let read = |path: &Path| Ok(password_in(path)?.into_bytes());
        if let Some(password) = &self.password {
            return Ok(password.clone().into_bytes());
        }
        if let Some(path) = &self.password_file {
            return read(path);
        }
        if let Some(password) = environment::variable("TERRACE_PASSWORD") {
            return Ok(password.into_encoded_bytes());
        }
        if let Some(path) = environment::variable(PASSWORD_FILE) {
            return read(path.as_ref());
        }
        Ok(environment::variable("REDISCLI_AUTH").unwrap_or_default().into_encoded_bytes())
    }
}

fn password_file_failure(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("cannot read the password from {}: {error}", path.display()))
}

/// The first line of the file, without the line end that editors add.
pub(crate) fn password_in(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path).map_err(|error| password_file_failure(path, &error))?;
    match text.lines().next() {
        None | Some("") => Err(password_file_failure(path, &"its first line is empty")),
        Some(password) => Ok(password.into()),
    }
}

/// Sets the password that clients must give, from a file.
pub(crate) fn read_password(config: &Config, path: &Path) -> Result<(), Failure> {
    if config.is_explicit(Key::Password) {
        return Err(Failure::usage(format!(
            "there are two passwords: one from --password or TERRACE_PASSWORD, one from the file {}; give only one",
            path.display()
        )));
    }
    let assigned = config.assign("requirepass", &password_in(path)?);
    assigned.map_err(|error| password_file_failure(path, &error))
}
