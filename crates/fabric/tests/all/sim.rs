//! Tests of the simulation.

use crate::conformance::{add, idle, read, write};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use terrace_fabric::sim::{
    Birth, Death, Event, Host, NodeId, Options, SimConnection, SimEndpoint, Simulation,
};
use terrace_fabric::{
    Access, Completion, Connection, Endpoint, Fabric, Failure, Memory, Operation, Output, Posted, RegionKey,
    Words,
};

const SEEDS: u64 = 200;
const SECOND: Duration = Duration::from_secs(1);
const LEN: usize = 64;

/// A target with memory of 8 words, and an initiator with a connection to it.
struct Pair {
    simulation: Simulation,
    target: NodeId,
    initiator: NodeId,
    memory: Arc<Words>,
    /// `None` once it is closed.
    endpoint: Option<SimEndpoint>,
    region: RegionKey,
    connection: SimConnection,
    completions: Vec<Completion>,
}

impl Pair {
    fn new(seed: u64, options: Options) -> Self {
        let mut simulation = Simulation::new(seed, options);
        let (target, initiator) = (idle(&mut simulation), idle(&mut simulation));
        let memory = Arc::new(Words::new(LEN / 8));
        let mut endpoint = target.open().expect("an endpoint");
        let region = endpoint.register(memory.clone(), 0..LEN, Access::ReadWrite).expect("a region");
        let connection = initiator.connect(endpoint.address()).expect("a connection");
        Self {
            simulation,
            target: target.id(),
            initiator: initiator.id(),
            memory,
            endpoint: Some(endpoint),
            region,
            connection,
            completions: Vec::new(),
        }
    }

    fn post(&mut self, number: u64, operation: Operation) {
        self.connection.post(vec![Posted { number, operation }]).expect("posted");
    }

    fn post_ones(&mut self) {
        self.post(0, write(self.region, 0, &[1; LEN]));
    }

    /// Number of bytes that are one.
    fn ones(&self) -> usize {
        let mut bytes = [0; LEN];
        terrace_fabric::load_bytes(self.memory.words(), 0, &mut bytes);
        bytes.iter().filter(|byte| **byte == 1).count()
    }

    /// Lets things happen until a part of the ones has arrived. Whether that was so.
    fn run_until_half(&mut self) -> bool {
        while self.ones() == 0 && self.simulation.step() {}
        (1..LEN).contains(&self.ones())
    }

    fn run(&mut self) {
        self.simulation.run_for(SECOND);
        self.connection.poll(&mut self.completions);
    }

    fn outcome(&self, number: u64) -> Option<&Result<Output, Failure>> {
        self.completions.iter().find(|completion| completion.number == number).map(|found| &found.outcome)
    }
}

/// How many seeds have a run with a payload that is half there, and for how many of them `check`
/// holds.
fn of_half_written(options: &Options, mut check: impl FnMut(&mut Pair) -> bool) -> (u64, u64) {
    let (mut half, mut held) = (0, 0);
    for seed in 0..SEEDS {
        let mut pair = Pair::new(seed, options.clone());
        pair.post_ones();
        if pair.run_until_half() {
            half += 1;
            held += u64::from(check(&mut pair));
        }
    }
    assert!(half > SEEDS / 4, "only {half} payloads were half there");
    (half, held)
}

#[test]
fn payload_goes_on_when_its_region_is_revoked() {
    let (half, whole) = of_half_written(&Options::default(), |pair| {
        let region = pair.region;
        pair.endpoint.as_mut().expect("open").revoke(region).expect("revoked");
        pair.run();
        assert!(pair.outcome(0).expect("complete").is_ok());
        pair.ones() == LEN
    });
    assert_eq!(whole, half);
}

#[test]
fn payload_stops_when_the_endpoint_is_closed() {
    let (half, stopped) = of_half_written(&Options::default(), |pair| {
        let before = pair.ones();
        pair.endpoint.take().expect("open").close().expect("closed");
        pair.run();
        assert_eq!(pair.outcome(0), Some(&Err(Failure::Lost)));
        pair.ones() == before
    });
    assert_eq!(stopped, half);
}

/// Some pieces wait in the process, the others are in the network.
#[test]
fn payload_of_a_stopped_node_ends_when_it_goes_on() {
    let mut arrived_while_stopped = 0;
    let (half, waited) = of_half_written(&Options::default(), |pair| {
        let before = pair.ones();
        pair.simulation.stop(pair.initiator);
        pair.run();
        let stopped_at = pair.ones();
        arrived_while_stopped += u64::from(stopped_at > before);
        pair.simulation.go_on(pair.initiator);
        pair.run();
        assert_eq!(pair.ones(), LEN);
        stopped_at < LEN
    });
    assert!(0 < waited && waited < half, "{waited} of {half} payloads waited");
    assert!(arrived_while_stopped > 0);
}

