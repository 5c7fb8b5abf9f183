//! Crashes, from the recording of a history to what the program prints of it.

use serde_json::Value;
use std::process::Command;
use terrace_lab::targets::ClhtU64;
use terrace_lab::{RunSeed, Suite, suite};
use terrace_testkit::Trace;
use terrace_testkit::crash::{Fault, Finding, Kind, Lab, Limits, Profile, Seen, Story, Target, record};

/// Few states of each point: what is looked for here shows in many.
const LIMITS: Limits = Limits {
    exhaustive: [16, 8, 4],
    samples: [4, 4, 2],
    events_one_in: [1, 16],
    nested_one_in: [0; 3],
    revived_one_in: 0,
    again_one_in: Limits::AGAIN_ONE_IN,
};

/// The first runs of a target, each recorded by a thread of its own, in memory that no run has used.
fn recorded<T: Target>(runs: u64) -> Vec<Trace> {
    let record = |run| record::<T, true>(&T::plan(run)).expect("a sound run").trace;
    std::thread::scope(|scope| {
        (0..runs).map(|run| scope.spawn(move || record(run)).join().unwrap()).collect()
    })
}

#[test]
fn the_same_plan_gives_the_same_trace() {
    let first = recorded::<ClhtU64>(8);
    // What is mapped meanwhile moves the next ones.
    let _elsewhere = vec![1u8; 1 << 24];
    assert_eq!(recorded::<ClhtU64>(8), first);
    assert!(first.windows(2).all(|pair| pair[0] != pair[1]), "and another one another");
}

#[test]
fn a_state_that_comes_to_an_end_that_was_judged_before_reads_what_it_would_read_on_its_own_way() {
    let explored = |name: &str, profile, run, again_one_in| {
        let (place, suite) = suite(name).expect("a target");
        let (seed, seen) = (RunSeed::new(place, profile, 0x5eed, run), Seen::new());
        let limits = Limits { events_one_in: [8, 16], again_one_in, ..LIMITS };
        let outcome = suite.run(&Lab::new(profile, limits, &seen), &suite.plan(seed.run));
        assert!(outcome.finding.is_none());
        let explored = outcome.explored;
        (explored.distinct, (explored.runs, explored.points, explored.sampled))
    };
    for name in ["clht", "turbo-bytes", "rewo", "level", "direct", "pool", "full"] {
        for (profile, run) in [(Profile::Pmem, 1), (Profile::Shm, 2), (Profile::Arm, 3)] {
            let [(each, all), (few, same)] = [1, 1000].map(|often| explored(name, profile, run, often));
            assert_eq!(all, same, "{name}, {profile:?}, run {run}");
            // What is not in the pool may differ, as where a search for room goes on: one state in some hundred reads another word or two.
            assert!(
                each.abs_diff(few) <= each.div_ceil(100),
                "{name}, {profile:?}, run {run}: {each}, {few}"
            );
        }
    }
}

/// A run in which every write-back of one place is left out.
struct Faulty {
    suite: &'static Suite,
    seed: RunSeed,
    fault: Fault,
}

