//! Threads that meet at the allocator on purpose: a few of them do a few things each to memory that is in the very state in which what one does matters to another. Of every order that the allocator asks for, some
//! story here is the one that goes wrong without it (`docs/orders.md`); by chance, as in [`Blocks`](super::Blocks), it hardly ever comes about.
//!
//! Who has taken a block out of its slot has it alone: it reads it and frees it at once. So of two who use the same memory after one another, nothing orders the first against the second but the allocator, and where
//! that is missing it is a race.

use super::options::{findings, is_unmade, options, shared};
use crate::schedules::KINDS_OF_RUNS;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::{Guard, Liveness, Marker, Pool};
use terrace_testkit::crash::{Dice, Key, Op, Plan, Reply, Subject, Target, Version};
use terrace_testkit::schedule::{Act, Manner, Scenario};

/// A pool with a table of blocks.
pub struct Stories;

const ROOT: &str = "table";
const KIND: &str = "lab";
/// Blocks that go from hand to hand.
const SLOTS: u64 = 16;
/// Words of the table: slots, and behind them what is only there so that there is no room for others.
const TABLE: u64 = 240;
const MAGIC: u64 = 0x7374_6f72_6965_7321;

/// Bytes of the kinds of blocks: three of slabs, with 168, 8 and 7 blocks each; and extents, of a fourth of a unit, of half of one, of a whole one, of more.
const KINDS: [usize; 7] = [24, 480, 512, 1024, 2048, 4096, 5000];
const SLABS: std::ops::Range<u64> = 0..3;

/// What a thread does in one go.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// Puts a new block into a slot.
    Give,
    /// Takes the block out of a slot.
    Take,
    /// Takes two to four blocks, and gives them up.
    Churn,
    /// Asks back what nobody uses.
    Relieve,
    Tidy,
    /// Leaves blocks to nobody, as a process does that dies, and sees to it that they are collected.
    Leak,
    /// Takes the block out of a slot and leaves it to nobody.
    Lose,
    /// Collects, if there is anything to collect.
    Collect,
    /// Reads the block of a slot that others may take out.
    Read,
    /// Asks for memory until it has some, or all has been collected.
    Want,
    /// Makes the pool longer.
    Grow,
    /// Watches the slots, and looks at one of them then.
    Watch,
}

use Deed::{Churn, Collect, Give, Grow, Leak, Lose, Read, Relieve, Take, Tidy, Want, Watch};

/// What happens in a run.
struct Story {
    /// Kinds of blocks.
    kinds: &'static [u64],
    /// Units that are left, if all others are taken.
    room: Option<u64>,
    /// What each thread does, in the order of its shares.
    threads: &'static [&'static [Deed]],
    /// Whether readers read what others take out.
    is_read: bool,
    /// Whether a crash comes first.
    is_reopened: bool,
    /// Whether what fills the pool is nobody's.
    is_garbage: bool,
    /// Slabs more, of each kind of slab, of which some blocks are free.
    slabs: u64,
    /// Whether who changes a slot tells those who watch.
    is_watched: bool,
}

const HANDS: &[Deed] = &[Give, Take, Give, Take, Churn];
const STORY: Story = Story {
    kinds: &[],
    room: None,
    threads: &[],
    is_read: false,
    is_reopened: false,
    is_garbage: false,
    slabs: 0,
    is_watched: false,
};

