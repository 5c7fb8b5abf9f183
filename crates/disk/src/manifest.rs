//! The manifest: a file of edits that add up to what a store consists of.
//!
//! ```text
//!   CURRENT:          MANIFEST-000002 4096 0123456789abcdef
//!   MANIFEST-000002:  | head | edit | edit | ... | edit | mark | edit | mark |
//! ```
//! `CURRENT` names the manifest that counts, and how many bytes of it were synced before; then
//! follows a checksum in hexadecimal. It is replaced by a rename. Edits are framed as the log's
//! records: see `log::record`. An edit is synced before the next one is written, and every header
//! says how far the file was synced. So a bad edit is a torn one, which is dropped, only if nothing
//! behind it is valid.
//!
//! A *mark* is an empty record, written after an edit was synced, but not synced itself. It shows
//! that the edit before it was complete, in case that edit is damaged later.

use crate::codec::checksum;
use crate::log::{Chain, HEAD, HEADER, Head, Header, Owner, Records, payload_sum, read_head, renew, size};
use crate::{DiskError, Ends, ends, list_files};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_medium::files::{Files, Purpose, Replace, StoredFile};

pub(crate) const MAGIC: [u8; 8] = *b"terrmani";
const CURRENT: &str = "CURRENT";
const CURRENT_NEW: &str = "CURRENT.new";
/// Tells manifests from segments of the log with the same number.
const MANIFESTS: u64 = 1 << 63;
/// Bytes of the longest edit.
pub const EDIT_MAX: usize = 64 << 20;
/// Bytes that are written at a time.
const BUFFER: usize = 1 << 20;

/// The manifest of a store, open for writing.
pub struct Manifest {
    files: Arc<dyn Files>,
    directory: PathBuf,
    store: u64,
    /// The number of the file, and the highest that was tried.
    number: u64,
    tried: u64,
    path: PathBuf,
    file: Box<dyn StoredFile>,
    /// Where the next edit goes. Positions are offsets.
    chain: Chain,
    /// The offset up to which the file is synced: the end of the last edit, without its mark.
    durable: u64,
    /// The error after which it is unknown what the manifest says.
    failure: Option<DiskError>,
    /// Where it is noted how long the manifest is.
    ends: Ends,
}

impl Manifest {
    /// Creates a manifest with these edits, which are durable when it returns.
    ///
    /// # Errors
    /// There is one already, or it cannot be written.
    ///
    /// # Panics
    /// As [`Manifest::append`].
    pub fn create(
        files: &Arc<dyn Files>,
        directory: &Path,
        store: u64,
        edits: &[Vec<u8>],
    ) -> Result<Self, DiskError> {
        let current = directory.join(CURRENT);
        if files.is_taken(&current).map_err(DiskError::io("look for", &current))? {
            return Err(DiskError::Occupied { path: directory.into(), name: CURRENT.into() });
        }
        let new = Self::write(files, directory, store, 1, &mut edits.iter().cloned())?;
        // One sync of the directory makes both names durable: without `CURRENT` there is none.
        new.write_current()?;
        new.publish()?;
        Ok(new)
    }

    /// Opens the manifest, hands its edits to `each`, in order, and removes what crashes have left.
    ///
    /// # Errors
    /// There is none; it is damaged, of another store or of a later format; it cannot be read or
    /// written; or `each` failed.
    pub fn open(
        files: &Arc<dyn Files>,
        directory: &Path,
        store: u64,
        each: &mut dyn FnMut(&[u8]) -> Result<(), DiskError>,
    ) -> Result<Self, DiskError> {
        let (number, synced) = read_current(files, directory, store)?;
        let path = path_of(directory, number);
        let file = open_file(files, &path, Purpose::Write)?;
        let (chain, durable) = read_edits(&*file, &path, owner(store, number), synced, each)?;
        // What is torn must be gone before an edit takes its place.
        file.set_length(chain.end).map_err(DiskError::io("cut", &path))?;
        renew(&*file, &path, durable, chain.end)?;
        let manifest = Self::with(files, directory, (store, number), (path, file), chain);
        // The name may not be durable either, if the sync of an earlier rewrite has failed.
        match manifest.write_current() {
            Err(DiskError::Full { .. }) => {}
            written => written.and_then(|()| manifest.publish())?,
        }
        remove_leftovers(files, directory, number)?;
        Ok(manifest)
    }

    /// The manifest in this file, which is synced up to the end of `chain`.
    fn with(
        files: &Arc<dyn Files>,
        directory: &Path,
        (store, number): (u64, u64),
        (path, file): (PathBuf, Box<dyn StoredFile>),
        chain: Chain,
    ) -> Self {
        let (files, directory, durable) = (files.clone(), directory.into(), chain.end);
        let (failure, ends) = (None, Ends::default());
        Self { files, directory, store, number, tried: number, path, file, chain, durable, failure, ends }
    }

