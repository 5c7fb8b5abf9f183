//! The multi-threaded targets, by name, and the seed that repeats a run.

use crate::targets::{
    ArtBytes, ArtU64, Blocks, BwTreeBytes, BwTreeU64, Cells, ClhtBytes, ClhtRemote, ClhtU64, DirectEngine,
    HotBytes, HotU64, LevelBytes, LevelU64, MasstreeBytes, MasstreeU64, RewoBytes, RewoU64, SpTreeBytes,
    SpTreeU64, TurboBytes, TurboU64, WITH_DRAM,
};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use terrace_testkit::CallObserver;
use terrace_testkit::crash::{
    Explored, Fault, Memory, Op, Plan, Profile, RandomSource, Seen, Target, Violation,
};
use terrace_testkit::schedule::{
    CrashSettings, Finding, LIMITS, Policy, Reach, Run, Scenario, Scheduler, Slice, ThreadOp, UsedOrderings,
    Weak, Weakened, Weakening, Weakenings, minimise, run, run_unchecked,
};

/// The threads that crash in a run whose threads are participants of a shared pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrashKind {
    /// No thread, and the pool is not shared.
    #[default]
    None,
    /// Some threads, while the others continue.
    Some,
    /// The first thread; the others start one after the other and take over what it left.
    First,
}

/// The faults of a run: crashed threads, a power failure, or weak memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultProfile {
    /// The threads that crash.
    pub crashes: CrashKind,
    /// The kind of memory whose crash states are explored; none without a power failure.
    pub power_loss: Option<Profile>,
    /// Whether threads see stores of others as late as the memory model allows.
    pub is_weak: bool,
}

/// Names of [`CrashKind::Some`] and [`CrashKind::First`].
const ONE_DIES: &str = "one-dies";
const HEIRS: &str = "heirs";
/// Name of weak memory.
const WEAK: &str = "weak";

impl FaultProfile {
    /// A profile without weak memory.
    pub const fn of(crashes: CrashKind, power_loss: Option<Profile>) -> Self {
        Self { crashes, power_loss, is_weak: false }
    }

    /// The profile with this name: none, weak, pmem, one-dies, one-dies+pmem, heirs, heirs+pmem and
    /// so on.
    pub fn named(name: &str) -> Result<Self, String> {
        let some = name.strip_prefix(ONE_DIES).map(|rest| (CrashKind::Some, rest));
        let first = name.strip_prefix(HEIRS).map(|rest| (CrashKind::First, rest));
        let (deaths, crash) = match some.or(first) {
            Some((deaths, "")) => return Ok(Self::of(deaths, None)),
            Some((deaths, rest)) => (deaths, rest.strip_prefix('+').unwrap_or(rest)),
            None if name == "none" => return Ok(Self::default()),
            None if name == WEAK => return Ok(Self { is_weak: true, ..Self::default() }),
            None => (CrashKind::None, name),
        };
        match Profile::ALL.into_iter().find(|profile| profile.name() == crash) {
            Some(profile) => Ok(Self::of(deaths, Some(profile))),
            None => Err(format!(
                "there is no crash `{name}`; there are none, {WEAK}, {}, {ONE_DIES}, {HEIRS}, and {ONE_DIES}+pmem and so on",
                Profile::ALL.map(Profile::name).join(", ")
            )),
        }
    }

    /// Whether threads crash.
    pub fn has_crashes(self) -> bool {
        self.crashes != CrashKind::None
    }

    /// Describes the power failure, for a report.
    pub fn power_loss_text(self) -> &'static str {
        self.power_loss.map_or("", Profile::crash)
    }
}

impl fmt::Display for FaultProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.crashes {
            CrashKind::None if self.is_weak => return f.pad(WEAK),
            CrashKind::None => return f.pad(self.power_loss.map_or("none", Profile::name)),
            CrashKind::Some => ONE_DIES,
            CrashKind::First => HEIRS,
        };
        match self.power_loss.map(Profile::name) {
            None => f.pad(name),
            Some(memory) => f.pad(&format!("{name}+{memory}")),
        }
    }
}

