//! The operations on a subject, and the order of their records.

use super::subject::Subject;
use terrace_bench::{Kind, Operations, Random, Workload};

/// The size of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Records that always exist.
    pub(super) records: u64,
    /// Operations that are measured together.
    pub(super) operations: u64,
}

impl Size {
    /// The largest number of records at any time.
    pub(super) fn most(self) -> u64 {
        self.records + self.operations
    }
}

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Get,
    Insert,
    Update,
    Remove,
    YcsbA,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Get(u64),
    Insert(u64),
    Update(u64),
    Remove(u64),
}

/// Operations that are ready to run.
pub(super) struct Run<'a> {
    subject: &'a dyn Subject,
    steps: &'a [Step],
}

impl Run<'_> {
    /// Runs all operations.
    pub(super) fn all(&self) {
        self.steps.iter().for_each(|&step| apply(self.subject, step));
    }

    /// Passes a batch at a time to `each`, with its size and a function that runs it.
    pub(super) fn each_batch(&self, each: &mut dyn FnMut(usize, &dyn Fn())) {
        const BATCH: usize = 100;
        for steps in self.steps.chunks_exact(BATCH) {
            each(steps.len(), &|| steps.iter().for_each(|&step| apply(self.subject, step)));
        }
    }
}

impl Work {
    pub(super) const ALL: [Self; 5] = [Self::Get, Self::Insert, Self::Update, Self::Remove, Self::YcsbA];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Remove => "remove",
            Self::YcsbA => "YCSB A",
        }
    }

    /// Applies this work to a subject with `size.records` records, inside `measure`, and leaves it
    /// with the same records.
    pub(super) fn run<R>(
        self,
        subject: &dyn Subject,
        size: Size,
        seed: u64,
        measure: impl FnOnce(Run<'_>) -> R,
    ) -> R {
        let steps = self.steps(size, seed);
        let come_and_go = size.records..size.most();
        if self == Self::Remove {
            come_and_go.clone().for_each(|record| apply(subject, Step::Insert(record)));
        }
        let result = measure(Run { subject, steps: &steps });
        if self == Self::Insert {
            come_and_go.for_each(|record| apply(subject, Step::Remove(record)));
        }
        result
    }

    /// Records are inserted and removed in the order of their numbers, which is random in the
    /// index.
    fn steps(self, size: Size, seed: u64) -> Vec<Step> {
        let mut random = Random::new(seed);
        let mut any = |step: fn(u64) -> Step| -> Vec<Step> {
            (0..size.operations).map(|_| step(random.below(size.records))).collect()
        };
        match self {
            Self::Get => any(Step::Get),
            Self::Update => any(Step::Update),
            Self::Insert => (size.records..size.most()).map(Step::Insert).collect(),
            Self::Remove => (size.records..size.most()).map(Step::Remove).collect(),
            Self::YcsbA => ycsb_a(size, seed),
        }
    }
}

fn ycsb_a(size: Size, seed: u64) -> Vec<Step> {
    let workload = Workload::named("ycsb-a").expect("YCSB A is one of the workloads");
    let operations = Operations::new(workload, size.records, 0, 1, seed);
    let step = |operation: terrace_bench::Operation| match operation.kind {
        Kind::Read => Step::Get(operation.record),
        _ => Step::Update(operation.record),
    };
    operations.take(size.operations as usize).map(step).collect()
}

fn apply(subject: &dyn Subject, step: Step) {
    let done = match step {
        Step::Get(record) => subject.get(record),
        Step::Insert(record) => subject.insert(record),
        Step::Update(record) => subject.update(record),
        Step::Remove(record) => subject.remove(record),
    };
    assert!(done, "{step:?} did not do what it should");
}

/// Adds the records that always exist.
pub(super) fn fill(subject: &dyn Subject, size: Size) {
    (0..size.records).for_each(|record| apply(subject, Step::Insert(record)));
}
