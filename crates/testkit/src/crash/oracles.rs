//! The conditions that a store must meet after every crash.
//!
//! 1. The store opens; nothing panics or loops forever.
//! 2. Each key holds the result of its last acknowledged operation, or of one in progress; a batch
//!    applies as a whole or not at all.
//! 3. A scan finds the same keys, each once, and no others. So do ranges in both directions, in
//!    order.
//! 4. After a collection: the same answers; `verify` finds nothing; reachable blocks do not
//!    overlap, and their total is exactly what the allocator has in use. So nothing leaks and
//!    nothing is allocated twice.
//! 5. Every other key is removed, then others are written until the store has grown. Each operation
//!    answers as the model does, so all locks are free. Then 2 to 4 again. (For one state in four
//!    this comes before 4: writers then meet what the collector would have repaired.)
//! 6. A second recovery changes nothing (checked for one state in four).
//!
//! When 4 begins, many states have become equal: the rest is checked for the first of them only
//! (`ends.rs`).
//!
//! After a machine crash under a file that was never synced, the condition is another: the store is
//! refused, and salvage returns only values that were written.

use super::ends::Outcomes;
use super::expectation::{Expectation, display, hash_of};
use super::explore::{Judge, Limits};
use super::faults::Fault;
use super::marks::{MARK_CREATED, mark_begin, mark_end};
use super::memory::{Memory, hash};
use super::rules::Profile;
use super::subject::{Effect, Op, Plan, Reply, Subject, Target, Version};
use crate::observer::Violation;
use crate::threads::as_other_thread;
use crate::{Layered, Recording, Trace};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use terrace_index::Direction;
use terrace_medium::MappedMedium;

/// One operation of a history.
#[derive(Clone, Debug)]
pub struct Step {
    /// The operation.
    pub op: Op,
    /// Its effects.
    pub effects: Vec<Effect>,
}

/// Checks recoveries of a target against a history.
pub struct Oracles<'h, T, const VOLATILE: bool> {
    plan: &'h Plan,
    steps: &'h [Step],
    expectation: Expectation,
    number: u64,
    /// The fault injected into the traces of recoveries.
    fault: Option<&'h Fault>,
    /// Whether the store is lost: it must be refused, and can only be salvaged.
    is_lost: bool,
    /// Number of operations that have begun.
    begun: usize,
    /// What the process after a kill read (for [`MARK_READ`]), and its operations, which are
    /// numbered after those of the history.
    read: Vec<Option<Version>>,
    revived: Vec<Step>,
    /// The outcomes of this history.
    outcomes: Outcomes,
    target: std::marker::PhantomData<T>,
}

/// How thoroughly a state is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckMode {
    Brief,
    /// Also reads again after the collection, and recovers a second time.
    Thorough,
    /// Writes before collecting.
    Eager,
}

impl CheckMode {
    /// One state in four is checked thoroughly, and one with writes first.
    pub(crate) fn of(number: u64) -> Self {
        match number % 4 {
            0 => Self::Thorough,
            1 => Self::Eager,
            _ => Self::Brief,
        }
    }
}

/// Checks whether a store may have this content.
pub(crate) type Expected<'e> = dyn Fn(&[Option<Version>]) -> Result<(), Violation> + 'e;

/// Operations of the process after a kill, before it collects.
const REVIVED: usize = 4;
/// In one history in this many, that process collects first.
const COLLECTS_FIRST: u64 = 4;
/// The mark after its reads.
const MARK_READ: u64 = u64::MAX;

impl<'h, T: Target, const VOLATILE: bool> Oracles<'h, T, VOLATILE> {
    /// The judge of the history `steps`.
    pub fn new(
        plan: &'h Plan,
        steps: &'h [Step],
        profile: Profile,
        fault: Option<&'h Fault>,
        limits: &Limits,
    ) -> Self {
        let before = vec![None; plan.keys];
        let expectation = Expectation { before, may_be_absent: true, ..Expectation::default() };
        let (is_lost, target) = (profile == Profile::File, std::marker::PhantomData);
        let mut oracles = Self {
            plan,
            steps,
            expectation,
            number: 0,
            fault,
            is_lost,
            begun: 0,
            read: Vec::new(),
            revived: Vec::new(),
            outcomes: Outcomes::new(limits.again_one_in),
            target,
        };
        oracles.number = oracles.expectation.number();
        oracles
    }

    fn step(&self, index: usize) -> Option<&Step> {
        self.steps.get(index).or_else(|| self.revived.get(index - self.steps.len()))
    }

