//! Creates and opens pools.
//!
//! Creating a pool writes its superblock last and names the file after that, so a crash in between
//! leaves no pool. Opening reads the superblock, the root directory and the participant table, in a
//! time that does not depend on the pool's size.

pub(crate) mod file;
pub(crate) mod grow;
pub(crate) mod options;
pub(crate) mod sigbus;

use crate::error::{Durability, OpenError, Problem};
use crate::format::layout::{Geometry, Layout, MAX_POOL, PAGE};
use crate::format::lifetime::{Opening, Start, allocator_sum, boot_id, next_open};
use crate::format::superblock::{self, LABEL_BYTES, Superblock};
use crate::open::file::Purpose;
use crate::open::options::{Location, PoolOptions};
use crate::pool::Pool;
use crate::pool::inner::{Inner, OpenedAs};
use crate::reclaim::barrier::{self, Pins};
use crate::sharing::clock;
use crate::sharing::liveness::Liveness;
use crate::sharing::participants::{self, ProcessInfo};
use crate::sharing::terms::{check_addresses, terms};
use rustix::io::Errno;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use terrace_medium::files::{Files, SystemFiles, Unpublished};
use terrace_medium::{Backing, LINE, MapError, MappedMedium, Mapping, Pmem, Protection, Region};

impl PoolOptions {
    /// Creates a pool. No pool may exist there yet.
    pub fn create<M: MappedMedium>(&self) -> Result<Pool<M>, OpenError> {
        self.create_somewhere().map_err(|problem| self.error(problem))
    }

    /// Opens an existing pool.
    pub fn open<M: MappedMedium>(&self) -> Result<Pool<M>, OpenError> {
        self.open_somewhere().map_err(|problem| self.error(problem))
    }

    /// Opens the pool, or creates it if it is missing.
    pub fn open_or_create<M: MappedMedium>(&self) -> Result<Pool<M>, OpenError> {
        match self.open_somewhere() {
            Err(Problem::Missing) if self.writes() => {}
            outcome => return outcome.map_err(|problem| self.error(problem)),
        }
        match self.create_somewhere() {
            // Another process created it in the meantime.
            Err(Problem::Exists) => self.open(),
            outcome => outcome.map_err(|problem| self.error(problem)),
        }
    }

    /// Creates a pool in all of the zeroed memory of `medium`; [`PoolOptions::size`] is ignored.
    /// For test media.
    pub fn create_on<M: MappedMedium>(&self, medium: M) -> Result<Pool<M>, OpenError> {
        let size = medium.len() as u64 / PAGE * PAGE;
        let make = || self.format(medium, self.superblock::<M>(size)?, None);
        make().map_err(|problem| self.error(problem))
    }

    /// Opens the pool in the memory of `medium`, as after a crash or close. For test media.
    pub fn open_on<M: MappedMedium>(&self, medium: M) -> Result<Pool<M>, OpenError> {
        self.resume(medium, None).map_err(|problem| self.error(problem))
    }

    /// As [`PoolOptions::create_on`], for a shared pool. Others join it by
    /// [`PoolOptions::share_on`], with a medium over the same memory and a [`Liveness`] that knows
    /// this participant.
    pub fn create_shared_on<M: MappedMedium>(
        &self,
        medium: M,
        liveness: Arc<dyn Liveness>,
    ) -> Result<Pool<M>, OpenError> {
        let size = medium.len() as u64 / PAGE * PAGE;
        let make = || self.format(medium, self.superblock::<M>(size)?, Some(liveness));
        make().map_err(|problem| self.error(problem))
    }

    /// Opens the pool in the memory of `medium` for sharing: joins the participants that are alive,
    /// or else continues from what the last ones left. For test media, and for memory that is
    /// shared by other means than a file of this machine.
    pub fn share_on<M: MappedMedium>(
        &self,
        medium: M,
        liveness: Arc<dyn Liveness>,
    ) -> Result<Pool<M>, OpenError> {
        through_the_gate(liveness, |liveness| self.resume(medium, Some(liveness)))
            .map_err(|problem| self.error(problem))
    }

    /// The purpose of this open, which selects file mode and lock.
    fn purpose(&self) -> Purpose {
        match () {
            () if self.shares() => Purpose::Share,
            () if self.writes() => Purpose::Write,
            () => Purpose::Read,
        }
    }

    fn error(&self, problem: Problem) -> OpenError {
        OpenError { pool: self.name(), problem }
    }

