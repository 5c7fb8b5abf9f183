//! The directory of a cluster: etcd, and how a command finds it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use terrace_cluster::directory::{
    Directory, DirectoryError, State,
    etcd::{EtcdDirectory, Options, User},
};

use super::secret::check_private;
use crate::{clock, failure::Failure, password::password_in};

/// How a command finds the directory of a cluster.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// Hosts and ports of etcd's nodes, separated by commas
    #[arg(long, value_name = "ENDPOINTS", default_value = "127.0.0.1:2379")]
    pub(crate) etcd: String,
    /// The cluster's name
    #[arg(long, value_name = "NAME", default_value = "terrace")]
    pub(crate) cluster: String,
    /// File of the certificates that sign those of etcd: it is asked by https
    #[arg(long, value_name = "PATH")]
    pub(crate) etcd_ca: Option<PathBuf>,
    /// File of the certificate that etcd is shown, if it asks for one
    #[arg(long, value_name = "PATH", requires = "etcd_key")]
    pub(crate) etcd_cert: Option<PathBuf>,
    /// File of that certificate's private key
    #[arg(long, value_name = "PATH", requires = "etcd_cert")]
    pub(crate) etcd_key: Option<PathBuf>,
    /// User of etcd, if it has users
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    pub(crate) etcd_user: Option<String>,
    /// File whose first line is the password of that user
    #[arg(long, value_name = "PATH", requires = "etcd_user")]
    pub(crate) etcd_password_file: Option<PathBuf>,
}

impl Place {
    /// The directory. It need not answer yet.
    pub(crate) fn directory(&self) -> Result<EtcdDirectory, Failure> {
        if let Some(key) = &self.etcd_key {
            check_private(key, "speak to etcd as this node does")?;
        }
        let user = self.etcd_user.clone().zip(self.etcd_password_file.as_deref());
        let user = user.map(|(name, file)| password_in(file).map(|password| User { name, password }));
        let options = Options {
            ca: self.etcd_ca.clone(),
            identity: self.etcd_cert.clone().zip(self.etcd_key.clone()),
            user: user.transpose()?,
            ..Options::new(&self.etcd, &self.cluster)
        };
        EtcdDirectory::connect(&options).map_err(|error| match error {
            DirectoryError::Settings(why) => Failure::usage(why),
            error => Failure::new(error),
        })
    }
}

/// The directory, and what it says, once it answers.
pub(super) fn reach(place: &Place) -> Result<(Arc<dyn Directory>, State), Failure> {
    let directory = Arc::new(place.directory()?);
    loop {
        // The directory has logged an error.
        match directory.read() {
            Ok(state) => return Ok((directory, state)),
            Err(_) => clock::pause(Duration::from_secs(1)),
        }
    }
}
