//! New files that appear complete or not at all.

use super::{Files, Replace, StoredFile, directory_of};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A new file that is invisible until it is published. If it is not published, nothing of it stays.
pub struct Unpublished<'f> {
    files: &'f dyn Files,
    file: Box<dyn StoredFile>,
    path: PathBuf,
    /// Its name until then, on a file system that needs one.
    temporary: Option<PathBuf>,
}

impl<'f> Unpublished<'f> {
    /// Creates an empty file that can be published as `path`. `unique` is a number that no other
    /// caller has, for a temporary name.
    ///
    /// # Errors
    /// `AlreadyExists` if `path` exists, and errors of the file system.
    pub fn new(files: &'f dyn Files, path: &Path, unique: u64) -> io::Result<Self> {
        if files.is_taken(path)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match files.create_unnamed(directory_of(path))? {
            Some(file) => Ok(Self { files, file, path: path.into(), temporary: None }),
            None => Self::named(files, path, unique),
        }
    }

    /// As [`Unpublished::new`], under a temporary name beside `path`.
    ///
    /// # Errors
    /// As [`Unpublished::new`].
    pub fn named(files: &'f dyn Files, path: &Path, unique: u64) -> io::Result<Self> {
        let Some(name) = path.file_name() else { return Err(io::ErrorKind::IsADirectory.into()) };
        let temporary = path.with_file_name(format!(".{}.{unique:016x}.new", name.to_string_lossy()));
        let file = files.create(&temporary)?;
        Ok(Self { files, file, path: path.into(), temporary: Some(temporary) })
    }

    /// The file.
    pub fn file(&self) -> &dyn StoredFile {
        &*self.file
    }

    /// A writer that appends to the file, from its beginning on.
    pub fn appender(&self) -> Appender<'_> {
        Appender { file: &*self.file, at: 0 }
    }

    /// Gives the file its name, durably.
    ///
    /// # Errors
    /// `AlreadyExists` if the name exists by now, and errors of the file system. If only syncing
    /// the directory failed, the name may exist all the same: the file is complete, but a power
    /// loss may remove it.
    pub fn publish(mut self) -> io::Result<()> {
        // The content must be durable before the name exists. A crash in between leaves a file
        // without its name, or nothing.
        self.file.sync()?;
        match &self.temporary {
            None => self.files.name(&*self.file, &self.path),
            Some(temporary) => self.files.rename(temporary, &self.path, Replace::No),
        }?;
        self.temporary = None;
        self.files.sync_directory(directory_of(&self.path))
    }
}

impl Drop for Unpublished<'_> {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = self.files.remove(temporary);
        }
    }
}

/// A writer to a file, from its beginning on.
pub struct Appender<'a> {
    file: &'a dyn StoredFile,
    at: u64,
}

impl Write for Appender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(bytes, self.at)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
