//! Tests of the serving node as an engine.

use crate::clock::now;
use crate::message::Item;
use crate::serving::Settings;
use crate::serving::engine::Serving;
use crate::serving::node::Node;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use terrace_engine::{ManualClock, ReadError};

/// A scan would pass over keys that are there throughout.
#[test]
fn page_without_a_lease_is_an_error() {
    let (drains, _drained) = mpsc::channel();
    let settings = Settings {
        id: "a".repeat(40),
        shards: 1,
        lanes: 2,
        cache_bytes: 1 << 20,
        host: "127.0.0.1".into(),
        fabric_ports: None,
        patience: Settings::PATIENCE,
        clock: Arc::new(ManualClock::at(0)),
    };
    let serving = Serving::new(Arc::new(Node::new(settings, drains)));
    let item = Item { key: b"key".to_vec(), value: Vec::new(), expires_at: None };
    let mut visited = 0;
    let mut page = |item: &Item| serving.each_live(vec![item.clone()], &mut |_, _| visited += 1);
    assert!(matches!(page(&item), Err(ReadError::Unavailable(_))));
    // A key of a slot that has left is another node's.
    serving.node.gate().slots.set_lease(now() + Duration::from_secs(3600));
    assert!(page(&item).is_ok());
    assert_eq!(visited, 0);
}
