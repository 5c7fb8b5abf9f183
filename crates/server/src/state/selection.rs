//! The database that a connection has selected.

use super::databases::{DATABASES, Map, Place};

/// A selected database, and where the keys of each database are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Selection {
    database: u8,
    /// The place of each database, as the present command sees it; `None` in a cluster, where keys
    /// are stored as they are.
    map: Option<Map>,
}

impl Selection {
    /// The number of the selected database.
    pub(crate) fn database(&self) -> u8 {
        self.database
    }

    /// Selects a database.
    pub(crate) fn select(&mut self, database: u8) {
        assert!(database < DATABASES, "a database that there is");
        self.database = database;
    }

    /// The place of each database, as the present command sees it; `None` in a cluster.
    pub(crate) fn map(&self) -> Option<Map> {
        self.map
    }

    /// Sets where the next command sees the databases.
    pub(crate) fn see(&mut self, map: Option<Map>) {
        self.map = map;
    }

    /// The place of the selected database; the first one in a cluster.
    pub(crate) fn place(&self) -> Place {
        self.map.map_or(Place::FIRST, |map| map.place(self.database))
    }
}
