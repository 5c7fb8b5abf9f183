//! Processes that stop in the middle of a write.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;
use terrace_fabric::{
    Completion, Connection, Fabric, Libfabric, Operation, Place, Posted, RegionKey, Until, Wait, perform,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// A payload that no socket takes at once.
pub(crate) const PAYLOAD: usize = 8 << 20;
const FAR: Duration = Duration::from_secs(60);

/// A child process that prints lines. It is killed when it is dropped.
pub(crate) struct Child {
    process: std::process::Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Child {
    /// Starts a program.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("a process");
        let lines = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, lines }
    }

    /// The rest of the next line that begins so.
    pub(crate) fn line(&mut self, begin: &str) -> String {
        let mut line = String::new();
        while self.lines.read_line(&mut line).expect("a line") > 0 {
            if let Some((_, rest)) = line.trim_end().split_once(begin) {
                return rest.to_string();
            }
            line.clear();
        }
        panic!("the process ended without {begin}");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Waits until it has stopped itself.
    pub(crate) fn wait_until_stopped(&self) {
        let status = waitpid(Some(self.pid()), WaitOptions::UNTRACED).expect("a child").expect("a status").1;
        assert!(status.stopped(), "the process ended: {status:?}");
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) {
        kill_process(self.pid(), Signal::CONT).expect("a signal");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writes a payload of ones, stops this process in the middle, and prints how it ended.
pub(crate) fn write_and_stop(fabric: &Libfabric, address: &[u8], region: RegionKey) {
    let mut connection = fabric.connect(address).expect("a connection");
    let to = Place { region, offset: 0 };
    let first = Operation::Write { bytes: vec![1; 8], to, until: Until::Arrived };
    let outcomes = perform(&mut connection, vec![first], FAR).expect("a small write");
    assert!(outcomes[0].is_ok(), "{outcomes:?}");
    let operation = Operation::Write { bytes: vec![1; PAYLOAD], to, until: Until::Arrived };
    connection.post(vec![Posted { number: 0, operation }]).expect("posted");
    kill_process(rustix::process::getpid(), Signal::STOP).expect("a signal");
    let mut completions: Vec<Completion> = Vec::new();
    while completions.is_empty() {
        connection.poll(&mut completions);
        connection.wait(Duration::from_millis(10)).expect("waited");
    }
    let ended = completions.remove(0).outcome.map(|_| "done".to_string());
    print_line(&format!("ended: {}", ended.unwrap_or_else(|failure| format!("{failure:?}"))));
}

/// Prints a line for the parent.
#[allow(clippy::print_stdout, reason = "the pipe to the parent")]
pub(crate) fn print_line(line: &str) {
    println!("{line}");
}

/// Bytes as digits, for a command line.
pub(crate) fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of digits.
pub(crate) fn from_digits(digits: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}
