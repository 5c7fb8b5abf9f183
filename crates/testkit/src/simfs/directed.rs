//! Directed crashes: the few states of all possible ones that show best which sync is missing.

use super::SimFs;
use super::content::Fate::{self, Kept, Lost, WithoutFirst, WithoutLast};
use super::disk::NodeId;

/// A change that is not durable: the number of a change of names, or a file's content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unsynced {
    Name(usize),
    Content(NodeId),
}

/// What a crash leaves: of names, of contents, and of one change in particular.
#[derive(Clone, Copy)]
struct Plan {
    names: Fate,
    contents: Fate,
    but: Option<(Unsynced, Fate)>,
}

impl Plan {
    fn fate(&self, change: Unsynced) -> Fate {
        let of_kind = if let Unsynced::Name(_) = change { self.names } else { self.contents };
        self.but.filter(|(but, _)| *but == change).map_or(of_kind, |(_, fate)| fate)
    }
}

impl SimFs {
    /// Independent copies of this file system, each in another state that a power failure now may
    /// leave: everything unsynced lost, or kept; all names lost and all contents kept, and the
    /// reverse; each single change lost and all others kept, and the reverse; and each content torn
    /// at its first and its last changed word of eight bytes, which is smaller than a sector.
    pub fn directed_crashes(&self) -> impl Iterator<Item = Self> {
        let (names, files) = self.disk().unsynced();
        let plan = |names, contents, but| Plan { names, contents, but };
        let whole = [(Lost, Lost), (Kept, Kept), (Lost, Kept), (Kept, Lost)];
        let whole = whole.into_iter().map(move |(names, contents)| plan(names, contents, None));
        let names = (0..names).map(Unsynced::Name);
        let contents = files.into_iter().map(Unsynced::Content);
        let torn = contents.clone().flat_map(move |content| {
            [WithoutFirst, WithoutLast].map(|fate| plan(Kept, Kept, Some((content, fate))))
        });
        let single = names.chain(contents).flat_map(move |change| {
            [plan(Kept, Kept, Some((change, Lost))), plan(Lost, Lost, Some((change, Kept)))]
        });
        let now = self.fork();
        whole.chain(torn).chain(single).map(move |plan| {
            let state = now.fork();
            let mut disk = state.disk();
            disk.crash_names(|nth| plan.fate(Unsynced::Name(nth)) == Kept);
            disk.crash_contents(|id, content| content.meet(plan.fate(Unsynced::Content(id))));
            drop(disk);
            state
        })
    }

    /// How many states a power failure now may leave, at most, as [`SimFs::crash_states`] counts
    /// them.
    pub fn crash_states_max(&self) -> f64 {
        self.disk().states_max(super::content::PAGE)
    }
}
