//! The secret that the nodes of a cluster share.

use std::{os::unix::fs::MetadataExt, path::Path};

use terrace_cluster::link::Secret;

use crate::failure::Failure;

/// The secret in the key file.
pub(super) fn secret(path: &Path) -> Result<Secret, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read the key file {}: {error}", path.display())))?;
    if text.trim().len() < 32 {
        let short = format!("the key in {} has fewer than 32 letters", path.display());
        return Err(Failure::new(short).hint("to make one: openssl rand -hex 32 > FILE; chmod 600 FILE"));
    }
    check_private(path, "join the cluster with it")?;
    Ok(Secret::new(&text))
}

/// Refuses a key file that others than its owner can read, and what they could do then.
pub(super) fn check_private(path: &Path, what: &str) -> Result<(), Failure> {
    if std::fs::metadata(path).is_ok_and(|file| file.mode() & 0o077 != 0) {
        let open = format!("others can read the key file {}, and {what}", path.display());
        return Err(Failure::new(open).hint(format!("chmod 600 {}", path.display())));
    }
    Ok(())
}