    fn begin(&mut self, index: usize) {
        let Some(step) = self.step(index).cloned() else { return };
        self.begun = index + 1;
        match step.op {
            Op::Puts(_) => self.expectation.loose.clone_from(&step.effects),
            _ => self.expectation.under_way = vec![step.effects.clone()],
        }
    }

    fn end(&mut self, index: usize) -> bool {
        self.expectation.under_way.clear();
        self.expectation.loose.clear();
        let Some(step) = self.step(index).cloned() else { return false };
        for &(key, to) in &step.effects {
            self.expectation.before[key] = to;
        }
        !step.effects.is_empty()
    }

    fn recover<M: MappedMedium>(&self, medium: M) -> Result<Option<T::Subject<M>>, Violation> {
        T::Subject::recover(medium, self.plan).map_err(|why| format!("the store cannot be opened: {why}"))
    }

    fn judge_all(&self, memory: &Memory<VOLATILE>, mode: CheckMode) -> Result<(), Violation> {
        let expected = |found: &[Option<Version>]| self.expectation.check(found);
        self.judge_by(memory, mode, self.expectation.may_be_absent, &expected)
    }

    /// Recovers and runs all checks; `expected` checks the content.
    pub(crate) fn judge_by(
        &self,
        memory: &Memory<VOLATILE>,
        mode: CheckMode,
        may_be_absent: bool,
        expected: &Expected<'_>,
    ) -> Result<(), Violation> {
        let Some(subject) = self.recover(memory.clone())? else {
            let absent = "the pool has no store any more".to_string();
            return if may_be_absent { Ok(()) } else { Err(absent) };
        };
        let found = read(&subject, self.plan.keys)?;
        expected(&found)?;
        check_scan(&subject, &found)?;
        if mode != CheckMode::Eager {
            subject.collect();
        }
        let Some(end) = self.outcomes.begin(memory, found.iter().fold(mode as u64, hash_of)) else {
            subject.abandon();
            return Ok(());
        };
        let after = if mode == CheckMode::Eager {
            let after = self.change_and_check(&subject, found)?;
            subject.collect();
            self.check_collected(&subject, &after, mode)?;
            after
        } else {
            self.check_collected(&subject, &found, mode)?;
            self.change_and_check(&subject, found)?
        };
        subject.abandon();
        if mode == CheckMode::Thorough {
            self.again(memory, &after)?;
        }
        self.outcomes.mark_sound(memory, &end);
        Ok(())
    }

    /// Checks that a collection reclaimed leaked memory and changed nothing else.
    fn check_collected<M: MappedMedium>(
        &self,
        subject: &T::Subject<M>,
        model: &[Option<Version>],
        mode: CheckMode,
    ) -> Result<(), Violation> {
        if mode != CheckMode::Brief {
            same(subject, model, "after leaked memory was collected")?;
        }
        check_memory(subject)
    }

    fn change_and_check<M: MappedMedium>(
        &self,
        subject: &T::Subject<M>,
        model: Vec<Option<Version>>,
    ) -> Result<Vec<Option<Version>>, Violation> {
        let after = self.change(subject, model)?;
        same(subject, &after, "after further operations")?;
        check_scan(subject, &after)?;
        Ok(after)
    }

    fn judge_salvage(&self, memory: &Memory<VOLATILE>) -> Result<(), Violation> {
        let salvaged = T::Subject::salvaged(&|| memory.clone(), self.plan)?;
        let written =
            || self.steps[..self.begun.min(self.steps.len())].iter().flat_map(|step| step.op.may_write());
        match salvaged.into_iter().find(|pair| !written().any(|other| other == *pair)) {
            Some((key, version)) => {
                Err(format!("salvage returns v{version} for k{key}, which was never written"))
            }
            None => Ok(()),
        }
    }

    /// Removes every other key, then applies the plan's later operations. Returns the resulting
    /// content.
    fn change<M: MappedMedium>(
        &self,
        subject: &T::Subject<M>,
        mut model: Vec<Option<Version>>,
    ) -> Result<Vec<Option<Version>>, Violation> {
        for key in (0..model.len()).filter(|key| key % 2 == 0) {
            apply_checked(subject, &Op::Remove(key), &mut model)?;
        }
        for op in &self.plan.after {
            apply_checked(subject, op, &mut model)?;
        }
        Ok(model)
    }

    /// Recovers a second time.
    fn again(&self, memory: &Memory<VOLATILE>, model: &[Option<Version>]) -> Result<(), Violation> {
        let subject = self.recover(memory.clone()).map_err(|wrong| format!("the second time, {wrong}"))?;
        let subject = subject.ok_or("the second time, the pool has no store")?;
        same(&subject, model, "after a second recovery")?;
        subject.collect();
        check_memory(&subject).map_err(|wrong| format!("after a second recovery, {wrong}"))?;
        subject.abandon();
        Ok(())
    }
}

