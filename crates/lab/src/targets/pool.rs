//! The pool itself: roots that point to blocks, allocation, growth, collection.

use super::options::{findings, first_eight, is_unmade, options, refused_after_reboot, written};
use std::sync::Arc;
use terrace_medium::MappedMedium;
use terrace_pool::{Guard, Marker, Pool, PoolFull};
use terrace_testkit::crash::{Key, Mix, Op, Plan, RandomSource, Reply, Subject, Target, Version};
use terrace_testkit::in_other_thread;

/// A pool whose roots are the keys.
pub struct Roots;

const KIND: &str = "lab";
const MAGIC: u64 = 0x6c61_6220_626c_6f63;
const HEAD: usize = 24;
const BYTES_MAX: usize = 1500;
/// Versions from here on have blocks of otherwise unused sizes, so that each begins a slab.
const RARE: Version = 1 << 40;
const RARE_BYTES: [usize; 8] = [32, 40, 48, 56, 72, 80, 88, 96];

/// Background work that grows the pool.
const GROW: Op = Op::Background(9);

const MIX: Mix =
    Mix { put: 40, insert: 5, update: 5, remove: 20, swap: 10, batch: 0, puts: 0, background: 20 };

impl Target for Roots {
    const NAME: &'static str = "pool";
    const BYTES: (usize, usize) = (64 << 10, 96 << 10);
    type Subject<M: MappedMedium> = RootsUnderTest<M>;

    fn plan(seed: u64) -> Plan {
        let mut dice = RandomSource::new(seed);
        let keys = 2 + dice.roll(6) as usize;
        let (mut model, mut next) = (vec![None; keys], 0);
        let count = dice.roll(16) as usize;
        let before = MIX.random(&mut dice, count, &mut next, &mut model);
        let count = 4 + dice.roll(20) as usize;
        let ops = MIX.random(&mut dice, count, &mut next, &mut model);
        let ops = if dice.roll(4) == 0 { in_slabs_of_others(&mut dice, ops, next, keys) } else { ops };
        let ops = if seed >> 43 & 7 == 1 { only_slabs_of_others(keys) } else { ops };
        let mut after: Vec<Op> = (0..keys).map(|key| Op::Put(key, 5 * (1 << 20) + 5 * key as u64)).collect();
        after.extend([Op::Background(0), Op::Background(3), Op::Remove(0), Op::Put(0, 3)]);
        if seed >> 47 & 7 == 3 {
            // In one run of eight only: growing costs as much as all the rest.
            after.extend([GROW, Op::Put(1, 4), Op::Background(0)]);
        }
        let creation = dice.roll(16) == 0;
        let names: Vec<String> = (0..keys).map(|key| format!("r{key}")).collect();
        let revived = first_eight(&after);
        Plan {
            seed,
            keys,
            hot: 0..keys,
            threads: 1,
            names: Arc::new(names),
            before,
            ops,
            after,
            revived,
            creation,
        }
    }
}

/// Inserts puts that take a block of a slab that another thread has just begun.
fn in_slabs_of_others(dice: &mut RandomSource, ops: Vec<Op>, mut next: Version, keys: usize) -> Vec<Op> {
    let mut more = Vec::new();
    for op in ops {
        more.push(op);
        if dice.roll(3) == 0 {
            next += 1;
            more.push(Op::Background(8 * (next % RARE_BYTES.len() as u64) + 6));
            more.push(Op::Put(dice.roll(keys as u64) as Key, RARE + next));
        }
    }
    more
}

/// Takes one block of each slab that another thread has just begun, and does nothing else.
fn only_slabs_of_others(keys: usize) -> Vec<Op> {
    let sizes = 0..RARE_BYTES.len() as u64;
    let begun_and_used =
        |size| [Op::Background(8 * size + 6), Op::Put(size as usize % keys, RARE + (8 << 20) + size)];
    sizes.flat_map(begun_and_used).collect()
}

