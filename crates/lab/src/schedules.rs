//! The targets whose threads meet, by name, and the word that repeats a run.

use crate::targets::{
    Blocks, Cells, ClhtBytes, ClhtU64, DirectEngine, LevelBytes, LevelU64, RewoBytes, RewoU64, TurboBytes,
    TurboU64,
};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use terrace_testkit::Noted;
use terrace_testkit::crash::{Dice, Explored, Fault, Memory, Op, Plan, Profile, Seen, Target, Wrong};
use terrace_testkit::schedule::{
    Act, Crashes, Finding, LIMITS, Passed, Policy, Reach, Run, Scenario, Slice, Stage, Weak, Weakened,
    Weakening, Weakenings, minimise, rehearse, run,
};

/// Who dies in a run whose threads are participants of a shared pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deaths {
    /// Nobody, and the pool is not shared.
    #[default]
    None,
    /// Some, while the others go on.
    Some,
    /// The first one, and the others come one after the other to what it has left.
    First,
}

/// What happens to the threads of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accident {
    /// Who dies.
    pub deaths: Deaths,
    /// The memory whose crash all of it is put through; none if it does not crash.
    pub crash: Option<Profile>,
    /// Whether threads see what others store as late as the memory model lets them.
    pub is_weak: bool,
}

/// What runs are called in which participants die.
const ONE_DIES: &str = "one-dies";
const HEIRS: &str = "heirs";
/// And those in which the memory is weak.
const WEAK: &str = "weak";

impl Accident {
    /// All that a run is put through if nothing else is said: every kind of death, without a crash and with.
    pub const DEATHS: [Self; 3] = [
        Self::of(Deaths::Some, None),
        Self::of(Deaths::Some, Some(Profile::Pmem)),
        Self::of(Deaths::First, Some(Profile::Pmem)),
    ];

    /// The memory is not weak.
    pub const fn of(deaths: Deaths, crash: Option<Profile>) -> Self {
        Self { deaths, crash, is_weak: false }
    }

    /// The one with this name: none, weak, pmem, one-dies, one-dies+pmem, heirs, heirs+pmem and so on.
    pub fn named(name: &str) -> Result<Self, String> {
        let some = name.strip_prefix(ONE_DIES).map(|rest| (Deaths::Some, rest));
        let first = name.strip_prefix(HEIRS).map(|rest| (Deaths::First, rest));
        let (deaths, crash) = match some.or(first) {
            Some((deaths, "")) => return Ok(Self::of(deaths, None)),
            Some((deaths, rest)) => (deaths, rest.strip_prefix('+').unwrap_or(rest)),
            None if name == "none" => return Ok(Self::default()),
            None if name == WEAK => return Ok(Self { is_weak: true, ..Self::default() }),
            None => (Deaths::None, name),
        };
        match Profile::ALL.into_iter().find(|profile| profile.name() == crash) {
            Some(profile) => Ok(Self::of(deaths, Some(profile))),
            None => Err(format!(
                "there is no crash `{name}`; there are none, {WEAK}, {}, {ONE_DIES}, {HEIRS}, and {ONE_DIES}+pmem and so on",
                Profile::ALL.map(Profile::name).join(", ")
            )),
        }
    }

    /// Whether anybody dies.
    pub fn is_mortal(self) -> bool {
        self.deaths != Deaths::None
    }

    /// What happens, for a story.
    pub fn story(self) -> &'static str {
        self.crash.map_or("", Profile::crash)
    }
}

impl fmt::Display for Accident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.deaths {
            Deaths::None if self.is_weak => return f.pad(WEAK),
            Deaths::None => return f.pad(self.crash.map_or("none", Profile::name)),
            Deaths::Some => ONE_DIES,
            Deaths::First => HEIRS,
        };
        match self.crash.map(Profile::name) {
            None => f.pad(who),
            Some(crash) => f.pad(&format!("{who}+{crash}")),
        }
    }
}

