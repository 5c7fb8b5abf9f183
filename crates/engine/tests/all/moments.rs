//! Histories on a simulated disk, with a look at the disk before each call that changes it.

use crate::contents::{Model, contents};
use crate::script::Step;
use crate::small::PATH;
use crate::subject::{Subject, clock};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_disk::DiskError;
use terrace_engine::{Chore, Durability, Engine, ManualClock, OnDisk, Rest};
use terrace_medium::files::Files;
use terrace_testkit::simfs::{Call, CallKind, Faulty, SimFs};

/// A part of a history.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Do(Step),
    /// Does all work of a kind.
    All(Chore),
    /// Makes every write so far durable.
    Sync,
    /// Lets the time pass after which the log is synced.
    Interval,
    /// Merges all tables of each bucket into one.
    Compact,
    /// Closes the store, and opens it again.
    Close,
    /// Ends the process, and opens the store again.
    Kill,
}

/// What a crash may leave of each store; `None` stands for no store.
pub(crate) type Allowed = BTreeMap<String, Vec<Option<Arc<Model>>>>;

/// The disk before a call that changes it, or between two acts.
pub(crate) struct Moment<'m> {
    pub(crate) disk: &'m SimFs,
    pub(crate) call: Option<Call<'m>>,
    pub(crate) allowed: &'m Allowed,
}

/// What a history begins with.
#[derive(Clone)]
pub(crate) enum Start {
    /// An empty disk.
    Empty(SimFs),
    /// A disk that a killed process has left, and what others find in its store.
    Killed(SimFs, Model),
    /// A disk that a crash has left, and what is in its store.
    Crashed(SimFs, Model),
}

impl Start {
    pub(crate) fn disk(&self) -> &SimFs {
        match self {
            Self::Empty(disk) | Self::Killed(disk, _) | Self::Crashed(disk, _) => disk,
        }
    }
}

