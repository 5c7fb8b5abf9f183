//! Tests: several processes read and write one store. Processes are killed one after the other at
//! random moments while the others run or are stopped. Every write that returned is present,
//! nothing else is read, no memory is lost, and no process is blocked.
//!
//! The children run this test binary again. See `kill.rs` for how they report what returned.

#[path = "common/accounts.rs"]
mod accounts;

#[path = "common/reads.rs"]
mod reads;

#[path = "common/watched.rs"]
mod watched;

#[path = "common/writes.rs"]
mod writes;

mod common;

use accounts::{TOTAL, move_until_killed, open_accounts, total};
use common::{Draws, Medium, Site, assert_sound, comes_true, contents, shared};
use reads::read_until_killed;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use terrace::{ByteSize, Index, OpenError, Options, Problem, Store};
use terrace_testkit::process::{Ended, Journal, Victim, task};
use watched::watched;
use writes::{Whole, fill_journal, write_until_killed};

const SIZE: ByteSize = ByteSize::mib(256);
const THREADS: u64 = 2;
/// At least this many writes have returned for each process that is killed.
const OPERATIONS_A_KILL: u64 = 10;
/// After this many rounds all are killed, to check what is left.
const ROUNDS: u64 = 8;

/// The work of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Writes of every kind to keys of its own.
    Writes,
    /// Transactions over keys that other processes change, too.
    Moves,
    /// Reads of every kind.
    Reads,
    /// The same, opened read-only.
    OnlyReads,
}

use Kind::{Moves, OnlyReads, Reads, Writes};

const PROCESSES: [Kind; 8] = [Writes, Writes, Writes, Writes, Moves, Moves, Reads, OnlyReads];
const WRITERS: u64 = 4 * THREADS;

fn seed(round: u64, thread: u64) -> Draws {
    Draws(round * 1000 + thread)
}

/// Not a test by itself: a child, until it is killed.
#[test]
fn child() {
    let Some(task) = task() else { return };
    exit_on_first_panic();
    let mut parts = task.splitn(4, ' ');
    let mut number = || parts.next().unwrap().parse::<u64>().unwrap();
    let (round, process) = (number(), number());
    let medium = if parts.next() == Some("pmem") { Medium::Pmem } else { Medium::Shm };
    // The surviving process has only a few threads to check with, so the children get a lower
    // priority.
    rustix::process::nice(5).unwrap();
    let kind = PROCESSES[process as usize];
    let options = shared(Path::new(parts.next().unwrap()), medium).size(SIZE).read_only(kind == OnlyReads);
    let store = open_repeatedly(&options);
    let threads = process * THREADS..(process + 1) * THREADS;
    let seed = |thread| seed(round, thread);
    match kind {
        Writes => write_until_killed(&store, threads, seed),
        Moves => move_until_killed(&store, threads, seed),
        Reads | OnlyReads => read_until_killed(&store, WRITERS, |thread| seed(threads.start + thread)),
    }
}

/// While another process is stopped in the middle of opening the store, an open fails after two
/// seconds. Tries until the test continues that process.
fn open_repeatedly(options: &Options) -> Store {
    loop {
        match options.clone().open() {
            Err(OpenError::Pool(error)) if matches!(error.problem, Problem::GateTimeout(_)) => {}
            opened => return opened.unwrap(),
        }
    }
}

/// Exits the process when one of its threads panics. Otherwise its other threads would continue.
fn exit_on_first_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::exit(101);
    }));
}

#[allow(clippy::disallowed_methods, reason = "the moment of the kill is what is random here")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// A process, and the journals of its threads if it writes to keys of its own.
struct Member {
    process: u64,
    kind: Kind,
    round: u64,
    victim: Option<Victim>,
    is_stopped: bool,
    journals: Vec<Journal<Whole>>,
}

