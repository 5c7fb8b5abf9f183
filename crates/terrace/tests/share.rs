//! Several processes read and write one store; one after the other is killed at a random moment while the rest go on, or stand still. Every write that returned is there, nothing else,
//! nothing that is read is anything else, no memory is lost, and nobody is held up.
//!
//! The children are this test binary again. See `kill.rs` for how they tell what returned.

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
use writes::{Whole, note, write_until_killed};

const SIZE: ByteSize = ByteSize::mib(256);
const THREADS: u64 = 2;
/// At least so many writes have returned for each process that is killed.
const OPERATIONS_A_KILL: u64 = 10;
/// After so many rounds all are killed, to see what is left.
const ROUNDS: u64 = 8;

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Writes of every kind to keys of its own.
    Writes,
    /// Transactions over keys that others change, too.
    Moves,
    /// Reads of every kind.
    Reads,
    /// The same without any right to write.
    OnlyReads,
}

use Kind::{Moves, OnlyReads, Reads, Writes};

const PROCESSES: [Kind; 8] = [Writes, Writes, Writes, Writes, Moves, Moves, Reads, OnlyReads];
const WRITERS: u64 = 4 * THREADS;

fn seed(round: u64, thread: u64) -> Draws {
    Draws(round * 1000 + thread)
}

/// Not a test by itself: what a child does until it is killed.
#[test]
fn child() {
    let Some(task) = task() else { return };
    end_with_the_first_panic();
    let mut parts = task.splitn(4, ' ');
    let mut number = || parts.next().unwrap().parse::<u64>().unwrap();
    let (round, process) = (number(), number());
    let medium = if parts.next() == Some("pmem") { Medium::Pmem } else { Medium::Shm };
    // The survivor that judges is one thread among many.
    rustix::process::nice(5).unwrap();
    let kind = PROCESSES[process as usize];
    let options = shared(Path::new(parts.next().unwrap()), medium).size(SIZE).read_only(kind == OnlyReads);
    let store = open_in_the_end(&options);
    let threads = process * THREADS..(process + 1) * THREADS;
    let seed = |thread| seed(round, thread);
    match kind {
        Writes => write_until_killed(&store, threads, seed),
        Moves => move_until_killed(&store, threads, seed),
        Reads | OnlyReads => read_until_killed(&store, WRITERS, |thread| seed(threads.start + thread)),
    }
}

/// One who comes while another stands still in the midst of opening the store is told so after two seconds. It may be longer until the judge lets that one go on.
fn open_in_the_end(options: &Options) -> Store {
    loop {
        match options.clone().open() {
            Err(OpenError::Pool(error)) if matches!(error.problem, Problem::Barred(_)) => {}
            opened => return opened.unwrap(),
        }
    }
}

/// Whatever one thread finds wrong, the process ends by itself, which nobody expects; the others would go on.
fn end_with_the_first_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
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
    stands_still: bool,
    journals: Vec<Journal<Whole>>,
}

impl Member {
    fn new(process: u64, kind: Kind) -> Self {
        let threads = if kind == Writes { THREADS } else { 0 };
        let journals = (0..threads).map(|_| Journal::default()).collect();
        Self { process, kind, round: 0, victim: None, stands_still: false, journals }
    }

    fn heard(&self) -> u64 {
        self.victim.as_ref().map_or(0, Victim::heard)
    }

    fn stop(&mut self) {
        self.victim
            .as_ref()
            .unwrap()
            .stop()
            .unwrap_or_else(|_| panic!("a process ended by itself: {:?}", self.kind));
        self.stands_still = true;
    }

    fn resume(&mut self) {
        if let Some(victim) = self.victim.as_ref().filter(|_| self.stands_still) {
            victim.resume().unwrap();
        }
        self.stands_still = false;
    }

    /// Whether one of its threads was stopped in the midst of what it does: in no call of the system's, as one that tells what returned, or waits. Where the kernel says so.
    fn was_at_work(&self) -> bool {
        let tasks = self.victim.as_ref().map(|victim| format!("/proc/{}/task", victim.pid()));
        let threads = tasks.and_then(|tasks| std::fs::read_dir(tasks).ok()).into_iter().flatten().flatten();
        let mut calls =
            threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("syscall")).ok());
        // Else this is the call's number.
        calls.any(|call| call.starts_with("-1 "))
    }
}

