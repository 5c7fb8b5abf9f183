//! What every directory does.

use super::{World, wait};
use std::collections::BTreeSet;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;
use terrace_cluster::directory::{
    Change, Directory, DirectoryError, Member, Memory, Moves, Registrant, Registration, Sessions, State,
};
use terrace_cluster::map::{Map, Node};
use terrace_cluster::slot::SlotRange;

fn member(port: u16) -> Member {
    Member { host: "localhost".into(), port, wire: 1 }
}

fn put(key: &str, value: &str) -> Change {
    Change::Put(key.into(), value.into())
}

fn id(number: u16) -> String {
    format!("{number:040x}")
}

/// A map of one node.
fn map(port: u16) -> Map {
    Map::spread(vec![Node { id: id(port), host: "localhost".into(), port }])
}

/// The states that a watch tells.
fn watched(directory: &dyn Directory) -> (terrace_cluster::directory::Watch, mpsc::Receiver<State>) {
    let (give, states) = mpsc::channel();
    (directory.watch(Box::new(move |state| _ = give.send(state))), states)
}

/// The first state of a watch that is as wanted.
fn heard(states: &mpsc::Receiver<State>, is_it: impl Fn(&State) -> bool) -> State {
    loop {
        let state = states.recv_timeout(Duration::from_secs(30)).expect("another state");
        if is_it(&state) {
            return state;
        }
    }
}

pub(super) fn id_is_written_once(world: &dyn World) {
    let (one, other) = (world.connect(), world.connect());
    assert_eq!(one.identify(&id(1)).unwrap(), id(1));
    assert_eq!(other.identify(&id(2)).unwrap(), id(1));
    assert_eq!(one.identify(&id(3)).unwrap(), id(1));
    assert_eq!(other.read().unwrap().id, Some(id(1)));
    // One that makes no sense counts as none.
    one.change(&[], &[put("id", "[]")]).unwrap();
    assert_eq!(other.read().unwrap().id, None);
    assert_eq!(other.identify(&id(2)).unwrap(), id(2));
    assert_eq!(one.identify(&id(1)).unwrap(), id(2));
}

pub(super) fn change_needs_the_revisions_it_names(world: &dyn World) {
    let directory = world.connect();
    let first = directory.change(&[("id", 0)], &[put("id", &id(1))]).unwrap().unwrap();
    assert_eq!(directory.change(&[("id", 0)], &[put("id", &id(2))]).unwrap(), None);
    // All conditions, or none of the changes.
    let conditions = [("id", first), ("leader", 5)];
    assert_eq!(directory.change(&conditions, &[put("id", &id(2)), put("drained/x", "{}")]).unwrap(), None);
    let state = directory.read().unwrap();
    assert_eq!((state.id, state.drained.len()), (Some(id(1)), 0));
    let conditions = [("id", first), ("leader", 0)];
    let both = directory.change(&conditions, &[put("id", &id(2)), put("leader", "x")]).unwrap().unwrap();
    let state = directory.read().unwrap();
    assert_eq!((state.id, state.leader.map(|leader| leader.revision)), (Some(id(2)), Some(both)));
    assert!(both > first && state.revision >= both);
    directory.change(&[("leader", both)], &[Change::Delete("leader".into())]).unwrap().unwrap();
    assert_eq!(directory.read().unwrap().leader, None);
}

pub(super) fn kept_key_follows_its_text(world: &dyn World) {
    let (one, other) = (world.connect(), world.connect());
    let sessions = |nodes: &[&str]| {
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        Sessions { boot: 7, nodes }
    };
    let kept = one.publish(&sessions(&[]));
    wait(&*other, |state| state.sessions == Some(sessions(&[])));
    for nodes in [&["a"][..], &["a", "b"], &["b"]] {
        kept.set(sessions(nodes).text());
        wait(&*other, |state| state.sessions == Some(sessions(nodes)));
    }
}