impl Member {
    fn new(process: u64, kind: Kind) -> Self {
        let threads = if kind == Writes { THREADS } else { 0 };
        let journals = (0..threads).map(|_| Journal::default()).collect();
        Self { process, kind, round: 0, victim: None, is_stopped: false, journals }
    }

    fn heard(&self) -> u64 {
        self.victim.as_ref().map_or(0, Victim::acknowledged)
    }

    fn stop(&mut self) {
        self.victim
            .as_ref()
            .unwrap()
            .stop()
            .unwrap_or_else(|_| panic!("a process ended by itself: {:?}", self.kind));
        self.is_stopped = true;
    }

    fn resume(&mut self) {
        if let Some(victim) = self.victim.as_ref().filter(|_| self.is_stopped) {
            victim.resume().unwrap();
        }
        self.is_stopped = false;
    }

    /// Whether one of its threads was stopped in the middle of its work: outside a system call,
    /// unlike a thread that acknowledges or waits. False where the kernel does not report it.
    fn was_at_work(&self) -> bool {
        let tasks = self.victim.as_ref().map(|victim| format!("/proc/{}/task", victim.pid()));
        let threads = tasks.and_then(|tasks| std::fs::read_dir(tasks).ok()).into_iter().flatten().flatten();
        let mut calls =
            threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("syscall")).ok());
        // Otherwise the line begins with the number of the system call.
        calls.any(|call| call.starts_with("-1 "))
    }
}

/// How much was done.
#[derive(Default)]
struct Counts {
    kills: u64,
    kills_of_readers: u64,
    stops: u64,
    stops_at_work: u64,
    writes: u64,
    moves: u64,
    reads: u64,
    checks: u64,
    accounts: u64,
}

struct Lab<'a> {
    store: &'a Store,
    path: &'a Path,
    medium: Medium,
    members: Vec<Member>,
    draws: Draws,
    counts: Counts,
}