    fn create_somewhere<M: MappedMedium>(&self) -> Result<Pool<M>, Problem> {
        match &self.place {
            Location::Anonymous => {
                let superblock = self.superblock::<M>(self.size / PAGE * PAGE)?;
                let reserve = self.reserve(superblock.size) as usize;
                let mapping = Mapping::anonymous(superblock.size as usize, reserve).map_err(Problem::Map)?;
                self.format(self.medium(mapping), superblock, None)
            }
            Location::Path(path) if file::is_device(path) => {
                self.create_in(file::open(path, Purpose::Write)?)
            }
            Location::File(file) => self.create_in(file.try_clone().map_err(|e| Problem::Os("make", e))?),
            Location::Path(path) => self.create_at(&SystemFiles, path),
        }
    }

    /// As [`PoolOptions::create`] at a path, through the file layer `files`. For tests.
    #[doc(hidden)]
    pub fn create_through<M: MappedMedium>(&self, files: &dyn Files) -> Result<Pool<M>, OpenError> {
        let Location::Path(path) = &self.place else { return self.create() };
        self.create_at(files, path).map_err(|problem| self.error(problem))
    }

    /// Creates a pool in a new file.
    fn create_at<M: MappedMedium>(&self, files: &dyn Files, path: &Path) -> Result<Pool<M>, Problem> {
        let refused = |what| move |error| file::refusal(path, what, error);
        let new = Unpublished::new(files, path, file::unique()?).map_err(refused("make"))?;
        let file = file::handle(new.file())?;
        // Locked before it has a name, so that no process ever sees it unlocked.
        file::hold(&file, Purpose::Write)?;
        let mut superblock = self.superblock::<M>(self.size / PAGE * PAGE)?;
        superblock.size = file::whole_blocks(&file, superblock.size)?;
        file::allocate(new.file(), superblock.size)?;
        let liveness = self.liveness(&file)?;
        let holder = file.try_clone().map_err(|e| Problem::Os("make", e))?;
        let mapping = self.map(file, superblock.size, Protection::ReadWrite)?;
        self.check_persistent::<M>(&mapping)?;
        let pool = self.format(self.medium(mapping), superblock, liveness)?;
        if self.shares() {
            file::hold(&holder, Purpose::Share)?;
        }
        new.publish().map_err(refused("name"))?;
        Ok(pool)
    }

    /// Creates a pool in a device or an open file, unless that contains one.
    fn create_in<M: MappedMedium>(&self, file: File) -> Result<Pool<M>, Problem> {
        let file = if self.shares() { file::opened_anew(&file)? } else { file };
        file::hold(&file, Purpose::Write)?;
        match file::read_superblock(&file) {
            Err(Problem::NotAPool) => {}
            // These errors do not mean that it contains a pool: it could not be read.
            Err(problem @ (Problem::NotAFile | Problem::Map(_) | Problem::Os(..))) => return Err(problem),
            Ok(_) | Err(_) => return Err(Problem::Exists),
        }
        let liveness = self.liveness(&file)?;
        let holder = file.try_clone().map_err(|e| Problem::Os("make", e))?;
        let device = file::is_device_file(&file)?;
        let size = if device { file::length(&file)? } else { self.size } / PAGE * PAGE;
        let mut superblock = self.superblock::<M>(size)?;
        if device {
            zero_device(&file, size)?;
        } else {
            superblock.size = file::whole_blocks(&file, size)?;
            file.set_len(0).map_err(|e| Problem::Os("empty", e))?;
            Mapping::allocate(&file, superblock.size).map_err(Problem::Map)?;
        }
        let mapping = self.map(file, superblock.size, Protection::ReadWrite)?;
        self.check_persistent::<M>(&mapping)?;
        let pool = self.format(self.medium(mapping), superblock, liveness)?;
        if self.shares() {
            file::hold(&holder, Purpose::Share)?;
        }
        Ok(pool)
    }

    fn open_somewhere<M: MappedMedium>(&self) -> Result<Pool<M>, Problem> {
        let purpose = self.purpose();
        let file = match &self.place {
            Location::Anonymous => return Err(Problem::Missing),
            Location::Path(path) => file::open(path, purpose)?,
            Location::File(file) if self.shares() => file::opened_anew(file)?,
            Location::File(file) => file.try_clone().map_err(|e| Problem::Os("open", e))?,
        };
        file::hold(&file, purpose)?;
        let Some(liveness) = self.liveness(&file)? else { return self.open_held(file, None) };
        through_the_gate(liveness, |liveness| self.open_held(file, Some(liveness)))
    }

    /// The liveness by the locks of `file`; `None` if the pool is exclusive.
    fn liveness(&self, file: &File) -> Result<Option<Arc<dyn Liveness>>, Problem> {
        Ok(if self.shares() { Some(Arc::new(file::locks_of(file)?)) } else { None })
    }