#[test]
fn payload_of_a_lost_connection_may_still_arrive() {
    let (half, later) = of_half_written(&Options::default(), |pair| {
        pair.simulation.lose_connections(pair.initiator, pair.target);
        let before = pair.ones();
        pair.run();
        assert_eq!(pair.outcome(0), Some(&Err(Failure::Lost)));
        pair.ones() > before
    });
    assert!(0 < later && later < half, "{later} of {half} payloads went on");
}

#[test]
fn payload_of_a_dead_node_may_still_arrive() {
    let (half, later) = of_half_written(&Options::default(), |pair| {
        pair.simulation.kill(pair.initiator, Death::Process);
        let before = pair.ones();
        pair.run();
        pair.ones() > before
    });
    assert!(0 < later && later < half, "{later} of {half} payloads went on");
}

#[test]
fn payload_to_a_stopped_node_arrives_by_itself_on_rdma_only() {
    for needs_target in [true, false] {
        let options = Options { needs_target, ..Options::default() };
        let (half, complete) = of_half_written(&options, |pair| {
            pair.simulation.stop(pair.target);
            pair.run();
            let complete = pair.ones() == LEN;
            pair.simulation.go_on(pair.target);
            pair.run();
            assert_eq!(pair.ones(), LEN);
            complete
        });
        assert_eq!(complete, if needs_target { 0 } else { half });
    }
}

#[test]
fn read_shows_several_moments_but_whole_words() {
    for tears_words in [false, true] {
        let (mut mixed, mut torn) = (0, 0);
        for seed in 0..SEEDS {
            let options = Options { tears_words, pieces_max: 8, ..Options::default() };
            let mut pair = Pair::new(seed, options);
            pair.post(0, read(pair.region, 4, 56));
            while pair.simulation.step() {
                pair.memory.words().iter().for_each(|word| {
                    word.fetch_add(0x0101_0101_0101_0101, Relaxed);
                });
            }
            pair.run();
            let Some(Ok(Output::Buffer(bytes))) = pair.outcome(0) else { panic!("{:?}", pair.completions) };
            mixed += u64::from(bytes.iter().any(|byte| *byte != bytes[0]));
            torn += u64::from(bytes[4..52].chunks(8).any(|word| word.iter().any(|byte| *byte != word[0])));
        }
        assert!(mixed > SEEDS / 4, "{mixed} reads");
        assert_eq!(torn > 0, tears_words, "{torn} reads");
    }
}

#[test]
fn operations_overtake_each_other_unless_told_not_to() {
    for reorders in [true, false] {
        let mut overtaken = 0;
        for seed in 0..SEEDS {
            let mut pair = Pair::new(seed, Options { reorders, ..Options::default() });
            for number in 0..8 {
                pair.post(number, add(pair.region, 0, 1));
            }
            pair.run();
            let before = |number| match pair.outcome(number) {
                Some(Ok(Output::Before(before))) => *before,
                other => panic!("{other:?}"),
            };
            overtaken += u64::from((0..8).any(|number| before(number) != number));
        }
        assert_eq!(overtaken > 0, reorders, "{overtaken} runs");
    }
}

#[test]
fn connections_get_lost_as_often_as_told() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let mut pair = Pair::new(seed, Options { connection_lost_in: 4, ..Options::default() });
        pair.post_ones();
        pair.run();
        match pair.outcome(0).expect("complete") {
            Ok(_) => assert_eq!(pair.ones(), LEN),
            Err(failure) => {
                assert_eq!(*failure, Failure::Lost);
                lost += 1;
            }
        }
    }
    assert!((SEEDS / 8..SEEDS / 2).contains(&lost), "{lost} of {SEEDS}");
}

#[test]
fn partition_keeps_back_what_arrives_when_it_heals() {
    for (forth, back) in [(true, false), (false, true), (true, true)] {
        let mut pair = Pair::new(1, Options::default());
        let ways = [(forth, pair.initiator, pair.target), (back, pair.target, pair.initiator)];
        ways.iter().filter(|way| way.0).for_each(|(_, from, to)| pair.simulation.cut(*from, *to));
        pair.post_ones();
        pair.run();
        assert_eq!(pair.ones(), if forth { 0 } else { LEN });
        assert_eq!(pair.outcome(0), None);
        ways.iter().for_each(|(_, from, to)| pair.simulation.heal(*from, *to));
        pair.run();
        assert_eq!(pair.ones(), LEN);
        assert!(pair.outcome(0).is_some_and(Result::is_ok));
    }
}