pub(super) fn kept_key_goes_when_it_is_dropped(world: &dyn World) {
    let (one, other) = (world.connect(), world.connect());
    let (kept, stays) = (one.register("aa", &member(1)), one.register("bb", &member(2)));
    wait(&*other, |state| state.members.len() == 2);
    drop(kept);
    wait(&*other, |state| state.members.keys().eq(["bb"]));
    // The same node begins anew, and the process before it ends only then.
    let again = other.register("bb", &member(3));
    wait(&*other, |state| state.members["bb"] == member(3));
    drop((stays, one));
    let third = world.connect();
    let _kept = third.register("cc", &member(4));
    wait(&*third, |state| state.members.contains_key("cc"));
    assert_eq!(third.read().unwrap().members["bb"], member(3));
    drop(again);
}

pub(super) fn kept_key_goes_with_its_process(world: &dyn World) {
    let (one, other) = (world.connect(), world.connect());
    let kept = one.register("aa", &member(1));
    let claim = one.lead("aa", None).unwrap();
    one.drain("aa", true).unwrap();
    wait(&*other, |state| state.members.len() == 1 && state.leader.is_some());
    drop(one);
    let state = wait(&*other, |state| state.members.is_empty() && state.leader.is_none());
    assert!(state.drained.contains("aa"));
    // Their ends come too late, and change nothing.
    drop((kept, claim));
}

pub(super) fn kept_key_comes_back_after_its_lease(world: &dyn World) {
    let (one, other) = (world.connect(), world.connect());
    let _kept = one.register("aa", &member(1));
    let before = wait(&*other, |state| state.members.len() == 1);
    world.end_leases();
    let after = wait(&*other, |state| state.members.len() == 1 && state.revision > before.revision);
    assert_eq!(after.members["aa"], member(1));
}

/// Somebody writes the key by hand, as no process does.
pub(super) fn kept_key_comes_back_over_another_text(world: &dyn World) {
    let (one, other) = (world.connect(), world.connect());
    let _kept = one.register("aa", &member(1));
    wait(&*other, |state| state.members.len() == 1);
    for text in [r#"{"host":"elsewhere","port":9,"wire":1}"#, "garbage"] {
        let written = other.change(&[], &[put("members/aa", text)]).unwrap().unwrap();
        wait(&*other, |state| state.revision > written && state.members.get("aa") == Some(&member(1)));
    }
}