    /// Notes in `ends` how long the manifest is, from now on.
    pub fn keep_ends(&mut self, ends: Ends) {
        self.ends = ends;
        self.note_end();
    }

    fn note_end(&self) {
        self.ends.note(|noted| (noted.manifest, noted.manifest_bytes) = (self.number, self.durable));
    }

    /// Opens the manifest in `directory` for writing, or only reads it: then there is none.
    ///
    /// # Errors
    /// As [`Manifest::open`].
    pub fn open_or_read(
        files: &Arc<dyn Files>,
        directory: &Path,
        store: u64,
        is_read_only: bool,
        each: &mut dyn FnMut(&[u8]) -> Result<(), DiskError>,
    ) -> Result<Option<Self>, DiskError> {
        match is_read_only {
            true => Self::read(files, directory, store, each).map(|()| None),
            false => Self::open(files, directory, store, each).map(Some),
        }
    }

    /// Hands the edits of the manifest to `each`, in order, and changes nothing.
    ///
    /// # Errors
    /// As [`Manifest::open`].
    pub fn read(
        files: &Arc<dyn Files>,
        directory: &Path,
        store: u64,
        each: &mut dyn FnMut(&[u8]) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let (number, synced) = read_current(files, directory, store)?;
        let path = path_of(directory, number);
        let file = open_file(files, &path, Purpose::Read)?;
        read_edits(&*file, &path, owner(store, number), synced, each).map(drop)
    }

    /// Adds an edit, which is durable when this returns.
    ///
    /// # Errors
    /// There is no room: then the manifest is as before. After any other error it is unknown
    /// whether the edit is in it, and every later append returns that error, until
    /// [`Manifest::rewrite`] succeeds.
    ///
    /// # Panics
    /// If the edit is empty, or longer than [`EDIT_MAX`].
    pub fn append(&mut self, edit: &[u8]) -> Result<(), DiskError> {
        self.failure.clone().map_or(Ok(()), Err)?;
        let (mut bytes, mut chain) = (Vec::with_capacity(size(edit.len()) as usize), self.chain);
        put(&mut bytes, owner(self.store, self.number), &mut chain, self.durable, edit);
        let result = self.write_synced(&bytes);
        match result {
            Ok(()) => (self.chain, self.durable) = (chain, chain.end),
            Err(error @ DiskError::Full { .. }) => return Err(error),
            Err(error) => return Err(self.fail(error)),
        }
        self.note_end();
        self.mark();
        Ok(())
    }

    /// Ends the manifest with an error.
    fn fail(&mut self, error: DiskError) -> DiskError {
        self.failure.insert(error.lasting()).clone()
    }

    /// Bytes of the manifest.
    pub fn bytes(&self) -> u64 {
        self.chain.end
    }

    /// Replaces the manifest by one that has only `edits`. It is durable when this returns.
    ///
    /// # Errors
    /// The new one cannot be written: then the manifest is as before. Or it is unknown which of
    /// them counts: then every append returns that error.
    ///
    /// # Panics
    /// As [`Manifest::append`].
    pub fn rewrite(&mut self, edits: &mut dyn Iterator<Item = Vec<u8>>) -> Result<(), DiskError> {
        self.tried += 1;
        let new = Self::write(&self.files, &self.directory, self.store, self.tried, edits)?;
        // The name first, so that `CURRENT` never names what a crash can lose.
        let named = self.files.sync_directory(&self.directory);
        let named = named.map_err(DiskError::io("sync", &self.directory));
        if let Err(error) = named.and_then(|()| new.write_current()) {
            let _ = self.files.remove(&new.path);
            return Err(error);
        }
        if let Err(error) = new.publish() {
            return Err(self.fail(error));
        }
        // If it stays, the next opening removes it.
        let _ = self.files.remove(&self.path);
        let ends = std::mem::take(&mut self.ends);
        *self = new;
        self.keep_ends(ends);
        Ok(())
    }

