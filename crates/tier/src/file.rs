//! Handles of files.

use crate::inode::Inode;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use terrace_medium::MappedMedium;
use terrace_medium::files::{Purpose, StoredFile};

/// An open file of a pool.
pub struct PoolFile<M: MappedMedium> {
    pub(crate) inode: Arc<Inode<M>>,
    pub(crate) purpose: Purpose,
}

impl<M: MappedMedium> PoolFile<M> {
    fn check_writable(&self) -> io::Result<()> {
        match self.purpose {
            Purpose::Write => Ok(()),
            _ => Err(io::Error::new(ErrorKind::PermissionDenied, "the file is open for reading only")),
        }
    }
}

impl<M: MappedMedium> StoredFile for PoolFile<M> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.inode.read_at(buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.check_writable()?;
        self.inode.write_at(bytes, at)?;
        Ok(bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.inode.sync();
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn may_wait(&self) -> bool {
        false
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.inode.length())
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.check_writable()?;
        self.inode.set_length(bytes)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.check_writable()?;
        if bytes > self.inode.length() { self.inode.set_length(bytes) } else { Ok(()) }
    }
}

/// Reads a file from its beginning on.
pub(crate) struct Stream<M: MappedMedium>(pub(crate) PoolFile<M>, pub(crate) u64);

impl<M: MappedMedium> Read for Stream<M> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read_at(buffer, self.1)?;
        self.1 += read as u64;
        Ok(read)
    }
}
