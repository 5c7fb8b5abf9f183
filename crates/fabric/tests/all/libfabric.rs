//! Tests of libfabric with processes of their own.

use crate::half::{Child, PAYLOAD, digits, from_digits, print_line, write_and_stop};
use std::env;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use terrace_fabric::{
    Access, Endpoint, Error, Fabric, Failure, Libfabric, LibfabricConnection, LibfabricEndpoint, Memory,
    Operation, Output, Place, Ports, RegionKey, Until, Words, perform,
};

const LONG: Duration = Duration::from_secs(60);
const ADDRESS: &str = "TERRACE_FABRIC_ADDRESS";
const PROVIDER: &str = "TERRACE_FABRIC_PROVIDER";

/// The fabric under test; another provider's by environment.
pub(crate) fn fabric() -> Libfabric {
    let provider = env::var(PROVIDER).unwrap_or(Libfabric::TCP.into());
    Libfabric::new(&provider, "127.0.0.1").expect("a provider")
}

/// This program with one test that is a process of another one.
fn process(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args([&format!("libfabric::{test}"), "--exact", "--ignored", "--nocapture"]);
    command
}

/// A process with an endpoint and a region of 64 words.
pub(crate) fn target_process() -> (Child, Vec<u8>, RegionKey) {
    let mut child = Child::start(&mut process("process_of_a_target"));
    let (address, region) = (child.line("address: "), child.line("region: "));
    (child, from_digits(&address), key(&region))
}

fn key(digits: &str) -> RegionKey {
    RegionKey::from_bytes(from_digits(digits).try_into().expect("16 bytes"))
}

#[test]
#[ignore = "a process of other tests"]
fn process_of_a_target() {
    let mut endpoint = fabric().open().expect("an endpoint");
    let region = endpoint.register(Arc::new(Words::new(64)), 0..512, Access::ReadWrite).expect("a region");
    print_line(&format!("address: {}", digits(endpoint.address())));
    print_line(&format!("region: {}", digits(&region.to_bytes())));
    loop {
        std::thread::park();
    }
}

#[test]
#[ignore = "a process of other tests"]
fn process_of_a_writer() {
    let given = env::var(ADDRESS).expect("an address and a key");
    let (address, region) = given.split_once(' ').expect("two words");
    write_and_stop(&fabric(), &from_digits(address), key(region));
}

/// A target with a payload of which a part has arrived, since its writer is stopped.
struct HalfWritten {
    memory: Arc<Words>,
    endpoint: LibfabricEndpoint,
    region: RegionKey,
    writer: Child,
}

impl HalfWritten {
    fn new() -> Self {
        (0..50).find_map(|_| Self::attempt()).expect("a payload that is under way")
    }

    fn attempt() -> Option<Self> {
        let memory = Arc::new(Words::new(PAYLOAD / 8));
        let mut endpoint = fabric().open().expect("an endpoint");
        let region = endpoint.register(memory.clone(), 0..PAYLOAD, Access::Write).expect("a region");
        let given = format!("{} {}", digits(endpoint.address()), digits(&region.to_bytes()));
        let writer = Child::start(process("process_of_a_writer").env(ADDRESS, given));
        writer.wait_until_stopped();
        let half = Self { memory, endpoint, region, writer };
        let arrived = half.wait_until_quiet();
        (8 < arrived && arrived < PAYLOAD).then_some(half)
    }

    /// Number of bytes that have arrived.
    fn arrived(&self) -> usize {
        arrived(&self.memory)
    }

    /// Waits until what the kernel has is in the memory; returns how much has arrived.
    #[allow(clippy::disallowed_methods, reason = "nothing tells that nothing comes any more")]
    fn wait_until_quiet(&self) -> usize {
        loop {
            let before = self.arrived();
            std::thread::sleep(Duration::from_millis(50));
            if self.arrived() == before {
                return before;
            }
        }
    }
}

fn arrived(memory: &Words) -> usize {
    let ones = |word: u64| word.to_ne_bytes().iter().filter(|byte| **byte == 1).count();
    memory.words().iter().map(|word| ones(word.load(Relaxed))).sum()
}

/// The reason for the fence's order. Should this fail one day, the order is still right.
#[test]
fn half_written_payload_goes_on_when_its_region_is_revoked() {
    let mut half = HalfWritten::new();
    half.endpoint.revoke(half.region).expect("revoked");
    half.writer.go_on();
    assert_eq!(half.writer.line("ended: "), "done");
    assert_eq!(half.arrived(), PAYLOAD);
}