    fn open_held<M: MappedMedium>(
        &self,
        file: File,
        liveness: Option<Arc<dyn Liveness>>,
    ) -> Result<Pool<M>, Problem> {
        let size = file::read_superblock(&file)?.superblock.size;
        let found = file::length(&file)?;
        if found < size && !self.salvage {
            return Err(Problem::Truncated { expected: size, found });
        }
        let size = size.min(found / PAGE * PAGE);
        if self.writes() {
            file::fill_holes(&file, size)?;
        }
        if !self.writes() && file::is_device_file(&file)? {
            return Err(Problem::NotReadable);
        }
        let protection = if self.writes() { Protection::ReadWrite } else { Protection::CopyOnWrite };
        let mapping = self.map(file, size, protection)?;
        self.check_persistent::<M>(&mapping)?;
        match (mapping.backing(), mapping.as_file()) {
            // Copying a page of a huge-page mapping needs a free huge page; a store that finds none
            // faults.
            (Backing::HugeTlb, _) if !self.writes() => return Err(Problem::NotReadable),
            (Backing::SharedMemory, Some(file)) if !self.writes() => file::can_read_holes(file, size)?,
            _ => {}
        }
        self.resume(self.medium(mapping), liveness)
    }

    /// Maps the first `size` bytes of `file`, with addresses to grow into if the system has them.
    fn map(&self, file: File, size: u64, protection: Protection) -> Result<Mapping, Problem> {
        let copy = file.try_clone().map_err(|e| Problem::Os("map", e))?;
        let reserve = if protection == Protection::ReadWrite { self.reserve(size) } else { size };
        match Mapping::file(file, size as usize, reserve as usize, protection) {
            Err(MapError::Os(_, error)) if error.raw_os_error() == Some(Errno::NOMEM.raw_os_error()) => {
                Mapping::file(copy, size as usize, size as usize, protection)
            }
            outcome => outcome,
        }
        .map_err(Problem::Map)
    }

    fn medium<M: MappedMedium>(&self, mapping: Mapping) -> M {
        if self.huge_pages {
            mapping.advise_huge_pages();
        }
        M::new(mapping)
    }

    /// Refuses durability `power` on memory that a power loss erases.
    fn check_persistent<M: MappedMedium>(&self, mapping: &Mapping) -> Result<(), Problem> {
        let promised = M::VOLATILE_CACHE && self.writes();
        if promised && !self.assume_persistent && !mapping.backing().survives_power_loss() {
            return Err(Problem::NotPersistent);
        }
        Ok(())
    }

    /// The first superblock of a pool of `size` bytes.
    fn superblock<M: MappedMedium>(&self, size: u64) -> Result<Superblock, Problem> {
        let mut geometry = self.geometry.unwrap_or_else(|| Geometry::for_size(size));
        geometry.participants = self.participants.unwrap_or(geometry.participants);
        let layout = Layout::new(geometry).map_err(Problem::Geometry)?;
        if !(layout.smallest()..=MAX_POOL).contains(&size) {
            return Err(Problem::Size { asked: size, smallest: layout.smallest(), largest: MAX_POOL });
        }
        if self.label.len() > LABEL_BYTES || self.label.contains('\0') {
            return Err(Problem::LabelTooLong);
        }
        let (uuid, seed) = if self.reproducible { (1, 1) } else { random()? };
        Ok(Superblock {
            version: superblock::FIRST_VERSION,
            sequence: 1,
            uuid,
            generation: 1,
            open_seq: 1,
            clean: false,
            collection_pending: false,
            durability: durability::<M>(),
            assumed_persistent: false,
            size,
            geometry,
            boot: self.boot_id.or_else(boot_id).unwrap_or(0),
            hash_seed: self.hash_seed.unwrap_or(seed),
            created_ms: if self.reproducible { 0 } else { clock::now_ms() },
            label: self.label.clone(),
            allocator_sum: 0,
        })
    }

    /// Creates a pool in zeroed memory.
    fn format<M: MappedMedium>(
        &self,
        medium: M,
        mut superblock: Superblock,
        liveness: Option<Arc<dyn Liveness>>,
    ) -> Result<Pool<M>, Problem> {
        superblock.assumed_persistent = self.assumed(&medium);
        let region = Region::new(medium);
        let layout = Layout::new(superblock.geometry).map_err(Problem::Geometry)?;
        let (start, size, pins) = (Start::Created, superblock.size, self.pins);
        let name = self.name();
        let opened = OpenedAs { name, start, writes: true, size, superblock, copy: 1, pins, liveness };
        self.begin(region, layout, opened)
    }

