//! The directory in etcd.
//!
//! The client is asynchronous: it runs in a thread of its own. Callers wait for it with a deadline.
//! What a process keeps in etcd has one lease, which `keeping` renews.

mod keeping;

use super::{
    Change, Claim, Directory, DirectoryError, Entries, Kept, OnChange, Revision, State, Watch, prefix,
};
use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, PutOptions, Txn, TxnOp, WatchOptions,
};
use keeping::{Goal, Keeping};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long to wait after one that failed.
const PAUSE: Duration = Duration::from_millis(200);
/// How often to read without having been told of a change.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How a directory is reached.
#[derive(Clone, Debug)]
pub struct Options {
    /// Hosts and ports of etcd's nodes.
    pub endpoints: Vec<String>,
    /// The name of the cluster.
    pub cluster: String,
    /// How long what this process keeps stays after its death. etcd makes it two seconds at least.
    pub lease: Duration,
}

impl Options {
    /// The directory of a cluster, with leases of 10 s.
    pub fn new(endpoints: &str, cluster: &str) -> Self {
        let endpoints = endpoints.split(',').map(|endpoint| endpoint.trim().to_owned()).collect();
        Self { endpoints, cluster: cluster.into(), lease: Duration::from_secs(10) }
    }
}

/// A process's directory in etcd. What it keeps there goes when it is dropped.
pub struct EtcdDirectory {
    link: Link,
    keeping: Arc<Keeping>,
    runtime: Handle,
    /// Dropped to end the thread.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The client, and what its errors say.
#[derive(Clone)]
struct Link {
    client: Client,
    prefix: String,
    endpoints: String,
    is_away: Arc<AtomicBool>,
}

impl EtcdDirectory {
    /// Begins to use it. It need not answer yet.
    ///
    /// # Errors
    /// If the cluster's name or an endpoint makes no sense, or a thread cannot be started.
    pub fn connect(options: &Options) -> Result<Self, DirectoryError> {
        let prefix = prefix(&options.cluster)?;
        let endpoints = options.endpoints.join(",");
        let failed = |error: std::io::Error| DirectoryError::Failed(error.to_string());
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let connected = runtime.block_on(Client::connect(&options.endpoints, Some(connect_options())));
        let client = connected.map_err(|error| error_of(&endpoints, error))?;
        let link = Link { client, prefix, endpoints, is_away: Arc::default() };
        let (handle, (end, ended)) = (runtime.handle().clone(), oneshot::channel::<()>());
        let keeping = Keeping::start(&handle, link.clone(), options.lease);
        // An error says that the sender was dropped: that is the signal.
        let run = move || _ = runtime.block_on(ended);
        let thread = thread::Builder::new().name("etcd".into()).spawn(run).map_err(failed)?;
        Ok(Self { link, keeping, runtime: handle, end: Some(end), thread: Some(thread) })
    }

    /// Runs a request in the client's thread.
    fn call<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, DirectoryError>> + Send + 'static,
    ) -> Result<T, DirectoryError> {
        let (give, take) = mpsc::channel();
        let link = self.link.clone();
        // Nobody takes it if the caller is gone.
        self.runtime.spawn(async move { _ = give.send(link.in_time(request).await) });
        take.recv().unwrap_or_else(|_| Err(DirectoryError::Failed("its thread has ended".into())))
    }
}

fn connect_options() -> ConnectOptions {
    ConnectOptions::new()
        .with_connect_timeout(PATIENCE)
        .with_keep_alive(Duration::from_secs(2), PATIENCE)
        .with_keep_alive_while_idle(true)
        // A member of etcd that is cut off from the others says so, and does not tell old news.
        .with_require_leader(true)
}

fn error_of(endpoints: &str, error: Error) -> DirectoryError {
    // gRPC: CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, UNAVAILABLE.
    const PASSING: [i32; 4] = [1, 2, 4, 14];
    let endpoints = endpoints.to_owned();
    match error {
        Error::GRpcStatus(status) if !PASSING.contains(&(status.code() as i32)) => {
            DirectoryError::Refused { endpoints, why: status.message().into() }
        }
        Error::GRpcStatus(status) => DirectoryError::Away { endpoints, why: status.message().into() },
        Error::LeaseKeepAliveError(why) => DirectoryError::Refused { endpoints, why },
        Error::InvalidArgs(why) => DirectoryError::Failed(format!("{endpoints}: {why}")),
        Error::InvalidUri(why) => DirectoryError::Failed(format!("{endpoints} is no address: {why}")),
        other => DirectoryError::Away { endpoints, why: other.to_string() },
    }
}