#[test]
fn half_written_payload_stops_when_the_endpoint_is_closed() {
    let stopped = (0..50).any(|_| {
        let HalfWritten { memory, endpoint, region: _, mut writer } = HalfWritten::new();
        endpoint.close().expect("closed");
        let before = arrived(&memory);
        writer.go_on();
        let ended = writer.line("ended: ");
        assert_eq!(arrived(&memory), before);
        // On a busy machine the rest may have arrived before the endpoint was closed.
        let half = before < PAYLOAD;
        assert!(!half || ended == "Lost", "the writer heard: {ended}");
        half
    });
    assert!(stopped, "no payload was under way");
}

/// A payload whose writer has not stopped: the library's own thread receives it meanwhile.
#[test]
fn closed_endpoint_receives_nothing_from_a_busy_writer() {
    const ROUNDS: usize = 8;
    let fabric = fabric();
    for round in 0..ROUNDS {
        let memory = Arc::new(Words::new(PAYLOAD / 8));
        let mut endpoint = fabric.open().expect("an endpoint");
        let region = endpoint.register(memory.clone(), 0..PAYLOAD, Access::Write).expect("a region");
        let mut connection = fabric.connect(endpoint.address()).expect("a connection");
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                let ones = |byte| Operation::Write {
                    bytes: vec![byte; PAYLOAD],
                    to: Place { region, offset: 0 },
                    until: Until::Arrived,
                };
                (1..=u8::MAX).cycle().find_map(|byte| {
                    perform(&mut connection, vec![ones(byte)], LONG).expect("a write").remove(0).err()
                })
            });
            // Until it is in the middle of some payload.
            while memory.words()[round * PAYLOAD / 8 / ROUNDS].load(Relaxed) == 0 && !writer.is_finished() {
                std::thread::yield_now();
            }
            endpoint.close().expect("closed");
            let words = || -> Vec<u64> { memory.words().iter().map(|word| word.load(Relaxed)).collect() };
            let before = words();
            assert_eq!(writer.join().expect("a writer"), Some(Failure::Lost));
            assert!(words() == before, "bytes arrived after the endpoint was closed, in round {round}");
        });
    }
}

/// Nothing is under way that could fail, so the library tells nothing.
#[test]
fn endpoint_that_closes_meanwhile_is_found_lost() {
    let fabric = fabric();
    let mut endpoint = fabric.open().expect("an endpoint");
    let region = endpoint.register(Arc::new(Words::new(1)), 0..8, Access::Read).expect("a region");
    let mut connection = fabric.connect(endpoint.address()).expect("a connection");
    let read = || vec![Operation::Read { from: Place { region, offset: 0 }, into: vec![0; 8] }];
    assert!(perform(&mut connection, read(), LONG).expect("a read")[0].is_ok());
    endpoint.close().expect("closed");
    // Does not return before that if the connection waits for the deadline.
    let outcomes = perform(&mut connection, read(), Duration::MAX).expect("a read");
    assert_eq!(outcomes, [Err(Failure::Lost)]);
}

#[test]
fn endpoint_outlives_a_writer_that_dies_in_the_middle() {
    let HalfWritten { memory, mut endpoint, region: _, writer } = HalfWritten::new();
    drop(writer);
    let region = endpoint.register(memory.clone(), 0..64, Access::ReadWrite).expect("a region");
    let mut connection = fabric().connect(endpoint.address()).expect("a connection");
    let read = Operation::Read { from: Place { region, offset: 0 }, into: vec![0; 64] };
    let outcomes = perform(&mut connection, vec![read], LONG).expect("a read");
    assert_eq!(outcomes, [Ok(Output::Buffer(vec![1; 64]))]);
    endpoint.close().expect("closed");
}

/// But for the four bytes of the host, so that all of this stays on the machine, and the eight
/// behind it, which mean nothing.
#[test]
fn altered_address_is_an_error_or_leads_nowhere() {
    let fabric = fabric();
    let mut endpoint = fabric.open().expect("an endpoint");
    let region = endpoint.register(Arc::new(Words::new(1)), 0..8, Access::Read).expect("a region");
    let read = |address: &[u8], at_most| {
        let mut connection = fabric.connect(address)?;
        let read = Operation::Read { from: Place { region, offset: 0 }, into: vec![0; 8] };
        perform(&mut connection, vec![read], at_most)
    };
    let address = endpoint.address();
    assert!(read(address, LONG).expect("a read")[0].is_ok());
    let host = address.len() - 12;
    for at in 0..host {
        let mut altered = address.to_vec();
        altered[at] ^= 0x41;
        let outcome = read(&altered, Duration::from_millis(30)).map(|mut outcomes| outcomes.remove(0));
        assert!(matches!(outcome, Err(Error::Address(_)) | Ok(Err(Failure::Lost))), "byte {at}: {outcome:?}");
    }
    let mut of_family_10 = address.to_vec();
    of_family_10[host - 4] = 10;
    assert!(matches!(fabric.connect(&of_family_10).err(), Some(Error::Address(_))));
}

