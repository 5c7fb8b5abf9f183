//! Whether a client may execute commands.

use super::config::Config;

/// The authentication of one connection.
#[derive(Debug)]
pub(crate) struct Access {
    /// Whether the client gave the password, or none was configured when it connected.
    is_granted: bool,
    /// How often RESET has removed the authentication, and the length of the output before the last
    /// time.
    resets: (u64, usize),
}

impl Access {
    /// Of a new connection: granted if no password is configured.
    pub(crate) fn of_new(config: &Config) -> Access {
        Access { is_granted: config.password().is_empty(), resets: (0, 0) }
    }

    /// Whether the client gave the password, or none was configured when it connected.
    pub(crate) fn is_granted(&self) -> bool {
        self.is_granted
    }

    /// The client gave the password.
    pub(crate) fn grant(&mut self) {
        self.is_granted = true;
    }

    /// How often RESET has removed the authentication, and the length of the output before the last
    /// time.
    pub(crate) fn resets(&self) -> (u64, usize) {
        self.resets
    }

    /// RESET: as of a new connection. `output` is the current length of the output.
    pub(crate) fn reset(&mut self, config: &Config, output: usize) {
        let is_granted = config.password().is_empty();
        if self.is_granted && !is_granted {
            self.resets = (self.resets.0 + 1, output);
        }
        self.is_granted = is_granted;
    }
}
