//! The end of a server: a thread that has stopped it does not keep the store open.

use std::{sync::Arc, thread};

use terrace::ByteSize;
use terrace_server::{config::Config, net::Listeners, server::Server, shared::Shared};

#[test]
fn stopper_does_not_keep_store_open() {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for round in 0..2000 {
        let config = Config::default();
        let socket = directory.path().join("socket").to_string_lossy().into_owned();
        for (name, value) in [("unixsocket", socket.as_str()), ("port", "0"), ("metrics-port", "0")] {
            config.assign(name, value).unwrap();
        }
        let listeners = Listeners::bind(&config).unwrap();
        let store = crate::common::fresh().size(ByteSize::mib(2)).create().unwrap();
        let shared = Arc::new(Shared::new(store.clone(), config));
        let server = Server::start(Arc::clone(&shared), listeners).unwrap();
        let stopper = server.stopper();
        // Like a signal handler's thread, which is not joined before the store is closed.
        let signal = thread::Builder::new().spawn(move || stopper.stop()).unwrap();
        server.wait().unwrap();
        drop(shared);
        store.close().unwrap_or_else(|error| panic!("round {round}: {error}"));
        signal.join().unwrap();
    }
}
