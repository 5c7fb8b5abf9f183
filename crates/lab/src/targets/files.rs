//! Files in a pool: names that are replaced at one instant, and bytes of several extents.

use super::options::{findings, first_eight, is_unmade, options, refused_after_reboot};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_medium::MappedMedium;
use terrace_medium::files::{Files, Purpose, Replace};
use terrace_pool::Pool;
use terrace_testkit::crash::{Key, Mix, Op, Plan, RandomSource, Reply, Subject, Target, Version};
use terrace_tier::PoolFiles;

/// A pool whose files are the keys.
pub struct PoolFile;

const MAGIC: u64 = 0x6c61_6220_6669_6c65;
const HEAD: usize = 24;
const MIX: Mix =
    Mix { put: 35, insert: 5, update: 5, remove: 20, swap: 10, batch: 0, puts: 0, background: 25 };

impl Target for PoolFile {
    const NAME: &'static str = "files";
    const BYTES: (usize, usize) = (96 << 10, 96 << 10);
    type Subject<M: MappedMedium> = FilesUnderTest<M>;

    fn plan(seed: u64) -> Plan {
        let mut dice = RandomSource::new(seed);
        let keys = 2 + dice.roll(5) as usize;
        let (mut model, mut next) = (vec![None; keys], 0);
        let count = dice.roll(12) as usize;
        let before = MIX.random(&mut dice, count, &mut next, &mut model);
        let count = 3 + dice.roll(10) as usize;
        let ops = MIX.random(&mut dice, count, &mut next, &mut model);
        let mut after: Vec<Op> = (0..keys).map(|key| Op::Put(key, (1 << 20) + 7 * key as u64)).collect();
        after.extend((0..7).map(Op::Background));
        after.extend([Op::Remove(0), Op::Put(0, 3)]);
        let names: Vec<String> = (0..keys).map(name_of).collect();
        let creation = dice.roll(16) == 0;
        let (revived, names) = (first_eight(&after), Arc::new(names));
        Plan { seed, keys, hot: 0..keys, threads: 1, names, before, ops, after, revived, creation }
    }
}

/// A file that is only appended to, and never synced. Its bytes follow from their places, and so it
/// shows a length that came before its bytes.
const JOURNAL: &str = "journal";

fn journal_byte(at: u64) -> u8 {
    (at % 251) as u8 + 1
}

/// Names of several lengths, some of which lie in a directory.
fn name_of(key: Key) -> String {
    let directory = if key % 3 == 2 { "in/" } else { "" };
    format!("{directory}{}{key}", "n".repeat(20 * (key % 3)))
}

/// Bytes of the file of a version: none, within an extent, and over several nodes.
fn bytes_of(version: Version) -> usize {
    HEAD + [0, 40, 300, 1100, 2500, 40, 5000][(version % 7) as usize]
}

/// The content of a file, all determined by its key and version.
fn content(key: Key, version: Version) -> Vec<u8> {
    let rest = std::iter::repeat(version.wrapping_mul(MAGIC));
    let words = [MAGIC, key as u64, version].into_iter().chain(rest);
    words.flat_map(u64::to_le_bytes).take(bytes_of(version)).collect()
}

/// A pool under test.
pub struct FilesUnderTest<M: MappedMedium> {
    files: PoolFiles<M>,
    names: Arc<Vec<String>>,
}

fn top(name: &str) -> PathBuf {
    Path::new("/").join(name)
}

impl<M: MappedMedium> FilesUnderTest<M> {
    fn over(pool: Pool<M>, plan: &Plan) -> io::Result<Self> {
        let files = match PoolFiles::open(pool.clone(), Path::new("/"))? {
            Some(files) => files,
            None => PoolFiles::create(pool, Path::new("/"))?,
        };
        match files.create_directory(&top("in")) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        for directory in ["", "in"] {
            for name in files.list(&top(directory))? {
                if name.to_string_lossy().ends_with(".new") {
                    let path = top(directory).join(name);
                    match files.is_directory(&path)? {
                        true => files.remove_directory(&path)?,
                        false => files.remove(&path)?,
                    }
                }
            }
        }
        Ok(Self { files, names: plan.names() })
    }

