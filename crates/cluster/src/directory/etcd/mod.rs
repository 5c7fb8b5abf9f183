//! The directory in etcd.
//!
//! Requests go through etcd's JSON gateway and block their thread, no longer than a deadline. What
//! a process keeps in etcd has one lease, which `keeping` renews in a thread of its own. Each watch
//! has one, too.

mod gateway;
mod keeping;

use super::{
    Change, Claim, Directory, DirectoryError, Entries, Kept, OnChange, Revision, State, Watch, Written,
    prefix,
};
pub use gateway::User;
use gateway::{Failure, Gateway, Lines, Repeat, decoded, encoded, number};
use keeping::{Goal, Keeping};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long to wait after one that failed.
const PAUSE: Duration = Duration::from_millis(200);
/// How often to read without having been told of a change.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How a directory is reached.
#[derive(Clone, Debug)]
pub struct Options {
    /// Hosts and ports of etcd's nodes; with `http://` or `https://`, if it is said.
    pub endpoints: Vec<String>,
    /// The name of the cluster.
    pub cluster: String,
    /// How long what this process keeps stays after its death. etcd makes it two seconds at least.
    pub lease: Duration,
    /// The file of the certificates that sign those of etcd. With it, addresses are `https://`.
    pub ca: Option<PathBuf>,
    /// The files of the certificate that this process shows, and of its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The user of etcd, if it has users.
    pub user: Option<User>,
}

impl Options {
    /// The directory of a cluster, with leases of 10 s, and an etcd that trusts everybody.
    pub fn new(endpoints: &str, cluster: &str) -> Self {
        let endpoints = endpoints.split(',').map(|endpoint| endpoint.trim().to_owned()).collect();
        let (lease, cluster) = (Duration::from_secs(10), cluster.into());
        Self { endpoints, cluster, lease, ca: None, identity: None, user: None }
    }
}

/// A process's directory in etcd. What it keeps there goes when it is dropped.
pub struct EtcdDirectory {
    link: Link,
    keeping: Arc<Keeping>,
    thread: Option<JoinHandle<()>>,
}

/// How etcd is asked, and what its errors say.
#[derive(Clone)]
struct Link {
    gateway: Arc<Gateway>,
    prefix: String,
    endpoints: String,
    told: Arc<Mutex<Told>>,
}

/// What was logged of etcd, so that each line comes once.
#[derive(Default)]
struct Told {
    is_away: bool,
    /// Why it has refused something since its last change.
    refusals: BTreeSet<String>,
}

impl Told {
    /// Whether an error is to be logged.
    fn is_news(&mut self, error: &DirectoryError) -> bool {
        match error {
            DirectoryError::Refused { why, .. } => self.refusals.insert(why.clone()),
            _ => !std::mem::replace(&mut self.is_away, true),
        }
    }

    /// Whether an answer is to be logged.
    fn has_answered(&mut self) -> bool {
        std::mem::replace(&mut self.is_away, false)
    }

    /// Whether a change is to be logged.
    fn has_changed(&mut self) -> bool {
        !std::mem::take(&mut self.refusals).is_empty()
    }
}

impl EtcdDirectory {
    /// Begins to use it. It need not answer yet.
    ///
    /// # Errors
    /// If the cluster's name, an endpoint or a file makes no sense, or a thread cannot be started.
    pub fn connect(options: &Options) -> Result<Self, DirectoryError> {
        let prefix = prefix(&options.cluster)?;
        let endpoints = options.endpoints.join(",");
        let gateway = Arc::new(Gateway::new(options)?);
        let link = Link { gateway, prefix, endpoints, told: Arc::default() };
        let started = Keeping::start(link.clone(), options.lease);
        let (keeping, thread) = started.map_err(|error| DirectoryError::Failed(error.to_string()))?;
        Ok(Self { link, keeping, thread: Some(thread) })
    }
}

#[allow(clippy::disallowed_methods, reason = "a bound for an answer that may never come")]
fn now() -> Instant {
    Instant::now()
}

impl Link {
    /// When a request that begins now must have its answer.
    fn deadline(&self) -> Instant {
        now() + PATIENCE
    }

    /// The outcome of a request until a deadline. Notes whether etcd answers.
    fn in_time<T>(&self, request: impl FnOnce(Instant) -> Result<T, Failure>) -> Result<T, DirectoryError> {
        self.noted(request(self.deadline()))
    }

    /// An outcome as it is told. Notes whether etcd answers.
    fn noted<T>(&self, outcome: Result<T, Failure>) -> Result<T, DirectoryError> {
        let outcome = outcome.map_err(|failure| self.error(failure));
        self.note(outcome.as_ref().err());
        outcome
    }

    fn error(&self, failure: Failure) -> DirectoryError {
        failure.told(&self.endpoints)
    }

    /// Logs when etcd goes away, and when it comes back; and when it begins to refuse something.
    fn note(&self, error: Option<&DirectoryError>) {
        match error {
            Some(error) if self.told().is_news(error) => {
                log::warn!("{error}; serving goes on, changes of the cluster wait");
            }
            None if self.told().has_answered() => log::info!("etcd at {} answers again", self.endpoints),
            _ => {}
        }
    }

