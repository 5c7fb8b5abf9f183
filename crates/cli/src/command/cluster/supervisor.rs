//! Children that are started again when they die.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io,
    os::unix::{
        fs::OpenOptionsExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use clap::Args;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};

use crate::{clock, failure::Failure};

#[derive(Debug, Args)]
pub(crate) struct ChildOptions {
    /// The parent's process
    #[arg(long)]
    pub(crate) parent: u32,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    pub(crate) words: Vec<OsString>,
}

/// How long after a death a child is started again. Each death soon after a start doubles it.
const SOON: Duration = Duration::from_millis(100);
/// The longest such time.
const LATE: Duration = Duration::from_secs(5);
/// A child that lived this long is healthy.
const HEALTHY: Duration = Duration::from_secs(10);

/// A program that is to run.
pub(super) struct Program {
    /// What people call it.
    pub(super) name: String,
    pub(super) words: Vec<String>,
    /// Where its output goes.
    pub(super) log: PathBuf,
    /// How long it may take to end.
    pub(super) patience: Duration,
}

/// A program, and the process that runs it.
pub(super) struct Supervised {
    program: Program,
    state: State,
    wait: Duration,
}

enum State {
    Runs(Child, Instant),
    Waits(Instant),
}

impl Supervised {
    pub(super) fn start(program: Program) -> Result<Self, Failure> {
        let child = spawn(&program).map_err(|error| failed(&program, &error))?;
        Ok(Self { program, state: State::Runs(child, clock::start()), wait: SOON })
    }

    pub(super) fn log(&self) -> &Path {
        &self.program.log
    }

    /// Starts the program again if it has ended. Tells what to say, if anything.
    pub(super) fn look(&mut self) -> Result<Option<String>, Failure> {
        match &mut self.state {
            State::Runs(child, since) => {
                let Some(status) = child.try_wait()? else { return Ok(None) };
                self.wait = if since.elapsed() < HEALTHY { (self.wait * 2).min(LATE) } else { SOON };
                self.state = State::Waits(clock::start());
                let Program { name, log, .. } = &self.program;
                Ok(Some(format!("{name} {}: starting it again; see {}", ended(status), log.display())))
            }
            State::Waits(since) if since.elapsed() < self.wait => Ok(None),
            State::Waits(_) => {
                let child = spawn(&self.program).map_err(|error| failed(&self.program, &error))?;
                self.state = State::Runs(child, clock::start());
                Ok(None)
            }
        }
    }

    /// Asks the program to end.
    pub(super) fn ask_to_end(&self) {
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        if let State::Runs(child, _) = &self.state {
            let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            // It may have ended: its number is kept until it is waited for.
            let _ = id.map(|id| kill_process(id, signal));
        }
    }

    /// Waits for the end of a program that was asked for it. Ends it by force once its time is over
    /// or `is_urgent` says so; then tells what to say.
    pub(super) fn wait(mut self, is_urgent: &mut dyn FnMut() -> bool) -> Option<String> {
        let begin = clock::start();
        let State::Runs(child, _) = &mut self.state else { return None };
        while child.try_wait().is_ok_and(|status| status.is_none()) {
            if begin.elapsed() >= self.program.patience || is_urgent() {
                // It may have ended just now.
                let _ = child.kill();
                let _ = child.wait();
                let took = begin.elapsed().as_secs();
                return Some(format!("{} did not end within {took} s and was killed", self.program.name));
            }
            clock::pause(Duration::from_millis(10));
        }
        None
    }
}

/// What is left when the supervisor fails ends with it.
impl Drop for Supervised {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
    }
}

fn spawn(program: &Program) -> io::Result<Child> {
    let log = log_of(&program.log)?;
    Command::new(std::env::current_exe()?)
        .args(["cluster", "child", "--parent"])
        .arg(std::process::id().to_string())
        .arg("--")
        .args(&program.words)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        // Ctrl-c is for the supervisor, which ends its children in order.
        .process_group(0)
        .spawn()
}

fn log_of(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn failed(program: &Program, error: &io::Error) -> Failure {
    Failure::new(format!("cannot start {}: {error}", program.name))
}

/// How a process has ended.
fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

/// Becomes another program, which is asked to end when the parent dies. Returns why it cannot.
pub(super) fn become_child(options: &ChildOptions) -> Failure {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::TERM)) {
        return Failure::new(error);
    }
    // It may have died before.
    let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    if parent != options.parent {
        return Failure::new("its parent is gone");
    }
    let [program, words @ ..] = options.words.as_slice() else {
        return Failure::usage("no program is named");
    };
    Failure::new(format!("cannot run {}: {}", program.display(), Command::new(program).args(words).exec()))
}
