//! Requests to etcd about the keys of one cluster, and what is logged of its errors.

use super::gateway::{Failure, Gateway, Lines, PATIENCE, Repeat, decoded, encoded, now, number};
use crate::directory::{DirectoryError, Entries, Revision, State, Written};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait after one that failed.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// How often to read without having been told of a change.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How etcd is asked, and what its errors say.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) gateway: Arc<Gateway>,
    pub(super) prefix: String,
    pub(super) endpoints: String,
    pub(super) told: Arc<Mutex<Told>>,
}

/// What was logged of etcd, so that each line comes once.
#[derive(Default)]
pub(super) struct Told {
    is_away: bool,
    /// Why it has refused something since its last change.
    refusals: BTreeSet<String>,
}

impl Told {
    /// Whether an error is to be logged.
    pub(super) fn is_news(&mut self, error: &DirectoryError) -> bool {
        match error {
            DirectoryError::Refused { why, .. } => self.refusals.insert(why.clone()),
            _ => !std::mem::replace(&mut self.is_away, true),
        }
    }

    /// Whether an answer is to be logged.
    pub(super) fn has_answered(&mut self) -> bool {
        std::mem::replace(&mut self.is_away, false)
    }

    /// Whether a change is to be logged.
    pub(super) fn has_changed(&mut self) -> bool {
        !std::mem::take(&mut self.refusals).is_empty()
    }
}

/// What a watch has seen.
pub(super) struct Seen {
    pub(super) entries: Entries,
    pub(super) state: State,
}

impl Link {
    /// When a request that begins now must have its answer.
    pub(super) fn deadline(&self) -> Instant {
        now() + PATIENCE
    }

    /// The outcome of a request until a deadline. Notes whether etcd answers.
    pub(super) fn in_time<T>(
        &self,
        request: impl FnOnce(Instant) -> Result<T, Failure>,
    ) -> Result<T, DirectoryError> {
        self.noted(request(self.deadline()))
    }

    /// An outcome as it is told. Notes whether etcd answers.
    pub(super) fn noted<T>(&self, outcome: Result<T, Failure>) -> Result<T, DirectoryError> {
        let outcome = outcome.map_err(|failure| self.error(failure));
        self.note(outcome.as_ref().err());
        outcome
    }

    pub(super) fn error(&self, failure: Failure) -> DirectoryError {
        failure.told(&self.endpoints)
    }

    /// Logs when etcd goes away, and when it comes back; and when it begins to refuse something.
    pub(super) fn note(&self, error: Option<&DirectoryError>) {
        match error {
            Some(error) if self.told().is_news(error) => {
                log::warn!("{error}; serving goes on, changes of the cluster wait");
            }
            None if self.told().has_answered() => log::info!("etcd at {} answers again", self.endpoints),
            _ => {}
        }
    }

    /// Logs when etcd takes a change that it has refused. One without room answers reads.
    pub(super) fn note_change(&self) {
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

    pub(super) fn read(&self, deadline: Instant) -> Result<(Revision, Entries), Failure> {
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
    pub(super) fn transact(
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

    pub(super) fn has_revision(&self, key: &str, revision: Revision) -> Value {
        let key = encoded(self.key(key));
        json!({ "target": "MOD", "result": "EQUAL", "key": key, "mod_revision": revision.to_string() })
    }

    pub(super) fn has_lease(&self, key: &str, lease: i64) -> Value {
        let key = encoded(self.key(key));
        json!({ "target": "LEASE", "result": "EQUAL", "key": key, "lease": lease.to_string() })
    }

    pub(super) fn put(&self, key: &str, value: &str, lease: Option<i64>) -> Value {
        let (key, value) = (encoded(self.key(key)), encoded(value));
        json!({ "request_put": { "key": key, "value": value, "lease": lease.unwrap_or(0).to_string() } })
    }

    pub(super) fn delete(&self, key: &str) -> Value {
        json!({ "request_delete_range": { "key": encoded(self.key(key)) } })
    }

    /// A state after what was seen. Says what is wrong with it.
    pub(super) fn follow(&self, seen: Option<&Seen>, mut state: State) -> State {
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
    pub(super) fn changes_after(&self, revision: Revision) -> Result<Lines, DirectoryError> {
        let mut range = self.range();
        range["start_revision"] = (revision + 1).to_string().into();
        let body = json!({ "create_request": range });
        self.in_time(|until| self.gateway.stream("/v3/watch", &body, until, LOOK_AGAIN))
    }
}