    /// Writes a manifest that does not count yet.
    fn write(
        files: &Arc<dyn Files>,
        directory: &Path,
        store: u64,
        number: u64,
        edits: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<Self, DiskError> {
        let path = path_of(directory, number);
        let file = create_file(files, &path).map_err(DiskError::room("create", &path))?;
        let written = write_edits(&*file, &path, owner(store, number), edits);
        if written.is_err() {
            let _ = files.remove(&path);
        }
        let chain = written?;
        Ok(Self::with(files, directory, (store, number), (path, file), chain))
    }

    /// Writes what `CURRENT` will be for this manifest.
    fn write_current(&self) -> Result<(), DiskError> {
        let new = self.directory.join(CURRENT_NEW);
        let text = current_text(self.number, self.chain.end);
        let write = || {
            let file = create_file(&self.files, &new)?;
            file.write_all_at(text.as_bytes(), 0)?;
            file.sync()
        };
        write().map_err(DiskError::room("write", &new))
    }

    /// Makes this the manifest that counts.
    fn publish(&self) -> Result<(), DiskError> {
        let (current, new) = (self.directory.join(CURRENT), self.directory.join(CURRENT_NEW));
        self.files.rename(&new, &current, Replace::Yes).map_err(DiskError::io("replace", &current))?;
        self.files.sync_directory(&self.directory).map_err(DiskError::io("sync", &self.directory))
    }

    /// Writes an edit and syncs it. If there is no room, nothing of it stays.
    fn write_synced(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        let (file, path, at) = (&self.file, &self.path, self.chain.end);
        let written = file.write_all_at(bytes, at).map_err(DiskError::room("write", path));
        if let Err(DiskError::Full { .. }) = written {
            file.set_length(at).map_err(DiskError::io("cut", path))?;
            file.sync().map_err(DiskError::io("sync", path))?;
        }
        written?;
        file.sync_data().map_err(DiskError::io("sync", path))
    }

    /// Writes a mark behind the last edit. Without it the manifest is as good, but damage of its
    /// last edit would look as if a crash had torn it. So an error here is none of the manifest.
    fn mark(&mut self) {
        let (mut bytes, at) = (Vec::with_capacity(HEADER as usize), self.chain.end);
        let header = Header { first_seq: 0, durable: self.durable, bytes: 0, count: 0 };
        let sums = (payload_sum(self.store, &[]), self.chain.sum);
        let sum = header.put(&mut bytes, (owner(self.store, self.number), at), sums, &[]);
        if self.file.write_all_at(&bytes, at).is_ok() {
            self.chain = Chain { end: at + HEADER, sum };
        }
    }
}

/// Writes a head and edits to a new file, and syncs it. Returns the end of their chain.
fn write_edits(
    file: &dyn StoredFile,
    path: &Path,
    owner: Owner,
    edits: &mut dyn Iterator<Item = Vec<u8>>,
) -> Result<Chain, DiskError> {
    let mut bytes = Vec::new();
    let mut chain = Head::put(&mut bytes, MAGIC, owner, 0, Chain::default(), 0);
    let mut at = 0;
    let mut flush = |bytes: &mut Vec<u8>| {
        file.write_all_at(bytes, at).map_err(DiskError::room("write", path))?;
        at += bytes.len() as u64;
        bytes.clear();
        Ok(())
    };
    for edit in edits {
        put(&mut bytes, owner, &mut chain, 0, &edit);
        if bytes.len() >= BUFFER {
            flush(&mut bytes)?;
        }
    }
    flush(&mut bytes)?;
    file.sync().map_err(DiskError::room("sync", path))?;
    Ok(chain)
}

/// Hands every edit in `directory` that its checksums prove to `each`, of all manifests, whichever
/// of them counts, also those behind damage. Changes nothing. What cannot be read proves nothing.
pub fn salvage_edits(files: &Arc<dyn Files>, directory: &Path, store: u64, each: &mut dyn FnMut(&[u8])) {
    for number in list_files(files, directory, number_of).unwrap_or_default() {
        let _ = salvage_from(files, &path_of(directory, number), owner(store, number), each);
    }
}

fn salvage_from(
    files: &Arc<dyn Files>,
    path: &Path,
    owner: Owner,
    each: &mut dyn FnMut(&[u8]),
) -> Result<(), DiskError> {
    let file = open_file(files, path, Purpose::Read)?;
    let head = read_head(&*file, path, MAGIC, owner)?;
    let chain = head.map_or(Chain::default(), |head| head.after);
    let mut records = Records::new(&*file, path, owner, HEAD, chain)?;
    loop {
        if let Some((_, edit)) = records.next()? {
            // An empty one is a mark.
            (!edit.is_empty()).then(|| each(edit));
        } else if !records.pass_damage()? {
            return Ok(());
        }
    }
}

/// Appends an edit to `bytes`, and its end to the chain.
fn put(bytes: &mut Vec<u8>, owner: Owner, chain: &mut Chain, durable: u64, edit: &[u8]) {
    assert!(!edit.is_empty(), "an edit is not empty");
    assert!(edit.len() <= EDIT_MAX, "an edit of {} bytes, at most {EDIT_MAX}", edit.len());
    let header = Header { first_seq: 0, durable, bytes: edit.len() as u32, count: 0 };
    let sums = (payload_sum(owner.store, &[edit]), chain.sum);
    let sum = header.put(bytes, (owner, chain.end), sums, &[edit]);
    *chain = Chain { end: chain.end + header.size(), sum };
}

/// Reads the edits of a manifest, of which `synced` bytes are known to be there. Returns their end,
/// and up to where they are known to be synced.
fn read_edits(
    file: &dyn StoredFile,
    path: &Path,
    owner: Owner,
    synced: u64,
    each: &mut dyn FnMut(&[u8]) -> Result<(), DiskError>,
) -> Result<(Chain, u64), DiskError> {
    let Some(head) = read_head(file, path, MAGIC, owner)? else {
        return Err(DiskError::corrupt(path, 0, "it does not begin as a manifest does"));
    };
    let mut records = Records::new(file, path, owner, HEAD, head.after)?;
    let mut durable = synced;
    while let Some((header, edit)) = records.next()? {
        durable = durable.max(header.durable);
        if !edit.is_empty() {
            each(edit)?;
        }
    }
    let end = records.offset();
    if end < durable.max(records.rest()?.durable) {
        return Err(DiskError::corrupt(path, end, "an edit of the manifest is not valid"));
    }
    Ok((records.chain(), durable))
}

fn owner(store: u64, number: u64) -> Owner {
    Owner { store, file: MANIFESTS | number }
}

fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("MANIFEST-{number:06}"))
}