    fn path(&self, key: Key) -> PathBuf {
        top(&self.names[key])
    }

    fn version_in(&self, path: &Path, key: Key) -> Result<Option<Version>, String> {
        let file = match self.files.open(path, Purpose::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| error.to_string())?,
        };
        let mut bytes = vec![0; file.length().map_err(|error| error.to_string())? as usize];
        file.read_exact_at(&mut bytes, 0).map_err(|error| error.to_string())?;
        let version =
            bytes.get(16..HEAD).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        match version.filter(|&version| bytes == content(key, version)) {
            Some(version) => Ok(Some(version)),
            None => Err(format!("its file of {} bytes is not as it was written", bytes.len())),
        }
    }

    /// Writes a file in one of several ways, and gives it its name.
    fn put(&self, key: Key, version: Version) -> io::Result<()> {
        let bytes = content(key, version);
        let new = top(if version.is_multiple_of(2) { "x.new" } else { "in/x.new" });
        let write = || {
            let file = self.files.create(&new)?;
            match version % 3 {
                0 => file.write_all_at(&bytes, 0)?,
                1 => {
                    // Room first, and then what goes there.
                    file.allocate(bytes.len() as u64 + 100)?;
                    file.write_all_at(&bytes, 0)?;
                    file.set_length(bytes.len() as u64)?;
                }
                _ => {
                    // A gap, which is filled later.
                    let (head, tail) = bytes.split_at(HEAD - 3);
                    file.write_all_at(tail, head.len() as u64)?;
                    file.write_all_at(head, 0)?;
                }
            }
            file.sync()?;
            self.files.rename(&new, &self.path(key), Replace::Yes)
        };
        write().inspect_err(|_| _ = self.files.remove(&new))
    }

    fn remove(&self, key: Key) -> io::Result<()> {
        match self.files.remove(&self.path(key)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Changes what no key has.
    fn background(&self, step: u64) -> io::Result<()> {
        let (path, other) = (top("x.new"), top("in/y.new"));
        match step % 7 {
            5 | 6 => {
                let file = match self.files.create(&top(JOURNAL)) {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                        self.files.open(&top(JOURNAL), Purpose::Write)?
                    }
                    file => file?,
                };
                let at = file.length()?;
                // Short ones go through the cache, long ones past it.
                let more = if step.is_multiple_of(2) { step / 7 % 200 } else { 1000 + step / 7 % 600 };
                let bytes: Vec<u8> = (at..at + more).map(journal_byte).collect();
                return if at < 4000 {
                    file.write_all_at(&bytes, at)
                } else {
                    self.files.remove(&top(JOURNAL))
                };
            }
            0 => {
                let file = self.files.create(&path)?;
                file.write_all_at(&vec![1; (step / 5 % 7000) as usize], step / 7 % 3000)?;
                file.set_length(step / 3 % 4000)?;
                file.set_length(step / 11 % 6000)?;
                self.files.remove(&path)?;
            }
            1 => {
                self.files.create_directory(&path)?;
                self.files.rename(&path, &other, Replace::No)?;
                self.files.remove_directory(&other)?;
            }
            2 => {
                drop(self.files.create(&path)?);
                self.files.link(&path, &other)?;
                self.files.remove(&path)?;
                self.files.remove(&other)?;
            }
            3 => _ = self.files.pool().reclaim_nonblocking(),
            _ => _ = self.files.pool().reclaim_blocking(),
        }
        Ok(())
    }

    fn write(&self, op: &Op) -> io::Result<Option<Version>> {
        let (Op::Put(key, _) | Op::Insert(key, _) | Op::Update(key, _) | Op::Remove(key) | Op::Swap(key, ..)) =
            *op
        else {
            if let Op::Background(step) = *op {
                let done = self.background(step);
                for path in [top("x.new"), top("in/y.new")] {
                    let _ = self.files.remove(&path);
                }
                done?;
            }
            return Ok(None);
        };
        let before = self.version_in(&self.path(key), key).unwrap_or(None);
        let to = match *op {
            Op::Put(_, version) => Some(Some(version)),
            Op::Insert(_, version) => before.is_none().then_some(Some(version)),
            Op::Update(_, version) => before.map(|_| Some(version)),
            Op::Swap(_, expected, new) => (before == expected).then_some(new),
            _ => Some(None),
        };
        match to {
            Some(Some(version)) => self.put(key, version)?,
            Some(None) => self.remove(key)?,
            None => {}
        }
        Ok(before)
    }
}