impl<T: Target, const VOLATILE: bool> Judge<VOLATILE> for Oracles<'_, T, VOLATILE> {
    fn pass(&mut self, mark: u64) -> bool {
        let narrower = match mark {
            MARK_CREATED => {
                self.expectation.may_be_absent = false;
                true
            }
            MARK_READ => {
                self.expectation.under_way.clear();
                self.expectation.loose.clear();
                self.expectation.before.clone_from(&self.read);
                true
            }
            mark if mark.is_multiple_of(2) => {
                self.begin((mark - 2) as usize / 2);
                false
            }
            mark => self.end((mark - 3) as usize / 2),
        };
        self.number = self.expectation.number();
        narrower
    }

    fn expectation(&self) -> u64 {
        self.number
    }

    fn judge(&mut self, memory: &Memory<VOLATILE>, point: u64) -> Result<(), Violation> {
        let mode = CheckMode::of(hash(self.plan.seed, point));
        catch_panic(|| if self.is_lost { self.judge_salvage(memory) } else { self.judge_all(memory, mode) })
    }

    fn recovery(&mut self, image: &[u64]) -> Option<Trace> {
        self.record(image, |subject| {
            subject.collect();
            Ok(())
        })
    }

    fn revival(&mut self, image: &[u64]) -> Option<Trace> {
        if self.plan.revived.is_empty() {
            return None;
        }
        let (mut found, mut revived) = (Vec::new(), Vec::new());
        let trace = self.record(image, |subject| {
            if self.plan.seed.is_multiple_of(COLLECTS_FIRST) {
                // Before the first read: a reader persists unfenced writes that it sees.
                as_other_thread(|| subject.collect());
            }
            found = read(subject, self.plan.keys)?;
            let (medium, mut model) = (subject.pool().medium(), found.clone());
            medium.mark_call(MARK_READ);
            let (plan, done) = (self.plan, self.steps.len());
            // In another thread: its fences do not cover the unfenced stores of the thread that
            // recovered.
            as_other_thread(|| {
                for (index, op) in plan.revived.iter().enumerate() {
                    if index == REVIVED {
                        // From here on, memory that the killed process left is reused.
                        subject.collect();
                    }
                    medium.mark_call(mark_begin(done + index));
                    let effects = apply_checked(subject, op, &mut model)?;
                    medium.mark_call(mark_end(done + index));
                    revived.push(Step { op: op.clone(), effects });
                }
                Ok(())
            })
        });
        (self.read, self.revived) = (found, revived);
        trace
    }

    fn remember(&self) -> Expectation {
        self.expectation.clone()
    }

    fn restore(&mut self, expectation: Expectation) {
        self.expectation = expectation;
        self.number = self.expectation.number();
    }
}

impl<T: Target, const VOLATILE: bool> Oracles<'_, T, VOLATILE> {
    /// The trace of a recovery from `image` and of the work of the new process.
    fn record(
        &self,
        image: &[u64],
        work: impl FnOnce(&T::Subject<Layered<VOLATILE>>) -> Result<(), Violation>,
    ) -> Option<Trace> {
        let bytes = image.len() * 8;
        let memory = Memory::<VOLATILE>::zeroed_reused(bytes, bytes).ok()?;
        memory.set_all(image);
        memory.begin();
        let mut trace = None;
        let recovered = catch_panic(|| {
            let recording = Arc::new(Recording::over(memory.clone()));
            let Some(subject) = self.recover(Layered::over(recording.clone()))? else { return Ok(()) };
            work(&subject)?;
            trace = Some(recording.trace());
            subject.abandon();
            Ok(())
        });
        // A violation here is found when the state itself is checked.
        recovered.ok()?;
        trace.map(|trace| self.fault.map_or_else(|| trace.clone(), |fault| fault.inject_into(&trace)))
    }
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; a panic becomes a violation.
pub(crate) fn catch_panic<R>(work: impl FnOnce() -> Result<R, Violation>) -> Result<R, Violation> {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
    outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(format!("it panicked: {text}"))
    })
}

pub(crate) fn read<M: MappedMedium>(
    subject: &impl Subject<M>,
    keys: usize,
) -> Result<Vec<Option<Version>>, Violation> {
    let mut found = Vec::with_capacity(keys);
    for key in 0..keys {
        found.push(subject.get(key).map_err(|why| format!("get(k{key}) fails: {why}"))?);
    }
    Ok(found)
}

