//! A small serving node: it speaks the messages, and writes its log one-sided.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use terrace_cluster::entry::{Change, Entry};
use terrace_cluster::link::{Secret, Sender, dial};
use terrace_cluster::log::{Grant, Piece, ShardLog};
use terrace_cluster::memory::{MemoryNode, Options};
use terrace_cluster::message::{Access, Item, ToMemory, ToServing, WIRE};
use terrace_cluster::slot::{SLOTS, SlotRange};
use terrace_fabric::{
    Access as Right, Endpoint, Error, Fabric, Libfabric, LibfabricConnection, LibfabricEndpoint, Memory,
    Operation, Place, RegionKey, Until, perform,
};

/// No test waits so long for anything that happens.
pub(crate) const FAR: Duration = Duration::from_secs(60);
pub(crate) const SEGMENT: u64 = 5 << 20;
/// So long that no busy machine loses one.
pub(crate) const LEASE: Duration = Duration::from_secs(5);

/// Options of a memory node in this directory.
pub(crate) fn options(directory: &std::path::Path) -> Options {
    let listen = "127.0.0.1:0".parse().unwrap();
    let options = Options::new(directory.join("pool"), listen, Secret::new("key"), Libfabric::TCP);
    Options { pool_bytes: 128 << 20, log_segments: 8, segment_bytes: SEGMENT, lease: LEASE, ..options }
}

pub(crate) fn fabric() -> Libfabric {
    Libfabric::new(Libfabric::TCP, "127.0.0.1").unwrap()
}

/// Starts a memory node.
pub(crate) fn start(options: Options) -> MemoryNode<Libfabric> {
    MemoryNode::start(fabric(), options, Box::new(|_| ())).unwrap()
}

/// A directory in memory.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

pub(crate) fn all() -> Vec<SlotRange> {
    vec![SlotRange::new(0, SLOTS - 1).unwrap()]
}

/// A serving node of one shard.
pub(crate) struct Client {
    pub(crate) sender: Sender,
    messages: mpsc::Receiver<Option<ToServing>>,
    pub(crate) session: u64,
    pub(crate) access: Access,
    pub(crate) lane: LibfabricConnection,
    pub(crate) log: ShardLog,
    pub(crate) keys: Vec<(u64, RegionKey)>,
    /// Messages that were not waited for yet.
    early: VecDeque<ToServing>,
    sent: u64,
    pub(crate) pin: u64,
    /// Whether the pool has no room for puts.
    pub(crate) is_full: bool,
    /// What it tells as durable; if `None`, the truth.
    pub(crate) tells: Option<u64>,
    heart: Arc<Heart>,
}

/// Repeats the last renewal, so that the lease goes on whatever the test waits for.
struct Heart {
    beats: AtomicBool,
    pin: AtomicU64,
    durable: AtomicU64,
}

impl Heart {
    fn start(sender: Sender) -> Arc<Self> {
        let heart = Self { beats: true.into(), pin: 0.into(), durable: 0.into() };
        let heart = Arc::new(heart);
        let beating = heart.clone();
        std::thread::spawn(move || {
            while beating.beats.load(Relaxed) {
                let (pin, durable) = (beating.pin.load(Relaxed), vec![beating.durable.load(Relaxed)]);
                if sender.send(&ToMemory::Renew { sent: 0, pin, durable }).is_err() {
                    return;
                }
                std::thread::sleep(LEASE / 8);
            }
        });
        heart
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.heart.beats.store(false, Relaxed);
        self.sender.close();
    }
}

/// A link to the memory node, and its messages; `None` at its end.
pub(crate) fn link(address: SocketAddr) -> (Sender, mpsc::Receiver<Option<ToServing>>) {
    let (sender, mut receiver) = dial(address, &Secret::new("key")).unwrap();
    let (put, messages) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok(message) = receiver.receive::<ToServing>() {
            let _ = put.send(Some(message));
        }
        let _ = put.send(None);
    });
    (sender, messages)
}

