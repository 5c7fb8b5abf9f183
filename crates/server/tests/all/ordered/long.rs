//! Ranges of many keys, and ranges beside writers.

use super::*;

/// A server with 3,000 keys in order.
fn many_keys() -> Arc<Shared> {
    let options = crate::common::fresh().index(Index::ORDERED).clock(Arc::new(ManualClock::at(1000)));
    let store = options.size(ByteSize::mib(64)).create().unwrap();
    (0..3000).for_each(|n| store.put(format!("key:{n}"), "v").unwrap());
    Arc::new(Shared::new(store, Config::default()))
}

/// Where a new session stops that gets these lines, one after another.
fn turn(shared: &Arc<Shared>, lines: &[&str]) -> Flow {
    let mut session = Session::new(Arc::clone(shared), Peer::default(), 1000);
    let flow = lines.iter().map(|line| {
        let mut input = format!("{line}\r\n").into_bytes();
        session.process_short(&mut input, &mut Vec::new(), 1000)
    });
    flow.last().unwrap()
}

#[test]
fn commands_with_many_keys_are_long() {
    let shared = many_keys();
    let turn = |lines: &[&str]| turn(&shared, lines);
    for line in [
        "X.RANGE - +",
        "X.RANGE - + LIMIT 0 2000",
        "X.RANGE - + LIMIT 2000 10",
        "X.RANGE + - LIMIT 9223372036854775807 1 REV",
        "X.PREFIX key",
        "X.COUNT - +",
        "X.COUNT - + LIMIT 5000",
        "X.DELRANGE [x +",
        "X.DELPREFIX x",
        "X.DELPREFIX x LIMIT 2000",
    ] {
        assert_eq!(turn(&[line]), Flow::Long, "{line}");
    }
}

#[test]
fn commands_with_few_keys_are_short() {
    let shared = many_keys();
    let turn = |lines: &[&str]| turn(&shared, lines);
    for line in [
        "X.RANGE - + LIMIT 0 1000",
        "X.PREFIX key LIMIT 10 1000 WITHVALUES",
        "X.COUNT - + LIMIT 1000",
        "X.NEXT key",
        "X.PREV key",
        "X.DELRANGE [x + LIMIT 1000",
        "X.DELPREFIX x LIMIT 1000",
        "X.RANGE - + LIMIT",
    ] {
        assert_eq!(turn(&[line]), Flow::Continue, "{line}");
    }
    // Nothing that other clients write makes a transaction with ranges run again; a removal reads
    // its keys.
    assert_eq!(turn(&["MULTI", "X.COUNT - +", "EXEC"]), Flow::Long);
    assert_eq!(turn(&["MULTI", "X.COUNT - +", "X.DELRANGE [x +", "EXEC"]), Flow::Continue);
    shared.store.delete_range("key:1"..).unwrap();
    assert_eq!(turn(&["X.RANGE - +"]), Flow::Continue);
}

/// Keys that stay are in each range once and in order, whatever comes and goes between them.
#[test]
fn ranges_beside_writers_have_each_key_that_stays() {
    ordered().for_each(ranges_beside_writers);
}

fn ranges_beside_writers(index: Index) {
    const STAY: usize = 2000;
    let store = crate::common::fresh().index(index).size(ByteSize::mib(128)).create().unwrap();
    (0..STAY).for_each(|n| store.put(format!("key:{n:04}"), "stays").unwrap());
    let server = Running::start_with(store.clone(), &[("threads", "2")]);
    let is_over = AtomicBool::new(false);
    let key = |word: &[u8]| (word.len() == 8).then(|| word.to_vec());
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (store, is_over) = (&store, &is_over);
            scope.spawn(move || {
                for round in (writer..).step_by(2) {
                    if is_over.load(Relaxed) {
                        return;
                    }
                    let near = round * 7919 % STAY;
                    store.put(format!("key:{near:04}:{}", round % 300), "comes").unwrap();
                    store.put(format!("key:{near:04}"), "stays").unwrap();
                    store.remove(format!("key:{:04}:{}", (round * 31) % STAY, round % 300)).unwrap();
                }
            });
        }
        let mut stream = server.connect();
        for (round, reverse) in (0..20).map(|round| (round, round % 2 == 1)) {
            let (mut found, mut from) = (Vec::new(), if reverse { b"+".to_vec() } else { b"-".to_vec() });
            let to: &[u8] = if reverse { b"-" } else { b"+" };
            loop {
                let mut words = vec![&b"X.RANGE"[..], &from, to, b"LIMIT", b"0", b"512"];
                words.extend(reverse.then_some(&b"REV"[..]));
                stream.write_all(&command(&words)).unwrap();
                let keys = crate::common::array(&mut stream);
                assert!(keys.is_sorted_by(|one, next| if reverse { one > next } else { one < next }));
                let Some(last) = keys.last() else { break };
                from = [b"(", &last[..]].concat();
                found.extend(keys.iter().filter_map(|word| key(word)));
            }
            assert_eq!(found.len(), STAY, "round {round}");
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), STAY, "round {round}");
        }
        is_over.store(true, Relaxed);
    });
    ask(&mut server.connect(), b"X.COUNT (key:1999 [key:1999\r\n", b":0\r\n");
}