const STORIES: [Story; 22] = [
    // Slabs that are left full while others free blocks of them.
    Story { kinds: &[1], threads: &[HANDS, HANDS, HANDS], ..STORY },
    Story { kinds: &[0], threads: &[HANDS, HANDS, HANDS], ..STORY },
    // And are given back, and are something else then.
    Story {
        kinds: &[1, 2, 3, 5],
        room: Some(2),
        threads: &[HANDS, &[Take, Give, Relieve], &[Take, Take, Give]],
        ..STORY
    },
    Story { kinds: &[1, 5], room: Some(1), threads: &[&[Churn, Relieve], HANDS, HANDS], ..STORY },
    // The last granules of a unit.
    Story { kinds: &[3, 4], room: Some(1), threads: &[&[Give, Take, Churn], HANDS, HANDS], ..STORY },
    // Somebody collects.
    Story { kinds: &[0, 1], threads: &[&[Leak, Collect], &[Give, Take, Lose, Churn], HANDS], ..STORY },
    Story {
        kinds: &[1, 3, 5],
        room: Some(3),
        threads: &[&[Leak, Collect], &[Churn, Relieve, Give, Take, Tidy, Lose], HANDS],
        ..STORY
    },
    Story {
        kinds: &[1, 5],
        room: Some(1),
        threads: &[&[Leak, Collect], &[Churn, Relieve], &[Churn, Take, Give, Tidy]],
        ..STORY
    },
    // Blocks that are read while others take them out, and that are used again.
    Story {
        kinds: &[1],
        room: Some(0),
        threads: &[&[Give, Relieve, Give], &[Read], &[Read, Give, Relieve, Churn]],
        is_read: true,
        ..STORY
    },
    // The same, and somebody collects.
    Story {
        kinds: &[2],
        room: Some(2),
        threads: &[&[Leak, Collect], &[Give, Take, Lose, Churn], &[Read, Give, Take]],
        is_read: true,
        ..STORY
    },
    // Units that come into this era while somebody marks what is in them.
    Story {
        kinds: &[0, 1, 3],
        threads: &[&[Collect], HANDS, &[Take, Give]],
        is_read: true,
        is_reopened: true,
        ..STORY
    },
    // Memory that comes back while somebody asks for it.
    Story {
        kinds: &[5],
        room: Some(0),
        threads: &[&[Collect, Leak], &[Want], &[Want, Grow]],
        is_reopened: true,
        is_garbage: true,
        ..STORY
    },
    // New memory.
    Story { kinds: &[3, 5, 6], room: Some(0), threads: &[&[Grow, Give], HANDS, HANDS], ..STORY },
    // What is retired where there is no memory to note it in but the reserve.
    Story {
        kinds: &[1],
        room: Some(0),
        threads: &[&[Give, Take, Give], &[Take, Give, Take], &[Collect, Leak, Take]],
        is_read: true,
        ..STORY
    },
    // Memory that comes back while somebody asks for it, of what was left in this era.
    Story {
        kinds: &[5],
        room: Some(0),
        threads: &[&[Collect, Leak], &[Want], &[Want]],
        is_garbage: true,
        ..STORY
    },
    // Garbage in slabs that somebody fills and leaves.
    Story {
        kinds: &[1],
        threads: &[&[Collect], &[Give, Lose, Give, Give], &[Give, Lose, Take, Give]],
        ..STORY
    },
    // Lists of several slabs, which are looked through while others change them.
    Story {
        kinds: &[1],
        slabs: 4,
        threads: &[&[Leak, Collect], &[Churn, Give, Take], &[Churn, Take, Give, Relieve]],
        ..STORY
    },
    // Blocks that are read until just before they are used again, by somebody who was there already.
    Story {
        kinds: &[2, 5],
        room: Some(0),
        threads: &[&[Give, Take, Give, Churn], &[Read, Read, Take], &[Tidy, Give, Relieve]],
        is_read: true,
        ..STORY
    },
    // Slots that are watched.
    Story { kinds: &[0], threads: &[&[Watch], &[Give, Take], &[Watch, Give]], is_watched: true, ..STORY },
    // Units that come into this era while what is in them is freed at once, and used again.
    Story {
        kinds: &[1, 3],
        threads: &[&[Collect], &[Take, Churn, Give], &[Take, Give, Churn]],
        is_reopened: true,
        ..STORY
    },
    // A block that a collection frees, for who has been there since before, and who has seen its last reader go.
    Story {
        kinds: &[1],
        room: Some(1),
        threads: &[&[Collect], &[Lose, Give, Churn, Give], &[Read, Tidy, Take]],
        is_read: true,
        ..STORY
    },
    // Granules of units that are slabs by turns, while somebody collects.
    Story {
        kinds: &[1, 2, 5],
        room: Some(2),
        threads: &[&[Leak, Collect], &[Churn, Churn, Relieve], &[Churn, Relieve, Churn, Lose]],
        ..STORY
    },
];