/// Size of the block of a version in bytes: small, whole lines, or larger than any size class.
fn bytes_of(version: Version) -> usize {
    match version.checked_sub(RARE) {
        Some(rare) => RARE_BYTES[rare as usize % RARE_BYTES.len()],
        None => [HEAD, 64, 200, 480, BYTES_MAX][(version % 5) as usize],
    }
}

/// The words of a block, all determined by its key and version.
fn words_of(key: Key, version: Version) -> impl Iterator<Item = u64> {
    let rest = std::iter::repeat(version.wrapping_mul(MAGIC));
    [MAGIC, key as u64, version].into_iter().chain(rest).take(bytes_of(version) / 8)
}

/// A pool under test.
pub struct RootsUnderTest<M: MappedMedium> {
    pool: Pool<M>,
    names: Arc<Vec<String>>,
}

impl<M: MappedMedium> RootsUnderTest<M> {
    fn over(pool: Pool<M>, plan: &Plan) -> Self {
        Self { pool, names: plan.names() }
    }

    fn root(&self, key: Key) -> Result<Option<u64>, String> {
        self.pool.root(&self.names[key], KIND).map_err(|error| error.to_string())
    }

    /// The version in the block at `offset`, if the whole block is as it was written.
    fn version(&self, guard: &Guard<'_, M>, key: Key, offset: u64) -> Result<Version, String> {
        let block = |len| guard.bytes(offset, len).ok_or("its root points out of the pool");
        let word =
            |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let version = word(block(HEAD)?, 16);
        let bytes = block(bytes_of(version))?;
        let sound =
            words_of(key, version).eq(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
        if sound { Ok(version) } else { Err("its block is not as it was written".into()) }
    }

    /// The block of a key, and its version.
    fn block_of(&self, key: Key) -> Result<Option<(u64, Version)>, String> {
        let guard = self.pool.pin();
        let version = |offset| Ok((offset, self.version(&guard, key, offset)?));
        self.root(key)?.map(version).transpose()
    }

    /// Points the root to a new block, or clears it, and retires the old block.
    fn set(&self, key: Key, old: Option<(u64, Version)>, to: Option<Version>) -> Result<(), PoolFull> {
        let guard = self.pool.pin();
        let new = to.map(|version| self.block(&guard, key, version)).transpose()?;
        let (was, is) = (old.map_or(0, |(offset, _)| offset), new.unwrap_or(0));
        // Both ways to change a root, in turn.
        let swaps = old.is_some() && to.is_none_or(|version| version % 2 == 0);
        if swaps {
            assert_eq!(
                self.pool.swap_root(&self.names[key], KIND, was, is),
                Ok(true),
                "the root was just read"
            );
        } else {
            self.pool.set_root(&self.names[key], KIND, is).expect("there are roots for all keys");
        }
        if let Some((old, version)) = old {
            guard.retire(old, bytes_of(version));
        }
        Ok(())
    }

    fn block(&self, guard: &Guard<'_, M>, key: Key, version: Version) -> Result<u64, PoolFull> {
        let block = guard.alloc(bytes_of(version))?;
        let mut bytes = [[0; 8]; BYTES_MAX / 8];
        let words = bytes_of(version) / 8;
        bytes.iter_mut().zip(words_of(key, version)).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
        block.write(0, bytes[..words].as_flattened());
        // PERSIST: the block before the root.
        Ok(block.persist().into_offset())
    }

    fn background(&self, step: u64) {
        match step % 8 {
            0 | 4 => self.churn(step / 4),
            1 | 5 => {
                let size = (self.pool.size() + (4096 << (step / 4 % 3))).min(Roots::BYTES.1 as u64);
                let _ = self.pool.grow(size);
            }
            2 if step / 8 % 2 == 1 => _ = self.pool.reclaim_nonblocking(),
            2 => _ = self.pool.reclaim_blocking(),
            6 => self.begin_slab(step / 8),
            _ => self.churn(step / 4 + 1),
        }
    }

    /// Another thread takes a block of a rare size, which begins a slab, and leaves the rest of the
    /// slab to other threads. It executes no fence of its own.
    fn begin_slab(&self, seed: u64) {
        let bytes = bytes_of(RARE + seed % RARE_BYTES.len() as u64);
        let pool = &self.pool;
        let block = in_other_thread(|| {
            let block = pool.pin().alloc(bytes).ok().map(|block| block.fenced_later().into_offset());
            pool.reclaim_blocking();
            block
        });
        block.into_iter().for_each(|block| pool.pin().free(block, bytes));
    }

    /// Allocates some blocks, and frees or retires them.
    fn churn(&self, seed: u64) {
        let guard = self.pool.pin();
        let sizes = (0..4 + seed % 8).map(|i| bytes_of(seed / 8 + i));
        let blocks: Vec<_> = sizes.filter_map(|bytes| Some((guard.alloc(bytes).ok()?, bytes))).collect();
        for (i, (block, bytes)) in blocks.into_iter().enumerate() {
            let offset = block.fenced_later().into_offset();
            if i % 2 == 0 { guard.free(offset, bytes) } else { guard.retire(offset, bytes) }
        }
    }

    fn write(&self, op: &Op) -> Result<Option<Version>, PoolFull> {
        let key = match *op {
            Op::Put(key, _) | Op::Insert(key, _) | Op::Update(key, _) | Op::Remove(key) => key,
            Op::Swap(key, ..) => key,
            Op::Background(step) => {
                self.background(step);
                return Ok(None);
            }
            Op::Batch(_) | Op::Puts(_) => return Ok(None),
        };
        let old = self.block_of(key).unwrap_or(None);
        let before = old.map(|(_, version)| version);
        let to = match *op {
            Op::Put(_, version) => Some(Some(version)),
            Op::Insert(_, version) => before.is_none().then_some(Some(version)),
            Op::Update(_, version) => before.map(|_| Some(version)),
            Op::Swap(_, expected, new) => (before == expected).then_some(new),
            _ => before.map(|_| None),
        };
        if let Some(to) = to.filter(|to| (before, *to) != (None, None)) {
            self.set(key, old, to)?;
        }
        Ok(before)
    }

    fn trace(&self, marker: &mut Marker<'_>) {
        let guard = self.pool.pin();
        for key in 0..self.names.len() {
            if let Ok(Some(offset)) = self.root(key)
                && let Ok(version) = self.version(&guard, key, offset)
            {
                marker.mark(offset, bytes_of(version));
            }
        }
    }
}

impl<M: MappedMedium> Subject<M> for RootsUnderTest<M> {
    fn create(medium: M, plan: &Plan) -> Self {
        Self::over(options(plan).create_on(medium).expect("a pool in new memory"), plan)
    }

    fn recover(medium: M, plan: &Plan) -> Result<Option<Self>, String> {
        match options(plan).open_on(medium) {
            Ok(pool) => Ok(Some(Self::over(pool, plan))),
            Err(error) if is_unmade(plan, &error) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    fn apply(&self, op: &Op) -> Reply {
        written(&self.pool, || self.write(op))
    }

    fn get(&self, key: Key) -> Result<Option<Version>, String> {
        Ok(self.block_of(key)?.map(|(_, version)| version))
    }

    fn scan(&self, each: &mut dyn FnMut(Key, Version)) -> Result<(), String> {
        let guard = self.pool.pin();
        for root in self.pool.roots() {
            let Some(offset) = root.offset else { continue };
            let key = self
                .names
                .iter()
                .position(|name| *name == root.name)
                .ok_or("a root that no operation made")?;
            each(key, self.version(&guard, key, offset)?);
        }
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

    fn salvaged(medium: &dyn Fn() -> M, plan: &Plan) -> Result<Vec<(Key, Version)>, String> {
        // Blocks have no checksums, so no content can be trusted.
        refused_after_reboot(medium(), plan).map(|()| Vec::new())
    }
}