    /// Logs when etcd takes a change that it has refused. One without room answers reads.
    fn note_change(&self) {
        if self.told().has_changed() {
            log::info!("etcd at {} takes changes again", self.endpoints);
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The keys that begin with the prefix, as the gateway has a range.
    fn range(&self) -> Value {
        // The prefix ends with a slash: what comes after it in ASCII ends the range.
        let end = format!("{}0", self.prefix.trim_end_matches('/'));
        json!({ "key": encoded(&self.prefix), "range_end": encoded(end) })
    }

    fn read(&self, deadline: Instant) -> Result<(Revision, Entries), Failure> {
        let read = self.gateway.ask("/v3/kv/range", &self.range(), Repeat::Harmless, deadline)?;
        let entries = read["kvs"].as_array().into_iter().flatten().map(|entry| {
            let key = decoded(&entry["key"]);
            let key = key.strip_prefix(&self.prefix).unwrap_or_default().to_owned();
            let revision = number(&entry["mod_revision"]).unsigned_abs();
            // The gateway leaves out numbers that are 0.
            let is_kept = number(&entry["lease"]) != 0;
            (key, Written { text: decoded(&entry["value"]), revision, is_kept })
        });
        Ok((number(&read["header"]["revision"]).unsigned_abs(), entries.collect()))
    }

    /// A transaction; its revision if the conditions held.
    fn transact(
        &self,
        conditions: &[Value],
        operations: &[Value],
        repeat: Repeat,
        deadline: Instant,
    ) -> Result<Option<Revision>, Failure> {
        let body = json!({ "compare": conditions, "success": operations });
        let done = self.gateway.ask("/v3/kv/txn", &body, repeat, deadline)?;
        let revision = number(&done["header"]["revision"]).unsigned_abs();
        // One without room takes removals.
        if operations.iter().any(|operation| operation["request_put"].is_object()) {
            self.note_change();
        }
        Ok((done["succeeded"] == true).then_some(revision))
    }

    fn has_revision(&self, key: &str, revision: Revision) -> Value {
        let key = encoded(self.key(key));
        json!({ "target": "MOD", "result": "EQUAL", "key": key, "mod_revision": revision.to_string() })
    }

    fn has_lease(&self, key: &str, lease: i64) -> Value {
        let key = encoded(self.key(key));
        json!({ "target": "LEASE", "result": "EQUAL", "key": key, "lease": lease.to_string() })
    }

    fn put(&self, key: &str, value: &str, lease: Option<i64>) -> Value {
        let (key, value) = (encoded(self.key(key)), encoded(value));
        json!({ "request_put": { "key": key, "value": value, "lease": lease.unwrap_or(0).to_string() } })
    }

    fn delete(&self, key: &str) -> Value {
        json!({ "request_delete_range": { "key": encoded(self.key(key)) } })
    }

    /// A state after what was seen. Says what is wrong with it.
    fn follow(&self, seen: Option<&Seen>, mut state: State) -> State {
        for key in &state.damaged {
            log::error!(
                "the text of {} in etcd makes no sense and is ignored; look at it with etcdctl get",
                self.key(key)
            );
        }
        let Some(Seen { state: before, .. }) = seen else { return state };
        state.lost = before.lost;
        if before.is_lost_in(&state) {
            state.lost += before.epoch;
            log::error!(
                "etcd at {} has lost its data: it is at revision {}, and was at {}. The nodes tell it anew \
                 that they are there, and a map follows. Moved slots and drained nodes are forgotten",
                self.endpoints,
                state.revision,
                before.revision
            );
        }
        state
    }

    /// The changes after a revision, for a while.
    fn changes_after(&self, revision: Revision) -> Result<Lines, DirectoryError> {
        let mut range = self.range();
        range["start_revision"] = (revision + 1).to_string().into();
        let body = json!({ "create_request": range });
        self.in_time(|until| self.gateway.stream("/v3/watch", &body, until, LOOK_AGAIN))
    }
}

/// A watch in its thread.
struct Watching {
    link: Link,
    on_change: OnChange,
    is_over: Arc<AtomicBool>,
    seen: Option<Seen>,
}

impl Watching {
    #[allow(clippy::disallowed_methods, reason = "nobody tells when etcd is back")]
    fn run(mut self) {
        while !self.is_over() {
            if let Err(error) = self.watch() {
                if self.is_over() {
                    return;
                }
                self.link.note(Some(&error));
                thread::sleep(PAUSE);
            }
        }
    }

    fn is_over(&self) -> bool {
        // ORDER: Acquire: pairs with the end of the watch.
        self.is_over.load(Ordering::Acquire)
    }

    /// Reads, and reads again after each change, as long as a stream of changes goes on. Afterwards
    /// there is a new one, from the last read on: no change is missed, and a link that hangs
    /// without an error is found out.
    fn watch(&mut self) -> Result<(), DirectoryError> {
        let mut revision = self.read()?;
        let mut changes = self.link.changes_after(revision)?;
        while !self.is_over() {
            match changes.next() {
                Err(failure) if failure.is_end_of_time() => return Ok(()),
                Err(failure) => return Err(self.link.error(failure)),
                Ok(Some(heard)) if heard["canceled"] != true => {
                    // Of several changes the first one may have been read with the last.
                    if number(&heard["header"]["revision"]).unsigned_abs() > revision {
                        revision = self.read()?;
                    }
                }
                Ok(_) => {
                    let (endpoints, why) = (self.link.endpoints.clone(), "the watch has ended".into());
                    return Err(DirectoryError::Away { endpoints, why });
                }
            }
        }
        Ok(())
    }

    /// Reads, and tells what has changed.
    fn read(&mut self) -> Result<Revision, DirectoryError> {
        let (revision, entries) = self.link.in_time(|until| self.link.read(until))?;
        if self.seen.as_ref().is_none_or(|seen| seen.entries != entries) {
            let state = self.link.follow(self.seen.as_ref(), State::read(revision, &entries));
            self.seen = Some(Seen { entries, state: state.clone() });
            if !self.is_over() {
                (self.on_change)(state);
            }
        }
        Ok(revision)
    }
}

/// What a watch has seen.
struct Seen {
    entries: Entries,
    state: State,
}

impl Directory for EtcdDirectory {
    fn read(&self) -> Result<State, DirectoryError> {
        let (revision, entries) = self.link.in_time(|until| self.link.read(until))?;
        Ok(State::read(revision, &entries))
    }

    fn change(
        &self,
        conditions: &[(&str, Revision)],
        changes: &[Change],
    ) -> Result<Option<Revision>, DirectoryError> {
        let link = &self.link;
        let holds = |(key, revision): &(&str, Revision)| link.has_revision(key, *revision);
        let conditions: Vec<Value> = conditions.iter().map(holds).collect();
        let operation = |change: &Change| match change {
            Change::Put(key, value) => link.put(key, value, None),
            Change::Delete(key) => link.delete(key),
        };
        let operations: Vec<Value> = changes.iter().map(operation).collect();
        // Done twice, a change on conditions would not find its own revisions.
        link.in_time(|until| link.transact(&conditions, &operations, Repeat::Unasked, until))
    }

    fn keep(&self, key: &str, value: String) -> Kept {
        let (keeping, key) = (Arc::clone(&self.keeping), key.to_owned());
        keeping.set(&key, Goal::Text(value));
        Kept(Box::new(move |value| keeping.set(&key, value.map_or(Goal::Nothing, Goal::Text))))
    }

    fn claim(&self, key: &str, value: &str, over: Revision) -> Result<Option<Claim>, DirectoryError> {
        let link = &self.link;
        let claimed = link.in_time(|until| {
            let put = link.put(key, value, Some(self.keeping.lease(until)?));
            let done = link.transact(&[link.has_revision(key, over)], &[put], Repeat::Unasked, until);
            done.inspect_err(|failure| self.keeping.look_at(failure))
        })?;
        let (keeping, key) = (Arc::clone(&self.keeping), key.to_owned());
        Ok(claimed.map(|revision| {
            let drop = move |_| keeping.set(&key, Goal::NothingOver(revision));
            Claim { revision, _kept: Kept(Box::new(drop)) }
        }))
    }

    fn watch(&self, on_change: OnChange) -> Watch {
        let gateway = Arc::new(self.link.gateway.apart());
        let link = Link { gateway: Arc::clone(&gateway), ..self.link.clone() };
        let is_over = Arc::new(AtomicBool::new(false));
        let watching = Watching { link, on_change, is_over: Arc::clone(&is_over), seen: None };
        let thread = thread::Builder::new().name("directory".into());
        let thread = thread.spawn(move || watching.run()).expect("a thread");
        Watch(Some(Box::new(move || {
            // ORDER: Release: no call begins after the watch is dropped.
            is_over.store(true, Ordering::Release);
            gateway.shut_down();
            if thread.thread().id() != thread::current().id() {
                // A panic of the callback was told already.
                let _ = thread.join();
            }
        })))
    }
}

impl Drop for EtcdDirectory {
    fn drop(&mut self) {
        // Whatever remains goes with its lease.
        let _ = self.keeping.end(&self.link);
        self.link.gateway.shut_down();
        // The thread has nothing to tell.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads and renewals go on while there is no room for a change.
    #[test]
    fn refusal_is_told_once_until_a_change_is_taken() {
        let refused = |why: &str| DirectoryError::Refused { endpoints: "e1:2379".into(), why: why.into() };
        let full = refused("etcdserver: mvcc: database space exceeded");
        let mut told = Told::default();
        assert!(told.is_news(&full));
        for _ in 0..3 {
            assert!(!told.has_answered() && !told.is_news(&full));
        }
        assert!(told.is_news(&refused("etcdserver: permission denied")) && !told.is_news(&full));
        let away = DirectoryError::Away { endpoints: "e1:2379".into(), why: "no answer".into() };
        assert!(told.is_news(&away) && !told.is_news(&away));
        assert!(told.has_answered() && !told.has_answered());
        assert!(told.has_changed() && !told.has_changed());
        assert!(told.is_news(&full));
    }
}