impl<M: MappedMedium> Subject<M> for FilesUnderTest<M> {
    fn create(medium: M, plan: &Plan) -> Self {
        let pool = options(plan).create_on(medium).expect("a pool in new memory");
        Self::over(pool, plan).expect("files in a new pool")
    }

    fn recover(medium: M, plan: &Plan) -> Result<Option<Self>, String> {
        match options(plan).open_on(medium) {
            Ok(pool) => Self::over(pool, plan).map(Some).map_err(|error| error.to_string()),
            Err(error) if is_unmade(plan, &error) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn pool(&self) -> &Pool<M> {
        self.files.pool()
    }

    fn apply(&self, op: &Op) -> Reply {
        let mut done = self.write(op);
        if done.as_ref().is_err_and(|error| error.kind() == ErrorKind::StorageFull)
            && self.pool().reclaim_blocking()
        {
            done = self.write(op);
        }
        match done {
            Ok(found) => Reply::Found(found),
            Err(error) if error.kind() == ErrorKind::StorageFull => Reply::Full,
            Err(_) => Reply::Broken("a call fails"),
        }
    }

    fn get(&self, key: Key) -> Result<Option<Version>, String> {
        self.version_in(&self.path(key), key)
    }

    fn scan(&self, each: &mut dyn FnMut(Key, Version)) -> Result<(), String> {
        for directory in ["", "in"] {
            for name in self.files.list(&top(directory)).map_err(|error| error.to_string())? {
                let path = top(directory).join(name);
                if path == top("in") || path == top(JOURNAL) {
                    continue;
                }
                let key = (0..self.names.len()).find(|&key| self.path(key) == path);
                let key = key.ok_or_else(|| format!("{} is no operation's", path.display()))?;
                each(key, self.version_in(&path, key)?.ok_or("a listed file is not there")?);
            }
        }
        Ok(())
    }

    /// Done when the files are opened.
    fn collect(&self) {}

    fn verify(&self) -> Vec<String> {
        let mut found = [findings(self.pool()), self.files.check()].concat();
        if let Ok(file) = self.files.open(&top(JOURNAL), Purpose::Read) {
            let mut bytes = vec![0; file.length().unwrap_or(0) as usize];
            let is_read = file.read_exact_at(&mut bytes, 0).is_ok();
            if !is_read || !(0..).zip(&bytes).all(|(at, byte)| *byte == journal_byte(at)) {
                found.push(format!("the {} bytes of the journal are not as they were written", bytes.len()));
            }
        }
        found
    }

    fn blocks(&self) -> Vec<(u64, u64)> {
        self.files.reachable()
    }

    fn abandon(self) {
        let pool = self.pool().clone();
        drop(self);
        pool.abandon();
    }

    fn salvaged(medium: &dyn Fn() -> M, plan: &Plan) -> Result<Vec<(Key, Version)>, String> {
        // Bytes have no checksums, so no content can be trusted.
        refused_after_reboot(medium(), plan).map(|()| Vec::new())
    }
}
