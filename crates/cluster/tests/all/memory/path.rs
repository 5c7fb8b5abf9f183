//! From a client's log into the pool.

use super::client::{Client, directory, options, start};

#[test]
fn entry_that_was_written_is_in_the_pool() {
    let directory = directory();
    let node = start(options(directory.path()));
    let mut client = Client::with_all(node.address(), "one");
    client.put(b"key", b"value");
    client.settle();
    assert_eq!(client.value(b"key").unwrap(), b"value");
    assert_eq!(client.count(), 1);
    drop(client);
    node.stop().unwrap();
    let store = terrace::Store::options().path(directory.path().join("pool")).open().unwrap();
    assert_eq!(store.get(b"key").unwrap().unwrap(), b"value");
    assert!(store.check(&mut |_, _| ()).is_sound());
}