impl Link {
    /// The outcome of a request, or an error after a while. Notes whether etcd answers.
    async fn in_time<T>(
        &self,
        request: impl Future<Output = Result<T, DirectoryError>>,
    ) -> Result<T, DirectoryError> {
        let outcome = timeout(PATIENCE, request).await.unwrap_or_else(|_| {
            let why = format!("no answer within {} s", PATIENCE.as_secs());
            Err(DirectoryError::Away { endpoints: self.endpoints.clone(), why })
        });
        self.note(outcome.as_ref().err());
        outcome
    }

    /// Logs when etcd goes away, and when it comes back.
    fn note(&self, error: Option<&DirectoryError>) {
        // ORDER: Relaxed: it says only which line was logged last.
        match (error, self.is_away.swap(error.is_some(), Ordering::Relaxed)) {
            (Some(error), false) => log::warn!("{error}; serving goes on, changes of the cluster wait"),
            (None, true) => log::info!("etcd at {} answers again", self.endpoints),
            _ => {}
        }
    }

    fn error(&self, error: Error) -> DirectoryError {
        error_of(&self.endpoints, error)
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    async fn read(&self) -> Result<(Revision, Entries), DirectoryError> {
        let mut kv = self.client.kv_client();
        let all = GetOptions::new().with_prefix();
        let mut read = kv.get(self.prefix.as_str(), Some(all)).await.map_err(|error| self.error(error))?;
        let revision = read.header().map_or(0, |header| header.revision());
        let entries = read.take_kvs().into_iter().map(|kv| {
            let key = String::from_utf8_lossy(kv.key()).into_owned();
            let text = String::from_utf8_lossy(kv.value()).into_owned();
            let key = key.strip_prefix(&self.prefix).unwrap_or_default().to_owned();
            (key, (text, kv.mod_revision().unsigned_abs()))
        });
        Ok((revision.unsigned_abs(), entries.collect()))
    }

    /// A transaction; its revision if the conditions held.
    async fn transact(
        &self,
        conditions: Vec<Compare>,
        operations: Vec<TxnOp>,
    ) -> Result<Option<Revision>, Error> {
        let txn = Txn::new().when(conditions).and_then(operations);
        let done = self.client.kv_client().txn(txn).await?;
        let revision = done.header().map_or(0, |header| header.revision().unsigned_abs());
        Ok(done.succeeded().then_some(revision))
    }

    fn has_revision(&self, key: &str, revision: Revision) -> Compare {
        let revision = i64::try_from(revision).unwrap_or(i64::MAX);
        Compare::mod_revision(self.key(key), CompareOp::Equal, revision)
    }

    fn put(&self, key: &str, value: String, lease: Option<i64>) -> TxnOp {
        let options = lease.map(|lease| PutOptions::new().with_lease(lease));
        TxnOp::put(self.key(key), value, options)
    }

    /// Sends each new state, until it is dropped.
    async fn watch(self, states: mpsc::Sender<State>) {
        let mut seen = None;
        loop {
            let Err(error) = self.watch_once(&states, &mut seen).await else { return };
            self.note(Some(&error));
            sleep(PAUSE).await;
        }
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

    /// Reads, and reads again after each change. Ends with an error, or if nobody listens.
    async fn watch_once(
        &self,
        states: &mpsc::Sender<State>,
        seen: &mut Option<Seen>,
    ) -> Result<(), DirectoryError> {
        let options = WatchOptions::new().with_prefix();
        // Before the first read: no change between the two is missed.
        let mut client = self.client.watch_client();
        let watching = async {
            let watching = client.watch(self.prefix.as_str(), Some(options)).await;
            watching.map_err(|error| self.error(error))
        };
        let mut stream = self.in_time(watching).await?;
        loop {
            let (revision, entries) = self.in_time(self.read()).await?;
            if seen.as_ref().is_none_or(|seen| seen.entries != entries) {
                let state = self.follow(seen.as_ref(), State::read(revision, &entries));
                *seen = Some(Seen { entries, state: state.clone() });
                if states.send(state).is_err() {
                    return Ok(());
                }
            }
            match timeout(LOOK_AGAIN, stream.message()).await {
                // Looks nevertheless: a link may hang without an error.
                Err(_) => {}
                Ok(Ok(Some(heard))) if !heard.canceled() => {}
                Ok(Ok(_)) => return Err(self.error(Error::WatchError("the watch has ended".into()))),
                Ok(Err(error)) => return Err(self.error(error)),
            }
        }
    }
}

/// What a watch has seen.
struct Seen {
    entries: Entries,
    state: State,
}

impl Directory for EtcdDirectory {
    fn read(&self) -> Result<State, DirectoryError> {
        let link = self.link.clone();
        let (revision, entries) = self.call(async move { link.read().await })?;
        Ok(State::read(revision, &entries))
    }

    fn change(
        &self,
        conditions: &[(&str, Revision)],
        changes: &[Change],
    ) -> Result<Option<Revision>, DirectoryError> {
        let link = self.link.clone();
        let conditions = conditions.iter().map(|(key, revision)| link.has_revision(key, *revision)).collect();
        let operation = |change: &Change| match change {
            Change::Put(key, value) => link.put(key, value.clone(), None),
            Change::Delete(key) => TxnOp::delete(link.key(key), None),
        };
        let operations = changes.iter().map(operation).collect();
        self.call(async move {
            let done = link.transact(conditions, operations).await;
            done.map_err(|error| link.error(error))
        })
    }

    fn keep(&self, key: &str, value: String) -> Kept {
        let (keeping, key) = (Arc::clone(&self.keeping), key.to_owned());
        keeping.set(&key, Goal::Text(value));
        Kept(Box::new(move |value| keeping.set(&key, value.map_or(Goal::Nothing, Goal::Text))))
    }

    fn claim(&self, key: &str, value: &str, over: Revision) -> Result<Option<Claim>, DirectoryError> {
        let (link, keeping, name) = (self.link.clone(), Arc::clone(&self.keeping), key.to_owned());
        let value = value.to_owned();
        let claimed = self.call(async move {
            let lease = keeping.lease().await;
            let put = link.put(&name, value, Some(lease));
            let done = link.transact(vec![link.has_revision(&name, over)], vec![put]).await;
            done.map_err(|error| keeping.look_at(&link, error))
        })?;
        let (keeping, key) = (Arc::clone(&self.keeping), key.to_owned());
        Ok(claimed.map(|revision| {
            let drop = move |_| keeping.set(&key, Goal::NothingOver(revision));
            Claim { revision, _kept: Kept(Box::new(drop)) }
        }))
    }

    fn watch(&self, mut on_change: OnChange) -> Watch {
        let (give, states) = mpsc::channel();
        let task = self.runtime.spawn(self.link.clone().watch(give));
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let run = move || {
            while let Ok(mut state) = states.recv() {
                // Only the latest counts.
                states.try_iter().for_each(|later| state = later);
                // ORDER: Acquire: pairs with the end of the watch.
                if ends.load(Ordering::Acquire) {
                    return;
                }
                on_change(state);
            }
        };
        let thread = thread::Builder::new().name("directory".into()).spawn(run).expect("a thread");
        Watch(Some(Box::new(move || {
            // ORDER: Release: no call begins after the watch is dropped.
            is_over.store(true, Ordering::Release);
            task.abort();
            if thread.thread().id() != thread::current().id() {
                // A panic of the callback was told already.
                let _ = thread.join();
            }
        })))
    }
}

impl Drop for EtcdDirectory {
    fn drop(&mut self) {
        let (link, keeping) = (self.link.clone(), Arc::clone(&self.keeping));
        // Whatever remains goes with its lease.
        let _ = self.call(async move { keeping.end(&link).await });
        self.end = None;
        // The thread has nothing to tell.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
