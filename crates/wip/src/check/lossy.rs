//! The items of a table but for those in damaged blocks.

use std::cell::RefCell;
use std::rc::Rc;
use terrace_disk::{DiskError, Item, Source, TableCursor};

/// Damage that was passed.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    pub(crate) error: DiskError,
    /// The keys that may have versions there lie from the first on, up to the second and with it.
    pub(crate) keys: (Vec<u8>, Vec<u8>),
}

/// What the sources of one reader have passed.
pub(crate) type Damages = Rc<RefCell<Vec<Damage>>>;

/// A place among the items of a table that passes damage, and notes it.
pub(crate) struct Lossy {
    items: TableCursor<'static>,
    damages: Damages,
}

impl Lossy {
    pub(crate) fn new(items: TableCursor<'static>, damages: &Damages) -> Self {
        Self { items, damages: Rc::clone(damages) }
    }

    /// Passes damaged blocks until there is an item, or the end.
    fn pass(&mut self, mut moved: Result<(), DiskError>, is_forward: bool) -> Result<(), DiskError> {
        while let Err(error) = moved {
            if !matches!(error, DiskError::Corrupt { .. }) {
                return Err(error);
            }
            let damage = Damage { error, keys: self.items.damaged_keys() };
            self.damages.borrow_mut().push(damage);
            moved = self.items.pass_damage(is_forward);
        }
        Ok(())
    }
}

impl Source for Lossy {
    #[inline]
    fn item(&self) -> Option<Item<'_>> {
        self.items.item()
    }

    fn seek_first(&mut self) -> Result<(), DiskError> {
        let moved = self.items.seek_first();
        self.pass(moved, true)
    }

    fn seek_last(&mut self) -> Result<(), DiskError> {
        let moved = self.items.seek_last();
        self.pass(moved, false)
    }

    fn seek(&mut self, key: &[u8], seq: u64) -> Result<(), DiskError> {
        let moved = self.items.seek(key, seq);
        self.pass(moved, true)
    }

    #[inline]
    fn next(&mut self) -> Result<(), DiskError> {
        let moved = self.items.next();
        if moved.is_ok() { moved } else { self.pass(moved, true) }
    }

    fn previous(&mut self) -> Result<(), DiskError> {
        let moved = self.items.previous();
        self.pass(moved, false)
    }
}