/// A run of a target under a fault profile: `clht/none/0x1d`, `clht/pmem/0x1d`,
/// `clht/one-dies/0x1d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleSeed {
    /// The target's name.
    pub target: &'static str,
    /// The faults of the run.
    pub fault_profile: FaultProfile,
    /// The seed of scenario and schedule.
    pub run: u64,
}

impl ScheduleSeed {
    /// The seed of run `number` of a session with seed `seed`.
    pub fn new(target: &'static str, fault_profile: FaultProfile, seed: u64, number: u64) -> Self {
        let run = RandomSource::new(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93)).bits() >> 8;
        Self { target, fault_profile, run }
    }
}

impl fmt::Display for ScheduleSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{:#x}", self.target, self.fault_profile, self.run)
    }
}

impl FromStr for ScheduleSeed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is not a seed: give the seed that the finding names, such as clht/none/0x1d")
        };
        let mut parts = text.split('/');
        let (Some(target), Some(crash), Some(run), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong());
        };
        let target = schedule_target(target).ok_or_else(|| format!("there is no target `{target}`"))?.name;
        let run =
            run.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok()).ok_or_else(wrong)?;
        Ok(Self { target, fault_profile: FaultProfile::named(crash)?, run })
    }
}

/// The result of one run.
#[derive(Debug, Default)]
pub struct RunResult {
    /// Accesses, write-backs and fences of the threads.
    pub steps: u64,
    /// Number of switches to another thread.
    pub turns: u64,
    /// Number of crashed participants.
    pub deaths: u64,
    /// Explored crash states, if power failed.
    pub explored: Explored,
    /// The finding, if the run failed.
    pub finding: Option<Finding>,
}

/// A multi-threaded target, independent of its type.
pub struct ScheduleTarget {
    /// Its name.
    pub name: &'static str,
    run_once: RunOnce,
    add_crashes: AddCrashes,
    run_weak_scenario: fn(&Scheduler, &Scenario, &Policy, Option<Weakening>, Reach) -> WeakRunResult,
    plan: fn(u64) -> Plan,
    faults: fn(&CrashSettings<'_>, &Scheduler, &Scenario, &Policy, u64) -> BTreeSet<Fault>,
}

type AddCrashes = fn(&Scheduler, FaultProfile, &Scenario, &Policy, u64) -> Result<Scenario, Violation>;
type RunOnce = fn(&Scheduler, &Monitor<'_>, FaultProfile, &Scenario, &Policy, u64) -> RunResult;

/// The result of a run on weak memory.
#[derive(Debug)]
pub struct WeakRunResult {
    /// The orderings that the run executed and that can be weakened.
    pub passed: Weakenings,
    /// What was wrong, if the run failed.
    pub wrong: Option<Violation>,
}

/// State shared by all runs of a session, and whether to stop.
pub struct Monitor<'w> {
    /// States that some run has checked.
    pub seen: &'w Seen,
    /// Whether the session is over; runs call it repeatedly.
    pub is_over: &'w dyn Fn() -> bool,
    /// A fault to inject into runs that crash.
    pub fault: Option<Fault>,
}

impl ScheduleTarget {
    const fn of<T: Target>() -> Self {
        Self {
            name: T::NAME,
            run_once: run_once::<T>,
            add_crashes: add_crashes::<T>,
            run_weak_scenario: run_weak_scenario::<T>,
            plan: T::plan,
            faults: |crashes, scheduler, scenario, policy, seed| {
                crashes.faults::<T>(scheduler, scenario, policy, seed)
            },
        }
    }

    /// Does a run.
    pub fn run(&self, scheduler: &Scheduler, monitor: &Monitor<'_>, seed: ScheduleSeed) -> RunResult {
        let policy = policy(seed);
        match self.scenario(scheduler, seed, &policy) {
            Ok(scenario) => {
                (self.run_once)(scheduler, monitor, seed.fault_profile, &scenario, &policy, seed.run)
            }
            Err(finding) => RunResult { finding: Some(*finding), ..RunResult::default() },
        }
    }

