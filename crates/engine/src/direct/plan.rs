//! What a commit is to do, key by key.

use crate::engine::{Expected, What, Write};
use crate::{Version, WriteError};
use std::collections::BTreeMap;

/// One key of a batch.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) key: &'a [u8],
    /// `None`: it stays as it is.
    pub(super) what: Option<What<'a>>,
    /// The position of an expectation and the version that it wants.
    pub(super) expected: Option<(usize, Version)>,
}

impl<'a> Step<'a> {
    /// Whether it must not have come and gone since someone looked.
    pub(super) fn expects_absence(&self) -> bool {
        self.expected.is_some_and(|(_, version)| version.absence.is_some())
    }

    /// Keeps others from changing a key.
    pub(super) fn keep(key: &'a [u8]) -> Self {
        Self { key, what: None, expected: None }
    }

    /// Removes a key.
    pub(super) fn remove(key: &'a [u8]) -> Self {
        Self { key, what: Some(What::Remove), expected: None }
    }
}

/// Why a batch was taken back.
pub(super) enum Trouble {
    Changed(usize),
    /// A value that a new record takes over has been moved since: to be prepared anew.
    Moved,
    Failed(WriteError),
}

impl<E: Into<WriteError>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The keys of a commit, each once; or the expectation that contradicts another one.
pub(super) fn plan<'a>(writes: &[Write<'a>], expected: &[Expected<'a>]) -> Result<Vec<Step<'a>>, usize> {
    let mut steps: Vec<Step<'a>> = Vec::with_capacity(writes.len() + expected.len());
    let mut places: BTreeMap<&[u8], usize> = BTreeMap::new();
    for write in writes {
        // Written twice: the last one counts.
        let place = *places.entry(write.key).or_insert(steps.len());
        if place == steps.len() {
            steps.push(Step::keep(write.key));
        }
        steps[place].what = Some(write.what);
    }
    for (nth, &(key, version)) in expected.iter().enumerate() {
        let place = *places.entry(key).or_insert(steps.len());
        if place == steps.len() {
            steps.push(Step::keep(key));
        }
        let both = match steps[place].expected {
            None => (nth, version),
            Some((earlier, other)) => (earlier, both(other, version).ok_or(earlier)?),
        };
        steps[place].expected = Some(both);
    }
    Ok(steps)
}

/// What is expected if both are; `None` if they contradict each other.
fn both(a: Version, b: Version) -> Option<Version> {
    let agree = a.token == b.token && (a.absence.is_none() || b.absence.is_none() || a.absence == b.absence);
    agree.then_some(Version { absence: a.absence.or(b.absence), ..a })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Token;
    use crate::entry::Absence;

    #[test]
    fn what_is_expected_of_a_key_twice_must_agree() {
        let absence = |removals| Some(Absence { removals, expired: None });
        let [absent, since, since_later] =
            [None, absence(1), absence(2)].map(|absence| Version { token: None, absence });
        let there = Version::from(Some(Token { sum: 64, stamp: 1 }));
        let (a, other) = (&b"a"[..], (&b"b"[..], there));
        let planned = |first, second| {
            let steps = plan(&[], &[other, (a, first), other, (a, second)])?;
            assert!(steps.len() == 2 && steps[0].key == b"b");
            Ok(steps[1].expected)
        };
        assert_eq!(planned(there, there), Ok(Some((1, there))));
        assert_eq!(planned(absent, absent), Ok(Some((1, absent))));
        // That it has been so all along says more than that it is so.
        for (first, second) in [(since, absent), (absent, since), (since, since)] {
            assert_eq!(planned(first, second), Ok(Some((1, since))));
        }
        for (first, second) in [(there, absent), (absent, there), (since, since_later), (there, since)] {
            assert_eq!(planned(first, second), Err(1));
        }
    }
}
