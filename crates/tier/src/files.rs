//! The files of a pool.

use crate::file::{PoolFile, Stream};
use crate::inode::Inode;
use crate::names::{self, Key, Names, Node, TOP};
use std::any::Any;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_medium::MappedMedium;
use terrace_medium::files::{FileLock, Files, Purpose, Replace, StoredFile};
use terrace_pool::{Guard, Pool};

/// Times that the pool is asked for what was removed: an epoch has to pass twice.
const RECLAIMS: usize = 4;

/// The files in a pool, below a path. Clones refer to the same files.
///
/// ```
/// use std::path::Path;
/// use terrace_medium::Dram;
/// use terrace_medium::files::{Files, StoredFile};
/// use terrace_pool::Pool;
/// use terrace_tier::PoolFiles;
///
/// let pool = Pool::<Dram>::anonymous(1 << 20)?;
/// let files = PoolFiles::create(pool, Path::new("/tier"))?;
/// let file = files.create(Path::new("/tier/log"))?;
/// file.write_all_at(b"hello", 0)?;
/// file.sync()?;
/// assert_eq!(files.list(Path::new("/tier"))?, ["log"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PoolFiles<M: MappedMedium>(Arc<Shared<M>>);

struct Shared<M: MappedMedium> {
    /// Dropped before the pool's last handle.
    names: Mutex<Names<M>>,
    /// Files that are locked.
    locked: Mutex<BTreeSet<u64>>,
    pool: Pool<M>,
    top: PathBuf,
}

/// A lock on a file of a pool.
pub struct PoolLock<M: MappedMedium> {
    files: PoolFiles<M>,
    inode: Arc<Inode<M>>,
}

impl<M: MappedMedium> Drop for PoolLock<M> {
    fn drop(&mut self) {
        self.files.locked().remove(&self.inode.at);
    }
}

impl<M: MappedMedium> Clone for PoolFiles<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M: MappedMedium> PoolFiles<M> {
    /// Makes a pool have files, whose paths begin with `top`.
    ///
    /// # Errors
    /// It has some, or no room.
    pub fn create(pool: Pool<M>, top: &Path) -> io::Result<Self> {
        check_exclusive(&pool)?;
        if names::are_in(&pool)? {
            return Err(ErrorKind::AlreadyExists.into());
        }
        Names::create(&pool)?;
        Self::with(pool, top)
    }

    /// The files of a pool; `None` if it has none, not even a place for names. Takes back what a
    /// crash has left that no name leads to.
    ///
    /// # Errors
    /// The names are damaged, or others may have the pool open.
    pub fn open(pool: Pool<M>, top: &Path) -> io::Result<Option<Self>> {
        let is_there = names::are_in(&pool)?;
        is_there.then(|| Self::with(pool, top)).transpose()
    }

    fn with(pool: Pool<M>, top: &Path) -> io::Result<Self> {
        check_exclusive(&pool)?;
        let names = Names::load(&pool)?;
        if pool.needs_collection() && !pool.is_read_only() {
            // Extents are large, so this takes little time.
            pool.collect(&mut |marker| names.each_block(&mut |at, bytes| marker.mark(at, bytes)));
        }
        let (names, locked) = (Mutex::new(names), Mutex::default());
        Ok(Self(Arc::new(Shared { names, locked, pool, top: top.into() })))
    }

    /// The pool.
    pub fn pool(&self) -> &Pool<M> {
        &self.0.pool
    }

    /// The offset of each block that names and files consist of, and the bytes that the allocator
    /// gave for it. For tests.
    #[doc(hidden)]
    pub fn reachable(&self) -> Vec<(u64, u64)> {
        let names = self.names();
        self.pool().reachable(&mut |marker| names.each_block(&mut |at, bytes| marker.mark(at, bytes)))
    }

