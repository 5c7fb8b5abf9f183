//! A cursor over the items of a MemTable, in order.

use super::arena::At;
use super::directory::Directory;
use super::{Head, MemTable};
use std::sync::Arc;
use terrace_disk::{Content, DiskError, Item, Source};

/// A cursor over the items that a MemTable had when the cursor was made, and newer items of their
/// keys or not. It keeps the table.
pub(crate) struct MemCursor {
    table: Arc<MemTable>,
    directory: Arc<Directory>,
    /// The slots of its keys, in order.
    keys: Arc<[u32]>,
    /// The key that the cursor is at, its newest item when the cursor came, and the item that the
    /// cursor is at; the items are of no use behind the last key.
    nth: usize,
    newest: At,
    at: At,
    head: Head,
    key: Vec<u8>,
    value: Vec<u8>,
    expires_at: Option<u64>,
}

impl MemTable {
    /// A cursor over all items; it is at no item.
    pub(crate) fn cursor(self: Arc<Self>) -> MemCursor {
        let order = self.order(true);
        let [keys, _] = order.lists();
        MemCursor::new(&self, &order.directory, keys)
    }

    /// Cursors that have all items between them; they are at no item.
    pub(crate) fn cursors(self: &Arc<Self>) -> impl Iterator<Item = MemCursor> {
        let order = self.order(false);
        let lists = order.lists().map(|keys| MemCursor::new(self, &order.directory, keys));
        lists.into_iter().filter(|cursor| !cursor.keys.is_empty())
    }
}

impl MemCursor {
    fn new(table: &Arc<MemTable>, directory: &Arc<Directory>, keys: &Arc<[u32]>) -> Self {
        Self {
            table: Arc::clone(table),
            directory: Arc::clone(directory),
            keys: Arc::clone(keys),
            nth: keys.len(),
            newest: 0,
            at: 0,
            head: Head { shape: 0, seq: 0, older: 0 },
            key: Vec::new(),
            value: Vec::new(),
            expires_at: None,
        }
    }

    /// Goes to the newest item of the key at `nth`, or to the end.
    fn enter(&mut self, nth: usize) {
        self.nth = nth;
        let Some(&slot) = self.keys.get(nth) else { return };
        let at = self.directory.place_in(slot);
        self.newest = at;
        self.key.clear();
        self.table.load_key(at, &mut self.key);
        self.read(at);
    }

    /// Reads the item at `at`, of the present key.
    fn read(&mut self, at: At) {
        (self.at, self.head) = (at, self.table.head(at));
        self.value.clear();
        self.expires_at = self.table.load_value(at, self.head, &mut self.value);
    }

    /// Goes to the oldest item of the present key.
    fn go_to_oldest(&mut self) {
        let mut at = self.at;
        while let older @ 1.. = self.table.head(at).older {
            at = older;
        }
        if at != self.at {
            self.read(at);
        }
    }

    fn is_at_end(&self) -> bool {
        self.nth >= self.keys.len()
    }
}

impl Source for MemCursor {
    fn item(&self) -> Option<Item<'_>> {
        if self.is_at_end() {
            return None;
        }
        let content = if self.head.is_tombstone() {
            Content::Tombstone
        } else {
            Content::Put { value: &self.value, expires_at: self.expires_at }
        };
        Some(Item { key: &self.key, seq: self.head.seq, content })
    }

    fn seek_first(&mut self) -> Result<(), DiskError> {
        self.enter(0);
        Ok(())
    }

    fn seek_last(&mut self) -> Result<(), DiskError> {
        match self.keys.len().checked_sub(1) {
            Some(last) => {
                self.enter(last);
                self.go_to_oldest();
            }
            None => self.nth = 0,
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], seq: u64) -> Result<(), DiskError> {
        let (table, directory) = (&self.table, &self.directory);
        let nth = self.keys.partition_point(|&slot| table.compare_key(directory.place_in(slot), key).is_lt());
        self.enter(nth);
        while !self.is_at_end() && self.key == key && self.head.seq > seq {
            self.next()?;
        }
        Ok(())
    }

    fn next(&mut self) -> Result<(), DiskError> {
        if self.is_at_end() {
            return Ok(());
        }
        match self.head.older {
            0 => self.enter(self.nth + 1),
            older => self.read(older),
        }
        Ok(())
    }

    fn previous(&mut self) -> Result<(), DiskError> {
        if self.is_at_end() {
            return Ok(());
        }
        if self.at != self.newest {
            let mut at = self.newest;
            while self.table.head(at).older != self.at {
                at = self.table.head(at).older;
            }
            self.read(at);
            return Ok(());
        }
        match self.nth.checked_sub(1) {
            Some(before) => {
                self.enter(before);
                self.go_to_oldest();
            }
            None => self.nth = self.keys.len(),
        }
        Ok(())
    }
}