impl Lab<'_> {
    fn start_missing(&mut self, round: u64) {
        let name = if self.medium == Medium::Pmem { "pmem" } else { "shm" };
        for member in self.members.iter_mut().filter(|member| member.victim.is_none()) {
            let task = format!("{round} {} {name} {}", member.process, self.path.display());
            member.round = round;
            member.victim = Some(Victim::of_test("child", &task, &[]).unwrap());
        }
    }

    /// Lets them run for a random time, and until some writes have returned: their speed differs a
    /// thousandfold between machines and builds.
    fn run_for_a_while(&mut self) {
        let heard = |lab: &Self| {
            let writers = lab.members.iter().filter(|member| member.kind == Writes);
            writers.map(Member::heard).sum::<u64>()
        };
        let before = heard(self);
        pause(Duration::from_millis(10 + self.draws.below(60)));
        while heard(self) - before <= 2 * OPERATIONS_A_KILL {
            pause(Duration::from_millis(1));
        }
    }

    /// Waits until each has acknowledged something more. None is stopped, so none is blocked.
    fn wait_until_each_continues(&self) {
        let before: Vec<u64> = self.members.iter().map(Member::heard).collect();
        let all_have = || self.members.iter().zip(&before).all(|(member, &before)| member.heard() > before);
        while !all_have() {
            pause(Duration::from_millis(1));
        }
    }

    /// A random one of the live processes.
    fn any(&mut self) -> usize {
        let live: Vec<usize> =
            (0..self.members.len()).filter(|&nth| self.members[nth].victim.is_some()).collect();
        live[self.draws.below(live.len() as u64) as usize]
    }

    fn stop_some(&mut self) {
        for _ in 0..1 + self.draws.below(3) {
            let nth = self.any();
            let member = &mut self.members[nth];
            if !member.is_stopped {
                member.stop();
                self.counts.stops += 1;
                self.counts.stops_at_work += u64::from(member.was_at_work());
            }
        }
    }

    fn resume_all(&mut self) {
        self.members.iter_mut().for_each(Member::resume);
    }

    /// Kills a random process, perhaps a stopped one, while the others run, and checks that its
    /// acknowledged writes are present.
    fn kill_any(&mut self) {
        /// Milliseconds. The kernel was seen to take more than ten seconds to end a killed process;
        /// meanwhile, a full pool waits for stopped ones.
        const WAIT_MS: u32 = 1000;
        let nth = self.any();
        self.counts.kills += 1;
        self.counts.kills_of_readers += u64::from(matches!(self.members[nth].kind, Reads | OnlyReads));
        let victim = self.members[nth].victim.take().unwrap();
        victim.kill_nowait();
        for _ in 0..WAIT_MS {
            if victim.ended().unwrap().is_some() {
                break;
            }
            pause(Duration::from_millis(1));
        }
        if victim.ended().unwrap().is_none() {
            self.resume_all();
        }
        self.resolve_writes(nth, &victim.wait());
    }

    /// Checks that the acknowledged writes of a killed process are present. The others run
    /// meanwhile, but do not use its keys.
    fn resolve_writes(&mut self, nth: usize, ended: &Ended) {
        let member = &mut self.members[nth];
        member.is_stopped = false;
        assert!(
            ended.killed,
            "{:?}, round {}: a process ended by itself: {:?}",
            self.medium, member.round, member.kind
        );
        let returned = (0..THREADS as usize).map(|thread| ended.returned(thread)).sum::<u64>();
        *match member.kind {
            Writes => &mut self.counts.writes,
            Moves => &mut self.counts.moves,
            Reads | OnlyReads => &mut self.counts.reads,
        } += returned;
        if member.journals.is_empty() {
            return;
        }
        let found = contents(self.store);
        for (thread, journal) in member.journals.iter_mut().enumerate() {
            let (returned, name) = (ended.returned(thread), member.process * THREADS + thread as u64);
            fill_journal(journal, name, &mut seed(member.round, name), returned);
            if let Err(disagreement) = journal.resolve(&found) {
                panic!(
                    "{:?}, round {}, writer {name}, {returned} returned: {disagreement}",
                    self.medium, member.round
                );
            }
        }
    }

    /// Checks that no dead process blocks others, and that all records are sound, by a process that
    /// opens the store now and checks it while others run. No process is stopped: a stopped one
    /// keeps its locks.
    fn check_survivors(&mut self) {
        self.store.put(b"survivor", self.counts.kills.to_string().as_bytes()).unwrap();
        self.store.remove(b"survivor").unwrap();
        let late = shared(self.path, self.medium).size(SIZE).read_only(true).open().unwrap();
        assert_eq!(total(&late), TOTAL, "{:?}: money was created or lost", self.medium);
        assert_sound(&late);
        late.close().unwrap();
        self.counts.checks += 1;
    }

    /// Kills all remaining processes, and checks that everything they left is recovered and the
    /// store is sound.
    fn kill_all_and_inspect(&mut self) {
        for nth in 0..self.members.len() {
            if let Some(victim) = self.members[nth].victim.take() {
                self.resolve_writes(nth, &victim.kill());
            }
        }
        self.store.sharing().recover_dead();
        let mut found = contents(self.store);
        found.retain(|key, _| key.starts_with(b"thread"));
        let journals: Vec<&Journal<Whole>> =
            self.members.iter().flat_map(|member| &member.journals).collect();
        if let Err(disagreement) = Journal::compare(journals, &found) {
            panic!("{:?}: {disagreement}", self.medium);
        }
        assert_eq!(total(self.store), TOTAL, "{:?}: money was created or lost", self.medium);
        assert!(
            self.store.sharing().other_processes().is_empty(),
            "{:?}: {:?}",
            self.medium,
            self.store.sharing().other_processes()
        );
        assert_sound(self.store);
        // No dead process may still count as a reader. (This store's own threads, which sweep and
        // collect, are readers at times.)
        let is_free_of_readers = comes_true(|| self.store.stats().pool.unwrap().readers == 0);
        assert!(is_free_of_readers, "{:?}: a reader is pinned for a minute", self.medium);
        self.check_memory();
    }

    /// Checks that exactly the reachable memory is allocated. No other process runs.
    fn check_memory(&mut self) {
        let mut memory = self.store.upkeep().memory();
        // A thread of this store may have retired blocks, and releases them when it runs next.
        comes_true(|| {
            memory = self.store.upkeep().memory();
            assert!(memory.garbage == 0 && memory.overlapping == 0, "{:?}: {memory:?}", self.medium);
            memory.waiting == 0
        });
        assert_eq!(memory.used, memory.reachable, "{:?}: {memory:?}", self.medium);
        self.counts.accounts += 1;
    }
}