/// Steps of background work: `| 63 setup | 62:16 dice | 15:12 times | 11:8 who | 7:0 the story |`.
const SETUP: u64 = 1 << 63;

impl Stories {
    /// What happens in the run with this seed if it is left to chance.
    fn number(seed: u64) -> u64 {
        Dice::new(seed ^ 0x7461_6c65).roll(STORIES.len() as u64)
    }

    fn code(dice: &mut Dice, story: u64, thread: u64) -> Op {
        let times = 1 + dice.roll(4);
        Op::Background(dice.bits() >> 17 << 16 & !SETUP | times << 12 | thread << 8 | story)
    }
}

impl Target for Stories {
    const NAME: &'static str = "stories";
    const BYTES: (usize, usize) = (64 << 10, 128 << 10);
    type Subject<M: MappedMedium> = Told<M>;

    fn plan(seed: u64) -> Plan {
        Self::plan_of(Self::number(seed), seed)
    }
}

impl Stories {
    /// The plan of a story.
    fn plan_of(story: u64, seed: u64) -> Plan {
        let mut dice = Dice::new(seed ^ 0x706c_616e);
        let threads = STORIES[story as usize].threads.len() as u64;
        let before = vec![Op::Background(SETUP | dice.bits() >> 17 << 16 | story)];
        let ops = (0..12).map(|nth| Self::code(&mut dice, story, nth % threads)).collect();
        let (names, after, revived) = (Arc::new(()), Vec::new(), Vec::new());
        Plan { seed, keys: 1, threads: 1, names, before, ops, after, revived, creation: false }
    }

    /// What happens in the run with this number and seed: stories go by number, and in one of six it happens to participants, of whom some may die.
    pub fn scenario(number: u64, seed: u64) -> Scenario {
        let (number, is_shared) =
            (number % KINDS_OF_RUNS % STORIES.len() as u64, (number / KINDS_OF_RUNS).is_multiple_of(6));
        let story = &STORIES[number as usize];
        let mut dice = Dice::new(seed ^ 0x7468_7265_6164);
        let mut draw = |thread: usize| {
            (0..2 + dice.roll(3)).map(|_| Act::Do(Self::code(&mut dice, number, thread as u64))).collect()
        };
        let threads: Vec<Vec<Act>> = (0..story.threads.len()).map(&mut draw).collect();
        let manners = vec![Manner::Apart; threads.len()];
        let is_reopened = story.is_reopened && !is_shared;
        Scenario { manners, is_shared, is_reopened, ..Scenario::of(Self::plan_of(number, seed), threads) }
    }
}

/// A pool under test.
pub struct Told<M: MappedMedium> {
    pool: Pool<M>,
    table: u64,
    is_shared: bool,
    /// One thread at a time collects: the others would wait for it.
    collects: AtomicBool,
    /// One grows the pool: the others would wait for a mutex.
    grows: AtomicBool,
    /// What was watched, and what was there then.
    watched: Mutex<Vec<Watched<M>>>,
}

/// A slot that is watched.
struct Watched<M: MappedMedium> {
    watch: terrace_pool::Watch<M>,
    slot: u64,
    /// What was in it.
    seen: u64,
}

/// What slots are called by those who watch them.
const WATCHED: &[u8] = b"slot";
/// Watches of all threads, at most.
const WATCHES: usize = 3;

/// The bytes of a block, by its first word.
fn bytes_of(stamp: u64, bytes: usize) -> Vec<u8> {
    let word = |at: u64| if at == 0 { stamp } else { stamp.wrapping_mul(MAGIC) ^ at };
    (0..bytes.div_ceil(8) as u64).flat_map(|at| word(at).to_le_bytes()).take(bytes).collect()
}

impl<M: MappedMedium> Told<M> {
    fn word(&self, at: u64) -> &Word {
        self.pool.region().at(Offset::new(self.table + 8 * at))
    }

    /// Offset and bytes of what a word of the table names.
    fn named(word: u64) -> Option<(u64, usize)> {
        let bytes = KINDS.get((word & 7) as usize)?;
        (word != 0).then_some((word & !7, *bytes))
    }

