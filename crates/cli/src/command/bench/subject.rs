//! The store as the subject of a workload, through the same calls as a program that embeds it.

use std::{
    hint::black_box,
    ops::{ControlFlow, Range},
};

use terrace::{CURSOR_LIMIT, Change, Cursor, Direction, Put, Store};
use terrace_bench::{Random, Shape, Subject};

use super::options::PREFIX;
use crate::failure::Failure;

/// One thread's handle.
pub(super) struct OfStore<'a> {
    store: &'a Store,
    random: Random,
}

impl<'a> OfStore<'a> {
    pub(super) fn new(store: &'a Store, seed: u64) -> Self {
        Self { store, random: Random::new(seed) }
    }
}

impl Subject for OfStore<'_> {
    type Error = Failure;

    fn read(&mut self, key: &[u8]) -> Result<bool, Failure> {
        let value = self.store.get(key).map_err(Failure::new)?;
        // Read the value, as a caller would.
        Ok(value.is_some_and(|value| {
            black_box(value.first().copied());
            true
        }))
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.store.put(key, value).map_err(Failure::new)
    }

    fn read_modify_write(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Failure> {
        let change = |value: &[u8]| Change::Put { value: value.to_vec(), expires_at: None };
        self.store.modify(key, |entry| (change(value), entry.is_some())).map_err(Failure::new)
    }

    /// Reads `records` records from a key on, in the order of keys; where the index keeps no order,
    /// from a random place on in its own.
    fn scan(&mut self, key: &[u8], records: u32) -> Result<(), Failure> {
        if self.store.is_ordered() {
            let mut range = self.store.range_cursor(key.., Direction::Forward).map_err(Failure::new)?;
            let look = &mut |key: &[u8], _: terrace::Entry<'_>| {
                black_box(key.first().copied());
                ControlFlow::Continue(())
            };
            return range.visit(records as usize, look).map(drop).map_err(Failure::new);
        }
        let look = &mut |key: &[u8], _: terrace::Entry<'_>| _ = black_box(key.first().copied());
        let place = Cursor::from_number(self.random.next() % CURSOR_LIMIT).expect("below the limit");
        self.store.scan(&place, records as usize, look).map(drop).map_err(Failure::new)
    }
}

/// Puts the records `share`.
pub(super) fn fill(store: &Store, shape: &Shape, share: Range<u64>) -> Result<(), Failure> {
    const TOGETHER: usize = 64;
    let mut names = vec![Vec::new(); TOGETHER];
    let mut first = share.start;
    while first < share.end {
        let records = first..share.end.min(first + TOGETHER as u64);
        first = records.end;
        names.iter_mut().zip(records.clone()).for_each(|(name, record)| shape.key(record, name));
        let puts: Vec<Put<'_>> = names
            .iter()
            .zip(records)
            .map(|(key, record)| Put { key, value: shape.value(record, 0), expires_at: None })
            .collect();
        store.put_many(&puts).into_iter().collect::<Result<(), _>>().map_err(Failure::new)?;
    }
    Ok(())
}

/// Removes all keys of the benchmark.
pub(super) fn remove(store: &Store) -> Result<(), Failure> {
    let mut cursor = Cursor::START;
    loop {
        let mut ours = Vec::new();
        cursor = store
            .scan(&cursor, 1000, &mut |key, _| {
                if key.starts_with(PREFIX.as_bytes()) {
                    ours.push(key.to_vec());
                }
            })
            .map_err(Failure::new)?;
        for key in ours {
            store.remove(&key).map_err(Failure::new)?;
        }
        if cursor.is_end() {
            return Ok(());
        }
    }
}
