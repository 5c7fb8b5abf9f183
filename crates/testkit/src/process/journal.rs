//! The acknowledged operations of a process, and the contents that its store may have after a
//! crash.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

/// A key's value, and when it expires (Unix ms).
pub type State = (Vec<u8>, Option<u64>);
/// Everything in a store.
pub type Contents = BTreeMap<Vec<u8>, State>;

/// An operation that is atomic.
pub trait Operation {
    /// Applies it to `contents`.
    fn apply(&self, contents: &mut Contents);
    /// The keys that it may change.
    fn keys(&self) -> Vec<&[u8]>;
}

/// The journal of a writer with its own keys. Acknowledged operations are applied to a model. Of
/// those begun but not acknowledged, any prefix may have happened.
#[derive(Clone, Debug)]
pub struct Journal<O> {
    expected: Contents,
    begun: Vec<O>,
    acknowledged: u64,
}

/// The store has a content that no prefix of the operations explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement(String);

impl Display for Disagreement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<O> Default for Journal<O> {
    fn default() -> Self {
        Self::new(Contents::new())
    }
}

impl<O> Journal<O> {
    /// A journal of a writer whose keys have this content at first.
    pub fn new(contents: Contents) -> Self {
        Self { expected: contents, begun: Vec::new(), acknowledged: 0 }
    }

    /// The expected content of the writer's keys, without operations in progress.
    pub fn expected(&self) -> &Contents {
        &self.expected
    }

    /// Number of acknowledged operations.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
}

impl<O: Operation> Journal<O> {
    /// Records that operations have begun, in this order.
    pub fn begin(&mut self, operations: impl IntoIterator<Item = O>) {
        self.begun.extend(operations);
    }

    /// Records that all begun operations were acknowledged.
    pub fn acknowledge(&mut self) {
        for operation in self.begun.drain(..) {
            operation.apply(&mut self.expected);
            self.acknowledged += 1;
        }
    }

    /// After the writer crashed: compares with the content `found`, which may include keys of other
    /// writers. Adopts the prefix of the begun operations that happened.
    ///
    /// # Errors
    /// If no prefix explains the keys that the operations touch. Other keys are compared by
    /// [`Journal::compare`].
    pub fn resolve(&mut self, found: &Contents) -> Result<(), Disagreement> {
        let begun = std::mem::take(&mut self.begun);
        let touched: BTreeSet<&[u8]> = begun.iter().flat_map(Operation::keys).collect();
        let part = |of: &Contents| -> Contents {
            let state = |key: &&[u8]| Some((key.to_vec(), of.get(*key)?.clone()));
            touched.iter().filter_map(state).collect()
        };
        let (found, before) = (part(found), part(&self.expected));
        let mut model = before.clone();
        for happened in 0..=begun.len() {
            if model == found {
                begun[..happened].iter().for_each(|operation| operation.apply(&mut self.expected));
                return Ok(());
            }
            begun.get(happened).into_iter().for_each(|operation| operation.apply(&mut model));
        }
        let count = begun.len();
        let what = differences(&before, &found);
        Err(Disagreement(format!(
            "no prefix of the {count} operations in progress explains the store: {what}"
        )))
    }

    /// Compares the store with the journals of all its writers.
    ///
    /// # Errors
    /// The keys that differ.
    pub fn compare<'a>(
        journals: impl IntoIterator<Item = &'a Self>,
        found: &Contents,
    ) -> Result<(), Disagreement>
    where
        O: 'a,
    {
        let mut expected = BTreeMap::new();
        journals.into_iter().for_each(|journal| expected.extend(&journal.expected));
        if expected.len() == found.len() && expected.iter().zip(found).all(|(a, b)| (*a.0, *a.1) == b) {
            return Ok(());
        }
        let expected = expected.into_iter().map(|(key, state)| (key.clone(), state.clone())).collect();
        Err(Disagreement(differences(&expected, found)))
    }
}

/// A readable description of the first few keys that differ.
fn differences(expected: &Contents, found: &Contents) -> String {
    const SHOWN: usize = 5;
    let keys: BTreeSet<&Vec<u8>> = expected.keys().chain(found.keys()).collect();
    let differing: Vec<_> = keys.into_iter().filter(|key| expected.get(*key) != found.get(*key)).collect();
    let line = |key: &&Vec<u8>| {
        let state = |of: &Contents| of.get(*key).map_or("absent".to_string(), shown);
        format!("{}: expected {}, found {}", key.escape_ascii(), state(expected), state(found))
    };
    let lines: Vec<String> = differing.iter().take(SHOWN).map(line).collect();
    format!("{} keys differ: {}", differing.len(), lines.join("; "))
}

fn shown((value, expires_at): &State) -> String {
    let begin = value[..value.len().min(16)].escape_ascii();
    let expiry = expires_at.map_or(String::new(), |at| format!(" until {at}"));
    format!("{} bytes `{begin}`{expiry}", value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Put(&'static str, &'static str);

    impl Operation for Put {
        fn apply(&self, contents: &mut Contents) {
            contents.insert(self.0.into(), (self.1.into(), None));
        }
        fn keys(&self) -> Vec<&[u8]> {
            vec![self.0.as_bytes()]
        }
    }

    fn contents(pairs: &[(&str, &str)]) -> Contents {
        pairs
            .iter()
            .map(|(key, value)| (key.as_bytes().to_vec(), (value.as_bytes().to_vec(), None)))
            .collect()
    }

    fn journal() -> Journal<Put> {
        let mut journal = Journal::default();
        journal.begin([Put("a", "1"), Put("b", "1")]);
        journal.acknowledge();
        journal.begin([Put("a", "2"), Put("b", "2"), Put("c", "2")]);
        journal
    }

    #[test]
    fn any_prefix_of_the_begun_operations_is_accepted() {
        for (found, happened) in [
            (contents(&[("a", "1"), ("b", "1")]), 0),
            (contents(&[("a", "2"), ("b", "1")]), 1),
            (contents(&[("a", "2"), ("b", "2")]), 2),
            (contents(&[("a", "2"), ("b", "2"), ("c", "2")]), 3),
        ] {
            let mut journal = journal();
            assert_eq!(journal.resolve(&found), Ok(()), "{happened}");
            assert_eq!(Journal::compare([&journal], &found), Ok(()));
            assert_eq!(journal.acknowledged(), 2);
        }
    }

    #[test]
    fn lost_reordered_and_phantom_writes_are_reported() {
        for wrong in [
            contents(&[("a", "1")]),
            contents(&[("a", "1"), ("b", "2")]),
            contents(&[("a", "1"), ("b", "1"), ("c", "9")]),
        ] {
            let message = journal().resolve(&wrong).unwrap_err().to_string();
            assert!(message.contains("no prefix of the 3 operations"), "{message}");
        }
        let mut journal = journal();
        let phantom = contents(&[("a", "1"), ("b", "1"), ("d", "1")]);
        journal.resolve(&phantom).unwrap();
        let message = Journal::compare([&journal], &phantom).unwrap_err().to_string();
        assert_eq!(message, "1 keys differ: d: expected absent, found 1 bytes `1`");
    }
}
