//! Whether a pool is that of the cluster, and no other memory node serves it.

use std::{path::Path, time::Duration};

use signal_hook::{consts::SIGHUP, iterator::Signals};
use terrace_cluster::directory::{Directory, DirectoryError, Memory};

use super::{identity, options::NodeOptions, place::Place};
use crate::{clock, failure::Failure};

const PAUSE: Duration = Duration::from_millis(200);
/// After so many pauses, what a memory node that has died had in the directory is gone.
const PAUSES: u32 = 60;

/// Waits until the directory agrees that the pool is the cluster's. If it is away, a pool that was
/// the cluster's before is taken at once. `false`: a signal asks for the end.
pub(super) fn agree(
    directory: &dyn Directory,
    (pool, id): (&Path, &str),
    options: &NodeOptions,
    was_before: bool,
    signals: &mut Signals,
) -> Result<bool, Failure> {
    let mut claim = Claim { directory, pool, id, options, file: identity::of_file(pool), pauses: 0 };
    loop {
        let is_settled = match claim.look() {
            Ok((theirs, rival)) => claim.is_settled(&theirs, rival)?,
            Err(DirectoryError::Away { .. }) if was_before => {
                log::warn!(
                    "starts without etcd: the pool was that of cluster {} before. Serving nodes look \
                     for the memory node where it was",
                    options.place.cluster
                );
                true
            }
            // The directory has logged an error.
            Err(_) => false,
        };
        if is_settled {
            return Ok(true);
        }
        if signals.pending().any(|signal| signal != SIGHUP) {
            log::info!("shutting down: etcd has not answered yet, and nothing was opened");
            return Ok(false);
        }
        clock::pause(PAUSE);
    }
}

/// A pool that is to be the cluster's.
struct Claim<'a> {
    directory: &'a dyn Directory,
    pool: &'a Path,
    id: &'a str,
    options: &'a NodeOptions,
    /// The pool's file, as the directory names it.
    file: String,
    /// Pauses in which another memory node may have died.
    pauses: u32,
}

/// A memory node on another pool, and whether it has a lease in the directory.
type Rival = Option<(Memory, bool)>;

impl Claim<'_> {
    /// The id of the cluster in the directory, which is the pool's if it had none.
    fn look(&self) -> Result<(String, Rival), DirectoryError> {
        let theirs = self.directory.identify(self.id)?;
        let state = self.directory.read()?;
        let rival = state.memory.filter(|memory| memory.is_rival_of(&self.file));
        Ok((theirs, rival.map(|memory| (memory, state.memory_is_kept))))
    }

    /// Whether the pool is the cluster's, and nothing is left to wait for.
    fn is_settled(&mut self, theirs: &str, rival: Rival) -> Result<bool, Failure> {
        debug_assert!(self.pauses <= PAUSES, "the wait for a rival has an end");
        let cluster = &self.options.place.cluster;
        match rival {
            _ if theirs != self.id => Err(of_another_cluster((self.pool, self.id), theirs, self.options)),
            None => Ok(true),
            Some((other, false)) => {
                log::error!(
                    "etcd names a memory node of cluster {cluster} at {}, on another pool, and no memory node has written \
                     that: its key has no lease. This memory node goes on, and writes its own entry",
                    other.address
                );
                Ok(true)
            }
            Some((other, true)) if self.pauses == PAUSES => {
                Err(beside_another(self.pool, &other, self.options))
            }
            Some((other, true)) => {
                if self.pauses == 0 {
                    log::warn!(
                        "waits {} s at most: etcd names a memory node of cluster {cluster} at {}, on another pool. If \
                         that one is dead, its entry ends with its lease in etcd, which has 10 s",
                        (PAUSE * PAUSES).as_secs(),
                        other.address
                    );
                }
                self.pauses += 1;
                Ok(false)
            }
        }
    }
}

/// The pool is of another cluster, or the cluster is of another pool.
fn of_another_cluster((pool, id): (&Path, &str), theirs: &str, options: &NodeOptions) -> Failure {
    let Place { etcd, cluster, .. } = &options.place;
    let failure = Failure::new(format!(
        "the pool {} is not that of the cluster {cluster} in etcd at {etcd}: its cluster has the id {id}, and not {theirs}",
        pool.display(),
    ));
    failure.hint("for another cluster: give it another name with --cluster".to_owned()).hint(format!(
        "if the pool of {cluster} is gone, and this one shall take its place: \
             ETCDCTL_API=3 etcdctl --endpoints {etcd} del --prefix /terrace/{cluster}/"
    ))
}

/// Another memory node serves the cluster, on another pool.
pub(super) fn beside_another(pool: &Path, other: &Memory, options: &NodeOptions) -> Failure {
    let Place { etcd, cluster, .. } = &options.place;
    let failure = Failure::new(format!(
        "the cluster {cluster} in etcd at {etcd} has a memory node at {}, and its pool is not {}: two of them would \
         give clients different data",
        other.address,
        pool.display(),
    ));
    failure
        .hint(
            "if this pool shall take its place: stop that memory node first, and start this one then"
                .to_owned(),
        )
        .hint(format!(
            "if no memory node is there, and the entry stays: ETCDCTL_API=3 etcdctl --endpoints {etcd} del \
             /terrace/{cluster}/memory"
        ))
}