    /// Runs `threads` after the setup `before`, with the given turns.
    pub fn run_script(
        &self,
        scheduler: &Scheduler,
        before: Vec<Op>,
        threads: Vec<Vec<ThreadOp>>,
        turns: &[Slice],
    ) -> RunResult {
        let seed = ScheduleSeed { target: self.name, fault_profile: FaultProfile::default(), run: 1 };
        let mut scenario = self::scenario(self.name, seed);
        (scenario.plan.before, scenario.threads) = (before, threads);
        let monitor = Monitor { seen: &Seen::new(), is_over: &|| false, fault: None };
        (self.run_once)(
            scheduler,
            &monitor,
            seed.fault_profile,
            &scenario,
            &Policy::Script(turns.to_vec()),
            seed.run,
        )
    }

    /// The scenario of a run, with the crashes of its threads. An error without any crash is a
    /// finding.
    fn scenario(
        &self,
        scheduler: &Scheduler,
        seed: ScheduleSeed,
        policy: &Policy,
    ) -> Result<Scenario, Box<Finding>> {
        let scenario = self::scenario(self.name, seed);
        if !(seed.fault_profile.has_crashes() || seed.fault_profile.is_weak && also_has_crashes(&scenario)) {
            return Ok(scenario);
        }
        let crashed = (self.add_crashes)(scheduler, seed.fault_profile, &scenario, policy, seed.run);
        crashed.map_err(|wrong| Box::new(Finding::without_threads(&scenario, wrong)))
    }

    /// The faults that can be injected into the threads of a run that loses power on `profile`.
    pub fn faults(&self, scheduler: &Scheduler, profile: Profile, seed: ScheduleSeed) -> BTreeSet<Fault> {
        let policy = policy(seed);
        let Ok(scenario) = self.scenario(scheduler, seed, &policy) else { return BTreeSet::new() };
        let seen = Seen::new();
        let crashes = CrashSettings { profile, limits: LIMITS, seen: &seen, is_over: &|| false, fault: None };
        (self.faults)(&crashes, scheduler, &scenario, &policy, seed.run)
    }

    /// Minimises a finding, with at most `tries` runs.
    pub fn minimise(
        &self,
        scheduler: &Scheduler,
        fault_profile: FaultProfile,
        finding: Finding,
        tries: usize,
    ) -> Finding {
        minimise(finding, tries, |scenario, policy, seed| {
            // A new set for each run, so that it checks states that an earlier run has checked.
            let seen = Seen::new();
            let monitor = Monitor { seen: &seen, is_over: &|| false, fault: None };
            (self.run_once)(scheduler, &monitor, fault_profile, scenario, policy, seed).finding
        })
    }

    /// Runs a scenario on weak memory, with `missing` removed from the orderings.
    pub fn run_weak_scenario(
        &self,
        scheduler: &Scheduler,
        scenario: &Scenario,
        policy: &Policy,
        missing: Option<Weakening>,
        reach: Reach,
    ) -> WeakRunResult {
        (self.run_weak_scenario)(scheduler, scenario, policy, missing, reach)
    }

    /// The plan of a single-threaded run with this seed, with its keys.
    pub fn plan(&self, seed: u64) -> Plan {
        (self.plan)(seed)
    }

