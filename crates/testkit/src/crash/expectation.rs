//! What a crash may leave of a history.

use super::memory::hash;
use super::subject::{Effect, Version};
use crate::observer::Violation;

/// The states that a crash may leave.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    /// The result of the operations that have returned.
    pub before: Vec<Option<Version>>,
    /// The effects of operations in progress; each of them applies as a whole or not at all.
    pub under_way: Vec<Vec<Effect>>,
    /// Effects of operations in progress that apply independently.
    pub loose: Vec<Effect>,
    /// Whether the store may be absent.
    pub may_be_absent: bool,
}

impl Expectation {
    pub(super) fn number(&self) -> u64 {
        let before = self.before.iter().fold(u64::from(self.may_be_absent), hash_of);
        let effects = self.under_way.iter().flatten().chain(&self.loose);
        effects.fold(before, |number, (key, to)| hash_of(hash(number, *key as u64), to))
    }

    /// Checks the content of a recovered store.
    pub fn check(&self, found: &[Option<Version>]) -> Result<(), Violation> {
        let effects = || self.under_way.iter().flatten().chain(&self.loose);
        for (key, (&is, &was)) in found.iter().zip(&self.before).enumerate() {
            if is != was && !effects().any(|&effect| effect == (key, is)) {
                return Err(format!("get(k{key}) = {}, but should be {}", display(is), self.allowed(key)));
            }
        }
        self.under_way.iter().try_for_each(|batch| self.check_batch(batch, found))
    }

    fn allowed(&self, key: usize) -> String {
        let others = self.under_way.iter().flatten().chain(&self.loose).filter(|effect| effect.0 == key);
        let all: Vec<String> = std::iter::once(display(self.before[key]))
            .chain(others.map(|effect| display(effect.1)))
            .collect();
        all.join(" or ")
    }

    fn check_batch(&self, batch: &[Effect], found: &[Option<Version>]) -> Result<(), Violation> {
        // A key that another operation in progress may have written, or that had this value before,
        // proves nothing.
        let is_conclusive = |&&(key, to): &&Effect| {
            let others = self.under_way.iter().flatten().chain(&self.loose).filter(|effect| effect.0 == key);
            self.before[key] != to && others.count() == 1
        };
        let done: Vec<(usize, bool)> =
            batch.iter().filter(is_conclusive).map(|&(key, to)| (key, found[key] == to)).collect();
        let one = |is| done.iter().find(|&&(_, done)| done == is).map(|(key, _)| key);
        match (one(true), one(false)) {
            (Some(new), Some(old)) => Err(format!("of one batch, k{new} was changed and k{old} was not")),
            _ => Ok(()),
        }
    }
}

/// Mixes the state of a key into a hash.
pub(super) fn hash_of(number: u64, version: &Option<Version>) -> u64 {
    hash(number, version.map_or(0, |version| version + 1))
}

pub(super) fn display(version: Option<Version>) -> String {
    version.map_or("none".into(), |version| format!("v{version}"))
}