pub(super) fn kept_key_comes_once_the_directory_answers(world: &dyn World) {
    let (one, other) = (world.connect(), world.connect());
    let kept = one.register("aa", &member(1));
    wait(&*other, |state| state.members.len() == 1);
    world.set_away(true);
    kept.set(r#"{"host":"localhost","port":2,"wire":1}"#.into());
    let _another = one.register("bb", &member(3));
    world.set_away(false);
    let state = wait(&*other, |state| state.members.len() == 2 && state.members["aa"] == member(2));
    assert_eq!(state.members["bb"], member(3));
}

pub(super) fn claim_is_one_process_alone(world: &dyn World) {
    let directories: Vec<_> = (0..4).map(|_| world.connect()).collect();
    let start = Barrier::new(directories.len());
    let claim = |directory: &dyn Directory| {
        start.wait();
        directory.lead("someone", None).unwrap()
    };
    let claims = thread::scope(|scope| {
        let threads: Vec<_> = directories.iter().map(|one| scope.spawn(|| claim(&**one))).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let [claim] = claims.as_slice() else { panic!("{} claims", claims.len()) };
    assert_eq!(directories[0].read().unwrap().leader.unwrap().revision, claim.revision);
}

pub(super) fn claim_ends_with_its_lease(world: &dyn World) {
    let (one, other) = (world.connect(), world.connect());
    let _kept = one.register("aa", &member(1));
    let claim = one.lead("aa", None).unwrap().unwrap();
    wait(&*other, |state| state.members.len() == 1 && state.leader.is_some());
    world.end_leases();
    // What is kept comes back; then the claim would have, too.
    let state = wait(&*other, |state| state.members.len() == 1 && state.revision > claim.revision);
    assert_eq!(state.leader, None);
    assert_eq!(one.put_map(&claim, &state, &map(1), None).unwrap(), None);
    // And it can be claimed anew.
    let again = wait_for(|| one.lead("aa", None));
    assert!(again.revision > claim.revision);
}

/// A claim, once the directory grants it: its lease may just have ended.
fn wait_for<T>(ask: impl Fn() -> Result<Option<T>, DirectoryError>) -> T {
    for _ in 0..100 {
        if let Ok(Some(granted)) = ask() {
            return granted;
        }
        pause();
    }
    panic!("it is not granted")
}

#[allow(clippy::disallowed_methods, reason = "waits for another process")]
fn pause() {
    thread::sleep(Duration::from_millis(100));
}

pub(super) fn claim_that_is_dropped_frees_its_key(world: &dyn World) {
    let (one, other) = (world.connect(), world.connect());
    let claim = one.lead("aa", None).unwrap().unwrap();
    assert!(other.lead("bb", None).unwrap().is_none());
    drop(claim);
    wait(&*other, |state| state.leader.is_none());
    assert!(other.lead("bb", None).unwrap().is_some());
}

pub(super) fn claim_over_a_claim_outlives_the_drop(world: &dyn World) {
    let one = world.connect();
    let first = one.lead("aa", None).unwrap().unwrap();
    let leader = one.read().unwrap().leader.unwrap();
    // Of the same process, so that only the revisions differ.
    let second = one.lead("aa", Some(&leader)).unwrap().unwrap();
    drop(first);
    let _kept = one.register("aa", &member(1));
    wait(&*one, |state| state.members.len() == 1);
    assert_eq!(one.read().unwrap().leader.map(|leader| leader.revision), Some(second.revision));
}

pub(super) fn map_is_put_by_the_leader_alone(world: &dyn World) {
    let (one, other) = (world.connect(), world.connect());
    let first = one.lead("one", None).unwrap().unwrap();
    let empty = one.read().unwrap();
    assert_eq!((empty.epoch, empty.map.nodes.len()), (0, 0));
    let epoch = one.put_map(&first, &empty, &map(1), None).unwrap().unwrap();
    let seen = other.read().unwrap();
    assert_eq!((seen.epoch, &seen.map), (epoch, &map(1)));
    let second = other.lead("other", seen.leader.as_ref()).unwrap().unwrap();
    assert_eq!(one.put_map(&first, &seen, &map(2), None).unwrap(), None);
    let later = other.put_map(&second, &seen, &map(3), None).unwrap().unwrap();
    let last = one.read().unwrap();
    assert_eq!((last.epoch, &last.map), (later, &map(3)));
    assert!(later > epoch);
}

pub(super) fn map_is_not_put_over_another(world: &dyn World) {
    let one = world.connect();
    let claim = one.lead("one", None).unwrap().unwrap();
    let seen = one.read().unwrap();
    one.put_map(&claim, &seen, &map(1), None).unwrap().unwrap();
    assert_eq!(one.put_map(&claim, &seen, &map(2), None).unwrap(), None);
    // Nor over moves that were not seen.
    let seen = one.read().unwrap();
    let moves = Moves::default().with(&[SlotRange::new(0, 9).unwrap()], "aa");
    one.put_moves(&seen.moves, &moves).unwrap().unwrap();
    assert_eq!(one.put_map(&claim, &seen, &map(2), None).unwrap(), None);
    let seen = one.read().unwrap();
    assert_eq!(seen.moves.of, moves.of);
    let none = Moves::default();
    let epoch = one.put_map(&claim, &seen, &map(2), Some(&none)).unwrap().unwrap();
    let last = one.read().unwrap();
    assert_eq!((last.epoch, last.moves.of.len(), last.moves.revision), (epoch, 0, epoch));
}

pub(super) fn moves_are_not_put_over_others(world: &dyn World) {
    let one = world.connect();
    let seen = one.read().unwrap().moves;
    let moves = seen.with(&[SlotRange::new(0, 9).unwrap()], "aa");
    one.put_moves(&seen, &moves).unwrap().unwrap();
    assert_eq!(one.put_moves(&seen, &Moves::default()).unwrap(), None);
    assert_eq!(one.read().unwrap().moves.of, moves.of);
}

/// Takes the lead, and puts maps until another process has taken it. Returns the revisions of the
/// claim and of the maps.
fn lead_and_put(directory: &dyn Directory, name: &str) -> Option<(u64, Vec<u64>)> {
    let leader = directory.read().unwrap().leader;
    let claim = directory.lead(name, leader.as_ref()).unwrap()?;
    let mut puts = Vec::new();
    // This one does not look whether it leads.
    while puts.len() < 20 {
        let seen = directory.read().unwrap();
        match directory.put_map(&claim, &seen, &map(1), None).unwrap() {
            Some(revision) => puts.push(revision),
            None => break,
        }
    }
    Some((claim.revision, puts))
}

/// Processes take the lead from each other, and put maps all the time. A map that was put is put
/// before the next leader's claim.
pub(super) fn two_leaders_never_both_put_a_map(world: &dyn World) {
    const TURNS: usize = 30;
    let directories: Vec<_> = (0..3).map(|_| world.connect()).collect();
    let mut done: Vec<(u64, Vec<u64>)> = Vec::new();
    let turns = |nth: usize| -> Vec<(u64, Vec<u64>)> {
        let (mut turns, mut puts) = (Vec::new(), 0);
        // Threads that hardly run together take the lead from each other, and put next to nothing.
        while turns.len() < TURNS || puts < TURNS {
            // A try fails if another one has taken the lead meanwhile.
            let turn = lead_and_put(&*directories[nth], &format!("node {nth}"));
            puts += turn.as_ref().map_or(0, |(_, puts)| puts.len());
            turns.extend(turn);
        }
        turns
    };
    thread::scope(|scope| {
        let turns = &turns;
        let threads: Vec<_> = (0..directories.len()).map(|nth| scope.spawn(move || turns(nth))).collect();
        threads.into_iter().for_each(|thread| done.extend(thread.join().unwrap()));
    });
    done.sort_unstable();
    assert!(done.len() > TURNS, "{} turns", done.len());
    assert!(done.iter().map(|(_, puts)| puts.len()).sum::<usize>() > TURNS);
    for pair in done.windows(2) {
        let ((claim, puts), (next, _)) = (&pair[0], &pair[1]);
        assert!(puts.iter().all(|put| (*claim..*next).contains(put)), "{claim}..{next}: {puts:?}");
    }
}

pub(super) fn watch_tells_the_latest_state(world: &dyn World) {
    let (one, other) = (world.connect(), world.connect());
    one.identify(&id(1)).unwrap();
    let (_watch, states) = watched(&*other);
    let first = heard(&states, |_| true);
    assert_eq!(first.id, Some(id(1)));
    let mut last = first.revision;
    for nth in 0..20 {
        one.drain(&format!("node{nth}"), true).unwrap();
        let state = heard(&states, |state| state.drained.contains(&format!("node{nth}")));
        assert_eq!(state.drained.len(), nth + 1);
        assert!(state.revision > last);
        last = state.revision;
    }
}

pub(super) fn watch_goes_on_after_the_directory_was_away(world: &dyn World) {
    let one = world.connect();
    let (_watch, states) = watched(&*one);
    one.drain("before", true).unwrap();
    heard(&states, |state| state.drained.contains("before"));
    for nth in 0..2 {
        world.set_away(true);
        let away = one.drain("meanwhile", true).unwrap_err();
        assert!(matches!(away, DirectoryError::Away { .. }), "{away:?}");
        assert!(matches!(one.read(), Err(DirectoryError::Away { .. })));
        assert!(matches!(one.lead("one", None), Err(DirectoryError::Away { .. })));
        world.set_away(false);
        let name = format!("after{nth}");
        wait(&*one, |_| true);
        one.drain(&name, true).unwrap();
        let state = heard(&states, |state| state.drained.contains(&name));
        assert!(state.drained.contains("before"));
    }
}

pub(super) fn watch_that_is_dropped_is_silent(world: &dyn World) {
    let one = world.connect();
    let (watch, states) = watched(&*one);
    heard(&states, |_| true);
    drop(watch);
    one.drain("x", true).unwrap();
    // Its callback is gone, and with it the sender.
    assert_eq!(states.recv(), Err(mpsc::RecvError));
    // A watch may end in its own callback's thread.
    let (give, take) = mpsc::channel::<terrace_cluster::directory::Watch>();
    let (told, tells) = mpsc::channel();
    let watch = one.watch(Box::new(move |_| {
        drop(take.recv());
        _ = told.send(());
    }));
    give.send(watch).unwrap();
    tells.recv_timeout(Duration::from_secs(30)).unwrap();
}

pub(super) fn damaged_text_is_ignored_and_told(world: &dyn World) {
    let one = world.connect();
    let texts = [("map", "{\"nodes\":[],\"slots\":{\"a\":\"1-0\"}}"), ("memory", "x"), ("moves", "[]")];
    let changes: Vec<Change> = texts.iter().map(|(key, text)| put(key, text)).collect();
    let unknown = put("of/a/later/release", "x");
    let put_at = one.change(&[], &[&changes[..], &[unknown]].concat()).unwrap().unwrap();
    let state = one.read().unwrap();
    assert_eq!(state.damaged, ["map", "memory", "moves"]);
    assert_eq!((state.epoch, state.map.clone(), state.memory.clone()), (put_at, Map::default(), None));
    // A manager can write over it.
    let claim = one.lead("one", None).unwrap().unwrap();
    one.put_map(&claim, &state, &map(1), Some(&Moves::default())).unwrap().unwrap();
    assert_eq!(one.read().unwrap().damaged, ["memory"]);
}

pub(super) fn drained_nodes_are_told(world: &dyn World) {
    let one = world.connect();
    one.drain("aa", true).unwrap();
    one.drain("bb", true).unwrap();
    one.drain("aa", true).unwrap();
    one.drain("cc", false).unwrap();
    assert_eq!(one.read().unwrap().drained, BTreeSet::from(["aa".to_owned(), "bb".into()]));
    one.drain("aa", false).unwrap();
    assert_eq!(one.read().unwrap().drained, BTreeSet::from(["bb".to_owned()]));
}

pub(super) fn memory_node_keeps_its_entry_from_a_rival(world: &dyn World) {
    let [killed, one, copy] = [(); 3].map(|()| world.connect());
    let memory = |address: &str, pool: &str| Memory { address: address.into(), pool: pool.into() };
    let (give, rivals) = mpsc::channel();
    let register = |directory: &Arc<dyn Directory>, memory: &Memory| {
        let give = give.clone();
        let tell = Box::new(move |rival| _ = give.send(rival));
        let me = Registrant { cluster: "shop".into(), id: id(1), memory: memory.clone() };
        let answers = Box::new(|other: &Memory| other.address.ends_with(":1"));
        Registration::start(Arc::clone(directory), me, answers, tell).unwrap()
    };
    let (first, second) = (memory("one:1", "pool"), memory("two:2", "copy"));
    // It is the successor of the one that has left this, since it has the same pool.
    let left = killed.claim("memory", r#"{"address":"one:0","pool":"pool"}"#, 0).unwrap().unwrap();
    let registered = register(&one, &first);
    wait(&*one, |state| state.memory.as_ref() == Some(&first));
    let refused = register(&copy, &second);
    assert_eq!(rivals.recv_timeout(Duration::from_secs(30)), Ok(first.clone()));
    drop(refused);
    assert_eq!(one.read().unwrap().memory, Some(first.clone()));
    // What is gone, or was written by hand, comes back.
    let before = one.read().unwrap().memory_at;
    world.end_leases();
    wait(&*one, |state| state.memory.as_ref() == Some(&first) && state.memory_at > before);
    for text in [r#"{"address":"nowhere:1"}"#, "nonsense", r#"{"address":"nowhere:9","pool":"copy"}"#] {
        let at = one.change(&[], &[put("memory", text)]).unwrap().unwrap();
        wait(&*one, |state| state.memory.as_ref() == Some(&first) && state.memory_at > at);
    }
    for text in ["[]", &id(2)] {
        let at = one.change(&[], &[put("id", text)]).unwrap().unwrap();
        wait(&*one, |state| state.id == Some(id(1)) && state.id_at > at);
    }
    one.change(&[], &[Change::Delete("id".into())]).unwrap();
    wait(&*one, |state| state.id == Some(id(1)));
    drop((registered, left));
    wait(&*one, |state| state.memory.is_none());
    let alone = register(&copy, &second);
    wait(&*one, |state| state.memory.as_ref() == Some(&second));
    drop(alone);
    assert!(rivals.try_recv().is_err());
}