    /// Does the run with this number on weak memory, with `missing` removed from the orderings.
    pub fn run_weak(&self, scheduler: &Scheduler, run: u64, missing: Option<Weakening>) -> WeakRunResult {
        let fault_profile = FaultProfile { is_weak: true, ..FaultProfile::default() };
        let seed = ScheduleSeed { target: self.name, fault_profile, run };
        let policy = policy(seed);
        match self.scenario(scheduler, seed, &policy) {
            Ok(scenario) => {
                self.run_weak_scenario(scheduler, &scenario, &policy, missing, Reach::of_run(run))
            }
            Err(finding) => WeakRunResult { passed: Weakenings::new(), wrong: Some(finding.wrong) },
        }
    }
}

/// All multi-threaded targets.
pub static SCHEDULE_TARGETS: [ScheduleTarget; 22] = [
    ScheduleTarget::of::<ClhtU64>(),
    ScheduleTarget::of::<ClhtBytes>(),
    ScheduleTarget::of::<Cells>(),
    ScheduleTarget::of::<Blocks>(),
    ScheduleTarget::of::<DirectEngine>(),
    ScheduleTarget::of::<TurboU64>(),
    ScheduleTarget::of::<TurboBytes>(),
    ScheduleTarget::of::<RewoU64>(),
    ScheduleTarget::of::<RewoBytes>(),
    ScheduleTarget::of::<LevelU64>(),
    ScheduleTarget::of::<LevelBytes>(),
    ScheduleTarget::of::<ArtU64>(),
    ScheduleTarget::of::<ArtBytes>(),
    ScheduleTarget::of::<ClhtRemote>(),
    ScheduleTarget::of::<HotU64>(),
    ScheduleTarget::of::<HotBytes>(),
    ScheduleTarget::of::<BwTreeU64>(),
    ScheduleTarget::of::<BwTreeBytes>(),
    ScheduleTarget::of::<MasstreeU64>(),
    ScheduleTarget::of::<MasstreeBytes>(),
    ScheduleTarget::of::<SpTreeU64>(),
    ScheduleTarget::of::<SpTreeBytes>(),
];

/// The multi-threaded target with this name.
pub fn schedule_target(name: &str) -> Option<&'static ScheduleTarget> {
    SCHEDULE_TARGETS.iter().find(|target| target.name == name)
}

fn scenario(name: &str, seed: ScheduleSeed) -> Scenario {
    match name {
        ClhtU64::NAME => random_scenario::<ClhtU64>(seed),
        ClhtBytes::NAME => random_scenario::<ClhtBytes>(seed),
        ClhtRemote::NAME => random_scenario::<ClhtRemote>(seed),
        TurboU64::NAME => random_scenario::<TurboU64>(seed),
        TurboBytes::NAME => random_scenario::<TurboBytes>(seed),
        RewoU64::NAME => random_scenario::<RewoU64>(seed),
        RewoBytes::NAME => random_scenario::<RewoBytes>(seed),
        LevelU64::NAME => random_scenario::<LevelU64>(seed),
        LevelBytes::NAME => random_scenario::<LevelBytes>(seed),
        ArtU64::NAME => random_scenario::<ArtU64>(seed),
        ArtBytes::NAME => random_scenario::<ArtBytes>(seed),
        MasstreeU64::NAME => random_scenario::<MasstreeU64>(seed),
        MasstreeBytes::NAME => random_scenario::<MasstreeBytes>(seed),
        SpTreeU64::NAME => random_scenario::<SpTreeU64>(seed),
        SpTreeBytes::NAME => random_scenario::<SpTreeBytes>(seed),
        HotU64::NAME => random_scenario::<HotU64>(seed),
        HotBytes::NAME => random_scenario::<HotBytes>(seed),
        BwTreeU64::NAME => random_scenario::<BwTreeU64>(seed),
        BwTreeBytes::NAME => random_scenario::<BwTreeBytes>(seed),
        Cells::NAME => random_scenario::<Cells>(seed),
        Blocks::NAME => random_scenario::<Blocks>(seed),
        DirectEngine::NAME => random_scenario::<DirectEngine>(seed),
        _ => unreachable!("no scenario for the target {name}: add an arm"),
    }
}

fn random_scenario<T: Target>(seed: ScheduleSeed) -> Scenario {
    let scenario = match seed.fault_profile {
        FaultProfile { crashes: CrashKind::Some, .. } => Scenario::random_shared::<T>(seed.run),
        FaultProfile { crashes: CrashKind::First, .. } => Scenario::random_successor::<T>(seed.run),
        FaultProfile { power_loss: Some(_), .. } => Scenario::random_to_crash::<T>(seed.run),
        FaultProfile { is_weak: true, .. } => random_weak_scenario::<T>(seed.run, seed.run),
        FaultProfile { power_loss: None, .. } => Scenario::random_to_race::<T>(seed.run),
    };
    scenario.with_ranges::<T>(seed.run)
}

