//! Several processes write to one store; one after the other is killed at a random moment while the rest go on. Every write that returned is there, nothing else, and
//! nobody is held up.
//!
//! The children are this test binary again. See `kill.rs` for how they tell what returned.

#[path = "common/writes.rs"]
mod writes;

#[path = "common/watched.rs"]
mod watched;

mod common;

use common::{Draws, Medium, Site, assert_sound, contents, shared};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use terrace::{ByteSize, Index, Store};
use terrace_testkit::process::{Ended, Journal, Victim, task};
use watched::watched;
use writes::{Whole, note, write_until_killed};

const SIZE: ByteSize = ByteSize::mib(256);
const THREADS: u64 = 2;
const PROCESSES: u64 = 8;
/// At least so many have returned for each process that is killed.
const OPERATIONS_A_KILL: u64 = 10;

fn seed(round: u64, writer: u64) -> Draws {
    Draws(round * 1000 + writer)
}

/// Not a test by itself: what a child does until it is killed.
#[test]
fn child() {
    let Some(task) = task() else { return };
    let mut parts = task.splitn(4, ' ');
    let mut number = || parts.next().unwrap().parse::<u64>().unwrap();
    let (round, process) = (number(), number());
    let medium = if parts.next() == Some("pmem") { Medium::Pmem } else { Medium::Shm };
    // The survivor that judges is one thread among many.
    rustix::process::nice(5).unwrap();
    let store = shared(Path::new(parts.next().unwrap()), medium).size(SIZE).open().unwrap();
    write_until_killed(&store, process * THREADS..(process + 1) * THREADS, |writer| seed(round, writer));
}

#[allow(clippy::disallowed_methods, reason = "the moment of the kill is what is random here")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// A process that writes, and the journals of its threads.
struct Writer {
    process: u64,
    round: u64,
    victim: Option<Victim>,
    journals: Vec<Journal<Whole>>,
}

struct Lab<'a> {
    store: &'a Store,
    path: &'a Path,
    medium: Medium,
    operations: u64,
}

impl Lab<'_> {
    fn start(&self, writer: &mut Writer, round: u64) {
        let name = if self.medium == Medium::Pmem { "pmem" } else { "shm" };
        let task = format!("{round} {} {name} {}", writer.process, self.path.display());
        writer.round = round;
        writer.victim = Some(Victim::of_test("child", &task, &[]).unwrap());
    }

    /// Kills a writer, and finds all that it was told is done.
    fn kill(&mut self, writer: &mut Writer) {
        let ended = writer.victim.take().unwrap().kill();
        self.settle(writer, &ended);
    }

    /// Finds all that a killed writer was told is done. The others go on meanwhile, but not with its keys.
    fn settle(&mut self, writer: &mut Writer, ended: &Ended) {
        let found = contents(self.store);
        for (thread, journal) in writer.journals.iter_mut().enumerate() {
            let (returned, name) = (ended.returned(thread), writer.process * THREADS + thread as u64);
            note(journal, name, &mut seed(writer.round, name), returned);
            if let Err(disagreement) = journal.settle(&found) {
                panic!(
                    "{:?}, round {}, writer {name}, {returned} returned: {disagreement}",
                    self.medium, writer.round
                );
            }
            self.operations += returned;
        }
    }

    /// Everything that the dead have left is taken back, and the store is whole. Nobody writes.
    fn inspect(&self, writers: &[Writer]) {
        self.store.look_after_others();
        let found = contents(self.store);
        let journals: Vec<&Journal<Whole>> = writers.iter().flat_map(|writer| &writer.journals).collect();
        if let Err(disagreement) = Journal::compare(journals, &found) {
            panic!("{:?}: {disagreement}", self.medium);
        }
        assert_sound(self.store);
        // Nobody has been forgotten who still seems to be at work: such a one would not go. (This store's own threads, which sweep and collect, come and go.)
        let is_nobody_there = (0..200).any(|look| {
            pause(Duration::from_millis(u64::from(look > 0) * 10));
            self.store.stats().readers == 0
        });
        assert!(is_nobody_there, "{:?}: somebody reads for two seconds", self.medium);
    }
}

/// A random while in which the others write, and until some operations have returned: how fast they are differs a thousandfold from one machine and build to the other.
fn let_them_write(writers: &[Writer], draws: &mut Draws) {
    let heard = || writers.iter().filter_map(|writer| writer.victim.as_ref()).map(Victim::heard).sum::<u64>();
    let before = heard();
    pause(Duration::from_millis(10 + draws.below(60)));
    while heard() - before <= 2 * OPERATIONS_A_KILL {
        pause(Duration::from_millis(1));
    }
}

fn kill_often(medium: Medium, index: Index, kills: u64, progress: &AtomicU64) -> u64 {
    let site = Site::new(medium, SIZE);
    let store = shared(&site.path, medium).size(SIZE).index(index).create().unwrap();
    let mut lab = Lab { store: &store, path: &site.path, medium, operations: 0 };
    let mut writers: Vec<Writer> = (0..PROCESSES)
        .map(|process| Writer {
            process,
            round: 0,
            victim: None,
            journals: (0..THREADS).map(|_| Journal::default()).collect(),
        })
        .collect();
    let mut draws = Draws(7);
    for round in 0..kills {
        for writer in writers.iter_mut().filter(|writer| writer.victim.is_none()) {
            lab.start(writer, round);
        }
        let_them_write(&writers, &mut draws);
        let nth = draws.below(PROCESSES) as usize;
        let stopped = (nth + 1) % PROCESSES as usize;
        // Some of the time another one stands still while this one dies. It keeps its locks, so what it holds is not asked for.
        let stands_still = round % 5 == 4;
        if stands_still {
            writers[stopped].victim.as_mut().unwrap().stop().unwrap();
        }
        let victim = writers[nth].victim.take().unwrap();
        victim.strike();
        if stands_still {
            // Not until the kernel has taken the dead one apart, which was seen to take more than ten seconds: so long a full pool waits for one who stands still.
            pause(Duration::from_millis(draws.below(20)));
            writers[stopped].victim.as_mut().unwrap().resume().unwrap();
        }
        let ended = victim.wait();
        lab.settle(&mut writers[nth], &ended);
        // Nobody is held up by the dead.
        store.put(b"survivor", round.to_string().as_bytes()).unwrap();
        store.remove(b"survivor").unwrap();
        if round % 8 == 7 {
            for writer in writers.iter_mut().filter(|writer| writer.victim.is_some()) {
                lab.kill(writer);
            }
            lab.inspect(&writers);
        }
        progress.store(round + 1, Relaxed);
    }
    for writer in writers.iter_mut().filter(|writer| writer.victim.is_some()) {
        lab.kill(writer);
    }
    lab.inspect(&writers);
    let operations = lab.operations;
    store.close().unwrap();
    operations
}

fn survives_whoever_is_killed(index: Index, kills: u64) {
    for medium in [Medium::Shm, Medium::Pmem] {
        let progress = AtomicU64::new(0);
        let operations = watched(&progress, || kill_often(medium, index, kills / 2, &progress));
        // Else hardly anything was tried.
        assert!(
            operations > OPERATIONS_A_KILL * (kills / 2),
            "{medium:?}, {}: only {operations} operations",
            index.name()
        );
        say(medium, index, kills / 2, operations);
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
fn say(medium: Medium, index: Index, kills: u64, operations: u64) {
    let name = index.name();
    eprintln!(
        "{medium:?}, {name}: {kills} kills among {PROCESSES} processes, {operations} operations had returned"
    );
}
