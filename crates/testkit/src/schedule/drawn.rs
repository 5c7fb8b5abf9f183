//! Operations of threads, drawn at random: similar to those of a plan.

use super::scenario::ThreadOp;
use crate::crash::{Key, Op, Plan, RandomSource, Version};

/// Maximum number of keys on which threads conflict.
const HOT: u64 = 3;
/// Maximum number of operations of a thread.
const EACH: u64 = 4;

/// Generates operations of `count` threads, similar to `like`, for a store that has executed
/// `plan.before`.
pub(super) fn random_threads(
    dice: &mut RandomSource,
    plan: &Plan,
    like: &[Op],
    count: usize,
    next: &mut Version,
) -> Vec<Vec<ThreadOp>> {
    let hot: Vec<Key> = (0..1 + dice.roll(HOT)).map(|_| plan.hot_key(dice)).collect();
    let mut known: Vec<(Key, Version)> = Vec::new();
    let mut draw = |dice: &mut RandomSource| {
        let key = if dice.roll(4) == 0 { dice.roll(plan.keys as u64) as Key } else { *dice.pick(&hot) };
        match dice.roll(16) {
            0..4 => return ThreadOp::Get(key),
            4 => return ThreadOp::Scan,
            _ if like.is_empty() => return ThreadOp::Get(key),
            _ => {}
        }
        let op = dice.pick(like).moved_to(key, next, &known, dice);
        known.extend(op.written());
        ThreadOp::Do(op)
    };
    (0..count).map(|_| (0..1 + dice.roll(EACH)).map(|_| draw(dice)).collect()).collect()
}

impl Plan {
    /// A version higher than any in the plan.
    pub(super) fn all_versions(&self) -> Version {
        let ops = self.before.iter().chain(&self.ops);
        // The versions of the plan's last operations may already be near the maximum.
        ops.flat_map(Op::written).map(|(_, version)| version).max().unwrap_or(0) + 0x1000
    }
}

impl Op {
    /// The keys that this may change.
    pub(crate) fn keys(&self) -> Vec<Key> {
        match self {
            Self::Put(key, _) | Self::Insert(key, _) | Self::Update(key, _) => vec![*key],
            Self::Remove(key) | Self::Swap(key, ..) => vec![*key],
            Self::Batch(effects) => effects.iter().map(|effect| effect.0).collect(),
            Self::Puts(puts) => puts.iter().map(|put| put.0).collect(),
            Self::Background(_) => Vec::new(),
        }
    }

    /// The versions that this may write.
    pub(super) fn written(&self) -> Vec<(Key, Version)> {
        match self {
            Self::Put(key, version) | Self::Insert(key, version) | Self::Update(key, version) => {
                vec![(*key, *version)]
            }
            Self::Swap(key, _, new) => new.iter().map(|&new| (*key, new)).collect(),
            Self::Batch(effects) => effects.iter().filter_map(|&(key, to)| Some((key, to?))).collect(),
            Self::Puts(puts) => puts.clone(),
            Self::Remove(_) | Self::Background(_) => Vec::new(),
        }
    }

    /// The keys that this may remove.
    pub(super) fn removed(&self) -> Vec<Key> {
        match self {
            Self::Remove(key) | Self::Swap(key, _, None) => vec![*key],
            Self::Batch(effects) => {
                effects.iter().filter(|(_, to)| to.is_none()).map(|&(key, _)| key).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The same kind of operation on another key, with new versions. A swap expects one of the
    /// `known` versions of the key, or none.
    pub(super) fn moved_to(
        &self,
        key: Key,
        next: &mut Version,
        known: &[(Key, Version)],
        dice: &mut RandomSource,
    ) -> Self {
        let mut version = || {
            *next += 1;
            *next
        };
        match self {
            Self::Put(..) => Self::Put(key, version()),
            Self::Insert(..) => Self::Insert(key, version()),
            Self::Update(..) => Self::Update(key, version()),
            Self::Remove(_) => Self::Remove(key),
            Self::Swap(_, _, new) => {
                let of_key: Vec<Version> =
                    known.iter().filter(|known| known.0 == key).map(|known| known.1).collect();
                let expected = if of_key.is_empty() { None } else { Some(*dice.pick(&of_key)) };
                Self::Swap(key, expected, new.map(|_| version()))
            }
            Self::Batch(effects) => {
                let first = (key, effects.first().and_then(|first| first.1).map(|_| version()));
                let rest = effects.iter().skip(1).filter(|effect| effect.0 != key);
                let rest: Vec<_> = rest.map(|&(key, to)| (key, to.map(|_| version()))).collect();
                Self::Batch(std::iter::once(first).chain(rest).collect())
            }
            Self::Puts(puts) => {
                let rest = puts.iter().skip(1).filter(|put| put.0 != key);
                let keys = std::iter::once(key).chain(rest.map(|put| put.0));
                Self::Puts(keys.map(|key| (key, version())).collect())
            }
            Self::Background(step) => Self::Background(*step),
        }
    }
}
