//! A fixed history of writes and background work, for tests that repeat it with one fault each.

use crate::contents::Model;
use crate::small::Draws;
use std::collections::BTreeMap;
use std::path::PathBuf;
use terrace_engine::{Chore, Durably, Engine, OnDisk, Put, Rest, Write, WriteError, WriteKind};

/// A step of a history.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Batch(BTreeMap<Vec<u8>, Option<Vec<u8>>>),
    Clear,
    /// Freezes and flushes every MemTable, and merges what is due.
    Flush,
    Work(Chore),
    /// Makes a checkpoint with this name.
    Checkpoint(PathBuf),
}

/// A history that has everything in it.
pub(crate) fn history(seed: u64, steps: usize) -> Vec<Step> {
    let mut draws = Draws(seed);
    let mut all: Vec<Step> = (0..steps).map(|nth| step(&mut draws, nth)).collect();
    all.insert(steps / 3, Step::Checkpoint("/data/copy-one".into()));
    all.insert(steps / 2, Step::Clear);
    all.push(Step::Flush);
    all.push(Step::Checkpoint("/data/copy-two".into()));
    all
}

fn step(draws: &mut Draws, nth: usize) -> Step {
    let key = |draws: &mut Draws| format!("key {:03}", draws.roll(300)).into_bytes();
    let value = |draws: &mut Draws| {
        let len = [3, 40, 700, 5000][draws.roll(4) as usize];
        vec![nth as u8; len]
    };
    match draws.roll(20) {
        0..9 => Step::Put(key(draws), value(draws)),
        9..11 => Step::Remove(key(draws)),
        11..14 => Step::Batch(
            (0..1 + draws.roll(8)).map(|_| (key(draws), (draws.roll(4) > 0).then(|| value(draws)))).collect(),
        ),
        14 if draws.roll(4) == 0 => Step::Flush,
        14..16 => Step::Work(Chore::Flush),
        16..19 => Step::Work(Chore::Merge),
        _ => Step::Work(Chore::Log),
    }
}

impl Step {
    /// Does it to the map.
    pub(crate) fn apply(&self, model: &mut Model) {
        match self {
            Self::Put(key, value) => _ = model.insert(key.clone(), (value.clone(), None)),
            Self::Remove(key) => _ = model.remove(key),
            Self::Batch(batch) => batch.iter().for_each(|(key, value)| match value {
                Some(value) => _ = model.insert(key.clone(), (value.clone(), None)),
                None => _ = model.remove(key),
            }),
            Self::Clear => model.clear(),
            Self::Flush | Self::Work(_) | Self::Checkpoint(_) => {}
        }
    }

    /// Does it to the store.
    pub(crate) fn run(&self, store: &(impl Engine + OnDisk)) -> Result<(), WriteError> {
        match self {
            Self::Put(key, value) => store.put(Put { key, value, expires_at: None }, Durably::Store),
            Self::Remove(key) => store.remove(key, Durably::Store).map(drop),
            Self::Batch(batch) => {
                let put = |value| WriteKind::Put { value, expires_at: None };
                let writes: Vec<Write<'_>> = batch
                    .iter()
                    .map(|(key, value)| Write { key, what: value.as_deref().map_or(WriteKind::Remove, put) })
                    .collect();
                store.commit(&writes, &[], Durably::Store).map(drop)
            }
            Self::Clear => store.clear(Durably::Store),
            Self::Flush => {
                OnDisk::flush(store)?;
                // The tiered engine does it all at once.
                let merges = store.stats().disk.is_some();
                while merges && store.step(Chore::Merge, &|| false) == Rest::More {}
                Ok(())
            }
            Self::Work(chore) => {
                let _ = store.step(*chore, &|| false);
                Ok(())
            }
            Self::Checkpoint(path) => store.checkpoint(path),
        }
    }
}