    /// Opens the pool that lies in `medium`.
    fn resume<M: MappedMedium>(
        &self,
        medium: M,
        liveness: Option<Arc<dyn Liveness>>,
    ) -> Result<Pool<M>, Problem> {
        let assumed_persistent = self.assumed(&medium);
        let region = Region::new(medium);
        let found = superblock::load(&region)?;
        let layout = Layout::new(found.superblock.geometry).map_err(Problem::Damaged)?;
        let is_alive =
            |liveness: &dyn Liveness| (0..layout.geometry.participants).any(|index| liveness.is_alive(index));
        let liveness = match liveness {
            Some(others) if is_alive(&*others) => return self.join(region, layout, found.superblock, others),
            liveness => liveness,
        };
        let opening = Opening {
            durability: durability::<M>(),
            assumed_persistent,
            boot: self.boot_id.or_else(boot_id),
            read_only: !self.writes(),
            salvage: self.salvage,
            // Not used for a pool that was left in use.
            allocator_sum: if found.superblock.clean { allocator_sum(&region, &layout) } else { 0 },
        };
        let (superblock, start) = next_open(&found.superblock, &opening)?;
        let (expected, len) = (superblock.size, region.medium().len() as u64);
        if len < if self.salvage { layout.smallest() } else { expected } {
            return Err(Problem::Truncated { expected, found: len });
        }
        // First writes the copy that was not used; the other stays intact until then.
        let (size, pins) = (expected.min(len), self.pins);
        let (writes, copy) = (self.writes(), 1 - found.copy);
        let name = self.name();
        let opened = OpenedAs { name, start, writes, size, superblock, copy, pins, liveness };
        self.begin(region, layout, opened)
    }

    /// Joins a pool that other processes have open. The caller has entered the gate, so none joins
    /// or leaves meanwhile.
    fn join<M: MappedMedium>(
        &self,
        region: Region<M>,
        layout: Layout,
        superblock: Superblock,
        liveness: Arc<dyn Liveness>,
    ) -> Result<Pool<M>, Problem> {
        let asked = durability::<M>();
        if superblock.durability != asked {
            return Err(Problem::OtherDurability { pool: superblock.durability, asked });
        }
        let terms = terms(&region, &layout).map_err(|found| Problem::OtherSharing { found })?;
        if terms.light_pins && self.pins != Pins::AsIfLight && !barrier::register() {
            return Err(Problem::NoBarrier);
        }
        let index = free_slot(&region, &layout, &*liveness)?;
        let is_left = participants::holder_of(&region, &layout, index).is_some();
        let owner =
            participants::attach(&region, &layout, superblock.generation, &self.process_info(), index);
        if let Err((wanted, reserved)) = check_addresses(&region, &layout) {
            // It has grown since its size was read. The slot is left like that of a dead
            // participant: a predecessor may have left more in it than this process has.
            liveness.release(index);
            return Err(Problem::Map(MapError::Reserved { wanted, reserved }));
        }
        let (start, size) = (terms.start, superblock.size);
        let opened = OpenedAs {
            name: self.name(),
            start,
            writes: true,
            size,
            superblock,
            copy: 0,
            pins: self.pins,
            liveness: Some(liveness),
        };
        let inner = Inner::join(region, layout, owner, opened, terms);
        if is_left {
            inner.peers.recover_participant(index);
        }
        Ok(Pool(Arc::new(inner)))
    }

    /// Takes a participant slot and starts the allocator. A pool that is opened is marked as in use
    /// before any other store; one that is created gets its superblock last.
    fn begin<M: MappedMedium>(
        &self,
        region: Region<M>,
        layout: Layout,
        opened: OpenedAs,
    ) -> Result<Pool<M>, Problem> {
        if opened.start != Start::Created {
            // PERSIST: before any other store. A crash before it finds the pool as it was closed or
            // left.
            opened.superblock.store(&region, opened.copy).map_err(Problem::Map)?;
        }
        if let Some(liveness) = &opened.liveness {
            liveness.claim(0).map_err(Problem::LockFailed)?;
        }
        let owner = participants::attach_exclusive(
            &region,
            &layout,
            opened.superblock.generation,
            &self.process_info(),
        );
        let inner = Inner::start(region, layout, owner, opened)?;
        if inner.base().start == Start::Created {
            // PERSIST: after everything else. A crash before leaves no pool.
            inner.store_superblock().map_err(Problem::Map)?;
        }
        Ok(Pool(Arc::new(inner)))
    }

