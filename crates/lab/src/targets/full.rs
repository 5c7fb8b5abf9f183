//! A full pool that grows. Besides keeping its content, it promises: after a growth has returned
//! there is space, also after a crash and before a collection; and blocks retired then do not leak.

use super::options::{findings, options};
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::{Guard, Marker, Pool};
use terrace_testkit::crash::{Key, Op, Plan, RandomSource, Reply, Subject, Target, Version};

/// A full pool.
pub struct Full;

const KIND: &str = "lab";
/// The key that exists if there is space. The other key never exists.
const ROOM: Key = 1;
const GROWN: Version = 1;
/// Maximum number of blocks that fill the pool.
const FILL: u64 = 6;
/// The pool is full when no free extent is as long as this.
const FULL: u64 = 1024;
/// The root of the block that lists the spare blocks.
const SPARES: &str = "spares";
/// Blocks that are retired after each crash: more than fit into a thread's overflow buffer.
const SPARE: usize = 24;
const SPARE_BYTES: usize = 64;
/// There is space if this many blocks of this size can be allocated: more than the spare blocks
/// free. And less than a third of what a growth adds, as two processes may have crashed while they
/// held the blocks of this check and a limbo chunk.
const ROOMY: (usize, usize) = (2, 4160);

impl Target for Full {
    const NAME: &'static str = "full";
    const BYTES: (usize, usize) = (64 << 10, 96 << 10);
    type Subject<M: MappedMedium> = FullUnderTest<M>;

    fn plan(seed: u64) -> Plan {
        let grow = vec![Op::Put(ROOM, GROWN)];
        Plan {
            seed,
            keys: 2,
            hot: 0..2,
            threads: 1,
            names: Arc::new(()),
            before: Vec::new(),
            ops: grow.clone(),
            after: grow.clone(),
            revived: grow,
            creation: false,
        }
    }
}

/// A pool under test.
pub struct FullUnderTest<M: MappedMedium> {
    pool: Pool<M>,
    /// Whether there was space at the first check.
    had_room: OnceLock<bool>,
    has_grown: AtomicBool,
}

fn fill_name(number: u64) -> String {
    format!("fill{number}")
}

impl<M: MappedMedium> FullUnderTest<M> {
    fn over(pool: Pool<M>) -> Self {
        Self { pool, had_room: OnceLock::new(), has_grown: AtomicBool::new(false) }
    }

    /// Allocates all free extents as blocks that contain their own length.
    fn fill(&self, seed: u64) {
        let mut dice = RandomSource::new(seed);
        let guard = self.pool.pin();
        self.make_spares(&guard);
        for number in 0..FILL {
            let longest = self.pool.space().largest_free_extent;
            // The first block has any size, the others take the longest extent.
            let bytes = if number == 0 { FULL + dice.roll(longest / 2) } else { longest } / 64 * 64;
            // A multiple of the page size would be page-aligned, for which the extent may be too
            // short.
            let bytes = if bytes.is_multiple_of(4096) { bytes.saturating_sub(64) } else { bytes };
            if longest >= FULL {
                self.keep(&guard, &fill_name(number), &[bytes], bytes as usize);
            }
        }
    }

    fn make_spares(&self, guard: &Guard<'_, M>) {
        let spare = |_| guard.alloc(SPARE_BYTES).map_or(0, |block| block.persist().into_offset());
        let mut words = vec![8 * (SPARE as u64 + 1)];
        words.extend((0..SPARE).map(spare));
        self.keep(guard, SPARES, &words, 8 * words.len());
    }

    /// Allocates a block that begins with these words, the first of which is its length.
    fn keep(&self, guard: &Guard<'_, M>, name: &str, words: &[u64], bytes: usize) {
        let Ok(block) = guard.alloc(bytes) else { return };
        for (at, word) in words.iter().enumerate() {
            block.write(8 * at, &word.to_le_bytes());
        }
        // PERSIST: the block before its root.
        let offset = block.persist().into_offset();
        self.pool.set_root(name, KIND, offset).expect("there are roots for all");
    }