/// Which run of which target, and what happens to it: `clht/none/0x1d`, `clht/pmem/0x1d`, `clht/one-dies/0x1d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleSeed {
    /// The target's name.
    pub target: &'static str,
    /// What happens to its threads.
    pub accident: Accident,
    /// What scenario and schedule follow from.
    pub run: u64,
}

impl ScheduleSeed {
    /// The seed of run `number` of a session with seed `seed`.
    pub fn new(target: &'static str, accident: Accident, seed: u64, number: u64) -> Self {
        let run = Dice::new(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93)).bits() >> 8;
        Self { target, accident, run }
    }
}

impl fmt::Display for ScheduleSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{:#x}", self.target, self.accident, self.run)
    }
}

impl FromStr for ScheduleSeed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no run: give the word that the finding names, as clht/none/0x1d");
        let mut parts = text.split('/');
        let (Some(target), Some(crash), Some(run), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let target = meeting(target).ok_or_else(|| format!("there is no target `{target}`"))?.name;
        let run =
            run.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok()).ok_or_else(wrong)?;
        Ok(Self { target, accident: Accident::named(crash)?, run })
    }
}

/// What came of one run.
#[derive(Debug, Default)]
pub struct Done {
    /// Accesses, write-backs and fences of the threads.
    pub steps: u64,
    /// How often another thread went on.
    pub turns: u64,
    /// Participants that died.
    pub deaths: u64,
    /// Crash states, if it crashed.
    pub explored: Explored,
    /// What was found.
    pub finding: Option<Finding>,
}

/// A target whose threads meet, as the command line sees it.
pub struct Meeting {
    /// Its name.
    pub name: &'static str,
    once: Once,
    deaths: Mortals,
    follow_weak: fn(&Stage, &Scenario, &Policy, Option<Weakening>, Reach) -> Met,
    plan: fn(u64) -> Plan,
    faults: fn(&Crashes<'_>, &Stage, &Scenario, &Policy, u64) -> BTreeSet<Fault>,
}

type Mortals = fn(&Stage, Accident, &Scenario, &Policy, u64) -> Result<Scenario, Wrong>;
type Once = fn(&Stage, &Watch<'_>, Accident, &Scenario, &Policy, u64) -> Done;

/// What came of a run in which threads meet on a memory that is weak.
#[derive(Debug)]
pub struct Met {
    /// What it passed that could be weakened.
    pub passed: Weakenings,
    /// What was wrong.
    pub wrong: Option<Wrong>,
}

/// Who looks on: states that anyone has judged, and whether to stop.
pub struct Watch<'w> {
    /// States that were judged.
    pub seen: &'w Seen,
    /// Asked now and then.
    pub is_over: &'w dyn Fn() -> bool,
    /// Planted into what crashes.
    pub fault: Option<Fault>,
}

impl Meeting {
    const fn of<T: Target>() -> Self {
        Self {
            name: T::NAME,
            once: once::<T>,
            deaths: deaths::<T>,
            follow_weak: follow_weak::<T>,
            plan: T::plan,
            faults: |crashes, stage, scenario, policy, seed| {
                crashes.faults::<T>(stage, scenario, policy, seed)
            },
        }
    }

    /// Does a run.
    pub fn run(&self, stage: &Stage, watch: &Watch<'_>, seed: ScheduleSeed) -> Done {
        let policy = policy(seed);
        match self.scenario(stage, seed, &policy) {
            Ok(scenario) => (self.once)(stage, watch, seed.accident, &scenario, &policy, seed.run),
            Err(finding) => Done { finding: Some(*finding), ..Done::default() },
        }
    }

    /// Threads that do just this, after `before`, and take turns like that.
    pub fn follow(&self, stage: &Stage, before: Vec<Op>, threads: Vec<Vec<Act>>, turns: &[Slice]) -> Done {
        let seed = ScheduleSeed { target: self.name, accident: Accident::default(), run: 1 };
        let mut scenario = self::scenario(self.name, seed);
        (scenario.plan.before, scenario.threads) = (before, threads);
        let watch = Watch { seen: &Seen::new(), is_over: &|| false, fault: None };
        (self.once)(stage, &watch, seed.accident, &scenario, &Policy::Script(turns.to_vec()), seed.run)
    }