impl Faulty {
    fn with<R>(&self, does: impl FnOnce(&Lab<'_>) -> R) -> R {
        let seen = Seen::new();
        does(&Lab {
            fault: Some(self.fault),
            only_faulty: true,
            ..Lab::new(self.seed.profile, LIMITS, &seen)
        })
    }
    fn found(&self, seed: RunSeed) -> Option<Box<Finding>> {
        self.with(|lab| self.suite.run(lab, &self.suite.plan(seed.run))).finding
    }
    fn smaller(&self, finding: Box<Finding>) -> Box<Finding> {
        self.with(|lab| self.suite.minimise(lab, finding, 400))
    }
    fn story(&self, finding: &Finding) -> String {
        Story { target: self.suite.name, crash: self.seed.profile.crash(), finding }.to_string()
    }
}

/// The first write-back of P-CLHT in its first run whose loss shows there.
fn faulty() -> (Faulty, Box<Finding>) {
    let (place, suite) = suite("clht").expect("a target");
    let (seed, seen) = (RunSeed::new(place, Profile::Pmem, 0x5eed, 0), Seen::new());
    let [faults, _] = suite.faults(&Lab::new(seed.profile, LIMITS, &seen), &suite.plan(seed.run));
    let wanted = |fault: &Fault| fault.kind == Kind::NoWriteBack && fault.place().starts_with("hash/clht/");
    let mut faulty = faults.into_iter().filter(wanted).map(|fault| Faulty { suite, seed, fault });
    faulty.find_map(|faulty| faulty.found(seed).map(|finding| (faulty, finding))).expect("one that shows")
}

fn operations(finding: &Finding) -> Vec<String> {
    finding.plan.before.iter().chain(&finding.plan.ops).map(ToString::to_string).collect()
}

#[test]
fn a_story_names_the_operation_whose_store_was_lost() {
    let (faulty, finding) = faulty();
    let smaller = faulty.smaller(finding.clone());
    let (all, left) = (operations(&finding), operations(&smaller));
    assert!(left.len() < all.len(), "{left:?} of {all:?}");
    let story = faulty.story(&smaller);
    let lost: Vec<&str> = story.lines().filter_map(|line| line.strip_prefix("  lost: ")).collect();
    assert!(!lost.is_empty(), "{story}");
    // The store that was not written back is of an operation that is told, and named with its place.
    let is_told = |line: &&str| {
        let (whose, what) = line.split_once("'s ").unwrap_or_default();
        let is_place =
            what.contains(" (") && what.contains(".rs:") && what.ends_with("; never written back.");
        is_place && left.iter().any(|op| op == whose)
    };
    assert!(lost.iter().any(is_told), "{story}");
    assert!(story.contains("then the machine lost power."), "{story}");
    assert!(story.ends_with(&format!("after recovery {}.", smaller.wrong)), "{story}");
}

#[test]
fn a_seed_repeats_its_finding() {
    let (faulty, finding) = faulty();
    let again = faulty.found(faulty.seed.to_string().parse().unwrap()).expect("the same");
    assert_eq!(faulty.story(&again), faulty.story(&finding));
    assert_eq!(faulty.story(&faulty.smaller(again)), faulty.story(&faulty.smaller(finding)));
}

/// What the program prints, and whether it says that all is well.
fn lab(arguments: &[&str]) -> (Value, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments).output().expect("the program");
    let text = String::from_utf8(output.stdout).expect("text");
    (serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}")), output.status.success())
}

#[test]
fn the_program_says_what_it_has_judged() {
    // One thread: of two, one may come by no point but its first while the other one has all the time.
    let arguments =
        ["crash", "clht", "--profile", "pmem", "--states", "500", "--seed", "1", "--jobs", "1", "--json"];
    let (said, sound) = lab(&arguments);
    assert!(sound && said["finding"].is_null(), "{said}");
    assert_eq!(
        (&said["target"], &said["profile"], &said["seed"]),
        (&"clht".into(), &"pmem".into(), &"0x1".into())
    );
    let number = |name: &str| said[name].as_u64().unwrap_or_else(|| panic!("no {name} in {said}"));
    assert!((500..510).contains(&number("states_distinct")), "{said}");
    assert!(number("states_judged") >= number("states_distinct"), "{said}");
    assert!(
        number("points") > number("points_sampled") && number("stores") > number("stores_settled"),
        "{said}"
    );
}

#[test]
fn the_program_repeats_a_run() {
    let (place, _) = suite("clht").expect("a target");
    let seed = RunSeed::new(place, Profile::Eadr, 7, 0).to_string();
    let run = || lab(&["replay", &seed, "--exhaustive", "4", "--json"]);
    let (said, sound) = run();
    assert!(sound && said["finding"].is_null(), "{said}");
    assert_eq!((&said["target"], &said["profile"]), (&"clht".into(), &"eadr".into()));
    assert!(said["states_distinct"].as_u64() > Some(0), "{said}");
    assert_eq!(run().0, said);
}

/// No target passes on remote memory, see `docs/testing.md`, so there is something to find.
#[test]
fn the_program_repeats_what_it_has_found_with_the_same_limits() {
    let limits = ["--exhaustive", "7", "--json"];
    let crash = ["crash", "clht", "--profile", "remote", "--states", "20000", "--jobs", "1"];
    let (said, sound) = lab(&[&crash[..], &limits].concat());
    let (finding, seed) = (&said["finding"], said["finding"]["replay"].as_str().expect("a finding"));
    assert!(!sound && said["exhaustive"] == 7, "{said}");
    let (again, sound) = lab(&[&["replay", seed][..], &limits].concat());
    assert!(!sound);
    assert_eq!(again["finding"], finding["wrong"]);
}
