//! Every command, and how one is found by its name.

use super::*;

/// Every command.
pub static TABLE: [&Command; COUNT] = [
    &append::APPEND,
    &auth::AUTH,
    &client::CLIENT,
    &introspect::COMMAND,
    &config::CONFIG,
    &copy::COPY,
    &dbsize::DBSIZE,
    &del::DEL,
    &del::UNLINK,
    &delifeq::DELIFEQ,
    &durability::BGREWRITEAOF,
    &durability::BGSAVE,
    &durability::LASTSAVE,
    &durability::SAVE,
    &echo::ECHO,
    &exists::EXISTS,
    &exists::TOUCH,
    &expire::EXPIRE,
    &expire::EXPIREAT,
    &expire::PEXPIRE,
    &expire::PEXPIREAT,
    &flush::FLUSHALL,
    &flush::FLUSHDB,
    &get::GET,
    &getdel::GETDEL,
    &getex::GETEX,
    &getrange::GETRANGE,
    &getrange::SUBSTR,
    &getset::GETSET,
    &hello::HELLO,
    &incr::DECR,
    &incr::DECRBY,
    &incr::INCR,
    &incr::INCRBY,
    &incrbyfloat::INCRBYFLOAT,
    &info::INFO,
    &keys::KEYS,
    &memory::MEMORY,
    &mget::MGET,
    &mset::MSET,
    &mset::MSETNX,
    &object::OBJECT,
    &persist::PERSIST,
    &ping::PING,
    &quit::QUIT,
    &randomkey::RANDOMKEY,
    &rename::RENAME,
    &rename::RENAMENX,
    &reset::RESET,
    &scan::SCAN,
    &select::SELECT,
    &set::SET,
    &setex::PSETEX,
    &setex::SETEX,
    &setnx::SETNX,
    &setrange::SETRANGE,
    &shutdown::SHUTDOWN,
    &strlen::STRLEN,
    &time::TIME,
    &transaction::DISCARD,
    &transaction::EXEC,
    &transaction::MULTI,
    &transaction::UNWATCH,
    &transaction::WATCH,
    &ttl::EXPIRETIME,
    &ttl::PEXPIRETIME,
    &ttl::PTTL,
    &ttl::TTL,
    &type_::TYPE,
    &wait::WAIT,
];

const COUNT: usize = 70;

/// Slots of the hash table below: a power of two, much larger than `COUNT`, so that few commands share one.
const SLOTS: usize = 512;

/// For each hash, the place in `TABLE` of the command with it, plus one; the next slots hold those that found theirs taken.
static BY_HASH: [u8; SLOTS] = by_hash();

const fn by_hash() -> [u8; SLOTS] {
    let mut slots = [0; SLOTS];
    let mut nth = 0;
    while nth < COUNT {
        let mut slot = hash(TABLE[nth].name.as_bytes());
        while slots[slot] != 0 {
            slot = (slot + 1) % SLOTS;
        }
        slots[slot] = nth as u8 + 1;
        nth += 1;
    }
    slots
}

/// Of the length, the first two bytes and the last two, in any case.
const fn hash(name: &[u8]) -> usize {
    let len = name.len();
    if len < 2 {
        return 0;
    }
    let first = (name[0] | 0x20) as usize;
    let second = (name[1] | 0x20) as usize;
    let before = (name[len - 2] | 0x20) as usize;
    let last = (name[len - 1] | 0x20) as usize;
    (len * 131 + first * 7 + second * 29 + before * 3 + last * 61) % SLOTS
}

/// The command of this name, in any case.
pub fn lookup(name: &[u8]) -> Option<&'static Command> {
    position(name).map(|nth| TABLE[nth])
}

/// Where the command of this name, in any case, is in [`TABLE`].
pub fn position(name: &[u8]) -> Option<usize> {
    let mut slot = hash(name);
    loop {
        let nth = usize::from(BY_HASH[slot]).checked_sub(1)?;
        if TABLE[nth].name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(nth);
        }
        slot = (slot + 1) % SLOTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else_is() {
        for command in TABLE {
            assert_eq!(lookup(command.name.as_bytes()).unwrap().name, command.name);
            assert_eq!(lookup(command.name.to_uppercase().as_bytes()).unwrap().name, command.name);
            assert!(lookup(format!("{}x", command.name).as_bytes()).is_none());
            assert!(!command.summary.is_empty(), "{} says what it does", command.name);
        }
        assert!(lookup(b"").is_none() && lookup(b"g").is_none() && lookup(&[b'a'; 1000]).is_none());
    }

    #[test]
    fn the_table_is_in_order_and_spread() {
        let files: Vec<&str> = TABLE.iter().map(|command| command.name).collect();
        let mut unique = files.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), files.len());
        let taken = BY_HASH.iter().filter(|slot| **slot != 0).count();
        assert_eq!(taken, COUNT);
    }
}
