//! Where items come from, in order.

use crate::DiskError;
use crate::item::{Content, Item};
use std::cmp::Ordering;
use std::sync::Arc;

/// Items in order, and a place among them: at an item, or at an end.
///
/// A new source is at an end, and so is one after an error. At an end, [`Source::next`] and
/// [`Source::previous`] do nothing: only a seek leaves it. Items differ in their key or their
/// sequence number.
pub trait Source {
    /// The item here; `None` at an end.
    fn item(&self) -> Option<Item<'_>>;

    /// Goes to the first item.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged. So it is with the other methods.
    fn seek_first(&mut self) -> Result<(), DiskError>;

    /// Goes to the last item.
    fn seek_last(&mut self) -> Result<(), DiskError>;

    /// Goes to the first item that is not before the version `seq` of `key`.
    fn seek(&mut self, key: &[u8], seq: u64) -> Result<(), DiskError>;

    /// Goes to the last item that is before the version `seq` of `key`.
    fn seek_before(&mut self, key: &[u8], seq: u64) -> Result<(), DiskError> {
        self.seek(key, seq)?;
        if self.item().is_some() { self.previous() } else { self.seek_last() }
    }

    /// Goes to the next item.
    fn next(&mut self) -> Result<(), DiskError>;

    /// Goes to the item before.
    fn previous(&mut self) -> Result<(), DiskError>;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn item(&self) -> Option<Item<'_>> {
        (**self).item()
    }
    fn seek_first(&mut self) -> Result<(), DiskError> {
        (**self).seek_first()
    }
    fn seek_last(&mut self) -> Result<(), DiskError> {
        (**self).seek_last()
    }
    fn seek(&mut self, key: &[u8], seq: u64) -> Result<(), DiskError> {
        (**self).seek(key, seq)
    }
    fn seek_before(&mut self, key: &[u8], seq: u64) -> Result<(), DiskError> {
        (**self).seek_before(key, seq)
    }
    fn next(&mut self) -> Result<(), DiskError> {
        (**self).next()
    }
    fn previous(&mut self) -> Result<(), DiskError> {
        (**self).previous()
    }
}

/// An item that owns its key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedItem {
    /// The key, and behind it the value.
    bytes: Box<[u8]>,
    key_len: usize,
    seq: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Put { expires_at: Option<u64> },
    Tombstone,
}

impl OwnedItem {
    /// The item.
    pub fn item(&self) -> Item<'_> {
        let (key, value) = self.bytes.split_at(self.key_len);
        let content = match self.kind {
            Kind::Put { expires_at } => Content::Put { value, expires_at },
            Kind::Tombstone => Content::Tombstone,
        };
        Item { key, seq: self.seq, content }
    }
}

impl From<Item<'_>> for OwnedItem {
    fn from(item: Item<'_>) -> Self {
        let (value, kind) = match item.content {
            Content::Put { value, expires_at } => (value, Kind::Put { expires_at }),
            Content::Tombstone => (&[][..], Kind::Tombstone),
        };
        let bytes = [item.key, value].concat().into();
        Self { bytes, key_len: item.key.len(), seq: item.seq, kind }
    }
}

/// Items in memory. Its clones share them.
#[derive(Clone, Debug)]
pub struct Sorted {
    items: Arc<[OwnedItem]>,
    /// The number of the item here, or the number of items at an end.
    at: usize,
}

impl Sorted {
    /// These items, in order.
    ///
    /// # Panics
    /// If they are not in order, or two of them are the same version of a key.
    pub fn new(items: impl Into<Arc<[OwnedItem]>>) -> Self {
        let items = items.into();
        let is_in_order =
            items.windows(2).all(|pair| pair[0].item().order(&pair[1].item()) == Ordering::Less);
        assert!(is_in_order, "items in memory that are not in order");
        Self { at: items.len(), items }
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    fn go(&mut self, at: Option<usize>) -> Result<(), DiskError> {
        self.at = at.unwrap_or(self.items.len());
        Ok(())
    }
}

impl Source for Sorted {
    fn item(&self) -> Option<Item<'_>> {
        self.items.get(self.at).map(OwnedItem::item)
    }
    fn seek_first(&mut self) -> Result<(), DiskError> {
        self.go(Some(0))
    }
    fn seek_last(&mut self) -> Result<(), DiskError> {
        self.go(self.items.len().checked_sub(1))
    }
    fn seek(&mut self, key: &[u8], seq: u64) -> Result<(), DiskError> {
        let probe = Item::tombstone(key, seq);
        self.go(Some(self.items.partition_point(|item| item.item().order(&probe) == Ordering::Less)))
    }
    fn next(&mut self) -> Result<(), DiskError> {
        self.go(Some((self.at + 1).min(self.items.len())))
    }
    fn previous(&mut self) -> Result<(), DiskError> {
        // At an end it stays there.
        let before = if self.at < self.items.len() { self.at.checked_sub(1) } else { None };
        self.go(before)
    }
}
