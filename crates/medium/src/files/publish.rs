//! New files that appear whole or not at all.

use super::{Files, Replace, StoredFile, directory_of};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A new file that nobody sees before it is published, and of which nothing stays if it is not.
pub struct Unpublished<F: Files> {
    files: F,
    file: F::File,
    path: PathBuf,
    /// Its name until then, on file systems that have no files without one.
    temporary: Option<PathBuf>,
}

impl<F: Files> Unpublished<F> {
    /// Makes an empty file that can be published as `path`. `unique` is a number that nobody else has, for a temporary name.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken already, and what the file system says.
    pub fn new(files: &F, path: &Path, unique: u64) -> io::Result<Self> {
        if files.is_taken(path)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        match files.create_unnamed(directory_of(path))? {
            Some(file) => Ok(Self { files: files.clone(), file, path: path.into(), temporary: None }),
            None => Self::named(files, path, unique),
        }
    }

    /// As [`Unpublished::new`], under a temporary name beside `path`.
    ///
    /// # Errors
    /// As there.
    pub fn named(files: &F, path: &Path, unique: u64) -> io::Result<Self> {
        let Some(name) = path.file_name() else { return Err(io::ErrorKind::IsADirectory.into()) };
        let temporary = path.with_file_name(format!(".{}.{unique:016x}.new", name.to_string_lossy()));
        let file = files.create(&temporary)?;
        Ok(Self { files: files.clone(), file, path: path.into(), temporary: Some(temporary) })
    }

    /// The file.
    pub fn file(&self) -> &F::File {
        &self.file
    }

    /// Writes to its end.
    pub fn appending(&self) -> Appending<'_, F::File> {
        Appending { file: &self.file, at: 0 }
    }

    /// Gives the file, with what was written to it, its name, for good.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken by now, and what the file system says. The name may be there all the same if it was its directory that
    /// could not be synced: then the file is whole, but a loss of power may take it.
    pub fn publish(mut self) -> io::Result<()> {
        // What it holds must be kept before anything can find it: a crash in between leaves a file without its name, or nothing.
        self.file.sync()?;
        match &self.temporary {
            None => self.files.name(&self.file, &self.path),
            Some(temporary) => self.files.rename(temporary, &self.path, Replace::No),
        }?;
        self.temporary = None;
        self.files.sync_directory(directory_of(&self.path))
    }
}

impl<F: Files> Drop for Unpublished<F> {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = self.files.remove(temporary);
        }
    }
}

/// Writes to a file, from its beginning on.
pub struct Appending<'a, F> {
    file: &'a F,
    at: u64,
}

impl<F: StoredFile> Write for Appending<'_, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(bytes, self.at)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
