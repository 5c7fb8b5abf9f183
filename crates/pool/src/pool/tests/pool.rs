//! Tests of `pool`.

use super::*;
use crate::sharing::liveness::Liveness;
use crate::tests::fixtures::{exclusive_pool, geometry, participants};
use std::io;
use terrace_medium::{Dram, Mapping, Shm};

#[test]
fn initialize_excludes_others_until_done_or_dropped() {
    let (_directory, [one, other]) = participants::<Shm, 2>(Geometry::tiny());
    let is_free = || other.0.peers.acquire_until(other.0.base().opening_lock(), &|| true).is_some();
    let bringing = one.initialize();
    assert!(!is_free() && !other.is_initialized());
    drop(bringing);
    assert!(is_free() && !other.is_initialized(), "dropped before done");
    one.initialize().done();
    assert!(is_free() && other.is_initialized());
}

/// A liveness without other participants, possibly for several kernels.
struct Nobody {
    is_multi_host: bool,
}

impl Liveness for Nobody {
    fn claim(&self, _: u32) -> io::Result<bool> {
        Ok(true)
    }
    fn release(&self, _: u32) {}
    fn is_alive(&self, _: u32) -> bool {
        false
    }
    fn enter(&self) -> io::Result<()> {
        Ok(())
    }
    fn leave(&self) {}
    fn has_common_kernel(&self) -> bool {
        !self.is_multi_host
    }
}

#[test]
fn light_pins_need_a_common_kernel() {
    let shared = |is_multi_host| {
        let medium = Shm::new(Mapping::anonymous(1 << 20, 1 << 20).unwrap());
        let options = PoolOptions::anonymous().geometry(geometry());
        let pool = options.create_shared_on(medium, Arc::new(Nobody { is_multi_host })).unwrap();
        assert!(pool.is_shared());
        (pool.0.base().is_multi_host(), pool.0.base().light_pins)
    };
    let exclusive = exclusive_pool::<Dram>();
    let is_made = crate::reclaim::barrier::register();
    assert!(!exclusive.is_shared());
    assert_eq!((exclusive.0.base().is_multi_host(), exclusive.0.base().light_pins), (false, is_made));
    assert_eq!(shared(false), (false, is_made));
    assert_eq!(shared(true), (true, false));
}
