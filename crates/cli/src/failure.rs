//! How a command ends: what went wrong, what to do about it, and the exit code.

#[cfg(not(test))]
use std::io::Write;
use std::{fmt::Display, io, process::ExitCode};

/// The program was asked for something it cannot make sense of.
pub(crate) const USAGE: u8 = 2;
/// It did not succeed, or found something wrong.
pub(crate) const FAILED: u8 = 1;

/// What every command returns.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// What went wrong.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hints: Vec<String>,
    code: u8,
}

impl Failure {
    /// Something failed. Further lines of `message` are hints.
    pub(crate) fn new(message: impl Display) -> Failure {
        let text = message.to_string();
        let mut lines = text.lines().map(|line| line.trim().to_string());
        Failure { message: lines.next().unwrap_or_default(), hints: lines.collect(), code: FAILED }
    }

    /// The command line asks for something impossible.
    pub(crate) fn usage(message: impl Display) -> Failure {
        Failure { code: USAGE, ..Failure::new(message) }
    }

    /// Says, too, what had gone wrong before, unless it is the same.
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

    /// Replaces the silent failure of a closed pipe by this message, where the output is needed
    /// whole.
    pub(crate) fn or_if_unread(self, message: String) -> Failure {
        if self.message.is_empty() { Failure::new(message) } else { self }
    }

    /// All of it in one line.
    pub(crate) fn one_line(&self) -> String {
        let lines: Vec<&str> = [&self.message].into_iter().chain(&self.hints).map(String::as_str).collect();
        lines.join("; ")
    }

    /// Writes it to standard error.
    pub(crate) fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            say(&format!("error: {}", self.message));
            self.hints.iter().for_each(|hint| say(&format!("  {hint}")));
        }
        ExitCode::from(self.code)
    }
}

/// Whoever reads our output has enough of it (`| head`): that is no error, and nothing to say.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure { message: String::new(), hints: Vec::new(), code: 0 };
        }
        Failure::new(error)
    }
}

/// Writes one line to standard error, if anyone listens.
pub(crate) fn say(line: &str) {
    // Of what the macro writes, tests show only that of those which fail.
    #[cfg(test)]
    #[allow(clippy::print_stderr, reason = "a test")]
    {
        eprintln!("{line}");
    }
    #[cfg(not(test))]
    let _ = writeln!(io::stderr().lock(), "{line}");
}