fn kill_often(medium: Medium, index: Index, kills: u64, progress: &AtomicU64) -> Counts {
    let site = Site::new(medium, SIZE);
    let store = shared(&site.path, medium).size(SIZE).index(index).create().unwrap();
    open_accounts(&store);
    let members = (0..).zip(PROCESSES).map(|(process, kind)| Member::new(process, kind)).collect();
    let (draws, counts) = (Draws(7), Counts::default());
    let mut lab = Lab { store: &store, path: &site.path, medium, members, draws, counts };
    for round in 0.. {
        lab.start_missing(round);
        if round == 0 {
            // With few kills on a busy machine, some may otherwise have done nothing.
            lab.wait_until_each_continues();
        }
        lab.run_for_a_while();
        // In every other round, some processes are stopped while one or two die.
        let stops_some = round % 2 == 1;
        if stops_some {
            lab.stop_some();
            pause(Duration::from_millis(lab.draws.below(20)));
        }
        lab.kill_any();
        if stops_some && lab.draws.below(2) == 0 && lab.counts.kills < kills {
            pause(Duration::from_millis(lab.draws.below(20)));
            lab.kill_any();
        }
        lab.resume_all();
        lab.check_survivors();
        progress.store(lab.counts.kills, Relaxed);
        if lab.counts.kills >= kills {
            break;
        }
        if round % ROUNDS == ROUNDS - 1 {
            lab.start_missing(round);
            lab.wait_until_each_continues();
            lab.kill_all_and_inspect();
        }
    }
    lab.kill_all_and_inspect();
    let counts = lab.counts;
    store.close().unwrap();
    counts
}

fn run_kills(index: Index, kills: u64) {
    for medium in [Medium::Shm, Medium::Pmem] {
        let progress = AtomicU64::new(0);
        let counts = watched(&progress, || kill_often(medium, index, kills / 2, &progress));
        print_counts(medium, index, &counts);
        // Otherwise hardly anything was tested.
        let is_much =
            counts.writes > OPERATIONS_A_KILL * counts.kills && counts.moves > 0 && counts.reads > 0;
        assert!(is_much && (counts.stops > 0 || counts.kills < 3), "hardly anything was done");
    }
}

/// Number of kills for the default index.
fn kills() -> u64 {
    std::env::var("TERRACE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

#[test]
fn completed_writes_survive_killed_processes() {
    run_kills(Index::default(), kills());
}

#[test]
fn completed_writes_survive_killed_processes_in_each_index() {
    let others = Index::ALL.into_iter().filter(|&index| index != Index::default());
    others.for_each(|index| run_kills(index, kills() / 3));
}

#[allow(clippy::print_stderr, reason = "the counts are the test's evidence")]
fn print_counts(medium: Medium, index: Index, counts: &Counts) {
    let Counts { kills, kills_of_readers, stops, stops_at_work, writes, moves, reads, checks, accounts } =
        counts;
    eprintln!(
        "{medium:?}, {}: {kills} kills among {} processes ({kills_of_readers} of readers), {stops} stops ({stops_at_work} in the middle of work); {writes} writes, {moves} transfers and \
         {reads} rounds of reads had returned; 0 lost, sound in {checks} checks, every byte accounted for {accounts} times",
        index.name(),
        PROCESSES.len()
    );
}
