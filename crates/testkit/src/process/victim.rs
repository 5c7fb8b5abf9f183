//! A child process that is killed and stopped.
//!
//! Checks for its end do not reap it. On a busy machine, reaping a process whose /proc entries were
//! open elsewhere takes the kernel more than ten seconds. No test may keep other processes stopped
//! that long, so another thread reaps it.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid};
use std::collections::BTreeMap;
use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

/// The environment variable with the task of a child.
const TASK: &str = "TERRACE_VICTIM_TASK";

/// Number of acknowledged operations by thread.
pub type Acknowledged = BTreeMap<usize, u64>;

/// The task of this process if it is a victim; `None` otherwise. A test that only does a victim's
/// work begins with this.
pub fn task() -> Option<String> {
    env::var(TASK).ok()
}

/// Acknowledges, in a victim, that the first `count` operations of `thread` have returned. The
/// acknowledgement is in the pipe before this returns, so it survives a crash.
pub fn acknowledge(thread: usize, count: u64) {
    let line = format!("\ndone {thread} {count}\n");
    // The parent may be gone.
    let _ = io::stdout().write_all(line.as_bytes());
}

/// How a victim ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The acknowledged operations.
    pub acknowledged: Acknowledged,
    /// Whether it was killed rather than exiting.
    pub killed: bool,
}

impl Ended {
    /// Number of operations of `thread` that returned.
    pub fn returned(&self, thread: usize) -> u64 {
        self.acknowledged.get(&thread).copied().unwrap_or(0)
    }
}

/// A child process, killed on drop.
pub struct Victim {
    pid: Pid,
    reader: Option<JoinHandle<Acknowledged>>,
    heard: Arc<AtomicU64>,
}

impl Victim {
    /// Runs the test `name` of this test binary in its own process, with this task and further
    /// environment variables.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn of_test(name: &str, task: &str, variables: &[(&str, &str)]) -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(TASK, task);
        command.envs(variables.iter().copied()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut victim = Self::begun(&child);
        let output = child.stdout.take();
        let heard = Arc::clone(&victim.heard);
        victim.reader = output.map(|output| std::thread::spawn(move || acknowledged(output, &heard)));
        Ok(victim)
    }

    /// Starts `command`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn of(command: &mut Command) -> io::Result<Self> {
        Ok(Self::begun(&command.spawn()?))
    }

    fn begun(child: &Child) -> Self {
        Self { pid: Pid::from_child(child), reader: None, heard: Arc::default() }
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(self.pid, signal)?)
    }

    /// Its process ID.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// Number of acknowledgements read so far.
    pub fn acknowledged(&self) -> u64 {
        self.heard.load(Relaxed)
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn ended(&self) -> io::Result<Option<ExitStatus>> {
        self.end(WaitIdOptions::NOHANG)
    }

    fn end(&self, how: WaitIdOptions) -> io::Result<Option<ExitStatus>> {
        let how = how | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(self.pid), how))?;
        // In the encoding of wait(2).
        let raw = |code: Option<i32>, signal: Option<i32>| code.unwrap_or(0) << 8 | signal.unwrap_or(0);
        Ok(status.map(|status| ExitStatus::from_raw(raw(status.exit_status(), status.terminating_signal()))))
    }

    /// Stops it and waits until it is stopped. [`Victim::resume`] continues it.
    ///
    /// # Errors
    /// If it no longer exists.
    pub fn stop(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        if self.wait_until_stopped()? { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Waits until it is stopped (`true`) or has ended (`false`).
    ///
    /// # Errors
    /// If the system call fails.
    pub fn wait_until_stopped(&self) -> io::Result<bool> {
        let how = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(self.pid), how))?;
        Ok(status.is_some_and(|status| status.stopped()))
    }

    /// Resumes it.
    ///
    /// # Errors
    /// If it no longer exists.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills it as by `kill -9`, stopped or not, and waits for its end.
    pub fn kill(self) -> Ended {
        self.kill_nowait();
        self.wait()
    }

    /// Kills it without waiting for its end, which may take a while: see [`Victim::wait`].
    pub fn kill_nowait(&self) {
        let _ = self.signal(Signal::KILL);
    }

    /// Waits until it exits or is killed.
    pub fn wait(mut self) -> Ended {
        self.finish()
    }

    fn finish(&mut self) -> Ended {
        let status = self.end(WaitIdOptions::empty());
        let killed = status.is_ok_and(|status| status.is_some_and(|status| status.signal().is_some()));
        let acknowledged = self.reader.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        Ended { acknowledged, killed }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It may have ended already.
        self.kill_nowait();
        let _ = self.end(WaitIdOptions::empty());
        let pid = self.pid;
        // To reap it, the kernel removes its /proc entries, and spins while a preempted reader of
        // these is doing the same. So this thread must yield to all others.
        let reap = move || {
            let _ = rustix::process::nice(19);
            waitpid(Some(pid), WaitOptions::empty())
        };
        let _ = std::thread::Builder::new().spawn(reap);
    }
}

/// Reads a child's acknowledgements until it ends.
fn acknowledged(output: ChildStdout, heard: &AtomicU64) -> Acknowledged {
    let mut done = Acknowledged::new();
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["done", thread, count] = words[..]
            && let (Ok(thread), Ok(count)) = (thread.parse(), count.parse())
        {
            done.insert(thread, count);
            heard.fetch_add(1, Relaxed);
        }
    }
    done
}