/// What was tried.
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
    fn start_who_is_missing(&mut self, round: u64) {
        let name = if self.medium == Medium::Pmem { "pmem" } else { "shm" };
        for member in self.members.iter_mut().filter(|member| member.victim.is_none()) {
            let task = format!("{round} {} {name} {}", member.process, self.path.display());
            member.round = round;
            member.victim = Some(Victim::of_test("child", &task, &[]).unwrap());
        }
    }

    /// A random while in which they go on, and until some writes have returned: how fast they are differs a thousandfold from one machine and build to the other.
    fn let_them_work(&mut self) {
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

    /// Until each has done something more. Nobody stands still, so nobody is held up.
    fn let_each_get_on(&self) {
        let before: Vec<u64> = self.members.iter().map(Member::heard).collect();
        let all_have = || self.members.iter().zip(&before).all(|(member, &before)| member.heard() > before);
        while !all_have() {
            pause(Duration::from_millis(1));
        }
    }

    /// One of those that live, by chance.
    fn any(&mut self) -> usize {
        let living: Vec<usize> =
            (0..self.members.len()).filter(|&nth| self.members[nth].victim.is_some()).collect();
        living[self.draws.below(living.len() as u64) as usize]
    }

    fn stop_some(&mut self) {
        for _ in 0..1 + self.draws.below(3) {
            let nth = self.any();
            let member = &mut self.members[nth];
            if !member.stands_still {
                member.stop();
                self.counts.stops += 1;
                self.counts.stops_at_work += u64::from(member.was_at_work());
            }
        }
    }

    fn resume_all(&mut self) {
        self.members.iter_mut().for_each(Member::resume);
    }

    /// Kills one of them, which may be one that stands still, while the others go on, and finds all that it was told is done.
    fn kill_any(&mut self) {
        /// The kernel was seen to take more than ten seconds to take a dead one apart: so long a full pool waits for one who stands still.
        const LOOKS: u32 = 1000;
        let nth = self.any();
        self.counts.kills += 1;
        self.counts.kills_of_readers += u64::from(matches!(self.members[nth].kind, Reads | OnlyReads));
        let victim = self.members[nth].victim.take().unwrap();
        victim.strike();
        for _ in 0..LOOKS {
            if victim.ended().unwrap().is_some() {
                break;
            }
            pause(Duration::from_millis(1));
        }
        if victim.ended().unwrap().is_none() {
            self.resume_all();
        }
        self.settle(nth, &victim.wait());
    }

    /// Finds all that a killed process was told is done. The others go on meanwhile, but not with its keys.
    fn settle(&mut self, nth: usize, ended: &Ended) {
        let member = &mut self.members[nth];
        member.stands_still = false;
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
            note(journal, name, &mut seed(member.round, name), returned);
            if let Err(disagreement) = journal.settle(&found) {
                panic!(
                    "{:?}, round {}, writer {name}, {returned} returned: {disagreement}",
                    self.medium, member.round
                );
            }
        }
    }

    /// Nobody is held up by the dead, and all records are sound: to one that comes in after them and looks beside those who go on. Nobody stands still: that one keeps its locks.
    fn judge(&mut self) {
        self.store.put(b"survivor", self.counts.kills.to_string().as_bytes()).unwrap();
        self.store.remove(b"survivor").unwrap();
        let late = shared(self.path, self.medium).size(SIZE).read_only(true).open().unwrap();
        assert_eq!(total(&late), TOTAL, "{:?}: money has come or gone", self.medium);
        assert_sound(&late);
        late.close().unwrap();
        self.counts.checks += 1;
    }

    /// Kills all who are left. Everything that the dead have left is taken back, and the store is whole.
    fn kill_all_and_inspect(&mut self) {
        for nth in 0..self.members.len() {
            if let Some(victim) = self.members[nth].victim.take() {
                self.settle(nth, &victim.kill());
            }
        }
        self.store.look_after_others();
        let mut found = contents(self.store);
        found.retain(|key, _| key.starts_with(b"thread"));
        let journals: Vec<&Journal<Whole>> =
            self.members.iter().flat_map(|member| &member.journals).collect();
        if let Err(disagreement) = Journal::compare(journals, &found) {
            panic!("{:?}: {disagreement}", self.medium);
        }
        assert_eq!(total(self.store), TOTAL, "{:?}: money has come or gone", self.medium);
        assert!(self.store.others().is_empty(), "{:?}: {:?}", self.medium, self.store.others());
        assert_sound(self.store);
        // Nobody has been forgotten who still seems to be at work: such a one would not go. (This store's own threads, which sweep and collect, come and go.)
        let is_nobody_there = comes_true(|| self.store.stats().pool.unwrap().readers == 0);
        assert!(is_nobody_there, "{:?}: somebody reads for a minute", self.medium);
        self.account();
    }

    /// The pool has given exactly what can be reached. Nobody else is there.
    fn account(&mut self) {
        let mut memory = self.store.memory();
        // A thread of this store may have retired something, and lets go of it when it looks again.
        comes_true(|| {
            memory = self.store.memory();
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
        lab.start_who_is_missing(round);
        if round == 0 {
            // Or with few kills on a machine that has no time, some may have done nothing.
            lab.let_each_get_on();
        }
        lab.let_them_work();
        // Every other time some stand still while one or two die.
        let stand_still = round % 2 == 1;
        if stand_still {
            lab.stop_some();
            pause(Duration::from_millis(lab.draws.below(20)));
        }
        lab.kill_any();
        if stand_still && lab.draws.below(2) == 0 && lab.counts.kills < kills {
            pause(Duration::from_millis(lab.draws.below(20)));
            lab.kill_any();
        }
        lab.resume_all();
        lab.judge();
        progress.store(lab.counts.kills, Relaxed);
        if lab.counts.kills >= kills {
            break;
        }
        if round % ROUNDS == ROUNDS - 1 {
            lab.start_who_is_missing(round);
            lab.let_each_get_on();
            lab.kill_all_and_inspect();
        }
    }
    lab.kill_all_and_inspect();
    let counts = lab.counts;
    store.close().unwrap();
    counts
}

fn survives_whoever_is_killed(index: Index, kills: u64) {
    for medium in [Medium::Shm, Medium::Pmem] {
        let progress = AtomicU64::new(0);
        let counts = watched(&progress, || kill_often(medium, index, kills / 2, &progress));
        say(medium, index, &counts);
        // Else hardly anything was tried.
        let is_much =
            counts.writes > OPERATIONS_A_KILL * counts.kills && counts.moves > 0 && counts.reads > 0;
        assert!(is_much && (counts.stops > 0 || counts.kills < 3), "hardly anything was done");
    }
}

/// How many processes are killed that share a store of the default index.
fn kills() -> u64 {
    std::env::var("TERRACE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

#[test]
fn what_returned_survives_whoever_is_killed() {
    survives_whoever_is_killed(Index::default(), kills());
}

#[test]
fn what_returned_survives_whoever_is_killed_whichever_index_it_is_in() {
    let others = Index::ALL.into_iter().filter(|&index| index != Index::default());
    others.for_each(|index| survives_whoever_is_killed(index, kills() / 3));
}

#[allow(clippy::print_stderr, reason = "the counts are the test's evidence")]
fn say(medium: Medium, index: Index, counts: &Counts) {
    let Counts { kills, kills_of_readers, stops, stops_at_work, writes, moves, reads, checks, accounts } =
        counts;
    eprintln!(
        "{medium:?}, {}: {kills} kills among {} processes ({kills_of_readers} of readers), {stops} stops ({stops_at_work} in the midst of work); {writes} writes, {moves} transfers and \
         {reads} rounds of reads had returned; 0 lost, sound in {checks} checks, every byte accounted for {accounts} times",
        index.name(),
        PROCESSES.len()
    );
}
