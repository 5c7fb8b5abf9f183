//! Terrace's store in a directory.

use super::Outcome;
use super::store::{Each, Figures, Setup, Side, Stored, Write};
use std::ops::ControlFlow;
use std::path::Path;
use terrace::{ByteSize, Direction, Durability, Engine, Put, Store};

pub(crate) fn open(directory: &Path, side: Side, setup: Setup) -> Outcome<Box<dyn Stored>> {
    let durability = if setup.is_synced { Durability::Power } else { Durability::Process };
    let options = Store::options().directory(directory).memory(ByteSize::bytes(setup.memory as u64));
    let options = options.durability(durability).read_aware(side != Side::Unaware);
    let engine = if side == Side::Tiered { Engine::Tiered } else { Engine::Wip };
    Ok(Box::new(options.engine(engine).open_or_create()?))
}

impl Stored for Store {
    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(Store::put(self, key, value)?)
    }

    fn write(&self, batch: &[Write<'_>]) -> Outcome<()> {
        if let Some(puts) = batch.iter().map(to_put).collect::<Option<Vec<_>>>() {
            return Ok(self.put_all(&puts)?);
        }
        let mut steps = self.batch();
        for (key, value) in batch {
            match value {
                Some(value) => steps.put(key, value),
                None => steps.remove(key),
            };
        }
        Ok(steps.commit()?)
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        Ok(Store::delete(self, key)?)
    }

    fn get(&self, key: &[u8], each: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        Ok(Store::get(self, key)?.inspect(|value| each(value)).is_some())
    }

    fn range(&self, from: &[u8], is_forward: bool, most: usize, each: &mut Each<'_>) -> Outcome<()> {
        let mut cursor = match is_forward {
            true => self.range_cursor(from.., Direction::Forward),
            false => self.range_cursor(..=from, Direction::Backward),
        }?;
        cursor.visit(most, &mut |key, entry| {
            each(key, entry.value);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    fn snapshot(&self, keys: &[&[u8]]) -> Outcome<Vec<Option<Vec<u8>>>> {
        let (mut values, mut failed) = (vec![None; keys.len()], None);
        self.snapshot_many(keys, &mut |nth, entry| match entry {
            Ok(entry) => values[nth] = entry.map(|entry| entry.value.to_vec()),
            Err(error) => failed = Some(error),
        });
        failed.map_or(Ok(values), |error| Err(error.into()))
    }

    fn flush(&self) -> Outcome<()> {
        Ok(self.disk()?.flush()?)
    }

    fn figures(&self) -> Figures {
        let stats = self.stats();
        if let Some(tier) = stats.tier {
            return Figures {
                tables_written: Some(tier.flushed_bytes + tier.rewritten_bytes),
                log_written: tier.log_bytes_written,
                table_bytes: tier.block_bytes,
                blocks_read: Some(tier.cold_reads),
                splits: 0,
            };
        }
        let disk = stats.disk.expect("the store is on a disk");
        Figures {
            tables_written: Some(disk.table_bytes_written),
            log_written: disk.log_bytes_written,
            table_bytes: disk.table_bytes,
            blocks_read: Some(disk.blocks_read),
            splits: disk.splits,
        }
    }
}

fn to_put<'a>(&(key, value): &Write<'a>) -> Option<Put<'a>> {
    Some(Put { key, value: value?, expires_at: None })
}
