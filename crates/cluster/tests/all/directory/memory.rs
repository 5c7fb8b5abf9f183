//! The directory in memory.

use super::World;
use std::sync::Arc;
use terrace_cluster::directory::{Directory, memory::Service};

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