impl Client {
    /// Begins a session.
    pub(crate) fn hello(address: SocketAddr, node: &str) -> Self {
        let (sender, messages) = link(address);
        sender
            .send(&ToMemory::Hello { wire: WIRE, node: node.into(), shards: 1, lanes: 2, last: 0 })
            .unwrap();
        let welcome = messages.recv_timeout(FAR).unwrap();
        let Some(ToServing::Welcome { incarnation, access, .. }) = welcome else { panic!("{welcome:?}") };
        // Before the connection, which on a busy machine takes as long as a lease.
        let heart = Heart::start(sender.clone());
        let access = Access::decode(&access).unwrap();
        let lane = fabric().connect(&access.lanes[0]).unwrap();
        let (log, keys, early) = (ShardLog::new(0), Vec::new(), VecDeque::new());
        Self {
            sender,
            messages,
            session: incarnation,
            access,
            lane,
            log,
            keys,
            early,
            sent: 0,
            pin: 0,
            is_full: false,
            tells: None,
            heart,
        }
    }

    /// As [`Client::hello`], with all slots.
    pub(crate) fn with_all(address: SocketAddr, node: &str) -> Self {
        let mut client = Self::hello(address, node);
        client.acquire(&all());
        client
    }

    pub(crate) fn acquire(&mut self, ranges: &[SlotRange]) {
        self.sender.send(&ToMemory::Acquire { epoch: 1, ranges: ranges.to_vec() }).unwrap();
        let mut missing: usize = ranges.iter().map(|range| range.slots().count()).sum();
        while missing > 0 {
            let granted = self.wait(|message| matches!(message, ToServing::Granted { .. }));
            let ToServing::Granted { ranges, .. } = granted else { unreachable!() };
            missing -= ranges.iter().map(|range| range.slots().count()).sum::<usize>();
        }
    }

    fn next(&mut self) -> Option<ToServing> {
        let mut message = self.messages.recv_timeout(FAR).expect("a message in time");
        while let Some(ToServing::Renewed { sent: 0, .. }) = message {
            message = self.messages.recv_timeout(FAR).expect("a message in time");
        }
        if let Some(ToServing::Segment { number, bytes, key, .. }) = message {
            self.log.grant(Grant { number, bytes });
            self.keys.push((number, RegionKey::from_bytes(key)));
        }
        match message {
            Some(ToServing::Full { .. }) => self.is_full = true,
            Some(ToServing::Roomy) => self.is_full = false,
            _ => {}
        }
        message
    }

    /// The next such message. The others are kept.
    pub(crate) fn wait(&mut self, is_it: impl Fn(&ToServing) -> bool) -> ToServing {
        if let Some(place) = self.early.iter().position(&is_it) {
            return self.early.remove(place).unwrap();
        }
        loop {
            match self.next() {
                Some(message) if is_it(&message) => return message,
                Some(message) => self.early.push_back(message),
                None => panic!("the link has ended; before: {:?}", self.early),
            }
        }
    }

    /// Renews the lease no more, waits for the end of the link, and returns why it ended.
    pub(crate) fn wait_for_the_end(&mut self) -> Option<String> {
        self.heart.beats.store(false, Relaxed);
        let mut why = None;
        while let Some(message) = self.next() {
            if let ToServing::Fenced { why: told } = message {
                why = Some(told);
            }
        }
        why
    }

    /// Waits until it was granted so many segments.
    pub(crate) fn wait_for_segments(&mut self, count: usize) {
        while self.keys.len() < count {
            match self.next() {
                Some(message) => self.early.push_back(message),
                None => panic!("the link has ended; before: {:?}", self.early),
            }
        }
    }

    /// Renews the lease, and returns what is merged.
    pub(crate) fn renew(&mut self) -> u64 {
        self.sent += 1;
        let (sent, pin, durable) = (self.sent, self.pin, vec![self.tells.unwrap_or(self.log.durable())]);
        self.heart.pin.store(pin, Relaxed);
        self.heart.durable.store(durable[0], Relaxed);
        self.sender.send(&ToMemory::Renew { sent, pin, durable }).unwrap();
        let renewed = self.wait(|message| matches!(message, ToServing::Renewed { .. }));
        let ToServing::Renewed { sent, pin, merged } = renewed else { unreachable!() };
        assert_eq!(sent, self.sent);
        self.pin = pin;
        merged[0]
    }

