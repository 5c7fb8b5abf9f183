//! What a reader sees at a sequence number.

use crate::DiskError;
use crate::item::Content;
use crate::source::Source;

/// Versions of one key that are passed one by one. Behind these a seek passes the rest.
const STEPS_MAX: u64 = 32;

/// A key and its value, as a reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The sequence number of its write.
    pub seq: u64,
    /// The value.
    pub value: &'a [u8],
    /// Unix milliseconds at which it expires, if it does.
    pub expires_at: Option<u64>,
}

/// The entries that a reader sees at a sequence number: of each key the newest version that is not
/// later, unless it is a tombstone. An entry that has expired is an entry like others.
///
/// It moves as a [`Source`] does: a new one is at an end, and only a seek leaves an end.
pub struct Visible<S> {
    source: S,
    at: u64,
    /// Entries lie from the first key on, before the second.
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    place: Place,
    /// The key of the entry here.
    key: Vec<u8>,
    /// The value of the entry here, going backward.
    value: Vec<u8>,
    skipped: u64,
}

#[derive(Clone, Copy)]
enum Place {
    End,
    /// The source is at the entry.
    AtSource,
    /// The source is before all versions of the entry's key: that is how its newest was found.
    /// These are its sequence number and its expiry.
    Copied(u64, Option<u64>),
}

impl<S: Source> Visible<S> {
    /// What a reader of `source` sees at the sequence number `at`.
    pub fn new(source: S, at: u64) -> Self {
        Self {
            source,
            at,
            from: Vec::new(),
            to: None,
            place: Place::End,
            key: Vec::new(),
            value: Vec::new(),
            skipped: 0,
        }
    }

    /// The same, but only keys from `from` on and before `to`. A reader that does not want the
    /// others does not pass what was deleted there either.
    #[must_use]
    pub fn within(mut self, from: &[u8], to: Option<&[u8]>) -> Self {
        (self.from, self.to, self.place) = (from.to_vec(), to.map(<[u8]>::to_vec), Place::End);
        self
    }

    /// The entry here; `None` at an end.
    pub fn entry(&self) -> Option<Entry<'_>> {
        match self.place {
            Place::End => None,
            Place::Copied(seq, expires_at) => {
                Some(Entry { key: &self.key, seq, value: &self.value, expires_at })
            }
            Place::AtSource => {
                let item = self.source.item()?;
                let Content::Put { value, expires_at } = item.content else { return None };
                Some(Entry { key: item.key, seq: item.seq, value, expires_at })
            }
        }
    }

    /// Items that were passed and are no entry: older and later versions, and tombstones.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Goes to the first entry.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged. So it is with the other methods.
    pub fn seek_first(&mut self) -> Result<(), DiskError> {
        self.seek(&[])
    }

    /// Goes to the first entry whose key is not before `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<(), DiskError> {
        self.place = Place::End;
        self.source.seek(key.max(&self.from), self.at)?;
        self.find_next(false)
    }

    /// Goes to the last entry.
    pub fn seek_last(&mut self) -> Result<(), DiskError> {
        self.place = Place::End;
        match &self.to {
            Some(to) => self.source.seek_before(to, u64::MAX)?,
            None => self.source.seek_last()?,
        }
        self.find_previous()
    }

    /// Goes to the last entry whose key is before `key`.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<(), DiskError> {
        self.place = Place::End;
        let key = self.to.as_deref().map_or(key, |to| key.min(to));
        self.source.seek_before(key, u64::MAX)?;
        self.find_previous()
    }

    /// Goes to the next entry.
    #[allow(clippy::should_implement_trait, reason = "it lends its entries")]
    pub fn next(&mut self) -> Result<(), DiskError> {
        match std::mem::replace(&mut self.place, Place::End) {
            Place::End => return Ok(()),
            Place::AtSource => self.source.next()?,
            // Behind the oldest version, or at it.
            Place::Copied(..) => self.source.seek(&self.key, 0)?,
        }
        self.find_next(true)
    }

    /// Goes to the entry before.
    pub fn previous(&mut self) -> Result<(), DiskError> {
        match std::mem::replace(&mut self.place, Place::End) {
            Place::End => return Ok(()),
            Place::AtSource => self.source.seek_before(&self.key, u64::MAX)?,
            Place::Copied(..) => {}
        }
        self.find_previous()
    }

    /// Goes to the first entry from the source's item on. `is_passed` says that the versions of
    /// `self.key` count no more.
    fn find_next(&mut self, mut is_passed: bool) -> Result<(), DiskError> {
        let (mut has_key, mut steps) = (is_passed, 0);
        while let Some(item) = self.source.item() {
            if !has_key || item.key != self.key {
                if self.to.as_deref().is_some_and(|to| item.key >= to) {
                    return Ok(());
                }
                self.key.clear();
                self.key.extend_from_slice(item.key);
                (has_key, is_passed, steps) = (true, false, 0);
            }
            if !is_passed && item.seq <= self.at {
                if matches!(item.content, Content::Put { .. }) {
                    self.place = Place::AtSource;
                    return Ok(());
                }
                is_passed = true;
            }
            (self.skipped, steps) = (self.skipped + 1, steps + 1);
            match steps {
                STEPS_MAX => self.source.seek(&self.key, if is_passed { 0 } else { self.at })?,
                _ => self.source.next()?,
            }
        }
        Ok(())
    }

    /// Goes to the last entry up to the source's item, which is the oldest version of its key.
    fn find_previous(&mut self) -> Result<(), DiskError> {
        while let Some(item) = self.source.item() {
            if item.key < &self.from[..] {
                return Ok(());
            }
            self.key.clear();
            self.key.extend_from_slice(item.key);
            self.place = self.copy_newest()?;
            if matches!(self.place, Place::Copied(..)) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Goes back before all versions of `self.key`, and copies the newest one that is not later.
    /// Returns the place of an end if the key is absent.
    fn copy_newest(&mut self) -> Result<Place, DiskError> {
        let (mut place, mut steps) = (Place::End, 0);
        while let Some(item) = self.source.item().filter(|item| item.key == self.key) {
            if item.seq <= self.at {
                place = match item.content {
                    Content::Tombstone => Place::End,
                    Content::Put { value, expires_at } => {
                        self.value.clear();
                        self.value.extend_from_slice(value);
                        Place::Copied(item.seq, expires_at)
                    }
                };
            }
            steps += 1;
            match steps {
                STEPS_MAX if item.seq <= self.at => self.source.seek(&self.key, self.at)?,
                // That was the newest, or all that follow are later.
                _ if steps >= STEPS_MAX => {
                    self.source.seek_before(&self.key, u64::MAX)?;
                }
                _ => self.source.previous()?,
            }
        }
        self.skipped += steps - u64::from(matches!(place, Place::Copied(..)));
        Ok(place)
    }
}
