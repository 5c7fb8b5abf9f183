//! The handles to the store in a run: one for all threads, as in one process, or one each, as
//! participants of a shared pool.

use super::death::CrashPlan;
use super::scenario::Scenario;
use super::stage::{Scheduler, THREADS_MAX};
use crate::crash::{Subject, Target, Violation};
use crate::{Layered, ProcessGroup};
use std::sync::{Arc, Mutex, PoisonError};

/// The store of a run.
pub(super) type On<T, const V: bool> = <T as Target>::Subject<Layered<V>>;

/// The handles of a run's threads.
pub(super) struct PoolGroup<T: Target, const V: bool> {
    medium: Layered<V>,
    subjects: Vec<Arc<On<T, V>>>,
    /// The threads as participants, if the pool is shared.
    processes: Option<ProcessGroup>,
    dead: Arc<Mutex<Vec<usize>>>,
}

impl<T: Target, const V: bool> PoolGroup<T, V> {
    /// The threads of one process with this store.
    pub(super) fn exclusive(medium: Layered<V>, subject: Arc<On<T, V>>) -> Self {
        let subjects = vec![subject; THREADS_MAX];
        Self { medium, subjects, processes: None, dead: Arc::default() }
    }

    /// Creates the store of `scenario`, for one process or for participants.
    pub(super) fn create(
        scheduler: &Scheduler,
        medium: Layered<V>,
        scenario: &Scenario,
    ) -> Result<Self, Violation> {
        if scenario.is_shared {
            return Self::share(scheduler, medium, scenario);
        }
        let (plan, below) = (scenario.plan.clone(), medium.clone());
        let subject = scheduler.alone(move || T::Subject::create(below, &plan))?;
        Ok(Self::exclusive(medium, Arc::new(subject)))
    }

    /// Reopens the store of one process after a kill.
    pub(super) fn reopened(self, scheduler: &Scheduler, scenario: &Scenario) -> Result<Self, Violation> {
        let (medium, plan) = (self.medium.clone(), scenario.plan.clone());
        self.release_all(scheduler);
        let below = medium.clone();
        let subject = scheduler.alone(move || T::Subject::recover(below, &plan))??;
        let subject = subject.ok_or("the store is gone once its process was killed")?;
        Ok(Self::exclusive(medium, Arc::new(subject)))
    }

    fn share(scheduler: &Scheduler, medium: Layered<V>, scenario: &Scenario) -> Result<Self, Violation> {
        let (processes, observer) = (ProcessGroup::default(), medium.clone());
        // Members and threads have equal numbers, because they join in order.
        processes.on_crash_observed(move |dead| observer.crash_observed(dead as usize));
        let mut group =
            Self { medium, subjects: Vec::new(), processes: Some(processes), dead: Arc::default() };
        for thread in 0..scenario.threads.len() {
            let subject = group.add_process(scheduler, thread, scenario, thread == 0)?;
            group.subjects.push(Arc::new(subject));
        }
        Ok(group)
    }

    /// Adds a participant, in a thread.
    pub(super) fn add_process(
        &self,
        scheduler: &Scheduler,
        thread: usize,
        scenario: &Scenario,
        is_first: bool,
    ) -> Result<On<T, V>, Violation> {
        let processes = self.processes.as_ref().ok_or("only a shared pool can be joined")?;
        let (plan, medium, (_, member)) = (scenario.plan.clone(), self.medium.clone(), processes.add());
        let shared =
            scheduler.alone_in(thread, move || T::Subject::share(medium, &plan, member, is_first))?;
        shared.map_err(|why| format!("a participant cannot join: {why}"))
    }

    pub(super) fn medium(&self) -> &Layered<V> {
        &self.medium
    }

    /// The handle of a thread.
    pub(super) fn of(&self, thread: usize) -> Arc<On<T, V>> {
        self.subjects[thread].clone()
    }

    /// The threads that crash in a run; their crashes are announced to the others.
    pub(super) fn crash_plan(&self, scenario: &Scenario) -> CrashPlan {
        let Some(processes) = self.processes.clone() else { return CrashPlan::default() };
        let (dead, medium) = (self.dead.clone(), self.medium.clone());
        CrashPlan::new(scenario.crashes.clone(), move |thread| {
            dead.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
            medium.died(thread);
            processes.declare_dead(thread as u64);
        })
    }

    /// The threads that crashed so far.
    pub(super) fn crashes(&self) -> Arc<Mutex<Vec<usize>>> {
        self.dead.clone()
    }

    /// Those of the first `threads` threads that are alive.
    pub(super) fn living(&self, threads: usize) -> Vec<usize> {
        let dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
        (0..threads).filter(|thread| !dead.contains(thread)).collect()
    }

    /// Drops all handles as crashing processes do. All crashed threads must be detached.
    pub(super) fn release_all(self, scheduler: &Scheduler) {
        for subject in self.subjects {
            if let Some(subject) = Arc::into_inner(subject) {
                let _ = scheduler.alone(move || subject.abandon());
            }
        }
    }

    /// The survivors close the pool one after the other, each in its own thread. All calls must be
    /// over; the handles of crashed threads stay.
    pub(super) fn close(&mut self, scheduler: &Scheduler) -> Result<(), Violation> {
        let living = self.living(self.subjects.len());
        let subjects = std::mem::take(&mut self.subjects);
        for (thread, subject) in subjects.into_iter().enumerate() {
            if living.contains(&thread) {
                let subject = Arc::into_inner(subject).ok_or("the store is still in use")?;
                scheduler.alone_in(thread, move || drop(subject))?;
            } else {
                self.subjects.push(subject);
            }
        }
        Ok(())
    }
}