    /// What is done in a run, and who dies. What is wrong before anybody does is a finding.
    fn scenario(&self, stage: &Stage, seed: ScheduleSeed, policy: &Policy) -> Result<Scenario, Box<Finding>> {
        let scenario = self::scenario(self.name, seed);
        if !(seed.accident.is_mortal() || seed.accident.is_weak && is_mortal_too(&scenario)) {
            return Ok(scenario);
        }
        let deaths = (self.deaths)(stage, seed.accident, &scenario, policy, seed.run);
        deaths.map_err(|wrong| Box::new(Finding::without_threads(&scenario, wrong)))
    }

    /// The faults that can be planted in what the threads of a run do that crashes on `profile`.
    pub fn faults(&self, stage: &Stage, profile: Profile, seed: ScheduleSeed) -> BTreeSet<Fault> {
        let policy = policy(seed);
        let Ok(scenario) = self.scenario(stage, seed, &policy) else { return BTreeSet::new() };
        let seen = Seen::new();
        let crashes = Crashes { profile, limits: LIMITS, seen: &seen, is_over: &|| false, fault: None };
        (self.faults)(&crashes, stage, &scenario, &policy, seed.run)
    }

    /// Makes a finding smaller, with at most `tries` runs.
    pub fn smaller(&self, stage: &Stage, accident: Accident, finding: Finding, tries: usize) -> Finding {
        minimise(finding, tries, |scenario, policy, seed| {
            // Looking again must not stop at what was seen before.
            let seen = Seen::new();
            let watch = Watch { seen: &seen, is_over: &|| false, fault: None };
            (self.once)(stage, &watch, accident, scenario, policy, seed).finding
        })
    }

    /// Threads that do just this on a memory that is weak, and take turns like that, with the orders that are missing.
    pub fn follow_weak(
        &self,
        stage: &Stage,
        scenario: &Scenario,
        policy: &Policy,
        missing: Option<Weakening>,
        reach: Reach,
    ) -> Met {
        (self.follow_weak)(stage, scenario, policy, missing, reach)
    }

    /// What a run of one thread with this seed does, and the keys that it has.
    pub fn plan(&self, seed: u64) -> Plan {
        (self.plan)(seed)
    }

    /// Does the run with this number on a memory that is weak, with the orders that are missing.
    pub fn meet(&self, stage: &Stage, run: u64, missing: Option<Weakening>) -> Met {
        let accident = Accident { is_weak: true, ..Accident::default() };
        let seed = ScheduleSeed { target: self.name, accident, run };
        let policy = policy(seed);
        match self.scenario(stage, seed, &policy) {
            Ok(scenario) => self.follow_weak(stage, &scenario, &policy, missing, Reach::of_run(run)),
            Err(finding) => Met { passed: Weakenings::new(), wrong: Some(finding.wrong) },
        }
    }
}

/// All targets whose threads meet.
pub static MEETINGS: [Meeting; 11] = [
    Meeting::of::<ClhtU64>(),
    Meeting::of::<ClhtBytes>(),
    Meeting::of::<Cells>(),
    Meeting::of::<Blocks>(),
    Meeting::of::<DirectEngine>(),
    Meeting::of::<TurboU64>(),
    Meeting::of::<TurboBytes>(),
    Meeting::of::<RewoU64>(),
    Meeting::of::<RewoBytes>(),
    Meeting::of::<LevelU64>(),
    Meeting::of::<LevelBytes>(),
];

/// The one with this name.
pub fn meeting(name: &str) -> Option<&'static Meeting> {
    MEETINGS.iter().find(|meeting| meeting.name == name)
}