#[test]
fn endpoints_and_connections_move_between_threads() {
    fn assert_send<T: Send>() {}
    fn assert_shared<T: Send + Sync + Clone>() {}
    assert_send::<LibfabricEndpoint>();
    assert_send::<LibfabricConnection>();
    assert_shared::<Libfabric>();
}

#[test]
fn unknown_provider_is_an_error_with_its_name() {
    let error = Libfabric::new("no;such", "127.0.0.1").err().expect("no such provider");
    assert!(matches!(error, Error::Library { .. }));
    assert!(error.to_string().contains("no;such"), "{error}");
    assert!(Libfabric::new("a\0b", "127.0.0.1").is_err());
}

#[test]
fn unknown_host_is_an_error_with_its_address() {
    let error = Libfabric::new(Libfabric::TCP, "192.0.2.77").err();
    assert!(error.is_some_and(|error| error.to_string().contains("192.0.2.77")));
}

/// The first of four ports in a row that are free now.
fn four_ports() -> u16 {
    let bind = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).ok();
    let begin = || bind(0).expect("a free port").local_addr().expect("an address").port();
    let is_row = |first: &u16| *first < u16::MAX - 4 && (*first..first + 4).all(|port| bind(port).is_some());
    std::iter::repeat_with(begin).take(1000).find(is_row).expect("free ports in a row")
}

/// The port in an address: that of the socket's address at its end.
fn port_of(address: &[u8]) -> u16 {
    let at = address.len() - 14;
    u16::from_be_bytes([address[at], address[at + 1]])
}

#[test]
fn endpoints_and_connections_listen_on_ports_of_a_range() {
    let first = four_ports();
    let ports = Ports::new(first, first + 3).expect("a range");
    // Another program has one.
    let taken = std::net::TcpListener::bind(("127.0.0.1", first + 1)).expect("a free port");
    let on_ports = || Libfabric::on_ports(Libfabric::TCP, "127.0.0.1", Some(ports));
    let fabric = on_ports().expect("a fabric");
    let mut endpoint = fabric.open().expect("an endpoint");
    let region = endpoint.register(Arc::new(Words::new(1)), 0..8, Access::Read).expect("a region");
    let mut connection = fabric.connect(endpoint.address()).expect("a connection");
    let read = Operation::Read { from: Place { region, offset: 0 }, into: vec![0; 8] };
    assert!(perform(&mut connection, vec![read], LONG).expect("a read")[0].is_ok());
    // The connection has one of the four, too.
    let second = fabric.open().expect("a second endpoint");
    let mut have = [port_of(endpoint.address()), port_of(second.address())];
    have.sort_unstable();
    assert!(have[0] != have[1] && have.iter().all(|port| ports.contains(*port)), "{have:?}");
    assert!(!have.contains(&(first + 1)), "{have:?}");
    for error in [fabric.open().err(), fabric.connect(endpoint.address()).err(), on_ports().err()] {
        let said = error.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(matches!(error, Some(Error::NoPort { .. })), "{said}");
        assert!(said.contains(&format!("{first}-{} (4 of them) is free at 127.0.0.1", first + 3)), "{said}");
    }
    second.close().expect("closed");
    let third = fabric.open().expect("the port is free again");
    assert!(have.contains(&port_of(third.address())));
    drop((taken, connection));
}

#[test]
fn closed_endpoints_leave_no_descriptors() {
    let open = || std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    let fabric = fabric();
    drop(fabric.open().expect("an endpoint"));
    let before = open();
    for _ in 0..20 {
        let endpoint = fabric.open().expect("an endpoint");
        drop(fabric.connect(endpoint.address()).expect("a connection"));
        endpoint.close().expect("closed");
    }
    // Other tests of this program have some at the same time.
    assert!(open() < before + 100, "{before} descriptors, then {}", open());
}

/// A library that libfabric brings takes over signals, and ends the process at SIGTERM.
#[test]
fn signal_to_end_is_left_to_the_program() {
    fabric();
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("the signals");
    let caught = u64::from_str_radix(caught.trim(), 16).expect("a mask");
    let (interrupt, terminate) = (1 << 1, 1 << 14);
    assert_eq!(caught & (interrupt | terminate), 0, "{caught:x}");
}