    /// This process's entry for the participant table.
    fn process_info(&self) -> ProcessInfo {
        if self.reproducible {
            ProcessInfo::placeholder()
        } else {
            ProcessInfo::this_process(self.program_name())
        }
    }

    fn assumed<M: MappedMedium>(&self, medium: &M) -> bool {
        M::VOLATILE_CACHE && self.assume_persistent && !medium.mapping().backing().survives_power_loss()
    }
}

/// Runs `open` while no other process opens or closes the pool. If this participant dies meanwhile,
/// its liveness releases the gate.
fn through_the_gate<R>(
    liveness: Arc<dyn Liveness>,
    open: impl FnOnce(Arc<dyn Liveness>) -> Result<R, Problem>,
) -> Result<R, Problem> {
    liveness.enter().map_err(|error| match error.kind() {
        ErrorKind::TimedOut => Problem::GateTimeout(error),
        _ => Problem::LockFailed(error),
    })?;
    let outcome = open(liveness.clone());
    liveness.leave();
    outcome
}

/// Claims a free participant slot, preferably one in which no dead participant left anything.
fn free_slot<M: MappedMedium>(
    region: &Region<M>,
    layout: &Layout,
    liveness: &dyn Liveness,
) -> Result<u32, Problem> {
    let slots = 0..layout.geometry.participants;
    let (taken, free): (Vec<u32>, Vec<u32>) =
        slots.partition(|&index| participants::holder_of(region, layout, index).is_some());
    for index in free.into_iter().chain(taken) {
        if liveness.claim(index).map_err(Problem::LockFailed)? {
            return Ok(index);
        }
    }
    let all = participants::live_participants(region, layout, liveness, None);
    Err(Problem::Crowded(all.into_iter().map(|(_, holder)| holder).collect()))
}

fn durability<M: MappedMedium>() -> Durability {
    if M::VOLATILE_CACHE { Durability::Power } else { Durability::Process }
}

/// A random uuid, marked as one (RFC 9562, version 4), and a random seed.
#[allow(clippy::disallowed_methods, reason = "a unique name and an unpredictable seed; tests give their own")]
fn random() -> Result<(u128, u64), Problem> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).map_err(|e| Problem::Os("find random numbers for", e.into()))?;
    let (uuid, seed) = bytes.split_at(16);
    let bits = uuid.iter().fold(0, |bits, &byte| bits << 8 | u128::from(byte));
    let seed = seed.iter().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
    Ok((bits & !(0xf << 76 | 0xc << 60) | 0x4 << 76 | 0x8 << 60, seed))
}

/// Zeroes a device, which may contain anything: a new pool needs zeroed memory.
fn zero_device(device: &File, size: u64) -> Result<(), Problem> {
    const AT_ONCE: usize = 64;
    let device = device.try_clone().map_err(|e| Problem::Os("map", e))?;
    let mapping = Mapping::file(device, size as usize, size as usize, Protection::ReadWrite);
    let region = Region::new(Pmem::new(mapping.map_err(Problem::Map)?));
    for at in (0..size).step_by(AT_ONCE * LINE) {
        region.stream_lines(at, &[[0; LINE / 8]; AT_ONCE]);
    }
    // PERSIST: before a superblock makes a pool of it.
    region.fence();
    Ok(())
}

/// Facts about a pool, read without opening it. They hold only at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its unique identifier.
    pub uuid: u128,
    /// Its label.
    pub label: String,
    /// Its size in bytes.
    pub size: u64,
    /// Which crashes its contents survive; decides the medium to open it with.
    pub durability: Durability,
    /// How often it has been opened.
    pub generation: u32,
    /// Whether it was closed in order and no process has it open.
    pub clean: bool,
    /// Whether the machine has not been rebooted since it was last opened.
    pub same_boot: bool,
    /// When it was created, in Unix milliseconds.
    pub created_ms: u64,
    /// How many items of each kind it has room for.
    pub geometry: Geometry,
}

/// Reads facts about the pool at `path`, also while processes have it open.
pub fn describe(path: impl AsRef<Path>) -> Result<Description, OpenError> {
    let path = path.as_ref();
    let read = || file::read_superblock(&file::open(path, Purpose::Read)?);
    let found = read().map_err(|problem| OpenError { pool: path.into(), problem })?.superblock;
    Ok(Description {
        uuid: found.uuid,
        label: found.label,
        size: found.size,
        durability: found.durability,
        generation: found.generation,
        clean: found.clean,
        same_boot: boot_id() == Some(found.boot),
        created_ms: found.created_ms,
        geometry: found.geometry,
    })
}

#[cfg(test)]
#[path = "tests/opening.rs"]
mod tests;
