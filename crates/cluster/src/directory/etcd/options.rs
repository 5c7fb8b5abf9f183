//! How a directory in etcd is reached.

use std::path::PathBuf;
use std::time::Duration;

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

/// A user of etcd.
#[derive(Clone)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for User {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "User({:?})", self.name)
    }
}
