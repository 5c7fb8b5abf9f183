//! Values that Redis encodes otherwise than their bytes tell: OBJECT ENCODING alone shows it.
//!
//! Redis decides when a value is written: APPEND and SETRANGE leave it `raw`, and INCRBYFLOAT
//! `embstr`. A store keeps only bytes. So the latest such keys are remembered here, with the
//! version that they had then. Another write, or a start of the server, ends that; in Redis a
//! load of the file does.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use terrace::{Store, Version};

/// The keys that are remembered, at most [`MOST`].
#[derive(Default)]
pub(crate) struct Encodings(Mutex<Known>);

#[derive(Default)]
struct Known {
    by_key: HashMap<Vec<u8>, (Version, &'static [u8])>,
    /// The keys, the oldest first.
    order: VecDeque<Vec<u8>>,
}

const MOST: usize = 1024;

/// Redis stores values up to this length inside their object, longer ones separately.
pub(crate) const EMBEDDED_BYTES_MAX: usize = 44;

impl Encodings {
    /// Remembers the encoding of a value that was just written. If another client writes the key in
    /// the same moment, its value may be taken for that.
    pub(crate) fn remember(&self, store: &Store, stored: &[u8], encoding: &'static [u8]) {
        let Ok(version) = store.version(stored) else { return };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.by_key.insert(stored.to_vec(), (version, encoding)).is_none() {
            known.order.push_back(stored.to_vec());
        }
        if known.order.len() > MOST
            && let Some(oldest) = known.order.pop_front()
        {
            known.by_key.remove(&oldest);
        }
    }

    /// The encoding of a value, if it is remembered and the value is still the same.
    pub(crate) fn of(&self, store: &Store, stored: &[u8]) -> Option<&'static [u8]> {
        let (version, encoding) =
            *self.0.lock().unwrap_or_else(PoisonError::into_inner).by_key.get(stored)?;
        store.version(stored).is_ok_and(|now| now.meets(&version)).then_some(encoding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_lasts_until_the_next_write() {
        let store = Store::options().anonymous().create().unwrap();
        let encodings = Encodings::default();
        store.put("k", "12").unwrap();
        assert_eq!(encodings.of(&store, b"k"), None);
        encodings.remember(&store, b"k", b"raw");
        assert_eq!(encodings.of(&store, b"k"), Some(&b"raw"[..]));
        store.put("k", "12").unwrap();
        assert_eq!(encodings.of(&store, b"k"), None);
    }

    #[test]
    fn oldest_key_is_forgotten_first() {
        let store = Store::options().anonymous().create().unwrap();
        let encodings = Encodings::default();
        for nth in 0..=MOST {
            let key = format!("k{nth}");
            store.put(&key, "1").unwrap();
            // A key that is written again keeps its one place.
            (0..2).for_each(|_| encodings.remember(&store, key.as_bytes(), b"raw"));
        }
        assert_eq!(encodings.of(&store, b"k0"), None);
        assert_eq!(encodings.of(&store, b"k1"), Some(&b"raw"[..]));
        let known = encodings.0.lock().unwrap();
        assert_eq!((known.by_key.len(), known.order.len()), (MOST, MOST));
    }
}
