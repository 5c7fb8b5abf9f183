//! The table of commands, and the lookup by name.

use super::*;
use crate::state::stats::Number;

/// All commands.
pub static TABLE: [&Command; COUNT] = [
    &append::APPEND,
    &asking::ASKING,
    &auth::AUTH,
    &client::CLIENT,
    &cluster::CLUSTER,
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
    &eval::EVAL,
    &eval::EVALSHA,
    &eval::EVALSHA_RO,
    &eval::EVAL_RO,
    &exists::EXISTS,
    &exists::TOUCH,
    &expire::EXPIRE,
    &expire::EXPIREAT,
    &expire::PEXPIRE,
    &expire::PEXPIREAT,
    &flush::FLUSHALL,
    &flush::FLUSHDB,
    &script::FUNCTION,
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
    &move_::MOVE,
    &mset::MSETNX,
    &object::OBJECT,
    &persist::PERSIST,
    &ping::PING,
    &quit::QUIT,
    &randomkey::RANDOMKEY,
    &asking::READONLY,
    &asking::READWRITE,
    &rename::RENAME,
    &rename::RENAMENX,
    &reset::RESET,
    &scan::SCAN,
    &script::SCRIPT,
    &select::SELECT,
    &set::SET,
    &setex::PSETEX,
    &setex::SETEX,
    &setnx::SETNX,
    &setrange::SETRANGE,
    &shutdown::SHUTDOWN,
    &strlen::STRLEN,
    &select::SWAPDB,
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
    &durability::WAITAOF,
    &x_count::X_COUNT,
    &x_disk::X_CHECKPOINT,
    &x_disk::X_COMPACT,
    &x_del::X_DELPREFIX,
    &x_del::X_DELRANGE,
    &x_next::X_NEXT,
    &x_next::X_PREV,
    &x_range::X_PREFIX,
    &x_range::X_RANGE,
];

const COUNT: usize = 92;

/// Slots of the hash table below: a power of two, much larger than `COUNT`, so that collisions are
/// rare.
const SLOTS: usize = 256;

/// A name as two overlapping halves in lower case. Names that differ only in case are equal, and no
/// others are: a command's name has only letters and dots, and [`lower`] maps only a letter's two
/// cases to the same byte.
#[derive(Clone, Copy)]
struct Packed {
    head: u64,
    tail: u64,
    len: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    name: Packed,
    place: usize,
}

const EMPTY: Slot = Slot { name: Packed { head: 0, tail: 0, len: 0 }, place: 0 };

/// Hash table with linear probing.
static BY_NAME: [Slot; SLOTS] = by_name();

const fn by_name() -> [Slot; SLOTS] {
    let mut slots = [EMPTY; SLOTS];
    let mut place = 0;
    while place < COUNT {
        let Some(name) = Packed::new(TABLE[place].name.as_bytes()) else { panic!("a name of 3 to 16 bytes") };
        let mut slot = name.hash();
        while slots[slot].name.len != 0 {
            slot = (slot + 1) % SLOTS;
        }
        slots[slot] = Slot { name, place };
        place += 1;
    }
    slots
}

impl Packed {
    /// `None` if no command can have this name: names have 3 to 16 bytes.
    const fn new(name: &[u8]) -> Option<Packed> {
        let len = name.len();
        let (head, tail) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
            (Some(head), Some(tail)) if len <= 16 => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
            (Some(_), _) => return None,
            _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
                (Some(head), Some(tail)) => {
                    (u32::from_le_bytes(*head) as u64, u32::from_le_bytes(*tail) as u64)
                }
                _ => match name {
                    [a, b, c] => (u32::from_le_bytes([*a, *b, *c, 0]) as u64, 0),
                    _ => return None,
                },
            },
        };
        Some(Packed { head: lower(head), tail: lower(tail), len })
    }

    const fn hash(self) -> usize {
        let mixed = (self.head ^ self.tail.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 56) as usize % SLOTS
    }

    const fn is(self, other: Packed) -> bool {
        self.head == other.head && self.tail == other.tail && self.len == other.len
    }
}