    /// A new block, written; as a word of the table.
    fn block(&self, guard: &Guard<'_, M>, kind: u64, stamp: u64) -> Option<u64> {
        let bytes = KINDS[kind as usize];
        let block = guard.alloc(bytes).ok()?;
        block.write(0, &bytes_of(stamp, bytes));
        // PERSIST: the block before whatever names it.
        Some(block.persist().into_offset() | kind)
    }

    /// All of a block is as it was written.
    fn look_at(&self, guard: &Guard<'_, M>, word: u64) {
        let Some((offset, len)) = Self::named(word) else { return };
        let bytes = guard.bytes(offset, len).expect("a block in the pool");
        let stamp = bytes.first_chunk().map_or(0, |first| u64::from_le_bytes(*first));
        assert!(bytes == bytes_of(stamp, len), "the block at {offset:#x} is not as it was written");
    }

    /// Another word in a slot; what was there is looked at and given up.
    fn swap(&self, guard: &Guard<'_, M>, story: &Story, slot: u64, new: u64) {
        let there = self.word(slot);
        let old = there.swap(self.pool.medium(), new, AcqRel);
        // PERSIST: who takes a block out gives it up, so the slot must not name it any more.
        self.pool.region().persist(there);
        if story.is_watched {
            self.pool.tell_watches(WATCHED);
        }
        let Some((offset, bytes)) = Self::named(old) else { return };
        self.look_at(guard, old);
        if story.is_read { guard.retire(offset, bytes) } else { guard.free(offset, bytes) }
    }

    /// Fills the pool as the story has it: of each kind of slab some are full, but for a few blocks.
    fn set_up(&self, story: &Story, dice: &mut Dice) {
        let guard = self.pool.pin();
        let (mut next, mut held) = (SLOTS, Vec::new());
        let mut keep = |word: u64| {
            if next < TABLE {
                self.word(next).store(self.pool.medium(), word, Relaxed);
                next += 1;
            } else if let Some((offset, bytes)) = Self::named(word) {
                guard.free(offset, bytes);
            }
        };
        for &kind in story.kinds.iter().filter(|kind| SLABS.contains(kind)) {
            let blocks = [168, 8, 7][kind as usize] * (1 + dice.roll(2) * u64::from(kind != 0));
            let all: Vec<u64> =
                (0..blocks).filter_map(|nth| self.block(&guard, kind, dice.bits() ^ nth)).collect();
            let spare = 1 + dice.roll(5) as usize;
            for word in all {
                // A few are free or go from hand to hand, of each word of the bitmap some.
                match dice.roll(blocks.div_ceil(spare as u64 * 2)) {
                    0 if held.len() < spare => held.push(word),
                    0 => {
                        if let Some((offset, bytes)) = Self::named(word) {
                            guard.free(offset, bytes)
                        }
                    }
                    _ => keep(word),
                }
            }
        }
        for &kind in story.kinds.iter().filter(|kind| SLABS.contains(kind)) {
            let per_slab = [168, 8, 7][kind as usize];
            let all: Vec<u64> = (0..story.slabs * per_slab)
                .filter_map(|nth| self.block(&guard, kind, dice.bits() ^ nth))
                .collect();
            // Of each slab one is free, so that all of them are in the list.
            for (nth, word) in all.into_iter().enumerate() {
                match Self::named(word) {
                    Some((offset, bytes)) if (nth as u64).is_multiple_of(per_slab) => {
                        guard.free(offset, bytes)
                    }
                    _ => keep(word),
                }
            }
        }
        for (slot, word) in (0..SLOTS).zip(held) {
            self.word(slot).store(self.pool.medium(), word, Relaxed);
        }
        if let Some(room) = story.room {
            let rest: Vec<u64> = std::iter::from_fn(|| self.block(&guard, 5, dice.bits())).collect();
            let small: Vec<u64> = std::iter::from_fn(|| self.block(&guard, 3, dice.bits())).collect();
            let (free, taken) = rest.split_at((room as usize).min(rest.len()));
            if !story.is_garbage {
                taken.iter().chain(&small).for_each(|&word| keep(word));
            }
            free.iter()
                .filter_map(|&word| Self::named(word))
                .for_each(|(offset, bytes)| guard.free(offset, bytes));
        }
        drop(guard);
        if story.is_garbage {
            self.pool.doubt();
        } else if story.is_reopened {
            // What is marked now is so when it is opened again.
            self.pool.doubt();
            self.collect_all();
        }
    }

