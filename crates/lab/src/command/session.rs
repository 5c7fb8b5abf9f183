//! Runs of one target under one profile, on all cores, until enough distinct states were checked.

use super::progress::Progress;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terrace_lab::{RunSeed, Suite};
use terrace_testkit::crash::{Explored, Fault, Finding, Lab, Limits, Profile, Seen};

/// The parameters of a session.
pub(crate) struct Session<'s> {
    pub(crate) place: usize,
    pub(crate) suite: &'s Suite,
    pub(crate) profile: Profile,
    pub(crate) seed: u64,
    pub(crate) states: u64,
    pub(crate) jobs: usize,
    pub(crate) limits: Limits,
    pub(crate) fault: Option<Fault>,
    /// See [`Lab::only_faulty`].
    pub(crate) only_faulty: bool,
    /// Maximum number of runs, even with fewer states.
    pub(crate) runs_max: u64,
}

/// The results of a session.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) explored: Explored,
    pub(crate) histories: u64,
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
    /// CPU time of all threads, which does not depend on other load of the machine.
    pub(crate) cpu: Duration,
    pub(crate) finding: Option<(RunSeed, Box<Finding>)>,
}

impl Session<'_> {
    pub(crate) fn run(&self, progress: &Progress) -> Tally {
        let (seen, stop, next) = (Seen::new(), AtomicBool::new(false), AtomicU64::new(0));
        let tally = Mutex::new(Tally::default());
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| {
                    while !stop.load(Relaxed) && seen.len() < self.states {
                        let number = next.fetch_add(1, Relaxed);
                        if number >= self.runs_max {
                            break;
                        }
                        self.run_one(number, &seen, &stop, &tally);
                        let names = [self.suite.name, self.profile.name()];
                        progress.show(names, (seen.len(), Some(self.states)), "states", start);
                    }
                });
            }
        });
        let mut tally = tally.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        tally.elapsed = start.elapsed();
        progress.clear();
        tally
    }

    fn run_one(&self, number: u64, seen: &Seen, stop: &AtomicBool, tally: &Mutex<Tally>) {
        let seed = RunSeed::new(self.place, self.profile, self.seed, number);
        let is_over = || stop.load(Relaxed) || seen.len() >= self.states;
        let Self { profile, limits, fault, only_faulty, .. } = *self;
        let lab = Lab { profile, limits, seen, is_over: &is_over, fault, only_faulty };
        let before = cpu_time();
        let outcome = self.suite.run(&lab, &self.suite.plan(seed.run));
        let cpu = cpu_time() - before;
        let mut tally = tally.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tally.explored += outcome.explored;
        tally.histories += 1;
        tally.cpu += cpu;
        tally.operations += outcome.operations as u64;
        if let Some(finding) = outcome.finding {
            stop.store(true, Relaxed);
            if tally.finding.is_none() {
                tally.finding = Some((seed, finding));
            }
        }
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
