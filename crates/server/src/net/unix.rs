//! The file of the Unix socket: created with its permissions in place of a dead server's, removed
//! at the end. A running server's socket and other files are left alone.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
};

use super::error::ListenError;

/// The file of a socket; removed on drop, unless another server has replaced it.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

/// Listens at `path`. The file appears complete: already listening, with permissions `mode`.
pub(super) fn listen(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), ListenError> {
    check_replaceable(path)?;
    let failed = |source| ListenError::Unix { path: path.to_path_buf(), source };
    let mut name = path.as_os_str().to_os_string();
    name.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(name);
    // A crashed process with this process id may have left one.
    let _ = fs::remove_file(&temporary);
    let listener = UnixListener::bind(&temporary).map_err(failed)?;
    let installed = install(&listener, &temporary, path, mode);
    if installed.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    installed.map(|file| (listener, file)).map_err(failed)
}

fn install(listener: &UnixListener, temporary: &Path, path: &Path, mode: u32) -> io::Result<SocketFile> {
    listener.set_nonblocking(true)?;
    fs::set_permissions(temporary, fs::Permissions::from_mode(mode))?;
    fs::rename(temporary, path)?;
    Ok(SocketFile { path: path.to_path_buf(), inode: fs::symlink_metadata(path)?.ino() })
}

/// Fails if `path` exists and must not be replaced.
fn check_replaceable(path: &Path) -> Result<(), ListenError> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(ListenError::Unix { path: path.to_path_buf(), source }),
    };
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NotASocket { path: path.to_path_buf() });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => Err(ListenError::UnixInUse { path: path.to_path_buf() }),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dead_socket_is_replaced() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let (_listener, file) = listen(&path, 0o700).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o700);
        assert!(matches!(listen(&path, 0o700), Err(ListenError::UnixInUse { .. })));
        drop(file);
        assert!(!path.exists());

        fs::write(&path, b"someone's data").unwrap();
        assert!(matches!(listen(&path, 0o700), Err(ListenError::NotASocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"someone's data");
    }

    #[test]
    fn replaced_socket_is_not_removed() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("socket");
        let (_listener, file) = listen(&path, 0o700).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        let other = fs::symlink_metadata(&path).unwrap().ino();
        if other != file.inode {
            drop(file);
            assert!(path.exists());
        }
    }
}