/// A scenario for weak memory. In most of them threads crowd on few keys, as only threads that
/// access the same words can see wrong values. In some the threads are participants of a shared
/// pool. In many no barriers order the calls of different threads.
fn random_weak_scenario<T: Target>(number: u64, seed: u64) -> Scenario {
    let mut dice = RandomSource::new(seed ^ 0x6b69_6e64);
    let scenario = match number % 6 {
        0 if dice.roll(2) == 0 => Scenario::random_shared_history::<T>(seed),
        0 => Scenario::random_shared::<T>(seed),
        1 => Scenario::random_to_race::<T>(seed),
        2 => return Scenario::random_exchange::<T>(few_keys_seed::<T>(seed)),
        4 if dice.roll(4) == 0 => return Scenario::random_fill_drain::<T>(seed),
        4 => return Scenario::random_history::<T>(seed),
        _ if RandomSource::new(seed ^ 0x6669_6c6f).roll(3) == 0 => Scenario::random_filling::<T>(seed),
        _ => Scenario::random_crowd::<T>(seed),
    };
    scenario.with_kill(seed).with_manners(seed)
}

/// A similar seed whose plan has few keys, all with one tag, so that they use the same slots; if
/// there is none near, this seed.
fn few_keys_seed<T: Target>(seed: u64) -> u64 {
    let near = |turn: u64| (seed ^ turn << 24) & !(3 << 51) | 1 << 51;
    (0..6).map(near).find(|&seed| T::plan(seed).keys < 10).unwrap_or(seed)
}

/// Whether threads also crash in a run on weak memory: in half of those with a shared pool.
fn also_has_crashes(scenario: &Scenario) -> bool {
    scenario.is_shared && scenario.plan.seed >> 3 & 1 == 1
}

/// The schedule policy of a run.
fn policy(seed: ScheduleSeed) -> Policy {
    match seed.fault_profile.crashes {
        CrashKind::First => Scenario::sequential(),
        _ => Scenario::policy(seed.run),
    }
}