/// Sets bit 5 of each byte that has bit 6: of letters, but not of a dot or a control character.
const fn lower(bytes: u64) -> u64 {
    bytes | (bytes & 0x4040_4040_4040_4040) >> 1
}

/// The command with this name, in any case.
pub fn lookup(name: &[u8]) -> Option<&'static Command> {
    position(name).map(|place| TABLE[place])
}

/// The index in [`TABLE`] of the command with this name, in any case.
pub fn position(name: &[u8]) -> Option<usize> {
    let name = Packed::new(name)?;
    let mut slot = name.hash();
    loop {
        let found = &BY_NAME[slot];
        if found.name.is(name) {
            return Some(found.place);
        }
        if found.name.len == 0 {
            return None;
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// The number of each command. The numbers of its subcommands follow it.
static NUMBERS: [usize; COUNT] = {
    let mut numbers = [0; COUNT];
    let mut place = 1;
    while place < COUNT {
        numbers[place] = numbers[place - 1] + 1 + TABLE[place - 1].subcommands.len();
        place += 1;
    }
    numbers
};

/// Numbers commands and subcommands without gaps. The `place` of a subcommand is its container's,
/// plus, above 16 bits, its index in the container plus one.
pub(crate) fn number(place: usize) -> Number {
    Number(NUMBERS[place & 0xffff] + (place >> 16))
}

/// How many commands and subcommands there are.
pub(crate) fn numbers() -> usize {
    NUMBERS[COUNT - 1] + 1 + TABLE[COUNT - 1].subcommands.len()
}

/// The full name of a command or subcommand: `client`, `client|list`. `place` is as in [`number`].
pub(crate) fn full_name(place: usize) -> String {
    let command = TABLE[place & 0xffff];
    match (place >> 16).checked_sub(1).and_then(|nth| command.subcommands.get(nth)) {
        Some(sub) => format!("{}|{}", command.name, sub.name),
        None => command.name.into(),
    }
}

/// The full names of all commands and subcommands, by [`number`]: `client`, `client|list`.
pub(crate) fn names() -> impl Iterator<Item = String> {
    TABLE.iter().flat_map(|command| {
        let subs = command.subcommands.iter().map(|sub| format!("{}|{}", command.name, sub.name));
        std::iter::once(command.name.to_string()).chain(subs)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_finds_commands_in_any_case_only() {
        for command in TABLE {
            assert_eq!(lookup(command.name.as_bytes()).unwrap().name, command.name);
            assert_eq!(lookup(command.name.to_uppercase().as_bytes()).unwrap().name, command.name);
            assert!(lookup(format!("{}x", command.name).as_bytes()).is_none());
            assert!(!command.summary.is_empty(), "{} says what it does", command.name);
        }
        assert!(lookup(b"x.range").is_some() && lookup(b"x\x0erange").is_none());
        assert!(lookup(b"get\0").is_none() && lookup(b"get ").is_none() && lookup(b"\x07et").is_none());
        assert!(lookup(b"").is_none() && lookup(b"g").is_none() && lookup(&[b'a'; 1000]).is_none());
    }

    #[test]
    fn numbers_follow_names() {
        let names: Vec<String> = names().collect();
        assert_eq!(names.len(), numbers());
        for (place, command) in TABLE.iter().enumerate() {
            assert_eq!(names[number(place).0], command.name);
            for (nth, sub) in command.subcommands.iter().enumerate() {
                assert_eq!(
                    names[number(place | (nth + 1) << 16).0],
                    format!("{}|{}", command.name, sub.name)
                );
            }
        }
    }

    #[test]
    fn table_names_are_unique_and_spread() {
        let files: Vec<&str> = TABLE.iter().map(|command| command.name).collect();
        let mut unique = files.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), files.len());
        let taken = BY_NAME.iter().filter(|slot| slot.name.len != 0).count();
        assert_eq!(taken, COUNT);
        let at_home =
            BY_NAME.iter().enumerate().filter(|(at, slot)| slot.name.len != 0 && slot.name.hash() == *at);
        assert!(at_home.count() > COUNT * 2 / 3);
    }
}