fn scenario(name: &str, seed: ScheduleSeed) -> Scenario {
    match name {
        ClhtU64::NAME => drawn::<ClhtU64>(seed),
        ClhtBytes::NAME => drawn::<ClhtBytes>(seed),
        TurboU64::NAME => drawn::<TurboU64>(seed),
        TurboBytes::NAME => drawn::<TurboBytes>(seed),
        RewoU64::NAME => drawn::<RewoU64>(seed),
        RewoBytes::NAME => drawn::<RewoBytes>(seed),
        LevelU64::NAME => drawn::<LevelU64>(seed),
        LevelBytes::NAME => drawn::<LevelBytes>(seed),
        Cells::NAME => drawn::<Cells>(seed),
        Blocks::NAME => drawn::<Blocks>(seed),
        _ => drawn::<DirectEngine>(seed),
    }
}

fn drawn<T: Target>(seed: ScheduleSeed) -> Scenario {
    match seed.accident {
        Accident { deaths: Deaths::Some, .. } => Scenario::draw_shared::<T>(seed.run),
        Accident { deaths: Deaths::First, .. } => Scenario::draw_heirs::<T>(seed.run),
        Accident { crash: Some(_), .. } => Scenario::draw_to_crash::<T>(seed.run),
        Accident { is_weak: true, .. } => drawn_to_meet::<T>(seed.run, seed.run),
        Accident { crash: None, .. } => Scenario::draw_to_race::<T>(seed.run),
    }
}

/// In most scenarios threads crowd on few keys, for only who meets another can see what he should not; in some the pool is one that they share as participants. In many, threads are told of time by nobody.
fn drawn_to_meet<T: Target>(number: u64, seed: u64) -> Scenario {
    let mut dice = Dice::new(seed ^ 0x6b69_6e64);
    let scenario = match number % 6 {
        0 if dice.roll(2) == 0 => Scenario::draw_shared_history::<T>(seed),
        0 => Scenario::draw_shared::<T>(seed),
        1 => Scenario::draw_to_race::<T>(seed),
        2 => return Scenario::draw_exchange::<T>(few_of_one_tag::<T>(seed)),
        4 if dice.roll(4) == 0 => return Scenario::draw_tides::<T>(seed),
        4 => return Scenario::draw_history::<T>(seed),
        _ if Dice::new(seed ^ 0x6669_6c6f).roll(3) == 0 => Scenario::draw_filling::<T>(seed),
        _ => Scenario::draw_crowd::<T>(seed),
    };
    scenario.with_kill(seed).with_manners(seed)
}

/// A seed like this whose plan has few keys, if one is near, all of one tag: these go to the same slots.
fn few_of_one_tag<T: Target>(seed: u64) -> u64 {
    let near = |turn: u64| (seed ^ turn << 24) & !(3 << 51) | 1 << 51;
    (0..6).map(near).find(|&seed| T::plan(seed).keys < 10).unwrap_or(seed)
}

/// In half of the runs on a weak memory whose threads are participants, some die.
fn is_mortal_too(scenario: &Scenario) -> bool {
    scenario.is_shared && scenario.plan.seed >> 3 & 1 == 1
}

/// How the threads of a run take turns.
fn policy(seed: ScheduleSeed) -> Policy {
    match seed.accident.deaths {
        Deaths::First => Scenario::one_after_the_other(),
        _ => Scenario::policy(seed.run),
    }
}

