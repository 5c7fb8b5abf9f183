//! Who has which handle to the store in a run: all threads the same, as those of one process, or each its own, as participants of a shared pool.

use super::death::Mortality;
use super::scenario::Scenario;
use super::stage::{Stage, THREADS_MAX};
use crate::crash::{Subject, Target, Wrong};
use crate::{Company, Layered};
use std::sync::{Arc, Mutex, PoisonError};

/// The subject of a run.
pub(super) type On<T, const V: bool> = <T as Target>::Subject<Layered<V>>;

/// The handles of a run's threads.
pub(super) struct Crew<T: Target, const V: bool> {
    medium: Layered<V>,
    subjects: Vec<Arc<On<T, V>>>,
    /// The threads by name, if each is a participant.
    company: Option<Company>,
    dead: Arc<Mutex<Vec<usize>>>,
}

impl<T: Target, const V: bool> Crew<T, V> {
    /// Threads of one process with this subject.
    pub(super) fn of_one(medium: Layered<V>, subject: Arc<On<T, V>>) -> Self {
        let subjects = vec![subject; THREADS_MAX];
        Self { medium, subjects, company: None, dead: Arc::default() }
    }

    /// Makes the store of `scenario`, for one process or for participants.
    pub(super) fn create(stage: &Stage, medium: Layered<V>, scenario: &Scenario) -> Result<Self, Wrong> {
        if scenario.is_shared {
            return Self::share(stage, medium, scenario);
        }
        let (plan, below) = (scenario.plan.clone(), medium.clone());
        let subject = stage.alone(move || T::Subject::create(below, &plan))?;
        Ok(Self::of_one(medium, Arc::new(subject)))
    }

    /// The store of threads of one process, as it is found once that has been killed.
    pub(super) fn reopened(self, stage: &Stage, scenario: &Scenario) -> Result<Self, Wrong> {
        let (medium, plan) = (self.medium.clone(), scenario.plan.clone());
        self.let_go(stage);
        let below = medium.clone();
        let subject = stage.alone(move || T::Subject::recover(below, &plan))??;
        let subject = subject.ok_or("the store is gone once its process was killed")?;
        Ok(Self::of_one(medium, Arc::new(subject)))
    }

    fn share(stage: &Stage, medium: Layered<V>, scenario: &Scenario) -> Result<Self, Wrong> {
        let (company, told) = (Company::default(), medium.clone());
        // Member and thread have one number: that is how they come in.
        company.tell(move |dead| told.told(dead as usize));
        let mut crew = Self { medium, subjects: Vec::new(), company: Some(company), dead: Arc::default() };
        for thread in 0..scenario.threads.len() {
            let subject = crew.another(stage, thread, scenario, thread == 0)?;
            crew.subjects.push(Arc::new(subject));
        }
        Ok(crew)
    }

    /// One more participant, in a thread.
    pub(super) fn another(
        &self,
        stage: &Stage,
        thread: usize,
        scenario: &Scenario,
        is_first: bool,
    ) -> Result<On<T, V>, Wrong> {
        let company = self.company.as_ref().ok_or("only participants are joined by others")?;
        let (plan, medium, (_, member)) = (scenario.plan.clone(), self.medium.clone(), company.join());
        let shared = stage.alone_in(thread, move || T::Subject::share(medium, &plan, member, is_first))?;
        shared.map_err(|why| format!("a participant cannot go in: {why}"))
    }

    pub(super) fn medium(&self) -> &Layered<V> {
        &self.medium
    }

    /// What a thread has of the store.
    pub(super) fn of(&self, thread: usize) -> Arc<On<T, V>> {
        self.subjects[thread].clone()
    }

    /// Who dies in a run, and that the others are told.
    pub(super) fn mortality(&self, scenario: &Scenario) -> Mortality {
        let Some(company) = self.company.clone() else { return Mortality::default() };
        let (dead, medium) = (self.dead.clone(), self.medium.clone());
        Mortality::new(scenario.deaths.clone(), move |thread| {
            dead.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
            medium.died(thread);
            company.kill(thread as u64);
        })
    }

    /// How many have died.
    pub(super) fn deaths(&self) -> Arc<Mutex<Vec<usize>>> {
        self.dead.clone()
    }

    /// Those of the first `threads` threads that are alive.
    pub(super) fn living(&self, threads: usize) -> Vec<usize> {
        let dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
        (0..threads).filter(|thread| !dead.contains(thread)).collect()
    }

    /// Lets go of everything as processes do that die. All who died are buried.
    pub(super) fn let_go(self, stage: &Stage) {
        for subject in self.subjects {
            if let Some(subject) = Arc::into_inner(subject) {
                let _ = stage.alone(move || subject.abandon());
            }
        }
    }

    /// The living leave in order, one after the other, each in its own thread. The calls are over; of the dead, what they have stays.
    pub(super) fn leave(&mut self, stage: &Stage) -> Result<(), Wrong> {
        let living = self.living(self.subjects.len());
        let subjects = std::mem::take(&mut self.subjects);
        for (thread, subject) in subjects.into_iter().enumerate() {
            if living.contains(&thread) {
                let subject = Arc::into_inner(subject).ok_or("somebody still has the store")?;
                stage.alone_in(thread, move || drop(subject))?;
            } else {
                self.subjects.push(subject);
            }
        }
        Ok(())
    }
}