    fn word(&self, offset: u64) -> u64 {
        let word: Option<&Word> = self.pool.region().get(Offset::new(offset));
        word.map_or(0, |word| word.load(self.pool.medium(), Acquire))
    }

    fn spares(&self, directory: u64) -> Vec<u64> {
        (1..=SPARE as u64).map(|at| self.word(directory + 8 * at)).filter(|&offset| offset != 0).collect()
    }

    /// Retires the spare blocks, for which a full pool has its reserve.
    fn retire_spares(&self) -> Result<(), String> {
        let guard = self.pool.pin();
        let root = self.pool.root(SPARES, KIND).map_err(|error| error.to_string())?;
        if let Some(directory) = root {
            let (spares, bytes) = (self.spares(directory), self.word(directory) as usize);
            self.pool.set_root(SPARES, KIND, 0).map_err(|error| error.to_string())?;
            spares.into_iter().for_each(|offset| guard.retire(offset, SPARE_BYTES));
            guard.retire(directory, bytes);
        }
        match self.pool.space().lost {
            0 => Ok(()),
            lost => Err(format!("{lost} bytes of retired blocks have leaked")),
        }
    }

    fn has_space(&self) -> bool {
        let guard = self.pool.pin();
        let blocks: Vec<_> = (0..ROOMY.0).map_while(|_| guard.alloc(ROOMY.1).ok()).collect();
        blocks.len() == ROOMY.0
    }

    fn room(&self) -> Option<Version> {
        let has_room = self.has_grown.load(Relaxed) || *self.had_room.get_or_init(|| self.has_space());
        has_room.then_some(GROWN)
    }

    fn trace(&self, marker: &mut Marker<'_>) {
        let _guard = self.pool.pin();
        let root = |name: &str| self.pool.root(name, KIND).ok().flatten();
        for offset in (0..FILL).filter_map(|number| root(&fill_name(number))).chain(root(SPARES)) {
            marker.mark(offset, self.word(offset) as usize);
        }
        let spares = root(SPARES).map_or(Vec::new(), |directory| self.spares(directory));
        spares.into_iter().for_each(|offset| marker.mark(offset, SPARE_BYTES));
    }
}

impl<M: MappedMedium> Subject<M> for FullUnderTest<M> {
    fn create(medium: M, plan: &Plan) -> Self {
        let filled = Self::over(options(plan).create_on(medium).expect("a pool in new memory"));
        filled.fill(plan.seed);
        filled
    }

    fn recover(medium: M, plan: &Plan) -> Result<Option<Self>, String> {
        let pool = options(plan).open_on(medium).map_err(|error| error.to_string())?;
        let filled = Self::over(pool);
        filled.retire_spares()?;
        Ok(Some(filled))
    }

    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    fn apply(&self, op: &Op) -> Reply {
        let before = self.room();
        match *op {
            Op::Put(ROOM, _) => match self.pool.grow(Full::BYTES.1 as u64) {
                Ok(_) => self.has_grown.store(true, Relaxed),
                Err(_) => return Reply::Broken("the pool does not grow"),
            },
            _ => return Reply::Found(None),
        }
        Reply::Found(before)
    }

    fn get(&self, key: Key) -> Result<Option<Version>, String> {
        Ok(self.room().filter(|_| key == ROOM))
    }

    fn scan(&self, each: &mut dyn FnMut(Key, Version)) -> Result<(), String> {
        self.room().into_iter().for_each(|version| each(ROOM, version));
        Ok(())
    }

    fn collect(&self) {
        self.pool.collect(&mut |marker| self.trace(marker));
    }

    fn verify(&self) -> Vec<String> {
        findings(&self.pool)
    }

    fn blocks(&self) -> Vec<(u64, u64)> {
        self.pool.reachable(&mut |marker| self.trace(marker))
    }

    fn abandon(self) {
        self.pool.abandon();
    }
}