/// The same, with deaths, which are drawn from how the run goes in which nobody dies.
fn deaths<T: Target>(
    stage: &Stage,
    accident: Accident,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> Result<Scenario, Wrong> {
    let ran = match accident.crash.map_or(has_volatile_cache(scenario), Profile::has_volatile_cache) {
        true => rehearse::<T, true>(stage, zeroed::<T, true>(), scenario, policy, seed)?,
        false => rehearse::<T, false>(stage, zeroed::<T, false>(), scenario, policy, seed)?,
    };
    match (ran.wrong.clone(), accident.deaths) {
        (Some(wrong), _) => Err(wrong),
        _ if accident.is_weak => Ok(scenario.draw_deaths_behind(&ran, seed)),
        (None, Deaths::First) => Ok(scenario.draw_legacy(&ran, seed)),
        (None, _) => Ok(scenario.draw_deaths(&ran, seed)),
    }
}

/// Half of the runs that do not crash are as on persistent memory, half as on shared memory: the code differs.
fn has_volatile_cache(scenario: &Scenario) -> bool {
    scenario.plan.seed & 1 == 0
}

fn once<T: Target>(
    stage: &Stage,
    watch: &Watch<'_>,
    accident: Accident,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> Done {
    let Some(profile) = accident.crash else {
        return uncrashed::<T>(stage, watch, accident, scenario, policy, seed);
    };
    let Watch { seen, is_over, fault } = *watch;
    let crashes = Crashes { profile, limits: LIMITS, seen, is_over, fault };
    let crashed = crashes.run::<T>(stage, scenario, policy, seed);
    Done {
        steps: crashed.slices.iter().map(|slice| u64::from(slice.steps)).sum(),
        turns: crashed.slices.len() as u64,
        deaths: crashed.deaths,
        explored: crashed.explored,
        finding: crashed.finding.map(|crash| Finding::of_crash(scenario, *crash)),
    }
}

/// The same where nothing crashes.
fn uncrashed<T: Target>(
    stage: &Stage,
    _: &Watch<'_>,
    accident: Accident,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> Done {
    if accident.is_weak {
        return weak::<T>(stage, None, Reach::of_run(scenario.plan.seed), scenario, policy, seed).0;
    }
    match has_volatile_cache(scenario) {
        true => plain::<T, true>(stage, zeroed::<T, true>(), scenario, policy, seed),
        false => plain::<T, false>(stage, zeroed::<T, false>(), scenario, policy, seed),
    }
}

fn zeroed<T: Target, const V: bool>() -> Memory<V> {
    Memory::zeroed(T::BYTES.0, T::BYTES.1).expect("memory for a run")
}

fn plain<T: Target, const V: bool>(
    stage: &Stage,
    medium: impl Noted,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> Done {
    done(scenario, run::<T, V>(stage, medium, scenario, policy, seed))
}

/// What came of it, for who looks on.
fn done(scenario: &Scenario, run: Result<Run, Wrong>) -> Done {
    match run {
        Ok(run) => {
            let (steps, turns) = (run.ran.steps, run.ran.turns.len() as u64);
            let deaths = run.ran.died.len() as u64;
            Done { steps, turns, deaths, finding: Finding::of_run(scenario, run), ..Done::default() }
        }
        Err(wrong) => Done { finding: Some(Finding::without_threads(scenario, wrong)), ..Done::default() },
    }
}

fn follow_weak<T: Target>(
    stage: &Stage,
    scenario: &Scenario,
    policy: &Policy,
    missing: Option<Weakening>,
    reach: Reach,
) -> Met {
    let (done, passed) = weak::<T>(stage, missing, reach, scenario, policy, 1);
    Met { passed: passed.weakenings(), wrong: done.finding.map(|finding| finding.wrong) }
}

fn weak<T: Target>(
    stage: &Stage,
    missing: Option<Weakening>,
    reach: Reach,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> (Done, Passed) {
    match has_volatile_cache(scenario) {
        true => weak_on::<T, true>(stage, missing, reach, scenario, policy, seed),
        false => weak_on::<T, false>(stage, missing, reach, scenario, policy, seed),
    }
}

fn weak_on<T: Target, const V: bool>(
    stage: &Stage,
    missing: Option<Weakening>,
    reach: Reach,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> (Done, Passed) {
    let is_late = matches!(missing, Some(Weakening { weak: Weak::Release | Weak::Total, .. }));
    if is_late && V && !scenario.deaths.is_empty() {
        // What the dead have taken along may be what made something durable.
        let seen = Seen::new();
        let profile = Profile::Pmem;
        let crashes = Crashes { profile, limits: LIMITS, seen: &seen, is_over: &|| false, fault: None };
        let (run, passed) = crashes.run_weak::<T, V>(stage, (missing, reach), scenario, policy, seed);
        return (done(scenario, run), passed);
    }
    let medium = Weakened::over(zeroed::<T, V>(), missing, reach, scenario.apart());
    let passed = medium.passed();
    (plain::<T, V>(stage, medium, scenario, policy, seed), passed)
}