    fn collect_all(&self) {
        while self.pool.needs_collection() && !self.collects.swap(true, AcqRel) {
            self.pool.collect(&mut |marker| self.trace(marker));
            self.collects.store(false, Release);
        }
    }

    /// Asks for a block until there is one; once it is told that all has been collected there has to be.
    fn want(&self, kind: u64, by_asking: bool) {
        let is_had = || {
            let guard = self.pool.pin();
            let block = self.block(&guard, kind, MAGIC);
            block.and_then(Self::named).is_some_and(|(offset, bytes)| {
                guard.free(offset, bytes);
                true
            })
        };
        if is_had() || !self.pool.needs_collection() {
            return;
        }
        if by_asking {
            self.pool.relieve();
        } else {
            // As many as a collection may take, and more.
            for _ in 0..1 << 12 {
                if !self.pool.needs_collection() {
                    break;
                }
            }
        }
        if !self.pool.needs_collection() {
            assert!(is_had(), "all has been collected, and what came back is not found");
        }
    }

    /// Looks at a slot that is watched: of any change after that the watch is told.
    fn watch(&self, slot: u64) {
        let watched = || self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = watched().len() < WATCHES;
        if has_room && let Ok(watch) = self.pool.watch(WATCHED) {
            let seen = self.word(slot).load(self.pool.medium(), Acquire);
            watched().push(Watched { watch, slot, seen });
        }
    }

    /// Changes that nobody was told of.
    fn missed(&self) -> Vec<String> {
        let watched = std::mem::take(&mut *self.watched.lock().unwrap_or_else(PoisonError::into_inner));
        let missed = watched.into_iter().filter_map(|Watched { mut watch, slot, seen }| {
            let now = self.word(slot).load(self.pool.medium(), Acquire);
            let is_missed = now != seen && !watch.has_changed();
            is_missed.then(|| format!("slot {slot} has changed, and who watches it was not told"))
        });
        missed.collect()
    }

    fn grow(&self) {
        if !self.grows.swap(true, AcqRel) {
            let _ = self.pool.grow((self.pool.size() + (12 << 10)).min(Stories::BYTES.1 as u64));
            self.grows.store(false, Release);
        }
    }

    fn tell(&self, step: u64) {
        let (number, mut dice) = ((step & 255) as usize % STORIES.len(), Dice::new(step >> 16));
        let story = &STORIES[number];
        if step & SETUP != 0 {
            return self.set_up(story, &mut dice);
        }
        let deeds = story.threads[(step >> 8 & 15) as usize % story.threads.len()];
        let slots = 1 + dice.roll(4);
        let mut guard = None;
        // Under one pin, or each under its own.
        let is_one = dice.roll(2) == 0;
        for _ in 0..step >> 12 & 15 {
            let (deed, kind) = (*dice.pick(deeds), *dice.pick(story.kinds));
            let (slot, stamp) = (dice.roll(slots), dice.bits());
            if let Relieve | Tidy | Leak | Collect | Want | Grow | Watch = deed {
                guard = None;
                match deed {
                    Relieve => _ = self.pool.relieve(),
                    Tidy => _ = self.pool.tidy(),
                    Leak => {
                        let guard = self.pool.pin();
                        (0..stamp % 3).for_each(|_| _ = self.block(&guard, kind, stamp));
                        self.pool.doubt();
                        drop(guard);
                        self.collect_all();
                    }
                    Collect => self.collect_all(),
                    Want => self.want(kind, stamp % 2 == 0),
                    Watch => self.watch(slot),
                    _ => self.grow(),
                }
                continue;
            }
            let pin = guard.take().unwrap_or_else(|| self.pool.pin());
            match deed {
                Give => {
                    if let Some(new) = self.block(&pin, kind, stamp) {
                        self.swap(&pin, story, slot, new);
                    }
                }
                Take => self.swap(&pin, story, slot, 0),
                Lose => {
                    let there = self.word(slot);
                    let word = there.swap(self.pool.medium(), 0, AcqRel);
                    // PERSIST: it is collected once it is not named any more.
                    self.pool.region().persist(there);
                    self.look_at(&pin, word);
                    self.pool.doubt();
                }
                Read => self.look_at(&pin, self.word(slot).load(self.pool.medium(), Acquire)),
                _ => {
                    let blocks: Vec<u64> =
                        (0..2 + stamp % 3).filter_map(|_| self.block(&pin, kind, stamp)).collect();
                    for word in blocks {
                        self.look_at(&pin, word);
                        if let Some((offset, bytes)) = Self::named(word) {
                            pin.free(offset, bytes);
                        }
                    }
                }
            }
            guard = Some(pin).filter(|_| is_one);
        }
    }

