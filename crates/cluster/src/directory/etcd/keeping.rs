//! What a process keeps in etcd: keys under one lease, written again whenever etcd has lost them.

use super::gateway::{Failure, Repeat, now, number, too_late};
use super::link::{Link, PAUSE};
use crate::directory::{DirectoryError, Revision};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(super) struct Keeping {
    inner: Mutex<Inner>,
    /// Something is to be done, or there is a lease.
    changed: Condvar,
    time: Duration,
}

#[derive(Default)]
struct Inner {
    lease: Option<i64>,
    /// Something was set since the last round.
    has_work: bool,
    is_over: bool,
    keys: BTreeMap<String, Wanted>,
}

/// What a key shall have, and whether etcd has heard of it.
#[derive(Clone, PartialEq)]
struct Wanted {
    goal: Goal,
    is_done: bool,
}

/// What a key shall have.
#[derive(Clone, PartialEq)]
pub(super) enum Goal {
    /// This text.
    Text(String),
    /// Nothing, if it is this process's.
    Nothing,
    /// Nothing, if it has this revision.
    NothingOver(Revision),
}

impl Keeping {
    /// Begins to renew a lease, in a thread that ends after [`Self::end`].
    pub(super) fn start(link: Link, time: Duration) -> std::io::Result<(Arc<Self>, JoinHandle<()>)> {
        let keeping = Arc::new(Self { inner: Mutex::default(), changed: Condvar::new(), time });
        let this = Arc::clone(&keeping);
        let thread = thread::Builder::new().name("etcd".into()).spawn(move || this.run(&link))?;
        Ok((keeping, thread))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while something holds, and at most so long.
    fn wait(&self, at_most: Duration, holds: impl Fn(&Inner) -> bool) -> MutexGuard<'_, Inner> {
        let waited = self.changed.wait_timeout_while(self.lock(), at_most, |inner| holds(inner));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// What a key shall have from now on.
    pub(super) fn set(&self, key: &str, goal: Goal) {
        let mut inner = self.lock();
        inner.keys.insert(key.to_owned(), Wanted { goal, is_done: false });
        inner.has_work = true;
        self.changed.notify_all();
    }

    /// The lease, once there is one.
    pub(super) fn lease(&self, deadline: Instant) -> Result<i64, Failure> {
        let left = deadline.saturating_duration_since(now());
        self.wait(left, |inner| inner.lease.is_none()).lease.ok_or_else(too_late)
    }

    /// Notes if an error says that the lease is over.
    pub(super) fn look_at(&self, failure: &Failure) {
        if failure.is_not_found() {
            let mut inner = self.lock();
            inner.lease = None;
            inner.keys.values_mut().for_each(|wanted| wanted.is_done = false);
            // With the lease went what it kept.
            inner.keys.retain(|_, wanted| matches!(wanted.goal, Goal::Text(_)));
        }
    }

    /// Ends the lease, and with it all that was kept.
    pub(super) fn end(&self, link: &Link) -> Result<(), DirectoryError> {
        let lease = {
            let mut inner = self.lock();
            inner.is_over = true;
            self.changed.notify_all();
            inner.lease.take()
        };
        let Some(lease) = lease else { return Ok(()) };
        let body = json!({ "ID": lease.to_string() });
        link.in_time(|until| link.gateway.ask("/v3/lease/revoke", &body, Repeat::Harmless, until)).map(|_| ())
    }

    fn run(&self, link: &Link) {
        while !self.lock().is_over {
            self.lock().has_work = false;
            match self.round(link) {
                Ok(()) => drop(self.wait(self.time / 3, |inner| !inner.has_work && !inner.is_over)),
                Err(_) => drop(self.wait(PAUSE, |inner| !inner.is_over)),
            }
        }
    }

    /// Renews the lease, and writes what is to be written, or was lost.
    fn round(&self, link: &Link) -> Result<(), DirectoryError> {
        let lease = self.lock().lease;
        let lease = match lease {
            Some(lease) => self.ask(link, |until| self.renew(link, lease, until)).map(|()| lease)?,
            None => self.ask(link, |until| self.grant(link, until))?,
        };
        let open = self.lock().keys.clone();
        for (key, wanted) in open {
            // Otherwise the lease may be gone, and its end would be told.
            if self.lock().is_over {
                return Ok(());
            }
            if wanted.is_done {
                self.ask(link, |until| Self::restore(link, lease, &key, &wanted.goal, until))?;
                continue;
            }
            self.ask(link, |until| Self::write(link, lease, &key, &wanted.goal, until))?;
            let mut inner = self.lock();
            // It may have been set anew meanwhile.
            if inner.keys.get(&key) == Some(&wanted) {
                match wanted.goal {
                    Goal::Text(_) => _ = inner.keys.insert(key, Wanted { is_done: true, ..wanted }),
                    Goal::Nothing | Goal::NothingOver(_) => _ = inner.keys.remove(&key),
                }
            }
        }
        Ok(())
    }

    /// Asks, unless the end has come: then an error says nothing.
    fn ask<T>(
        &self,
        link: &Link,
        request: impl FnOnce(Instant) -> Result<T, Failure>,
    ) -> Result<T, DirectoryError> {
        let outcome = request(link.deadline()).inspect_err(|failure| self.look_at(failure));
        match outcome {
            Err(failure) if self.lock().is_over => Err(link.error(failure)),
            outcome => link.noted(outcome),
        }
    }

    fn grant(&self, link: &Link, deadline: Instant) -> Result<i64, Failure> {
        let body = json!({ "TTL": self.time.as_secs().max(1).to_string() });
        // One that was granted unheard goes by itself.
        let granted = link.gateway.ask("/v3/lease/grant", &body, Repeat::Harmless, deadline)?;
        link.note_change();
        let lease = number(&granted["ID"]);
        self.lock().lease = Some(lease);
        self.changed.notify_all();
        Ok(lease)
    }

    fn renew(&self, link: &Link, lease: i64, deadline: Instant) -> Result<(), Failure> {
        let body = json!({ "ID": lease.to_string() });
        let renewed = link.gateway.ask("/v3/lease/keepalive", &body, Repeat::Harmless, deadline)?;
        // etcd does not call this an error.
        if number(&renewed["TTL"]) > 0 { Ok(()) } else { Err(Failure::not_found("the lease is over")) }
    }

    /// Writes a key again if somebody has removed it, has written it and is gone, or has written it
    /// by hand. A process writes with its lease.
    fn restore(link: &Link, lease: i64, key: &str, goal: &Goal, deadline: Instant) -> Result<(), Failure> {
        let Goal::Text(text) = goal else { return Ok(()) };
        // Also of a key that is not there.
        let is_nobodys = link.has_lease(key, 0);
        let put = link.put(key, text, Some(lease));
        link.transact(&[is_nobodys], &[put], Repeat::Harmless, deadline).map(|_| ())
    }

    /// Writes or removes a key.
    fn write(link: &Link, lease: i64, key: &str, goal: &Goal, deadline: Instant) -> Result<(), Failure> {
        let (condition, operation): (Option<Value>, Value) = match goal {
            Goal::Text(text) => (None, link.put(key, text, Some(lease))),
            Goal::Nothing => (Some(link.has_lease(key, lease)), link.delete(key)),
            Goal::NothingOver(revision) => (Some(link.has_revision(key, *revision)), link.delete(key)),
        };
        let conditions: Vec<Value> = condition.into_iter().collect();
        link.transact(&conditions, &[operation], Repeat::Harmless, deadline).map(|_| ())
    }
}
