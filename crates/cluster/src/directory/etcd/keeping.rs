//! What a process keeps in etcd: keys under one lease, written again whenever etcd has lost them.

use super::{DirectoryError, Error, Link, PAUSE, Revision};
use etcd_client::{Compare, CompareOp, TxnOp};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// gRPC's code for a lease that is over.
const NOT_FOUND: i32 = 5;

pub(super) struct Keeping {
    inner: Mutex<Inner>,
    /// Something is to be done.
    work: Notify,
    /// Nothing is to be kept any more.
    ends: Notify,
    time: Duration,
}

#[derive(Default)]
struct Inner {
    lease: Option<i64>,
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
    /// Begins to renew a lease.
    pub(super) fn start(runtime: &Handle, link: Link, time: Duration) -> Arc<Self> {
        let keeping =
            Arc::new(Self { inner: Mutex::default(), work: Notify::new(), ends: Notify::new(), time });
        runtime.spawn(Self::run(Arc::downgrade(&keeping), link));
        keeping
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a key shall have from now on.
    pub(super) fn set(&self, key: &str, goal: Goal) {
        self.lock().keys.insert(key.to_owned(), Wanted { goal, is_done: false });
        self.work.notify_one();
    }

    /// The lease, once there is one.
    pub(super) async fn lease(&self) -> i64 {
        loop {
            if let Some(lease) = self.lock().lease {
                return lease;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Notes if an error says that the lease is over.
    pub(super) fn look_at(&self, link: &Link, error: Error) -> DirectoryError {
        let is_over = match &error {
            Error::GRpcStatus(status) => status.code() as i32 == NOT_FOUND,
            Error::LeaseKeepAliveError(_) => true,
            _ => false,
        };
        if is_over {
            let mut inner = self.lock();
            inner.lease = None;
            inner.keys.values_mut().for_each(|wanted| wanted.is_done = false);
            // With the lease went what it kept.
            inner.keys.retain(|_, wanted| matches!(wanted.goal, Goal::Text(_)));
        }
        link.error(error)
    }

    /// Ends the lease, and with it all that was kept.
    pub(super) async fn end(&self, link: &Link) -> Result<(), DirectoryError> {
        let lease = {
            let mut inner = self.lock();
            inner.is_over = true;
            inner.lease.take()
        };
        self.ends.notify_one();
        if let Some(lease) = lease {
            let revoked = link.client.lease_client().revoke(lease).await;
            revoked.map_err(|error| link.error(error))?;
        }
        Ok(())
    }

    async fn run(this: Weak<Self>, link: Link) {
        while let Some(keeping) = this.upgrade().filter(|keeping| !keeping.lock().is_over) {
            let round = async {
                match keeping.round(&link).await {
                    Ok(()) => _ = timeout(keeping.time / 3, keeping.work.notified()).await,
                    Err(_) => sleep(PAUSE).await,
                }
            };
            // A round that went on would find the lease gone, and say so.
            tokio::select! {
                () = round => {}
                () = keeping.ends.notified() => return,
            }
        }
    }

    /// Renews the lease, and writes what is to be written, or was lost.
    async fn round(&self, link: &Link) -> Result<(), DirectoryError> {
        let lease = self.lock().lease;
        let lease = match lease {
            Some(lease) => {
                let renew = async {
                    let renewed = link.client.lease_client().keep_alive(lease).await;
                    renewed.map(|_| lease).map_err(|error| self.look_at(link, error))
                };
                link.in_time(renew).await?
            }
            None => self.grant(link).await?,
        };
        let open = {
            let inner = self.lock();
            if inner.is_over { BTreeMap::new() } else { inner.keys.clone() }
        };
        for (key, wanted) in open {
            if wanted.is_done {
                link.in_time(self.restore(link, lease, &key, wanted.goal)).await?;
                continue;
            }
            let write = self.write(link, lease, &key, wanted.goal.clone());
            link.in_time(write).await?;
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

    async fn grant(&self, link: &Link) -> Result<i64, DirectoryError> {
        let seconds = i64::try_from(self.time.as_secs()).unwrap_or(i64::MAX).max(1);
        let grant = async {
            let granted = link.client.lease_client().grant(seconds, None).await;
            granted.map(|granted| granted.id()).map_err(|error| link.error(error))
        };
        let lease = link.in_time(grant).await?;
        self.lock().lease = Some(lease);
        Ok(lease)
    }

    /// Writes a key again if somebody has removed it, has written it and is gone, or has written it
    /// by hand. A process writes with its lease.
    async fn restore(&self, link: &Link, lease: i64, key: &str, goal: Goal) -> Result<(), DirectoryError> {
        let Goal::Text(text) = goal else { return Ok(()) };
        let put = link.put(key, text, Some(lease));
        // Also of a key that is not there.
        let is_nobodys = Compare::lease(link.key(key), CompareOp::Equal, 0);
        let done = link.transact(vec![is_nobodys], vec![put]).await;
        done.map(|_| ()).map_err(|error| self.look_at(link, error))
    }

    /// Writes or removes a key.
    async fn write(&self, link: &Link, lease: i64, key: &str, goal: Goal) -> Result<(), DirectoryError> {
        let (condition, operation) = match goal {
            Goal::Text(text) => (None, link.put(key, text, Some(lease))),
            Goal::Nothing => {
                let is_own = Compare::lease(link.key(key), CompareOp::Equal, lease);
                (Some(is_own), TxnOp::delete(link.key(key), None))
            }
            Goal::NothingOver(revision) => {
                (Some(link.has_revision(key, revision)), TxnOp::delete(link.key(key), None))
            }
        };
        let done = link.transact(condition.into_iter().collect(), vec![operation]).await;
        done.map(|_| ()).map_err(|error| self.look_at(link, error))
    }
}