#[test]
fn death_of_a_machine_is_silent_that_of_a_process_is_not() {
    for death in [Death::Process, Death::Machine] {
        let mut pair = Pair::new(1, Options::default());
        pair.simulation.kill(pair.target, death);
        pair.post_ones();
        pair.run();
        let told = (death == Death::Process).then_some(&Err(Failure::Lost));
        assert_eq!(pair.outcome(0), told);
        assert_eq!(pair.ones(), 0);
        pair.connection.give_up();
        pair.run();
        assert_eq!(pair.outcome(0), Some(&Err(Failure::Lost)));
    }
}

#[test]
fn endpoint_of_a_former_life_stays_closed() {
    let mut pair = Pair::new(1, Options::default());
    pair.simulation.kill(pair.target, Death::Machine);
    pair.simulation.restart(pair.target, Birth::MemoryKept);
    pair.post_ones();
    pair.run();
    assert_eq!(pair.outcome(0), Some(&Err(Failure::Lost)));
    assert_eq!(pair.ones(), 0);
}

/// What a node hears, with the time on its clock.
type Heard = Rc<RefCell<Vec<(Duration, Event)>>>;

/// A node that notes what it hears. Its host is that of its latest life.
fn listener(simulation: &mut Simulation) -> (NodeId, Rc<RefCell<Option<Host>>>, Heard) {
    let (host, heard) = (Rc::new(RefCell::new(None)), Heard::default());
    let (given, noted) = (Rc::clone(&host), Rc::clone(&heard));
    let id = simulation.add(move |host: Host, _| {
        given.replace(Some(host.clone()));
        let noted = Rc::clone(&noted);
        move |event| noted.borrow_mut().push((host.now(), event))
    });
    (id, host, heard)
}

fn host_of(host: &Rc<RefCell<Option<Host>>>) -> Host {
    host.borrow().clone().expect("a host")
}

fn numbers(heard: &Heard) -> Vec<u8> {
    let number = |(_, event): &(Duration, Event)| match event {
        Event::Message { bytes, .. } => bytes[0],
        other => panic!("{other:?}"),
    };
    heard.borrow().iter().map(number).collect()
}

#[test]
fn messages_keep_their_order_unless_told_otherwise() {
    let sent: Vec<u8> = (0..50).collect();
    for reorders_messages in [false, true] {
        let mut simulation = Simulation::new(3, Options { reorders_messages, ..Options::default() });
        let sender = idle(&mut simulation);
        let (id, _, heard) = listener(&mut simulation);
        sent.iter().for_each(|number| sender.send(id, vec![*number]));
        simulation.run_for(SECOND);
        let mut found = numbers(&heard);
        assert_eq!(found == sent, !reorders_messages, "{found:?}");
        found.sort_unstable();
        assert_eq!(found, sent);
    }
}

#[test]
fn messages_get_lost_as_often_as_told() {
    let mut simulation = Simulation::new(3, Options { message_lost_in: 5, ..Options::default() });
    let sender = idle(&mut simulation);
    let (id, _, heard) = listener(&mut simulation);
    (0..250).for_each(|number| sender.send(id, vec![number]));
    simulation.run_for(SECOND);
    let arrived = heard.borrow().len();
    assert!((150..240).contains(&arrived), "{arrived} of 250");
}

#[test]
fn stopped_node_hears_all_of_it_when_it_goes_on() {
    let mut simulation = Simulation::new(3, Options::default());
    let sender = idle(&mut simulation);
    let (id, host, heard) = listener(&mut simulation);
    let began = host_of(&host).now();
    host_of(&host).set_timer(SECOND / 2, 7);
    simulation.stop(id);
    (0..5).for_each(|number| sender.send(id, vec![number]));
    simulation.run_for(SECOND);
    assert!(heard.borrow().is_empty());
    simulation.go_on(id);
    simulation.run_for(SECOND);
    let heard = heard.take();
    assert_eq!(heard.len(), 6);
    assert_eq!(heard[5].1, Event::Timer(7));
    assert!(heard.iter().all(|(at, _)| *at - began > SECOND * 9 / 10), "its clock stood still");
}

#[test]
fn former_life_leaves_no_timers_and_messages() {
    let mut simulation = Simulation::new(3, Options::default());
    let sender = idle(&mut simulation);
    let (id, host, heard) = listener(&mut simulation);
    host_of(&host).set_timer(SECOND / 2, 7);
    sender.send(id, vec![1]);
    simulation.kill(id, Death::Process);
    sender.send(id, vec![2]);
    simulation.restart(id, Birth::MemoryLost);
    sender.send(id, vec![3]);
    host_of(&host).set_timer(SECOND / 4, 8);
    simulation.run_for(SECOND);
    let heard: Vec<Event> = heard.take().into_iter().map(|(_, event)| event).collect();
    assert_eq!(heard, [Event::Message { from: sender.id(), bytes: vec![3] }, Event::Timer(8)]);
}

