//! Whether the pool and its log area are of one time: an older copy of either beside the other
//! brings old values back.
//!
//! A pool counts how often it was opened. The log area notes that number, and counts the opens of
//! memory nodes itself: before the pool, since a memory node may die in between.

use super::area::Area;
use super::data::Data;
use super::error::MemoryError;
use super::format::{CLOSED, USE};
use std::path::Path;
use terrace_pool::Start;

/// Opens of memory nodes.
const OPENS: u64 = USE + 8;
/// The pool's count when a memory node had opened both, and what `OPENS` was then.
const NOTED: u64 = USE + 16;
const NOTED_OPENS: u64 = USE + 24;
/// What a word has that was never written.
const NEVER: u64 = 1;

/// Counts an open, before the pool is opened.
pub(super) fn count_open(log: &Path) -> Result<(), MemoryError> {
    let Some(area) = Area::open_any(log)? else { return Ok(()) };
    // A damaged word is told once the area is opened.
    if let Ok(opens) = area.checked(OPENS) {
        area.set(OPENS, opens + 1);
    }
    Ok(())
}

/// Notes that both are open. Refuses a pool or a log area that is older than the other, unless it
/// is to be adopted.
pub(super) fn check(area: &Area, data: &Data, pool: &Path, adopt: bool) -> Result<(), MemoryError> {
    let opened = u64::from(data.pool().generation());
    // More than what an area has that was made just now.
    let opens = area.number(OPENS).max(NEVER + 1);
    area.set(OPENS, opens);
    let (noted, noted_opens) = (area.number(NOTED), area.number(NOTED_OPENS));
    if noted_opens != NEVER && !adopt {
        let others = opened.saturating_sub(noted).saturating_sub(opens.saturating_sub(noted_opens));
        // A pool that memory nodes have left in order may be used by other programs.
        let is_in_order = area.number(USE) == CLOSED && data.pool().found() == Start::Clean;
        let (pool, log) = (pool.to_owned(), area.path().to_owned());
        if opened <= noted {
            return Err(MemoryError::Older { older: pool, than: log });
        }
        if others > 0 && !is_in_order {
            return Err(MemoryError::Older { older: log, than: pool });
        }
    }
    area.set(NOTED_OPENS, opens);
    area.set(NOTED, opened);
    Ok(())
}
