//! Leases: a node that the memory node does not hear in time answers nothing, also not from its
//! cache.

use super::{Cluster, wait_until};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use terrace::{ManualClock, Store};
use terrace_conformance::Site;

const A_MOMENT: Duration = Duration::from_millis(1);

/// One direction of a link that can be held up.
struct Way(Mutex<Passing>);

struct Passing {
    is_open: bool,
    kept: Vec<u8>,
    /// Bytes that pass though it is not open.
    allowed: usize,
}

impl Way {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Passing { is_open: true, kept: Vec::new(), allowed: 0 })))
    }

    fn state(&self) -> MutexGuard<'_, Passing> {
        self.0.lock().unwrap()
    }

    fn set_open(&self, is_open: bool) {
        self.state().is_open = is_open;
    }

    /// Passes bytes on until the connection ends.
    fn pump(&self, mut from: TcpStream, mut to: TcpStream) {
        from.set_read_timeout(Some(A_MOMENT)).unwrap();
        let (mut buffer, mut is_over) = ([0; 4096], false);
        loop {
            match if is_over { Err(ErrorKind::TimedOut.into()) } else { from.read(&mut buffer) } {
                Ok(0) => is_over = true,
                Ok(count) => self.state().kept.extend(&buffer[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => is_over = true,
            }
            let mut state = self.state();
            let count = state.kept.len().min(if state.is_open { usize::MAX } else { state.allowed });
            state.allowed -= count.min(state.allowed);
            let bytes: Vec<u8> = state.kept.drain(..count).collect();
            let ends = is_over && state.is_open;
            drop(state);
            if to.write_all(&bytes).is_err() || ends {
                break;
            }
            if is_over {
                std::thread::sleep(A_MOMENT);
            }
        }
        let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
    }
}

/// Stands between a serving node and the memory node.
struct Proxy {
    address: SocketAddr,
    to_memory: Arc<Way>,
    to_serving: Arc<Way>,
}

impl Proxy {
    fn before(memory: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, to_memory, to_serving) = (listener.local_addr().unwrap(), Way::new(), Way::new());
        let ways = (Arc::clone(&to_memory), Arc::clone(&to_serving));
        std::thread::spawn(move || {
            for serving in listener.incoming() {
                let (Ok(serving), Ok(memory)) = (serving, TcpStream::connect(memory)) else { return };
                let (serving_too, memory_too) = (serving.try_clone().unwrap(), memory.try_clone().unwrap());
                let (up, down) = (Arc::clone(&ways.0), Arc::clone(&ways.1));
                std::thread::spawn(move || up.pump(serving, memory));
                std::thread::spawn(move || down.pump(memory_too, serving_too));
            }
        });
        Self { address, to_memory, to_serving }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.to_memory.set_open(true);
        self.to_serving.set_open(true);
    }
}

/// Two nodes. The first one has all slots, and its link goes over a proxy; it has cached "key".
fn cluster() -> (Cluster, [Store; 2], Proxy) {
    let mut cluster = Cluster::new(Arc::new(ManualClock::at(Site::STARTED)));
    cluster.options.lease = Duration::from_millis(500);
    cluster.start_memory();
    let proxy = Proxy::before(cluster.memory.as_ref().unwrap().address());
    cluster.add_at(Some(proxy.address));
    cluster.add();
    cluster.spread(&[0]);
    let stores = [cluster.store(0), cluster.store(1)];
    stores[0].put(b"key", b"before").unwrap();
    assert!(stores[0].get(b"key").unwrap().unwrap() == b"before");
    (cluster, stores, proxy)
}

#[test]
fn node_that_is_not_heard_answers_nothing() {
    let (mut cluster, [cut_off, other], proxy) = cluster();
    proxy.to_memory.set_open(false);
    proxy.to_serving.set_open(false);
    cluster.give(1);
    other.put(b"key", b"after").unwrap();
    assert!(cut_off.get(b"key").is_err());
    assert!(cut_off.put(b"key", b"late").is_err());
    assert!(other.get(b"key").unwrap().unwrap() == b"after");
}

#[test]
fn renewal_that_is_answered_late_extends_nothing() {
    let (mut cluster, [cut_off, other], proxy) = cluster();
    proxy.to_serving.set_open(false);
    // Some answers to renewals.
    wait_until("the renewals", || proxy.to_serving.state().kept.len() > 100);
    proxy.to_memory.set_open(false);
    let answers = proxy.to_serving.state().kept.len();
    cluster.give(1);
    other.put(b"key", b"after").unwrap();
    // They come, and the word that the session is over does not.
    proxy.to_serving.state().allowed = answers;
    for _ in 0..200 {
        assert!(cut_off.get(b"key").is_err());
        std::thread::sleep(A_MOMENT);
    }
}