    /// Renews until all that was written is merged.
    pub(crate) fn wait_until_merged(&mut self) {
        let began = Instant::now();
        while self.renew() < self.log.durable() {
            assert!(began.elapsed() < FAR, "merged in time");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Appends an entry; `false` if it has to wait for a segment. Asks for a segment for each that
    /// was left.
    pub(crate) fn append(&mut self, entry: &Entry<'_>) -> bool {
        let is_removal = matches!(entry, Entry::Changes(changes)
            if changes.iter().all(|change| matches!(change, Change::Remove { .. })));
        if self.is_full && !is_removal {
            return false;
        }
        let before = self.log.spare();
        let is_appended = self.log.append(entry, is_removal).is_ok();
        for _ in self.log.spare()..before {
            self.sender.send(&ToMemory::Segment { shard: 0 }).unwrap();
        }
        is_appended
    }

    pub(crate) fn try_put(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.append(&Entry::Changes(vec![Change::Put { key, value, expires_at: None }]))
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.wait_for_segments(1);
        assert!(self.try_put(key, value), "a segment with room");
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.append(&Entry::Changes(vec![Change::Remove { key }]))
    }

    /// Writes what was appended; `false` if the memory did not take it.
    pub(crate) fn try_write(&mut self) -> bool {
        let Some(pieces) = self.log.take_write() else { return true };
        let write = |Piece { segment, offset, bytes }| {
            let region = self.keys.iter().find(|(number, _)| *number == segment).unwrap().1;
            Operation::Write { bytes, to: Place { region, offset }, until: Until::Arrived }
        };
        let operations = pieces.into_iter().map(write).collect();
        let outcomes = perform(&mut self.lane, operations, FAR).unwrap();
        let is_done = outcomes.iter().all(Result::is_ok);
        if is_done {
            self.log.arrived();
        }
        is_done
    }

    /// Writes what was appended, and waits until it is merged.
    pub(crate) fn settle(&mut self) {
        assert!(self.try_write());
        self.wait_until_merged();
    }

    pub(crate) fn release(&mut self, ranges: &[SlotRange]) {
        let durable = vec![self.tells.unwrap_or(self.log.durable())];
        self.sender.send(&ToMemory::Release { ranges: ranges.to_vec(), durable }).unwrap();
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Item>, String> {
        self.sender.send(&ToMemory::Get { id: 7, key: key.to_vec() }).unwrap();
        match self.wait(|message| matches!(message, ToServing::Got { .. })) {
            ToServing::Got { id: 7, found } => found.map_err(|untold| format!("{untold:?}")),
            other => panic!("{other:?}"),
        }
    }

    /// The value of a key.
    pub(crate) fn value(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        self.get(key).unwrap().map(|item| item.value)
    }

    pub(crate) fn count(&mut self) -> u64 {
        let durable = vec![self.tells.unwrap_or(self.log.durable())];
        self.sender.send(&ToMemory::Count { id: 8, durable }).unwrap();
        match self.wait(|message| matches!(message, ToServing::Counted { .. })) {
            ToServing::Counted { id: 8, keys } => keys.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn page(&mut self, cursor: u64, at_least: u32, values: bool) -> (Vec<Item>, u64) {
        let durable = vec![self.tells.unwrap_or(self.log.durable())];
        self.sender.send(&ToMemory::Scan { id: 9, cursor, at_least, values, durable }).unwrap();
        match self.wait(|message| matches!(message, ToServing::Scanned { .. })) {
            ToServing::Scanned { id: 9, page } => {
                let page = page.unwrap();
                assert_eq!(page.skipped, 0);
                (page.items, page.next)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Libfabric whose endpoints do not close.
pub(crate) struct FailingFabric(Libfabric);

pub(crate) struct FailingEndpoint(LibfabricEndpoint);

impl FailingFabric {
    pub(crate) fn new() -> Self {
        Self(fabric())
    }
}

impl Fabric for FailingFabric {
    type Endpoint = FailingEndpoint;
    type Connection = LibfabricConnection;

    fn open(&self) -> Result<FailingEndpoint, Error> {
        self.0.open().map(FailingEndpoint)
    }

    fn connect(&self, address: &[u8]) -> Result<LibfabricConnection, Error> {
        self.0.connect(address)
    }
}

impl Endpoint for FailingEndpoint {
    fn address(&self) -> &[u8] {
        self.0.address()
    }

    fn register(
        &mut self,
        memory: Arc<dyn Memory>,
        bytes: Range<usize>,
        access: Right,
    ) -> Result<RegionKey, Error> {
        self.0.register(memory, bytes, access)
    }

    fn revoke(&mut self, region: RegionKey) -> Result<(), Error> {
        self.0.revoke(region)
    }

    fn close(self) -> Result<(), Error> {
        Err(Error::Empty)
    }
}
