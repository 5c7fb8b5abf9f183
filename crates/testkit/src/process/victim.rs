//! A child process that is killed and stopped.
//!
//! That it has ended is asked without making the kernel forget it: to forget one, with what others had open of it in /proc, takes the kernel more than ten seconds on a machine that has no time, and that long no
//! test may keep others standing still. Another thread does it.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid};
use std::collections::BTreeMap;
use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

/// The variable that tells a child what to do.
const TASK: &str = "TERRACE_VICTIM_TASK";

/// Operations acknowledged, by thread.
pub type Acknowledged = BTreeMap<usize, u64>;

/// What this process was started for as a victim; `None` in any other process. A test that is only a victim's work begins with it.
pub fn task() -> Option<String> {
    env::var(TASK).ok()
}

/// A victim says that the first `count` operations of `thread` have returned. Whoever reads it knows so even if the process dies at once: the bytes are in the
/// pipe before this returns.
pub fn acknowledge(thread: usize, count: u64) {
    let line = format!("\ndone {thread} {count}\n");
    // A parent that has gone has nobody to tell.
    let _ = io::stdout().write_all(line.as_bytes());
}

/// How a victim has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// What it had acknowledged.
    pub acknowledged: Acknowledged,
    /// Whether it was killed, and did not end by itself.
    pub killed: bool,
}

impl Ended {
    /// How many operations of `thread` had returned.
    pub fn returned(&self, thread: usize) -> u64 {
        self.acknowledged.get(&thread).copied().unwrap_or(0)
    }
}

/// A child process. It is killed when this is dropped.
pub struct Victim {
    pid: Pid,
    reader: Option<JoinHandle<Acknowledged>>,
    heard: Arc<AtomicU64>,
}

impl Victim {
    /// Runs the test `name` of this test binary in a process of its own, with `task` to do, and with further environment variables.
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

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// How often it has acknowledged something so far, as far as it was read.
    pub fn heard(&self) -> u64 {
        self.heard.load(Relaxed)
    }

    /// How it has ended, if it has.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn ended(&self) -> io::Result<Option<ExitStatus>> {
        self.end(WaitIdOptions::NOHANG)
    }

    fn end(&self, how: WaitIdOptions) -> io::Result<Option<ExitStatus>> {
        let how = how | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(self.pid), how))?;
        // As wait(2) tells it.
        let raw = |code: Option<i32>, signal: Option<i32>| code.unwrap_or(0) << 8 | signal.unwrap_or(0);
        Ok(status.map(|status| ExitStatus::from_raw(raw(status.exit_status(), status.terminating_signal()))))
    }

    /// Stops it wherever it is, and waits until it stands still. [`Victim::resume`] lets it go on.
    ///
    /// # Errors
    /// If it is not there any more.
    pub fn stop(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        if self.wait_until_stopped()? { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Waits until it has stopped (`true`) or ended (`false`).
    ///
    /// # Errors
    /// If the system does not say.
    pub fn wait_until_stopped(&self) -> io::Result<bool> {
        let how = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = rustix::io::retry_on_intr(|| waitid(WaitId::Pid(self.pid), how))?;
        Ok(status.is_some_and(|status| status.stopped()))
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If it is not there any more.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills it as `kill -9` does, stopped or not.
    pub fn kill(self) -> Ended {
        self.strike();
        self.wait()
    }

    /// Kills it and does not wait for its end, which may take the kernel a while: see [`Victim::wait`].
    pub fn strike(&self) {
        let _ = self.signal(Signal::KILL);
    }

    /// Waits until it ends by itself or by what it was told.
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
        self.strike();
        let _ = self.end(WaitIdOptions::empty());
        let pid = self.pid;
        // To reap it, the kernel takes away what it had in /proc, and turns in a circle while somebody who has looked there is at the same and has no processor: so it has to give way to all others.
        let reap = move || {
            let _ = rustix::process::nice(19);
            waitpid(Some(pid), WaitOptions::empty())
        };
        let _ = std::thread::Builder::new().spawn(reap);
    }
}

/// Reads what a child says until it is gone.
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
