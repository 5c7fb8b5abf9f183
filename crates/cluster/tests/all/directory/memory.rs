//! The directory in memory.

use super::World;
use std::sync::Arc;
use terrace_cluster::directory::{
    Change, Claim, Directory, DirectoryError, Kept, OnChange, Revision, State, Watch,
    memory::{MemoryDirectory, Service},
};

impl World for Service {
    fn connect(&self) -> Arc<dyn Directory> {
        Arc::new(Service::connect(self))
    }

    fn set_away(&self, is_away: bool) {
        Service::set_away(self, is_away);
    }

    fn end_leases(&self) {
        Service::end_leases(self);
    }
}

crate::directory_conforms!(Service::default());

/// One that takes no change, as an etcd without room.
struct Full(MemoryDirectory);

impl Directory for Full {
    fn read(&self) -> Result<State, DirectoryError> {
        self.0.read()
    }

    fn change(&self, _: &[(&str, Revision)], _: &[Change]) -> Result<Option<Revision>, DirectoryError> {
        Err(DirectoryError::Refused { endpoints: "e1:2379".into(), why: "no space".into() })
    }

    fn keep(&self, key: &str, value: String) -> Kept {
        self.0.keep(key, value)
    }

    fn claim(&self, key: &str, value: &str, over: Revision) -> Result<Option<Claim>, DirectoryError> {
        self.0.claim(key, value, over)
    }

    fn watch(&self, on_change: OnChange) -> Watch {
        self.0.watch(on_change)
    }
}

/// Otherwise a memory node would not start again.
#[test]
fn full_directory_tells_the_id_that_it_has() {
    let service = Service::default();
    let full = Full(service.connect());
    assert!(matches!(full.identify("a"), Err(DirectoryError::Refused { .. })));
    let id = "0123456789".repeat(4);
    service.connect().identify(&id).unwrap();
    assert_eq!(full.identify("a").unwrap(), id);
}
