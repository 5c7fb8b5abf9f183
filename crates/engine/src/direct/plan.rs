//! What a commit is to do, key by key.

use crate::engine::{Expected, What, Write};
use crate::{Token, WriteError};
use std::collections::BTreeMap;

/// One key of a batch.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) key: &'a [u8],
    /// `None`: it stays as it is.
    pub(super) what: Option<What<'a>>,
    /// The position of an expectation and the version that it wants.
    pub(super) expected: Option<(usize, Option<Token>)>,
}

impl<'a> Step<'a> {
    /// Keeps others from changing a key.
    pub(super) fn keep(key: &'a [u8]) -> Self {
        Self { key, what: None, expected: None }
    }
}

/// Why a batch was taken back.
pub(super) enum Trouble {
    Changed(usize),
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
    for (nth, &(key, token)) in expected.iter().enumerate() {
        let place = *places.entry(key).or_insert(steps.len());
        if place == steps.len() {
            steps.push(Step::keep(key));
        }
        match steps[place].expected {
            None => steps[place].expected = Some((nth, token)),
            Some((_, other)) if other == token => {}
            Some((earlier, _)) => return Err(earlier),
        }
    }
    Ok(steps)
}
