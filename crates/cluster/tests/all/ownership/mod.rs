//! Tests: whatever dies, stops or is cut off, a slot has one owner that writes, and one that
//! answers.

mod world;

use crate::ledger::Kept;
use std::time::Duration;
use terrace_cluster::arbiter::{Arbiter, Effect as Deed, Incarnation, Leases, Ledger};
use terrace_cluster::message::{ToMemory, ToServing, WIRE};
use terrace_cluster::owner::{Effect, Owner, Slot};
use terrace_cluster::slot::{SLOTS, SlotRange};
use terrace_testkit::times;
use world::{LEASE, NODES, PIECE, Serving, World, leases};

fn run(seed: u64, faults: u32) -> u64 {
    let mut world = World::new(seed);
    for _ in 0..faults {
        let time = world.random.micros(1_000..200_000);
        world.run_for(time);
        world.fault();
    }
    // No more faults: the map comes true.
    world.is_calm = true;
    for node in 0..NODES {
        if world.nodes[node].stopped {
            world.go_on(node);
        }
        if !world.nodes[node].alive {
            world.restart(node);
        }
    }
    world.run_for(Duration::from_secs(8));
    for piece in 0..SLOTS / PIECE {
        let node = world.map[usize::from(piece)];
        let slot = piece * PIECE;
        let Serving { owner, link, .. } = &world.nodes[node];
        assert!(
            world.would_answer(node, slot),
            "seed {seed}: node {node} does not serve slot {slot} in the end: {:?}, session {:?}, link {link}, epoch {} of {}, owner {:?}, sessions {:?}",
            owner.slot(slot),
            owner.session(),
            owner.epoch(),
            world.epoch,
            world.kept.owner(slot),
            world.kept.sessions()
        );
    }
    world.answers
}

#[test]
fn slot_has_one_owner_whatever_fails() {
    let runs = 60 * times();
    let answers: u64 = (0..runs).map(|seed| run(seed, 60)).sum();
    assert!(answers > 5_000 * runs, "nodes answered {answers} times only");
}

/// Two processes with one name, one after the other. Tells when the second has the slots of the
/// first, which is not known to be dead if `last` is 0.
fn second_owns_after(last: Incarnation) -> Duration {
    let kept = Kept::default();
    let mut arbiter = Arbiter::new(kept.clone(), leases(), Duration::ZERO);
    let slots = vec![SlotRange::new(0, 9).unwrap()];
    let hello = |last| ToMemory::Hello { wire: WIRE, node: "one".into(), shards: 1, lanes: 2, last };
    for (link, last) in [(1, 0), (2, last)] {
        arbiter.heard(link, hello(last), Duration::ZERO);
        arbiter.opened(link, Vec::new(), Duration::ZERO);
        arbiter.heard(link, ToMemory::Acquire { epoch: 1, ranges: slots.clone() }, Duration::ZERO);
    }
    arbiter.closed(1);
    arbiter.merged(1, Duration::ZERO);
    let owns = |now: &Duration| {
        arbiter.tick(*now);
        kept.owner(0) == Some(2)
    };
    (0..1000).map(Duration::from_millis).find(owns).expect("a second is enough")
}

#[test]
fn process_with_the_name_of_another_waits_for_its_lease() {
    assert!(second_owns_after(0) >= LEASE);
    // The same process says that it answers from its session no more.
    assert_eq!(second_owns_after(1), Duration::ZERO);
}

/// A memory node is started again with a shorter lease, and dies at once. The node with the slots
/// may answer until its own, longer lease is over.
#[test]
fn shorter_lease_waits_for_the_longer_one_of_before() {
    let kept = Kept::default();
    let short = Leases { time: LEASE / 10, ..leases() };
    let begin = |leases, now, link: u64, session: u64, node: &str| {
        let mut arbiter = Arbiter::new(kept.clone(), leases, now);
        let hello = ToMemory::Hello { wire: WIRE, node: node.into(), shards: 1, lanes: 2, last: 0 };
        arbiter.heard(link, hello, now);
        arbiter.opened(session, Vec::new(), now);
        let slots = vec![SlotRange::new(0, 9).unwrap()];
        arbiter.heard(link, ToMemory::Acquire { epoch: link, ranges: slots }, now);
        arbiter
    };
    begin(leases(), Duration::ZERO, 1, 1, "one");
    assert_eq!(kept.owner(0), Some(1));
    begin(short, Duration::ZERO, 2, 2, "two");
    let mut arbiter = begin(short, Duration::ZERO, 3, 3, "three");
    (1..=2).for_each(|session| arbiter.merged(session, Duration::ZERO));
    let owns = |now: &Duration| {
        let renew = ToMemory::Renew { sent: 0, pin: 0, durable: vec![0] };
        arbiter.heard(3, renew, *now);
        arbiter.tick(*now);
        kept.owner(0) == Some(3)
    };
    let after = (0..1000).map(Duration::from_millis).find(owns);
    assert!(after.expect("a second is enough") >= LEASE, "{after:?}");
    assert_eq!(kept.lease(), short.time, "the next start need not wait as long");
}

