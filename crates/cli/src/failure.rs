//! The outcome of a command: error message, hints and exit code.

#[cfg(not(test))]
use std::io::Write;
use std::{fmt::Display, io, process::ExitCode};

/// Exit code of a usage error.
pub(crate) const USAGE: u8 = 2;
/// Exit code of a command that failed or found a problem.
pub(crate) const FAILED: u8 = 1;

/// What every command returns.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// An error with hints and an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hints: Vec<String>,
    code: u8,
}

impl Failure {
    /// A failure. Further lines of `message` are hints.
    pub(crate) fn new(message: impl Display) -> Failure {
        let text = message.to_string();
        let mut lines = text.lines().map(|line| line.trim().to_string());
        Failure { message: lines.next().unwrap_or_default(), hints: lines.collect(), code: FAILED }
    }

    /// A usage error.
    pub(crate) fn usage(message: impl Display) -> Failure {
        Failure { code: USAGE, ..Failure::new(message) }
    }

    /// Adds the message of an earlier failure as a hint, unless it is the same.
    pub(crate) fn after(self, earlier: &Failure) -> Failure {
        if self.message == earlier.message { self } else { self.hint(earlier.message.clone()) }
    }

    /// Adds a line that says what to do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hints.push(hint.into());
        self
    }

    /// Adds lines that say what to do.
    pub(crate) fn hints(mut self, hints: impl IntoIterator<Item = String>) -> Failure {
        self.hints.extend(hints);
        self
    }

    /// Replaces the silent failure of a closed pipe by this message, for output that must be
    /// complete.
    pub(crate) fn or_if_unread(self, message: String) -> Failure {
        if self.message.is_empty() { Failure::new(message) } else { self }
    }

    /// Message and hints in one line.
    pub(crate) fn one_line(&self) -> String {
        let lines: Vec<&str> = [&self.message].into_iter().chain(&self.hints).map(String::as_str).collect();
        lines.join("; ")
    }

    /// Writes the failure to standard error; returns its exit code.
    pub(crate) fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            say(&format!("error: {}", self.message));
            self.hints.iter().for_each(|hint| say(&format!("  {hint}")));
        }
        ExitCode::from(self.code)
    }
}

/// A closed pipe (`| head`) is no error: the reader has read enough, and nothing is printed.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure { message: String::new(), hints: Vec::new(), code: 0 };
        }
        Failure::new(error)
    }
}

/// Writes one line to standard error; ignores errors.
pub(crate) fn say(line: &str) {
    // The test harness shows the macro's output only for tests that fail.
    #[cfg(test)]
    #[allow(clippy::print_stderr, reason = "a test")]
    {
        eprintln!("{line}");
    }
    #[cfg(not(test))]
    let _ = writeln!(io::stderr().lock(), "{line}");
}
