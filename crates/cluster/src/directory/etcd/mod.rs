//! The directory in etcd.
//!
//! Requests go through etcd's JSON gateway and block their thread, no longer than a deadline. What
//! a process keeps in etcd has one lease, which `keeping` renews in a thread of its own. Each watch
//! has one, too.

mod gateway;
mod keeping;
mod link;
mod options;
#[cfg(test)]
mod tests;

pub use options::{Options, User};

use super::{Change, Claim, Directory, DirectoryError, Kept, OnChange, Revision, State, Watch, prefix};
use gateway::{Gateway, Repeat, number};
use keeping::{Goal, Keeping};
use link::{Link, PAUSE, Seen};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// A process's directory in etcd. What it keeps there goes when it is dropped.
pub struct EtcdDirectory {
    link: Link,
    keeping: Arc<Keeping>,
    thread: Option<JoinHandle<()>>,
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