#[test]
fn restart_says_whether_the_memory_is_lost() {
    let births = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&births);
    let mut simulation = Simulation::new(3, Options::default());
    let id = simulation.add(move |_, birth| {
        noted.borrow_mut().push(birth);
        |_: Event| ()
    });
    for birth in [Birth::MemoryKept, Birth::MemoryLost] {
        simulation.kill(id, Death::Machine);
        simulation.restart(id, birth);
    }
    assert_eq!(births.take(), [Birth::First, Birth::MemoryKept, Birth::MemoryLost]);
}

#[test]
fn clocks_differ_but_drift_no_more_than_told() {
    let hour = SECOND * 3600;
    let options = Options { clock_offset_max: hour, clock_drift_max_ppm: 200, ..Options::default() };
    let mut simulation = Simulation::new(5, options);
    let hosts: Vec<Host> = (0..20).map(|_| idle(&mut simulation)).collect();
    let began: Vec<Duration> = hosts.iter().map(Host::now).collect();
    let spread = *began.iter().max().expect("twenty") - *began.iter().min().expect("twenty");
    assert!(hour / 2 < spread && spread <= hour, "{spread:?}");
    simulation.run_for(hour);
    let went: Vec<Duration> = hosts.iter().zip(began).map(|(host, began)| host.now() - began).collect();
    let drift: Vec<i64> = went.iter().map(|went| went.as_micros() as i64 - hour.as_micros() as i64).collect();
    assert!(drift.iter().all(|drift| drift.abs() <= 200 * 3600), "{drift:?}");
    assert!(drift.iter().any(|drift| *drift > 3600) && drift.iter().any(|drift| *drift < -3600), "{drift:?}");
}

/// A node's timer takes its own clock's time, whatever that is elsewhere.
#[test]
fn timer_runs_by_its_nodes_clock() {
    let mut simulation = Simulation::new(5, Options { clock_drift_max_ppm: 10_000, ..Options::default() });
    for _ in 0..10 {
        let (_, host, heard) = listener(&mut simulation);
        let began = host_of(&host).now();
        host_of(&host).set_timer(SECOND * 100, 1);
        simulation.run_for(SECOND * 200);
        let (at, _) = heard.borrow()[0];
        assert!((at - began).abs_diff(SECOND * 100) < Duration::from_micros(1), "{:?}", at - began);
    }
}

#[test]
fn completions_are_heard_of_until_the_connection_is_dropped() {
    for drop_it in [false, true] {
        let mut simulation = Simulation::new(3, Options::default());
        let target = idle(&mut simulation);
        let (_, host, heard) = listener(&mut simulation);
        let mut endpoint = target.open().expect("an endpoint");
        let region = endpoint.register(Arc::new(Words::new(8)), 0..64, Access::Read).expect("a region");
        let mut connection = host_of(&host).connect(endpoint.address()).expect("a connection");
        let (id, operation) = (connection.id(), read(region, 0, 8));
        connection.post(vec![Posted { number: 0, operation }]).expect("posted");
        let kept = (!drop_it).then_some(connection);
        simulation.run_for(SECOND);
        let heard: Vec<Event> = heard.take().into_iter().map(|(_, event)| event).collect();
        assert_eq!(heard, kept.map(|_| Event::Completed { connection: id }).into_iter().collect::<Vec<_>>());
    }
}

/// Operations, messages, timers and faults of three nodes; what all of them hear.
fn story(seed: u64) -> String {
    let options = Options { message_lost_in: 9, connection_lost_in: 50, ..Options::default() };
    let mut pair = Pair::new(seed, options);
    let (id, host, heard) = listener(&mut pair.simulation);
    let mut random = pair.simulation.random();
    for round in 0..100u64 {
        match random.below(8) {
            0 => pair.simulation.stop(id),
            1 => pair.simulation.go_on(id),
            2 => pair.simulation.cut(pair.initiator, pair.target),
            3 => pair.simulation.heal(pair.initiator, pair.target),
            4 => host_of(&host).set_timer(Duration::from_micros(random.below(50)), round),
            5 => host_of(&host).send(id, vec![round as u8]),
            _ => pair.post(round, write(pair.region, 0, &round.to_ne_bytes())),
        }
        pair.simulation.run_for(Duration::from_micros(random.below(20)));
    }
    pair.run();
    format!("{:?} {:?} {}", heard.borrow(), pair.completions, pair.simulation.events())
}

#[test]
fn same_seed_gives_the_same_run() {
    let stories: Vec<String> = (0..20).map(story).collect();
    assert_eq!(stories, (0..20).map(story).collect::<Vec<_>>());
    assert!(stories.windows(2).all(|pair| pair[0] != pair[1]));
}
