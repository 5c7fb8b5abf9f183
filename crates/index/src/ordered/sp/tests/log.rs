//! Tests of `log`.

use super::*;
use terrace_medium::{Dram, Word};

fn pool() -> Pool<Dram> {
    Pool::anonymous(1 << 20).expect("memory for a pool")
}

fn log(pool: &Pool<Dram>) -> Log {
    let link = Log::create(&pool.pin(), WIDTH).expect("room for a log");
    Log::open(pool, link).expect("a sound log")
}

fn logged(number: u64) -> Logged {
    let change = match number % 3 {
        0 => Change::Put { key: number, word: !number },
        1 => Change::Remove { key: u64::MAX - number },
        _ => Change::Slot { old: number << 20, new: 0 },
    };
    Logged { number, node: 64 * (number + 100), change }
}

fn reopened(pool: &Pool<Dram>, log: &Log) -> (Vec<(u64, u64, Change)>, u64) {
    let again = Log::open(pool, Entry::link(log.at)).expect("a sound log");
    let mut entries: Vec<_> = again
        .read(pool.region())
        .0
        .into_iter()
        .map(|logged| (logged.number, logged.node, logged.change))
        .collect();
    entries.sort_unstable_by_key(|entry| entry.0);
    (entries, again.next())
}

#[test]
fn entries_are_read_again_and_old_places_are_written_again() {
    let pool = pool();
    let log = log(&pool);
    assert_eq!(reopened(&pool, &log).0, []);
    let last = 3 * log.places() + 7;
    for _ in 0..last {
        let number = log.take_number(u64::MAX).unwrap();
        log.append(pool.region(), logged(number));
    }
    let expected: Vec<_> = (last - log.places() + 1..=last)
        .map(|number| (number, logged(number).node, logged(number).change))
        .collect();
    let (entries, next) = reopened(&pool, &log);
    assert_eq!(entries, expected);
    assert!(next > last, "later changes get higher numbers");
    log.set_base(pool.region());
    assert_eq!(reopened(&pool, &log), (vec![], last + log.places() + 1));
}

#[test]
fn numbers_end_where_the_log_has_no_place() {
    let pool = pool();
    let log = log(&pool);
    assert_eq!([log.take_number(3), log.take_number(3), log.take_number(3)], [Some(1), Some(2), None]);
    assert_eq!(log.next(), 3);
}

/// Changes a word of the entry with a number.
fn change(pool: &Pool<Dram>, log: &Log, (number, nth): (u64, usize), change: impl Fn(u64) -> u64) {
    let (line, first) = log.place(pool.region(), number);
    let word: &Word = &line.0[first + nth];
    word.store(pool.medium(), change(word.load(pool.medium(), Relaxed)), Relaxed);
}

fn damage(pool: &Pool<Dram>, log: &Log) -> Option<u64> {
    let damage = Log::open(pool, Entry::link(log.at)).unwrap().read(pool.region()).1;
    damage.map(|damage| damage.offset)
}

#[test]
fn changed_byte_of_an_entry_is_damage() {
    let pool = pool();
    let log = log(&pool);
    for last in [1, 5, log.places() - 1, log.places() + 700, 3 * log.places()] {
        while log.next() <= last {
            let number = log.take_number(u64::MAX).unwrap();
            log.append(pool.region(), logged(number));
        }
        assert_eq!(damage(&pool, &log), None);
        // The oldest ones are those that a crash may have cut others off in.
        for number in [last, last - last.min(AT_ONCE) / 2, (last + AT_ONCE + 1).saturating_sub(log.places())]
        {
            let place = pool.region().offset_of(log.place(pool.region(), number.max(1)).0).raw();
            for (word, byte) in (0..WORDS).flat_map(|word| (0..8).map(move |byte| (word, byte))) {
                change(&pool, &log, (number.max(1), word), |sound| sound ^ 0x5a << (8 * byte));
                assert_eq!(damage(&pool, &log), Some(place), "byte {byte} of word {word} of {number}");
                log.append(pool.region(), logged(number.max(1)));
            }
        }
    }
}

#[test]
fn change_that_a_crash_cut_off_is_no_damage() {
    let pool = pool();
    let log = log(&pool);
    for last in [3, log.places() + 700] {
        while log.next() <= last {
            let number = log.take_number(u64::MAX).unwrap();
            log.append(pool.region(), logged(number));
        }
        for words in 1..WORDS {
            (1..=words).for_each(|word| change(&pool, &log, (last + 1, word), |old| old ^ 0xabc));
            assert_eq!(damage(&pool, &log), None);
            (1..=words).for_each(|word| change(&pool, &log, (last + 1, word), |new| new ^ 0xabc));
        }
    }
}

#[test]
fn damaged_head_is_refused() {
    let pool = pool();
    let log = log(&pool);
    let head: &Line = pool.region().at(Offset::new(log.at));
    for word in [CHECK, PLACES, BASE] {
        let sound = head.0[word].load(pool.medium(), Relaxed);
        head.0[word].store(pool.medium(), sound ^ 4, Relaxed);
        assert!(Log::open(&pool, Entry::link(log.at)).is_err());
        head.0[word].store(pool.medium(), sound, Relaxed);
    }
    assert!(Log::open(&pool, Entry::link(log.at)).is_ok());
    assert!(Log::open(&pool, Entry(Entry::link(log.at).0 ^ 1)).is_err());
    assert!(Log::open(&pool, Entry::link(pool.size() + 64)).is_err());
}