/// A copy of a node's id does not take the session of a node that lives; a restart does.
#[test]
fn id_of_a_node_that_lives_is_refused_elsewhere() {
    let kept = Kept::default();
    let mut arbiter = Arbiter::new(kept.clone(), leases(), Duration::ZERO);
    let now = Duration::ZERO;
    let hello = |arbiter: &mut Arbiter<Kept>, link, host: [u8; 4], last, now| {
        arbiter.came_from(link, host.into());
        arbiter.take_effects();
        arbiter.heard(
            link,
            ToMemory::Hello { wire: WIRE, node: "one".into(), shards: 1, lanes: 2, last },
            now,
        );
        let effects = arbiter.take_effects();
        let refusal = effects.iter().find_map(|effect| match effect {
            Deed::Send(to, ToServing::Fenced { why }) if *to == link => Some(why.clone()),
            _ => None,
        });
        assert_eq!(refusal.is_some(), effects.contains(&Deed::Drop(link)), "{effects:?}");
        refusal
    };
    let (here, there) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    assert_eq!(hello(&mut arbiter, 1, here, 0, now), None);
    let why = hello(&mut arbiter, 2, there, 0, now).expect("it is refused");
    assert!(why.contains("10.0.0.1") && why.contains("--node-id-file"), "{why}");
    arbiter.opened(1, Vec::new(), now);
    assert!(hello(&mut arbiter, 3, there, 0, now).is_some());
    assert_eq!(arbiter.serving().len(), 1);
    // The process was started again at its host, or has moved and says so.
    assert_eq!(hello(&mut arbiter, 4, here, 0, now), None);
    arbiter.opened(2, Vec::new(), now);
    assert_eq!(hello(&mut arbiter, 5, there, 2, now), None);
    arbiter.opened(3, Vec::new(), now);
    // Its lease is over: another host may have the id.
    arbiter.tick(now + 2 * LEASE);
    assert_eq!(hello(&mut arbiter, 6, here, 0, now + 2 * LEASE), None);
}

/// A node says twice that it gives a slot back. Meanwhile the slot is another one's.
#[test]
fn release_that_comes_twice_frees_a_slot_once() {
    let kept = Kept::default();
    let (mut arbiter, now) = (Arbiter::new(kept.clone(), leases(), Duration::ZERO), Duration::ZERO);
    let slots = vec![SlotRange::new(0, 9).unwrap()];
    for (link, node) in [(1, "one"), (2, "other")] {
        let hello = ToMemory::Hello { wire: WIRE, node: node.into(), shards: 1, lanes: 2, last: 0 };
        arbiter.heard(link, hello, now);
        arbiter.opened(link, Vec::new(), now);
        arbiter.heard(link, ToMemory::Acquire { epoch: link, ranges: slots.clone() }, now);
    }
    assert_eq!(kept.owner(0), Some(1));
    for _ in 0..2 {
        arbiter.heard(1, ToMemory::Release { ranges: slots.clone(), durable: vec![0] }, now);
    }
    arbiter.merged_for(1, 1);
    assert_eq!(kept.owner(0), Some(2));
    arbiter.merged_for(1, 2);
    assert_eq!(kept.owner(0), Some(2));
}

/// The grant was sent before the memory node heard that the slot is given back.
#[test]
fn grant_of_a_slot_that_is_held_changes_nothing() {
    let mut owner = Owner::new("one".into(), 1, 2);
    let slots = vec![SlotRange::new(3, 4).unwrap()];
    let granted = |epoch| ToServing::Granted { epoch, ranges: vec![SlotRange { first: 3, last: 4 }] };
    owner.map(1, &slots);
    owner.heard(ToServing::Welcome { incarnation: 1, lease: 1, access: Vec::new() });
    owner.heard(granted(1));
    owner.map(2, &[]);
    owner.drained(slots.clone(), vec![0]);
    owner.map(3, &slots);
    owner.take_effects();
    owner.heard(granted(1));
    assert_eq!((owner.slot(3), owner.moving()), (Slot::Held, Some(3)));
    owner.heard(ToServing::Released { ranges: slots.clone() });
    assert_eq!(owner.slot(3), Slot::Away);
    assert!(owner.take_effects().contains(&Effect::Send(ToMemory::Acquire { epoch: 3, ranges: slots })));
}

/// They were sent before the memory node heard that the node has left.
#[test]
fn node_that_has_left_gets_no_slot_and_no_lease() {
    let mut owner = Owner::new("one".into(), 1, 2);
    let slots = vec![SlotRange::new(3, 4).unwrap()];
    owner.map(1, &slots);
    owner.heard(ToServing::Welcome { incarnation: 1, lease: 1_000_000_000, access: Vec::new() });
    owner.leave();
    owner.heard(ToServing::Granted { epoch: 1, ranges: slots });
    owner.heard(ToServing::Renewed { sent: 1, pin: 1, merged: vec![0] });
    assert_eq!((owner.slot(3), owner.lease_until()), (Slot::Away, Duration::ZERO));
}

#[test]
fn node_renews_at_once_when_memory_is_short() {
    let mut owner = Owner::new("one".into(), 1, 2);
    let (second, ms) = (1_000_000_000_u64, Duration::from_millis(1));
    let short = || ToServing::Renewed { sent: 0, pin: 1, merged: vec![0] };
    owner.heard(ToServing::Welcome { incarnation: 1, lease: 2 * second, access: Vec::new() });
    // It gives no lease.
    owner.heard(short());
    assert_eq!(owner.lease_until(), Duration::ZERO);
    let renews = |owner: &mut Owner, at: Duration| {
        owner.take_effects();
        owner.tick(at, 0, vec![0]);
        matches!(owner.take_effects()[..], [Effect::Send(ToMemory::Renew { .. })])
    };
    let now = Duration::from_secs(1);
    assert!(renews(&mut owner, now));
    owner.heard(ToServing::Renewed { sent: second, pin: 1, merged: vec![0] });
    assert_eq!(owner.lease_until(), 3 * now);
    assert!(!renews(&mut owner, now + ms));
    owner.heard(short());
    assert!(renews(&mut owner, now + 2 * ms) && !renews(&mut owner, now + 3 * ms));
    assert_eq!(owner.lease_until(), 3 * now);
}