    fn trace(&self, marker: &mut Marker<'_>) {
        let _guard = self.pool.pin();
        marker.mark(self.table, 8 * TABLE as usize);
        for at in 0..TABLE {
            let word = self.word(at).load(self.pool.medium(), Acquire);
            if let Some((offset, bytes)) = Self::named(word) {
                // PERSIST: whoever put it there may have died before it was durable, and what it took the place of is freed for not being marked.
                self.pool.region().persist(self.word(at));
                marker.mark(offset, bytes);
            }
        }
    }

    fn over(pool: Pool<M>, table: u64) -> Self {
        let [collects, grows] = [(); 2].map(|()| AtomicBool::new(false));
        Self { pool, table, is_shared: false, collects, grows, watched: Mutex::default() }
    }
}

/// Makes the table, with nothing in it.
fn new_table<M: MappedMedium>(pool: &Pool<M>) -> u64 {
    let guard = pool.pin();
    let block = guard.alloc(8 * TABLE as usize).expect("a table in a new pool");
    block.write(0, &[0; 8 * TABLE as usize]);
    // PERSIST: the table before the root.
    let table = block.persist().into_offset();
    pool.set_root(ROOT, KIND, table).expect("a root in a new pool");
    table
}

impl<M: MappedMedium> Subject<M> for Told<M> {
    fn create(medium: M, plan: &Plan) -> Self {
        let pool = options(plan).create_on(medium).expect("a pool in new memory");
        let table = new_table(&pool);
        Self::over(pool, table)
    }

    fn share(medium: M, plan: &Plan, liveness: Arc<dyn Liveness>, first: bool) -> Result<Self, String> {
        let pool = shared(medium, plan, liveness, first)?;
        let opening = pool.bring_up();
        let table = pool.root(ROOT, KIND).map_err(|error| error.to_string())?;
        let table = table.unwrap_or_else(|| new_table(&pool));
        opening.done();
        Ok(Self { is_shared: true, ..Self::over(pool, table) })
    }

    fn recover(medium: M, plan: &Plan) -> Result<Option<Self>, String> {
        let pool: Pool<M> = match options(plan).open_on(medium) {
            Ok(pool) => pool,
            Err(error) if is_unmade(plan, &error) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let table = pool.root(ROOT, KIND).map_err(|error| error.to_string())?;
        Ok(table.map(|table| Self::over(pool, table)))
    }

    fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    fn apply(&self, op: &Op) -> Reply {
        if let Op::Background(step) = op {
            self.tell(*step);
        }
        Reply::Found(None)
    }

    fn get(&self, _: Key) -> Result<Option<Version>, String> {
        Ok(None)
    }

    fn scan(&self, _: &mut dyn FnMut(Key, Version)) -> Result<(), String> {
        Ok(())
    }

    fn collect(&self) {
        self.pool.collect(&mut |marker| self.trace(marker));
    }

    fn verify(&self) -> Vec<String> {
        // What was lost last.
        self.collect();
        let mut findings = findings(&self.pool);
        findings.extend(self.missed());
        // If nobody shares the pool, the next opening collects them.
        let lost = self.pool.space().lost;
        if self.is_shared && lost != 0 {
            findings.push(format!("{lost} bytes are said to be lost once all is collected"));
        }
        findings
    }

    fn blocks(&self) -> Vec<(u64, u64)> {
        self.pool.reachable(&mut |marker| self.trace(marker))
    }

    fn abandon(self) {
        // A watch keeps the pool open.
        drop(self.watched);
        self.pool.abandon();
    }
}