/// Adds crashes of threads to a scenario, chosen at random from a run without crashes.
fn add_crashes<T: Target>(
    scheduler: &Scheduler,
    fault_profile: FaultProfile,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> Result<Scenario, Violation> {
    let cache = fault_profile.power_loss.map_or(has_volatile_cache(scenario), Profile::has_volatile_cache);
    let ran = if T::WITHOUT_CACHE && !cache {
        run_unchecked::<T, false>(scheduler, zeroed::<T, false>(), scenario, policy, seed)?
    } else {
        run_unchecked::<T, true>(scheduler, zeroed::<T, true>(), scenario, policy, seed)?
    };
    match (ran.wrong.clone(), fault_profile.crashes) {
        (Some(wrong), _) => Err(wrong),
        _ if fault_profile.is_weak => Ok(scenario.random_crashes_after(&ran, seed)),
        (None, CrashKind::First) => Ok(scenario.random_predecessor(&ran, seed)),
        (None, _) => Ok(scenario.random_crashes(&ran, seed)),
    }
}

/// Whether a run without power failure is as on persistent memory; the other half is as on shared
/// memory, where other code runs.
fn has_volatile_cache(scenario: &Scenario) -> bool {
    scenario.plan.seed & 1 == 0
}

fn run_once<T: Target>(
    scheduler: &Scheduler,
    monitor: &Monitor<'_>,
    fault_profile: FaultProfile,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> RunResult {
    let Some(profile) = fault_profile.power_loss else {
        return run_without_power_loss::<T>(scheduler, monitor, fault_profile, scenario, policy, seed);
    };
    let Monitor { seen, is_over, fault } = *monitor;
    let crashes = CrashSettings { profile, limits: LIMITS, seen, is_over, fault };
    let crashed = crashes.run::<T>(scheduler, scenario, policy, seed);
    RunResult {
        steps: crashed.slices.iter().map(|slice| u64::from(slice.steps)).sum(),
        turns: crashed.slices.len() as u64,
        deaths: crashed.deaths,
        explored: crashed.explored,
        finding: crashed.finding.map(|crash| Finding::of_crash(scenario, *crash)),
    }
}

/// As [`run_once`], without a power failure.
fn run_without_power_loss<T: Target>(
    scheduler: &Scheduler,
    _: &Monitor<'_>,
    fault_profile: FaultProfile,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> RunResult {
    if fault_profile.is_weak {
        return run_weak::<T>(scheduler, None, Reach::of_run(scenario.plan.seed), scenario, policy, seed).0;
    }
    if T::WITHOUT_CACHE && !has_volatile_cache(scenario) {
        run_plain::<T, false>(scheduler, zeroed::<T, false>(), scenario, policy, seed)
    } else {
        run_plain::<T, true>(scheduler, zeroed::<T, true>(), scenario, policy, seed)
    }
}

fn zeroed<T: Target, const V: bool>() -> Memory<V> {
    Memory::zeroed(T::BYTES.0, T::BYTES.1).expect("memory for a run")
}

fn run_plain<T: Target, const V: bool>(
    scheduler: &Scheduler,
    medium: impl CallObserver,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> RunResult {
    run_result(scenario, run::<T, V>(scheduler, medium, scenario, policy, seed))
}

/// The result of a run without a power failure.
fn run_result(scenario: &Scenario, run: Result<Run, Violation>) -> RunResult {
    match run {
        Ok(run) => {
            let (steps, turns) = (run.ran.steps, run.ran.turns.len() as u64);
            let deaths = run.ran.died.len() as u64;
            RunResult {
                steps,
                turns,
                deaths,
                finding: Finding::of_run(scenario, run),
                ..RunResult::default()
            }
        }
        Err(wrong) => {
            RunResult { finding: Some(Finding::without_threads(scenario, wrong)), ..RunResult::default() }
        }
    }
}

fn run_weak_scenario<T: Target>(
    scheduler: &Scheduler,
    scenario: &Scenario,
    policy: &Policy,
    missing: Option<Weakening>,
    reach: Reach,
) -> WeakRunResult {
    let (result, passed) = run_weak::<T>(scheduler, missing, reach, scenario, policy, 1);
    WeakRunResult { passed: passed.weakenings(), wrong: result.finding.map(|finding| finding.wrong) }
}

fn run_weak<T: Target>(
    scheduler: &Scheduler,
    missing: Option<Weakening>,
    reach: Reach,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> (RunResult, UsedOrderings) {
    let mut scenario = scenario.clone();
    scenario.plan.seed &= !WITH_DRAM;
    let scenario = &scenario;
    if T::WITHOUT_CACHE && !has_volatile_cache(scenario) {
        run_weak_on::<T, false>(scheduler, missing, reach, scenario, policy, seed)
    } else {
        run_weak_on::<T, true>(scheduler, missing, reach, scenario, policy, seed)
    }
}

fn run_weak_on<T: Target, const V: bool>(
    scheduler: &Scheduler,
    missing: Option<Weakening>,
    reach: Reach,
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
) -> (RunResult, UsedOrderings) {
    let is_late = matches!(missing, Some(Weakening { weak: Weak::Release | Weak::Total, .. }));
    if is_late && V && !scenario.crashes.is_empty() {
        // The last stores of a crashed thread may be lost, so power fails as well: something may
        // not be durable without them.
        let seen = Seen::new();
        let profile = Profile::Pmem;
        let crashes = CrashSettings { profile, limits: LIMITS, seen: &seen, is_over: &|| false, fault: None };
        let (run, passed) = crashes.run_weak::<T, V>(scheduler, (missing, reach), scenario, policy, seed);
        return (run_result(scenario, run), passed);
    }
    let medium = Weakened::over(zeroed::<T, V>(), missing, reach, scenario.apart());
    let passed = medium.passed();
    (run_plain::<T, V>(scheduler, medium, scenario, policy, seed), passed)
}