pub(super) fn same<M: MappedMedium>(
    subject: &impl Subject<M>,
    model: &[Option<Version>],
    when: &str,
) -> Result<(), Violation> {
    let found = read(subject, model.len())?;
    match (0..model.len()).find(|&key| found[key] != model[key]) {
        Some(key) => {
            Err(format!("{when}, get(k{key}) = {}, but was {}", display(found[key]), display(model[key])))
        }
        None => Ok(()),
    }
}

pub(crate) fn check_scan<M: MappedMedium>(
    subject: &impl Subject<M>,
    model: &[Option<Version>],
) -> Result<(), Violation> {
    let mut found = vec![None; model.len()];
    let mut wrong = None;
    subject.scan(&mut |key, version| match found.get_mut(key) {
        Some(place @ None) => *place = Some(version),
        Some(Some(_)) => wrong = Some(format!("a scan finds k{key} twice")),
        None => wrong = Some(format!("a scan finds a key that was never written (k{key}, v{version})")),
    })?;
    if let Some(key) = (0..model.len()).find(|&key| found[key] != model[key]) {
        wrong = wrong.or_else(|| {
            let (scanned, read) = (display(found[key]), display(model[key]));
            Some(format!("a scan finds {scanned} for k{key}, a get finds {read}"))
        });
    }
    wrong.map_or(Ok(()), Err)?;
    check_ranges(subject, model)
}

/// Checks ranges of all keys and of some, in both directions.
fn check_ranges<M: MappedMedium, S: Subject<M>>(
    subject: &S,
    model: &[Option<Version>],
) -> Result<(), Violation> {
    let last = model.len().saturating_sub(1);
    let ends = [(0, last), (last / 3, last - last / 3)];
    for (from, to) in ends.into_iter().filter(|_| S::RANGES && !model.is_empty()) {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut found = Vec::new();
            subject.range(from, to, direction, &mut |key, version| found.push((key, version)))?;
            let mut expected: Vec<_> = (from..=to).filter_map(|key| Some((key, model[key]?))).collect();
            if direction == Direction::Backward {
                expected.reverse();
            }
            if found != expected {
                return Err(format!(
                    "a range from k{from} to k{to}, {direction:?}, finds {found:?}, gets find {expected:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Checks the store's invariants, and that the allocated memory is exactly the reachable memory.
pub(crate) fn check_memory<M: MappedMedium>(subject: &impl Subject<M>) -> Result<(), Violation> {
    if let Some(finding) = subject.verify().first() {
        return Err(format!("verify finds {finding}"));
    }
    let mut blocks = subject.blocks();
    let mut space = subject.pool().space();
    if space.waiting_bytes > 0 {
        // Blocks that the collection itself unlinked by continuing a resize.
        subject.pool().reclaim_blocking();
        blocks = subject.blocks();
        space = subject.pool().space();
    }
    blocks.sort_unstable();
    for pair in blocks.windows(2) {
        let [(one, bytes), (other, _)] = [pair[0], pair[1]];
        if one + bytes > other {
            return Err(format!(
                "two blocks share memory: {bytes} bytes at {one:#x} and another block at {other:#x}"
            ));
        }
    }
    let reachable: u64 = blocks.iter().map(|&(_, bytes)| bytes).sum();
    let used = space.used_by_blocks;
    match used.cmp(&reachable) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(format!("{} bytes are in use but unreachable", used - reachable)),
        std::cmp::Ordering::Less => {
            Err(format!("{} bytes are reachable but free to the allocator", reachable - used))
        }
    }
}

/// Applies `op` and compares its answer with the model, which follows. Returns what was done:
/// nothing if the pool was full.
pub(crate) fn apply_checked<M: MappedMedium>(
    subject: &impl Subject<M>,
    op: &Op,
    model: &mut [Option<Version>],
) -> Result<Vec<Effect>, Violation> {
    let expected = op.answer(model);
    let mut effects = op.effects(model);
    match subject.apply(op) {
        Reply::Found(found) if found == expected => {}
        Reply::Found(found) => {
            return Err(format!("{op} answers {}, but should answer {}", display(found), display(expected)));
        }
        Reply::Full => effects.clear(),
        Reply::Partly(done) => {
            let mut nth = 0..;
            effects.retain(|_| nth.next().is_some_and(|nth| done >> nth & 1 == 1));
        }
        Reply::Broken(why) => return Err(format!("{op} fails: {why}")),
    }
    effects.iter().for_each(|&(key, to)| model[key] = to);
    Ok(effects)
}
