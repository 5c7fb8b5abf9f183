//! The items of a table but for those in damaged blocks.

use crate::{Finding, Place, Remedy};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use terrace_disk::{DiskError, Item, Source, TableCursor};

/// Damage that was passed.
#[derive(Clone, Debug)]
pub(super) struct Damage {
    pub(super) error: DiskError,
    /// The keys that may have versions there lie from the first on, up to the second and with it.
    pub(super) keys: (Vec<u8>, Vec<u8>),
}

/// What the sources of one reader have passed.
pub(super) type Damages = Rc<RefCell<Vec<Damage>>>;

/// A place among the items of a table that passes damage, and notes it.
pub(super) struct Lossy {
    items: TableCursor<'static>,
    damages: Damages,
}

impl Lossy {
    pub(super) fn new(items: TableCursor<'static>, damages: &Damages) -> Self {
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

/// Where an error of a file lies, and what it says.
pub(crate) fn place_of(error: &DiskError) -> (Place, &'static str) {
    let (file, offset, what) = match error {
        DiskError::Corrupt { path, offset, what } => (path.as_path(), *offset, *what),
        DiskError::Io { path, .. } | DiskError::Full { path, .. } => (path.as_path(), 0, "it cannot be read"),
        DiskError::Newer { path, .. } => (path.as_path(), 0, "it is of a later version of Terrace"),
        DiskError::Foreign { path } => (path.as_path(), 0, "it is a part of another store"),
        _ => (Path::new(""), 0, "the store cannot be used"),
    };
    (Place::File { file: file.into(), offset }, what)
}

/// The finding for an error of a file that is a `what`. `keys` are those that it affects.
pub(crate) fn finding(error: &DiskError, what: &'static str, keys: Option<&(Vec<u8>, Vec<u8>)>) -> Finding {
    let shown = |key: &[u8]| key.escape_ascii().take(64).map(char::from).collect::<String>();
    Finding {
        place: place_of(error).0,
        what,
        expected: "what was written".into(),
        found: error.to_string(),
        bytes: 0,
        affected: keys.map(|(low, high)| {
            format!(
                "the keys from `{}` to `{}`: they may be missing, or be older versions",
                shown(low),
                shown(high)
            )
        }),
        remedy: Remedy::Dropped,
    }
}