    fn names(&self) -> MutexGuard<'_, Names<M>> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn locked(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A guard of the pool, for a change.
    fn pin_to_change(&self) -> io::Result<Guard<'_, M>> {
        if self.pool().is_read_only() {
            return Err(ErrorKind::ReadOnlyFilesystem.into());
        }
        self.pool().try_pin().map_err(io::Error::other)
    }

    /// The directory and the name that a path leads to; `None` for the top.
    fn key(&self, names: &Names<M>, path: &Path) -> io::Result<Option<Key>> {
        let outside = || io::Error::new(ErrorKind::NotFound, "the path lies outside of the pool");
        let below = path.strip_prefix(&self.0.top).map_err(|_| outside())?;
        let mut key: Option<Key> = None;
        for component in below.components() {
            let Component::Normal(name) = component else { continue };
            let parent = match key {
                None => TOP,
                Some(key) => match names.find(&key).ok_or(ErrorKind::NotFound)? {
                    Node::Directory(number) => number,
                    Node::File(_) => return Err(ErrorKind::NotADirectory.into()),
                },
            };
            key = Some((parent, name.into()));
        }
        Ok(key)
    }

    /// The directory and the name of a path that has none yet.
    fn free_key(&self, names: &Names<M>, path: &Path) -> io::Result<Key> {
        let key = self.key(names, path)?.filter(|key| names.find(key).is_none());
        key.ok_or(ErrorKind::AlreadyExists.into())
    }

    /// What a path leads to.
    fn node(&self, names: &Names<M>, path: &Path) -> io::Result<Node<M>> {
        match self.key(names, path)? {
            None => Ok(Node::Directory(TOP)),
            Some(key) => names.find(&key).ok_or(ErrorKind::NotFound.into()),
        }
    }

    fn inode(&self, path: &Path) -> io::Result<Arc<Inode<M>>> {
        match self.node(&self.names(), path)? {
            Node::File(inode) => Ok(inode),
            Node::Directory(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    fn directory(&self, names: &Names<M>, path: &Path) -> io::Result<u64> {
        match self.node(names, path)? {
            Node::Directory(number) => Ok(number),
            Node::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }
}

fn check_exclusive<M: MappedMedium>(pool: &Pool<M>) -> io::Result<()> {
    match pool.is_shared() {
        true => Err(io::Error::new(
            ErrorKind::Unsupported,
            "files of a pool cannot be shared with other processes",
        )),
        false => Ok(()),
    }
}

/// Checks that what has one name may take the place of what has another.
fn check_replaceable<M: MappedMedium>(names: &Names<M>, new: &Node<M>, old: &Node<M>) -> io::Result<()> {
    match (new, old) {
        (Node::File(_), Node::File(_)) => Ok(()),
        (Node::File(_), Node::Directory(_)) => Err(ErrorKind::IsADirectory.into()),
        (Node::Directory(_), Node::File(_)) => Err(ErrorKind::NotADirectory.into()),
        (Node::Directory(_), Node::Directory(number)) => match names.list(*number).next() {
            Some(_) => Err(ErrorKind::DirectoryNotEmpty.into()),
            None => Ok(()),
        },
    }
}

fn is_same<M: MappedMedium>(one: &Node<M>, other: &Node<M>) -> bool {
    match (one, other) {
        (Node::File(one), Node::File(other)) => one.at == other.at,
        (Node::Directory(one), Node::Directory(other)) => one == other,
        _ => false,
    }
}

impl<M: MappedMedium> From<PoolFiles<M>> for Arc<dyn Files> {
    fn from(files: PoolFiles<M>) -> Self {
        Arc::new(files)
    }
}

impl<M: MappedMedium> Files for PoolFiles<M> {
    fn create(&self, path: &Path) -> io::Result<Box<dyn StoredFile>> {
        let guard = self.pin_to_change()?;
        let mut names = self.names();
        let key = self.free_key(&names, path)?;
        let inode = Arc::new(Inode::create(self.pool(), &guard)?);
        names.add(&guard, key, Node::File(Arc::clone(&inode)))?;
        Ok(Box::new(PoolFile { inode, purpose: Purpose::Write }))
    }

    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<Box<dyn StoredFile>>> {
        self.directory(&self.names(), directory).map(|_| None)
    }

    fn name(&self, file: &dyn StoredFile, path: &Path) -> io::Result<()> {
        let file = (file as &dyn Any).downcast_ref::<PoolFile<M>>().expect("a file of this pool");
        let guard = self.pin_to_change()?;
        let mut names = self.names();
        let key = self.free_key(&names, path)?;
        names.add(&guard, key, Node::File(Arc::clone(&file.inode)))
    }

    fn open(&self, path: &Path, purpose: Purpose) -> io::Result<Box<dyn StoredFile>> {
        if purpose == Purpose::Write && self.pool().is_read_only() {
            return Err(ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(Box::new(PoolFile { inode: self.inode(path)?, purpose }))
    }

    fn stream(&self, path: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)> {
        let file = PoolFile { inode: self.inode(path)?, purpose: Purpose::Read };
        let length = file.inode.length();
        Ok((Box::new(Stream(file, 0)), Some(length)))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let guard = self.pin_to_change()?;
        let mut names = self.names();
        let key = self.free_key(&names, path)?;
        let number = names.new_directory();
        names.add(&guard, key, Node::Directory(number))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let _guard = self.pin_to_change()?;
        let mut names = self.names();
        let number = self.directory(&names, path)?;
        if names.list(number).next().is_some() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        let key = self.key(&names, path)?.ok_or(ErrorKind::ResourceBusy)?;
        names.remove(&key);
        Ok(())
    }

    fn is_directory(&self, path: &Path) -> io::Result<bool> {
        Ok(matches!(self.node(&self.names(), path), Ok(Node::Directory(_))))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let guard = self.pin_to_change()?;
        let inode = self.inode(from)?;
        let mut names = self.names();
        let key = self.free_key(&names, to)?;
        names.add(&guard, key, Node::File(inode))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<FileLock>> {
        let inode = self.inode(path)?;
        // Another process cannot have the pool open.
        let is_free = self.locked().insert(inode.at);
        Ok(is_free.then(|| Box::new(PoolLock { files: self.clone(), inode }) as FileLock))
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.directory(&self.names(), directory)?;
        // What was removed is free once no reader can see it. In a full pool nothing else asks.
        for _ in 0..RECLAIMS {
            if self.pool().waiting_bytes() == 0 {
                break;
            }
            self.pool().reclaim_nonblocking();
        }
        let space = self.pool().space();
        // A file may consist of small blocks.
        Ok(space.free + space.slab_free)
    }

    fn rename(&self, from: &Path, to: &Path, replace: Replace) -> io::Result<()> {
        let guard = self.pin_to_change()?;
        let mut names = self.names();
        let node = self.node(&names, from)?;
        if to != from && to.starts_with(from) {
            return Err(ErrorKind::InvalidInput.into());
        }
        let busy = || io::Error::from(ErrorKind::ResourceBusy);
        let keys = (self.key(&names, from)?.ok_or_else(busy)?, self.key(&names, to)?.ok_or_else(busy)?);
        match names.find(&keys.1) {
            Some(_) if replace == Replace::No => return Err(ErrorKind::AlreadyExists.into()),
            Some(other) if is_same(&node, &other) => return Ok(()),
            Some(other) => check_replaceable(&names, &node, &other)?,
            None => {}
        }
        let replaced = names.rename(&guard, &keys.0, keys.1)?;
        drop(names);
        drop(replaced);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let _guard = self.pin_to_change()?;
        let mut names = self.names();
        let node = self.node(&names, path)?;
        let (Node::File(_), Some(key)) = (&node, self.key(&names, path)?) else {
            return Err(ErrorKind::IsADirectory.into());
        };
        names.remove(&key);
        // The last handle may end here: without the lock.
        drop(names);
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        let names = self.names();
        let number = self.directory(&names, directory)?;
        Ok(names.list(number).cloned().collect())
    }

    fn is_taken(&self, path: &Path) -> io::Result<bool> {
        Ok(self.node(&self.names(), path).is_ok())
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        // Each change of names is durable when its call returns.
        Ok(())
    }

    fn boot(&self) -> Option<u64> {
        // What a crash of the machine leaves is the pool's matter.
        None
    }

    fn identify(&self, _: &Path) -> io::Result<Option<(u64, u64)>> {
        Ok(None)
    }

    fn outlasts_power(&self) -> bool {
        M::VOLATILE_CACHE
    }

    fn post_notice(&self, text: &str) -> bool {
        self.pool().post_notice(text)
    }

    fn check(&self) -> Vec<String> {
        let head = self.pool().verify_superblock_and_roots().into_iter();
        head.map(|finding| finding.to_string()).chain(self.names().verify()).collect()
    }
}
