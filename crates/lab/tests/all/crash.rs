//! Crash exploration, from the recording of a history to the output of the program.

use serde_json::Value;
use std::process::Command;
use terrace_lab::targets::ClhtU64;
use terrace_lab::{RunSeed, Suite, suite};
use terrace_testkit::Trace;
use terrace_testkit::crash::{
    Fault, Finding, FindingReport, Kind, Lab, Limits, Profile, Seen, Target, record,
};

/// Few states per point are enough for the findings of these tests.
const LIMITS: Limits = Limits {
    exhaustive: [16, 8, 4],
    samples: [4, 4, 2],
    events_one_in: [1, 16],
    nested_one_in: [0; 3],
    revived_one_in: 0,
    again_one_in: Limits::RECHECK_ONE_IN,
};

/// The traces of a target's first runs, each recorded by a thread of its own in unused memory.
fn recorded<T: Target>(runs: u64) -> Vec<Trace> {
    let record = |run| record::<T, true>(&T::plan(run)).expect("a sound run").trace;
    std::thread::scope(|scope| {
        (0..runs).map(|run| scope.spawn(move || record(run)).join().unwrap()).collect()
    })
}

#[test]
fn same_plan_gives_the_same_trace() {
    let first = recorded::<ClhtU64>(8);
    // A mapping in between changes the addresses of the next runs.
    let _elsewhere = vec![1u8; 1 << 24];
    assert_eq!(recorded::<ClhtU64>(8), first);
    assert!(first.windows(2).all(|pair| pair[0] != pair[1]), "different plans give different traces");
}

#[test]
fn deduplicated_outcomes_read_the_same_words() {
    let explored = |name: &str, profile, run, again_one_in| {
        let (place, suite) = suite(name).expect("a target");
        let (seed, seen) = (RunSeed::new(place, profile, 0x5eed, run), Seen::new());
        let limits = Limits { events_one_in: [8, 16], again_one_in, ..LIMITS };
        let outcome = suite.run(&Lab::new(profile, limits, &seen), &suite.plan(seed.run));
        assert!(outcome.finding.is_none());
        let explored = outcome.explored;
        (explored.distinct, (explored.runs, explored.points, explored.sampled))
    };
    for name in ["clht", "turbo-bytes", "rewo", "level", "art", "hot", "direct", "pool", "full"] {
        for (profile, run) in [(Profile::Pmem, 1), (Profile::Shm, 2), (Profile::Arm, 3)] {
            let [(each, all), (few, same)] = [1, 1000].map(|often| explored(name, profile, run, often));
            assert_eq!(all, same, "{name}, {profile:?}, run {run}");
            // State outside the pool may differ, such as where an allocation continues its search:
            // about one state in a hundred reads another word or two.
            assert!(
                each.abs_diff(few) <= each.div_ceil(100),
                "{name}, {profile:?}, run {run}: {each}, {few}"
            );
        }
    }
}

/// A run with an injected fault: every write-back at one place is left out.
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
    fn minimised(&self, finding: Box<Finding>) -> Box<Finding> {
        self.with(|lab| self.suite.minimise(lab, finding, 400))
    }
    fn report(&self, finding: &Finding) -> String {
        FindingReport { target: self.suite.name, crash: self.seed.profile.crash(), finding }.to_string()
    }
}

/// The first write-back of P-CLHT whose loss is detected in the first run.
fn faulty() -> (Faulty, Box<Finding>) {
    let (place, suite) = suite("clht").expect("a target");
    let (seed, seen) = (RunSeed::new(place, Profile::Pmem, 0x5eed, 0), Seen::new());
    let [faults, _] = suite.faults(&Lab::new(seed.profile, LIMITS, &seen), &suite.plan(seed.run));
    let wanted = |fault: &Fault| fault.kind == Kind::NoWriteBack && fault.place().starts_with("hash/clht/");
    let mut faulty = faults.into_iter().filter(wanted).map(|fault| Faulty { suite, seed, fault });
    faulty.find_map(|faulty| faulty.found(seed).map(|finding| (faulty, finding))).expect("a detected fault")
}

fn operations(finding: &Finding) -> Vec<String> {
    finding.plan.before.iter().chain(&finding.plan.ops).map(ToString::to_string).collect()
}

#[test]
fn report_names_the_operation_whose_store_was_lost() {
    let (faulty, finding) = faulty();
    let smaller = faulty.minimised(finding.clone());
    let (all, left) = (operations(&finding), operations(&smaller));
    assert!(left.len() < all.len(), "{left:?} of {all:?}");
    let report = faulty.report(&smaller);
    let lost: Vec<&str> = report.lines().filter_map(|line| line.strip_prefix("  lost: ")).collect();
    assert!(!lost.is_empty(), "{report}");
    // A lost store belongs to a reported operation, and is named with its place.
    let is_reported = |line: &&str| {
        let (whose, what) = line.split_once("'s ").unwrap_or_default();
        let is_place =
            what.contains(" (") && what.contains(".rs:") && what.ends_with("; never written back.");
        is_place && left.iter().any(|op| op == whose)
    };
    assert!(lost.iter().any(is_reported), "{report}");
    assert!(report.contains("then the machine lost power."), "{report}");
    assert!(report.ends_with(&format!("after recovery {}.", smaller.wrong)), "{report}");
}

#[test]
fn seed_repeats_its_finding() {
    let (faulty, finding) = faulty();
    let again = faulty.found(faulty.seed.to_string().parse().unwrap()).expect("the same");
    assert_eq!(faulty.report(&again), faulty.report(&finding));
    assert_eq!(faulty.report(&faulty.minimised(again)), faulty.report(&faulty.minimised(finding)));
}

/// The program's JSON output, and whether its exit code is 0.
fn lab(arguments: &[&str]) -> (Value, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments).output().expect("the program");
    let text = String::from_utf8(output.stdout).expect("text");
    (serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}")), output.status.success())
}

#[test]
fn crash_command_reports_its_counts() {
    // One thread: with two, one may run all the time while the other stays at its first point.
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
fn replay_command_repeats_a_run() {
    let (place, _) = suite("clht").expect("a target");
    let seed = RunSeed::new(place, Profile::Eadr, 7, 0).to_string();
    let run = || lab(&["replay", &seed, "--exhaustive", "4", "--json"]);
    let (said, sound) = run();
    assert!(sound && said["finding"].is_null(), "{said}");
    assert_eq!((&said["target"], &said["profile"]), (&"clht".into(), &"eadr".into()));
    assert!(said["states_distinct"].as_u64() > Some(0), "{said}");
    assert_eq!(run().0, said);
}

/// No target passes on remote memory, see `docs/testing.md`, so there is a finding to repeat.
#[test]
fn replay_command_repeats_a_finding_with_its_limits() {
    let limits = ["--exhaustive", "7", "--json"];
    let crash = ["crash", "clht", "--profile", "remote", "--states", "20000", "--jobs", "1"];
    let (said, sound) = lab(&[&crash[..], &limits].concat());
    let (finding, seed) = (&said["finding"], said["finding"]["replay"].as_str().expect("a finding"));
    assert!(!sound && said["exhaustive"] == 7, "{said}");
    let (again, sound) = lab(&[&["replay", seed][..], &limits].concat());
    assert!(!sound);
    assert_eq!(again["finding"], finding["wrong"]);
}