/// The number of the manifest with this name.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix("MANIFEST-")?.parse().ok().filter(|&number| number < MANIFESTS)?;
    (format!("MANIFEST-{number:06}") == name).then_some(number)
}

/// Whether this is the name of a file that a manifest needs.
pub(crate) fn is_part(name: &str) -> bool {
    name == CURRENT || number_of(name).is_some()
}

fn current_text(number: u64, synced: u64) -> String {
    let text = format!("MANIFEST-{number:06} {synced}");
    format!("{text} {:016x}\n", checksum(text.as_bytes(), 0))
}

/// The number of the manifest that counts, and how many bytes of it were synced.
fn read_current(files: &Arc<dyn Files>, directory: &Path, store: u64) -> Result<(u64, u64), DiskError> {
    let path = directory.join(CURRENT);
    let file = match files.open(&path, Purpose::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(without_current(files, directory)),
        file => file.map_err(DiskError::io("open", &path))?,
    };
    let mut bytes = [0; 100];
    let length = file.length().map_err(DiskError::io("read the length of", &path))?;
    let bytes = &mut bytes[..length.min(100) as usize];
    file.read_exact_at(bytes, 0).map_err(DiskError::io("read", &path))?;
    let parse = || {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let (number, synced) = (number_of(words.next()?)?, words.next()?.parse().ok()?);
        (current_text(number, synced).as_bytes() == bytes).then_some((number, synced))
    };
    let (number, synced) = parse()
        .ok_or_else(|| DiskError::corrupt(&path, 0, "it names no manifest; restore it from a backup"))?;
    let known = ends::read(files, directory, store)?;
    match known.manifest {
        newest if newest > number => {
            let what = "it names a manifest that a newer one has replaced; restore it from a backup";
            Err(DiskError::corrupt(&path, 0, what))
        }
        newest if newest == number => Ok((number, synced.max(known.manifest_bytes))),
        _ => Ok((number, synced)),
    }
}

/// The error of a directory that has no file `CURRENT`.
fn without_current(files: &Arc<dyn Files>, directory: &Path) -> DiskError {
    let names = match files.list(directory) {
        Ok(names) => names,
        Err(error) => return DiskError::io("list", directory)(error),
    };
    if names.iter().filter_map(|name| name.to_str()).any(|name| number_of(name).is_some()) {
        let what = "it is missing, though there are manifests; restore it from a backup";
        return DiskError::corrupt(&directory.join(CURRENT), 0, what);
    }
    DiskError::NoStore { path: directory.into(), what: "it has no manifest" }
}

fn open_file(
    files: &Arc<dyn Files>,
    path: &Path,
    purpose: Purpose,
) -> Result<Box<dyn StoredFile>, DiskError> {
    files.open(path, purpose).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            DiskError::corrupt(path, 0, "it is missing, though CURRENT names it; restore it from a backup")
        }
        _ => DiskError::io("open", path)(error),
    })
}

/// Creates an empty file, in the place of one that is left from a failed attempt.
fn create_file(files: &Arc<dyn Files>, path: &Path) -> io::Result<Box<dyn StoredFile>> {
    match files.create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            files.remove(path)?;
            files.create(path)
        }
        created => created,
    }
}

fn remove_leftovers(files: &Arc<dyn Files>, directory: &Path, current: u64) -> Result<(), DiskError> {
    let left = |name: &str| {
        let is_left = name == CURRENT_NEW || number_of(name).is_some_and(|number| number != current);
        is_left.then(|| directory.join(name))
    };
    for path in list_files(files, directory, left)? {
        files.remove(&path).map_err(DiskError::io("remove", &path))?;
    }
    Ok(())
}
