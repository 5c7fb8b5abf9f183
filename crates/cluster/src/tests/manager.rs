//! Tests of managers.

use crate::directory::Directory;
use crate::directory::memory::Service;
use crate::manager::{MEMORY, Worker};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn managers_of_two_memory_nodes_leave_each_other_the_lead() {
    let service = Service::default();
    let [mut one, mut other] =
        [(); 2].map(|()| Worker::new(Arc::new(service.connect()) as Arc<dyn Directory>, MEMORY));
    let lead = |worker: &mut Worker, seconds: u64| {
        let mut state = worker.directory.read().unwrap();
        worker.lead(&mut state, Duration::from_secs(seconds));
        worker.claim.is_some()
    };
    assert!(lead(&mut one, 0) && lead(&mut other, 0));
    // As often as it looks, for longer each time.
    assert!(!lead(&mut one, 0) && !lead(&mut one, 0) && lead(&mut one, 1));
    assert!(!lead(&mut other, 1) && lead(&mut other, 2));
    assert!(!lead(&mut one, 2) && !lead(&mut one, 3) && lead(&mut one, 4));
    // Nobody else has it: it is taken at once.
    assert!(!lead(&mut other, 4));
    service.end_leases();
    assert!(lead(&mut other, 4));
}