/// Looks at a moment, and says whether to look at more.
pub(crate) type Look = Box<dyn FnMut(&Moment<'_>) -> bool + Send>;

/// What the watched file system shares with the history.
struct Watch {
    allowed: Allowed,
    look: Look,
    is_over: bool,
}

/// A history that is under way.
pub(crate) struct History<S: Subject> {
    disk: SimFs,
    files: Faulty,
    clock: Arc<ManualClock>,
    durability: Durability,
    store: Option<S::Store>,
    /// The models that a crash may leave: from the last durable one on.
    since: Vec<Arc<Model>>,
    watch: Arc<Mutex<Watch>>,
}

/// Opens the store at `path` after a crash.
pub(crate) fn reopen<S: Subject>(
    files: impl Into<Arc<dyn Files>>,
    path: &str,
) -> Result<S::Store, DiskError> {
    S::open(files, path, S::tiny(Durability::Power, &clock()))
}

/// What is wrong with what a crash has left. `check` looks at a store whose contents are right.
pub(crate) fn wrong<S: Subject>(
    left: &SimFs,
    allowed: &Allowed,
    check: fn(&dyn Engine) -> Option<String>,
) -> Option<String> {
    let wrong_at = |(path, allowed): (&String, &Vec<Option<Arc<Model>>>)| {
        let what = match reopen::<S>(left.clone(), path) {
            Err(DiskError::NoStore { .. }) if allowed.contains(&None) => {
                // It can be created, whatever an interrupted creation has left.
                let created = S::create(left.clone(), path, S::tiny(Durability::Power, &clock()));
                created.err().map(|error| error.to_string())
            }
            Err(error) => Some(error.to_string()),
            Ok(store) => match contents(&store) {
                Err(error) => Some(error.to_string()),
                Ok(found) if allowed.iter().flatten().any(|model| **model == found) => check(&store),
                Ok(found) => Some(format!("{} entries, as at no allowed time", found.len())),
            },
        };
        what.map(|what| format!("{path}: {what}"))
    };
    allowed.iter().find_map(wrong_at)
}

impl<S: Subject> History<S> {
    /// Begins a history: creates a store, or opens the one that is there.
    pub(crate) fn begin(start: Start, durability: Durability, look: Look) -> Self {
        let disk = start.disk().clone();
        let clock = Arc::new(ManualClock::at(1000));
        let watch = Watch { allowed: Allowed::new(), look, is_over: false };
        let watch = Arc::new(Mutex::new(watch));
        let (seen, below) = (watch.clone(), disk.clone());
        let files = Faulty::watched(disk.clone(), move |call| {
            if call.kind != CallKind::Read {
                lock(&seen).look(&below, Some(call));
            }
        });
        let (found, is_known) = match start {
            Start::Empty(_) => (None, true),
            Start::Killed(_, found) => (Some(found), false),
            Start::Crashed(_, found) => (Some(found), true),
        };
        let (is_there, since) = (found.is_some(), vec![found.unwrap_or_default().into()]);
        let mut begun = Self { disk, files, clock, durability, store: None, since, watch };
        if is_there {
            begun.open(is_known);
        } else {
            begun.create();
        }
        begun
    }

    fn create(&mut self) {
        lock(&self.watch).allowed.insert(PATH.into(), vec![None, Some(Arc::default())]);
        let created = S::create(self.files.clone(), PATH, S::tiny(self.durability, &self.clock));
        self.store = Some(created.expect("an empty disk"));
        self.end_act();
    }

    /// Opens the store. While it is being opened, a crash may leave `since`, if that is known.
    fn open(&mut self, is_known: bool) {
        lock(&self.watch).allowed.remove(PATH);
        if is_known {
            self.allow(self.since.iter().cloned().map(Some).collect());
        }
        let opened = S::open(self.files.clone(), PATH, S::tiny(self.durability, &self.clock));
        self.store = Some(opened.unwrap_or_else(|error| panic!("the store does not open: {error}")));
        // What it has found is durable from now on.
        self.since.drain(..self.since.len() - 1);
        self.end_act();
    }

    /// Does the acts, as long as there are looks at the moments.
    pub(crate) fn run(&mut self, acts: &[Act]) {
        for act in acts {
            if lock(&self.watch).is_over {
                return;
            }
            self.act(act);
        }
    }

    fn act(&mut self, act: &Act) {
        let mut after = self.since.last().expect("some content").clone();
        if let Act::Do(step) = act {
            step.apply(Arc::make_mut(&mut after));
        }
        let during = self.since.iter().chain([&after]).cloned().map(Some).collect();
        self.allow(during);
        let copy = if let Act::Do(Step::Checkpoint(path)) = act { path.to_str() } else { None };
        if let Some(path) = copy {
            lock(&self.watch).allowed.insert(path.into(), vec![None, Some(after.clone())]);
        }
        let is_durable = self.do_it(act);
        if let Some(path) = copy {
            lock(&self.watch).allowed.insert(path.into(), vec![Some(after.clone())]);
        }
        if is_durable {
            self.since.clear();
        }
        if self.since.last().is_none_or(|last| *last != after) {
            self.since.push(after);
        }
        self.end_act();
    }

    /// Returns whether everything so far is durable.
    fn do_it(&mut self, act: &Act) -> bool {
        let is_power = self.durability == Durability::Power;
        let store = self.store.as_ref().expect("an open store");
        match act {
            Act::Do(step) => {
                step.run(store).unwrap_or_else(|error| panic!("{step:?}: {error}"));
                is_power || matches!(step, Step::Clear)
            }
            Act::All(chore) => {
                while store.step(*chore, &|| false) == Rest::More {}
                is_power
            }
            Act::Compact => {
                OnDisk::compact(store, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)
                    .expect("sound");
                is_power
            }
            Act::Sync => {
                OnDisk::sync(store).expect("a sound disk");
                true
            }
            Act::Interval => {
                self.clock.advance(1000);
                while store.step(Chore::Log, &|| false) == Rest::More {}
                true
            }
            Act::Close | Act::Kill => {
                let store = self.store.take().expect("an open store");
                if let Act::Close = act {
                    Arc::new(store).close().expect("a sound disk");
                    self.since.drain(..self.since.len() - 1);
                    self.end_act();
                } else {
                    drop(store);
                }
                self.open(true);
                true
            }
        }
    }

    fn allow(&self, models: Vec<Option<Arc<Model>>>) {
        lock(&self.watch).allowed.insert(PATH.into(), models);
    }

    /// Looks at the disk between two acts.
    fn end_act(&self) {
        self.allow(self.since.iter().cloned().map(Some).collect());
        lock(&self.watch).look(&self.disk, None);
    }
}

impl Watch {
    fn look(&mut self, disk: &SimFs, call: Option<Call<'_>>) {
        if !self.is_over {
            self.is_over = !(self.look)(&Moment { disk, call, allowed: &self.allowed });
        }
    }
}

fn lock(watch: &Mutex<Watch>) -> MutexGuard<'_, Watch> {
    watch.lock().unwrap_or_else(PoisonError::into_inner)
}
