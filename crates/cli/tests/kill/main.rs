//! Durability of the real program: the test kills a server with SIGKILL at random moments, while
//! real clients write pipelines. Afterwards every acknowledged write exists, and nothing else.
//!
//! Each client owns a part of the keys, so its replies determine their values. The server executes
//! commands of one connection in order, so any prefix of an unanswered pipeline may have happened;
//! a transaction or an MSET counts as one command.
//!
//! Every other server is killed once more while it opens the store. Stores on files are opened with
//! other memory settings each time; they have values of 300 kB, and FLUSHALL beside such, in rounds
//! in which one client's keys are all there are.
//!
//! `TERRACE_KILLS` sets the number of kills (default 40), `TERRACE_SEED` the seed,
//! `TERRACE_PROGRAM` the binary. `./test` runs 40 kills.

mod commands;
#[path = "../common/mod.rs"]
mod common;

use commands::Op;
use common::without_settings;
use redis::{Connection, RedisResult, Value};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use terrace_testkit::process::{Contents, Journal, Victim};

const CLIENTS: usize = 2;
const COUNTERS: u64 = 50;
/// Bytes of a large value: a file of its own in two engines.
const LARGE: u64 = 300_000;
/// Expiry times begin here, in the year 2100, so that no key expires during the test.
const FAR: u64 = 4_102_444_800_000;

/// SplitMix64, a small generator with the same results on every machine.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// One client: its keys, and the journal of its commands and replies.
struct Client {
    id: usize,
    words: Vec<Vec<u8>>,
    journal: Journal<Op>,
    rng: Rng,
    /// Whether some of its keys expire.
    expires: bool,
    /// Whether some of its values have 300 kB.
    has_large: bool,
    /// All keys that it may write, in rounds in which it clears the store.
    clears: Option<Arc<Vec<Vec<u8>>>>,
}

impl Client {
    fn key(&mut self) -> Vec<u8> {
        let at = self.rng.below(self.words.len() as u64) as usize;
        self.words[at].clone()
    }

    fn value(&mut self) -> Vec<u8> {
        // Mostly small, sometimes a few cache lines, rarely outside of the record's block.
        let len = match self.rng.below(40) {
            0 if self.has_large && self.rng.below(8) == 0 => LARGE,
            0 => 5000 + self.rng.below(9000),
            1..=9 => 100 + self.rng.below(900),
            _ => self.rng.below(80),
        };
        let byte = b'a' + self.rng.below(26) as u8;
        let mut value = format!("{}:{:x}:", self.id, self.rng.next()).into_bytes();
        value.resize(value.len() + len as usize, byte);
        value
    }

    fn simple_op(&mut self) -> Op {
        match self.rng.below(10) {
            0 | 1 => Op::Delete(self.key()),
            2 if self.expires => Op::SetExpiring(self.key(), self.value(), FAR + self.rng.below(1 << 40)),
            3 | 4 => {
                let counter = format!("counter:{}:{}", self.id, self.rng.below(COUNTERS));
                Op::Increment(counter.into_bytes(), self.rng.below(100) as i64 - 20)
            }
            5 => Op::Append(self.key(), vec![b'+'; 1 + self.rng.below(20) as usize]),
            _ => Op::Set(self.key(), self.value()),
        }
    }

    fn op(&mut self) -> Op {
        if let Some(keys) = &self.clears
            && self.rng.below(200) == 0
        {
            return Op::Clear(Arc::clone(keys));
        }
        match self.rng.below(12) {
            0 => Op::SetAll((0..2 + self.rng.below(10)).map(|_| (self.key(), self.value())).collect()),
            1 => Op::Transaction((0..2 + self.rng.below(6)).map(|_| self.simple_op()).collect()),
            2 => Op::Script((0..2 + self.rng.below(6)).map(|_| self.simple_op()).collect()),
            _ => self.simple_op(),
        }
    }

    /// Sends pipelines until the server dies.
    fn write(&mut self, mut connection: Connection) {
        loop {
            let ops: Vec<Op> = (0..1 + self.rng.below(32)).map(|_| self.op()).collect();
            let mut pipe = redis::pipe();
            ops.iter().for_each(|op| op.send(&mut pipe));
            self.journal.begin(ops);
            let replies: RedisResult<Vec<Value>> = pipe.query(&mut connection);
            if !answered(replies) {
                return;
            }
            self.journal.acknowledge();
        }
    }
}

/// Whether the server answered, which it does until it dies. It refuses nothing.
fn answered(replies: RedisResult<Vec<Value>>) -> bool {
    match replies {
        Ok(replies) => assert!(!replies.iter().any(|r| matches!(r, Value::ServerError(_))), "{replies:?}"),
        Err(error) => {
            let gone = error.is_io_error() || error.is_connection_dropped();
            assert!(gone, "the server refuses a command: {error:?}");
            return false;
        }
    }
    true
}

/// The server under test, and its socket.
struct Server {
    victim: Victim,
    socket: String,
}

/// The program under test.
fn program() -> Command {
    let mut command = Command::new(path());
    without_settings(&mut command);
    command
}

fn path() -> String {
    let given = std::env::var("TERRACE_PROGRAM").ok().map(|path| {
        let path = std::path::PathBuf::from(path);
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        if path.is_absolute() { path } else { root.join(path) }.to_string_lossy().into_owned()
    });
    given.unwrap_or_else(|| env!("CARGO_BIN_EXE_terrace").to_owned())
}

/// Where the store lies.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Pool,
    /// In files, with so little memory that MemTables are flushed and tables merged all the time.
    Disk,
    /// In DRAM and files, with so little DRAM that blocks are sealed and rewritten all the time.
    Tiered,
    /// As `Tiered`, with a pool in the place of files.
    TieredInPool,
    /// A pool that is full of keys with an expiry, so that writes evict these, and no others.
    Cache,
}

impl Kind {
    /// A directory of the kind of file system that the store is for.
    fn directory(self) -> tempfile::TempDir {
        match self {
            Kind::Pool | Kind::TieredInPool | Kind::Cache => tempfile::tempdir_in("/dev/shm").unwrap(),
            Kind::Disk | Kind::Tiered => tempfile::tempdir().unwrap(),
        }
    }

    fn is_on_files(self) -> bool {
        matches!(self, Kind::Disk | Kind::Tiered | Kind::TieredInPool)
    }

    /// Adds the arguments that name the store.
    fn name(self, command: &mut Command, directory: &std::path::Path, round: u64) {
        let dram = ["16MiB", "48MiB", "24MiB"][round as usize % 3];
        match self {
            Kind::Pool => command.args(["--size", "512MiB", "--pool"]).arg(directory.join("kill.pool")),
            Kind::Cache => command.args(["--size", "32MiB", "--pool"]).arg(directory.join("kill.pool")),
            Kind::Disk => {
                let memory = ["4MiB", "16MiB"][round as usize % 2];
                command.args(["--memory", memory, "--dir"]).arg(directory.join("kill.store"))
            }
            Kind::Tiered => {
                let engine = ["--engine", "tiered", "--dram", dram, "--dir"];
                command.args(engine).arg(directory.join("kill.store"))
            }
            Kind::TieredInPool => {
                let engine = ["--engine", "tiered", "--dram", dram, "--size", "512MiB", "--pool"];
                command.args(engine).arg(directory.join("kill.pool"))
            }
        };
    }
}

impl Server {
    fn start(kind: Kind, directory: &std::path::Path, round: u64) -> Self {
        let socket = directory.join("socket").to_string_lossy().into_owned();
        let mut serve = program();
        serve
            .args(["serve", "--port", "0", "--metrics-port", "0", "--threads", "2"])
            .arg("--unix")
            .arg(&socket)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.join("log")).unwrap());
        kind.name(&mut serve, directory, round);
        if matches!(kind, Kind::Cache) {
            serve.args(["--maxmemory-policy", "volatile-lru"]);
        }
        Self { victim: Victim::of(&mut serve).unwrap(), socket }
    }

    /// Connects as soon as the server answers.
    fn connect(&mut self) -> Connection {
        let client = redis::Client::open(format!("redis+unix://{}", self.socket)).unwrap();
        for _ in 0..120_000 {
            if let Ok(mut connection) = client.get_connection()
                && redis::cmd("PING").query::<String>(&mut connection).is_ok()
            {
                return connection;
            }
            let ended = self.victim.ended().unwrap();
            assert!(ended.is_none(), "the server ended: {ended:?}; its log is beside the pool");
            pause(Duration::from_millis(1));
        }
        panic!("the server does not answer");
    }
}

#[allow(clippy::disallowed_methods, reason = "the moments of the kills are random")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Everything in the store: keys by SCAN, values by MGET, expiries by PEXPIRETIME.
fn contents(connection: &mut Connection) -> Contents {
    let mut keys = std::collections::BTreeSet::new();
    let mut cursor = 0u64;
    loop {
        let (next, page): (u64, Vec<Vec<u8>>) =
            redis::cmd("SCAN").arg(cursor).arg("COUNT").arg(5000).query(connection).unwrap();
        keys.extend(page);
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    let keys: Vec<Vec<u8>> = keys.into_iter().collect();
    let mut model = Contents::new();
    for chunk in keys.chunks(2000) {
        let values: Vec<Option<Vec<u8>>> = redis::cmd("MGET").arg(chunk).query(connection).unwrap();
        let mut pipe = redis::pipe();
        for key in chunk {
            pipe.cmd("PEXPIRETIME").arg(key);
        }
        let expiries: Vec<i64> = pipe.query(connection).unwrap();
        for ((key, value), at) in chunk.iter().zip(values).zip(expiries) {
            let value = value.unwrap_or_else(|| panic!("SCAN returns {key:?}, GET does not find it"));
            assert_ne!(at, -2, "SCAN returns {key:?}, PEXPIRETIME does not find it");
            if key.starts_with(FILLER) {
                assert!(is_filler(&value), "{key:?} has {} other bytes", value.len());
                continue;
            }
            model.insert(key.clone(), (value, u64::try_from(at).ok()));
        }
    }
    model
}

/// What the keys begin with that fill a cache. Any of them may be gone.
const FILLER: &[u8] = b"filler:";

fn is_filler(value: &[u8]) -> bool {
    matches!(value.len(), 100 | 1000 | 10_000 | 300_000) && value.iter().all(|&byte| byte == b'f')
}

/// Writes large values, of a few keys, until the server dies.
fn fill_large(mut connection: Connection, writer: u64) {
    for n in 0.. {
        let key = [FILLER, format!("large:{writer}:{}", n % 20).as_bytes()].concat();
        let set = redis::cmd("SET").arg(&key).arg(vec![b'f'; LARGE as usize]).query(&mut connection);
        if !answered(set.map(|value: Value| vec![value])) {
            return;
        }
        // A clear may come between. What is there is whole.
        match redis::cmd("GET").arg(&key).query::<Option<Vec<u8>>>(&mut connection) {
            Ok(value) => assert!(value.is_none_or(|value| is_filler(&value)), "{key:?} has other bytes"),
            Err(error) if error.is_io_error() || error.is_connection_dropped() => return,
            Err(error) => panic!("{key:?} cannot be read: {error}"),
        }
    }
}

/// Writes keys with an expiry until the server dies.
fn fill(mut connection: Connection, round: u64) {
    for n in 0.. {
        let mut pipe = redis::pipe();
        for nth in 0..20 {
            let key = [FILLER, format!("{round}:{n}:{nth}").as_bytes()].concat();
            let value = vec![b'f'; [100, 1000, 10_000][nth % 3]];
            pipe.cmd("SET").arg(key).arg(value).arg("PXAT").arg(FAR);
        }
        if !answered(pipe.query(&mut connection)) {
            return;
        }
    }
}

fn words() -> Vec<Vec<u8>> {
    let path = "/usr/share/dict/american-english";
    let text =
        std::fs::read(path).unwrap_or_else(|e| panic!("{path}: {e} (Debian's package wamerican has it)"));
    text.split(|&b| b == b'\n').filter(|w| !w.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Loads the word list with `terrace load`, as CSV: the word and its line number.
fn load(kind: Kind, directory: &std::path::Path, words: &[Vec<u8>]) -> Contents {
    let mut load = program();
    load.args(["load", "-", "--format", "csv"]).stdin(Stdio::piped()).stdout(Stdio::null());
    kind.name(&mut load, directory, 0);
    let mut load = load.spawn().unwrap();
    let mut input = std::io::BufWriter::new(load.stdin.take().unwrap());
    input.write_all(b"key,value\n").unwrap();
    let mut model = Contents::new();
    for (line, word) in words.iter().enumerate() {
        input.write_all(&[b"\"", &word[..], b"\",", line.to_string().as_bytes(), b"\n"].concat()).unwrap();
        model.insert(word.clone(), (line.to_string().into_bytes(), None));
    }
    drop(input);
    assert!(load.wait().unwrap().success());
    model
}

#[test]
fn sigkill_keeps_exactly_the_acknowledged_writes() {
    kill_and_compare(Kind::Pool);
}

#[test]
fn sigkill_while_evicting_keeps_what_is_not_evicted() {
    kill_and_compare(Kind::Cache);
}

#[test]
fn sigkill_keeps_exactly_the_acknowledged_writes_on_a_disk() {
    kill_and_compare(Kind::Disk);
}

#[test]
fn sigkill_keeps_exactly_the_acknowledged_writes_over_two_tiers() {
    kill_and_compare(Kind::Tiered);
}

#[test]
fn sigkill_keeps_exactly_the_acknowledged_writes_over_a_pool() {
    kill_and_compare(Kind::TieredInPool);
}

/// How often the server is killed.
fn kills(kind: Kind) -> u64 {
    let kills: u64 = std::env::var("TERRACE_KILLS").map_or(40, |n| n.parse().unwrap());
    // Each reads everything from files.
    if matches!(kind, Kind::Tiered | Kind::TieredInPool) { kills.div_ceil(10) } else { kills }
}

/// Clients, each with its share of the words, of which the store has this.
fn clients(kind: Kind, words: &[Vec<u8>], loaded: &Contents, seed: u64) -> Vec<Client> {
    let client = |id| {
        let mut words: Vec<_> = words.iter().skip(id).step_by(CLIENTS).cloned().collect();
        let known = words.iter().map(|word| (word.clone(), loaded[word].clone())).collect();
        if matches!(kind, Kind::Cache) {
            // All keys with values of their own would fill the pool: nothing could be evicted.
            words.truncate(words.len() / 4);
        }
        let rng = Rng(seed ^ (id as u64 + 1) << 32);
        let expires = !matches!(kind, Kind::Cache);
        let (has_large, clears) = (kind.is_on_files(), None);
        Client { id, words, journal: Journal::new(known), rng, expires, has_large, clears }
    };
    (0..CLIENTS).map(client).collect()
}

/// Lets the clients write for this time, then kills the server.
fn write_and_kill(
    (kind, kill): (Kind, u64),
    clients: &mut [Client],
    mut server: Server,
    is_clearing: bool,
    moment: Duration,
) {
    let connections: Vec<_> = clients.iter().map(|_| server.connect()).collect();
    std::thread::scope(|scope| {
        let writers = if is_clearing { 1 } else { clients.len() };
        for (client, connection) in clients.iter_mut().zip(connections).take(writers) {
            scope.spawn(move || client.write(connection));
        }
        for writer in 0..if is_clearing { 2 } else { 0 } {
            let connection = server.connect();
            scope.spawn(move || fill_large(connection, writer));
        }
        if matches!(kind, Kind::Cache) {
            let connection = server.connect();
            scope.spawn(move || fill(connection, kill));
        }
        pause(moment);
        if kill % 4 == 3 {
            // The server is stopped while its clients write, and resumed.
            server.victim.stop().unwrap();
            pause(moment / 4);
            server.victim.resume().unwrap();
            pause(moment / 4);
        }
        server.victim.kill();
    });
    clients.iter_mut().for_each(|client| client.clears = None);
}

#[allow(clippy::print_stdout, reason = "the test prints its counts")]
fn kill_and_compare(kind: Kind) {
    let kills = kills(kind);
    let seed: u64 = std::env::var("TERRACE_SEED").map_or(0x7e44_ace5, |n| n.parse().unwrap());
    let directory = kind.directory();
    let words = words();
    let loaded = load(kind, directory.path(), &words);
    let mut clients = clients(kind, &words, &loaded, seed);
    let (mut rng, mut before, mut kill) = (Rng(seed), 0, 0);
    let count = |clients: &[Client]| clients.iter().map(|c| c.journal.acknowledged()).sum::<u64>();
    // More kills if the machine is so slow that hardly anything is written between them.
    while kill < kills || (before + count(&clients) <= kills && kill < 20 * kills) {
        if kill % 2 == 1 {
            // It dies while it opens the store, or a little later.
            let opening = Server::start(kind, directory.path(), kill + 1);
            pause(Duration::from_micros(rng.below(60_000)));
            opening.victim.kill();
        }
        let mut server = Server::start(kind, directory.path(), kill);
        judge(&mut clients, &contents(&mut server.connect()), kill, seed);
        let is_clearing = kind.is_on_files() && kill % 5 == 4;
        if is_clearing {
            before += count(&clients);
            begin_anew(&mut clients, &mut server);
        }
        let moment = Duration::from_micros(1000 + rng.below(100_000));
        write_and_kill((kind, kill), &mut clients, server, is_clearing, moment);
        kill += 1;
    }
    let acknowledged = before + count(&clients);
    let keys = judge_at_last(kind, directory.path(), &mut clients, (kill, seed));
    println!(
        "{kind:?}: {kill} kills (seed {seed}): {acknowledged} acknowledged commands, all found; {keys} keys, no others"
    );
    assert!(acknowledged > kills, "hardly anything was written between the kills");
}

/// Compares what the store has after the last kill, and looks at all of it. Returns the number of
/// its keys.
fn judge_at_last(
    kind: Kind,
    directory: &std::path::Path,
    clients: &mut [Client],
    (kill, seed): (u64, u64),
) -> usize {
    let mut server = Server::start(kind, directory, kill);
    let store = contents(&mut server.connect());
    judge(clients, &store, kill, seed);
    server.victim.kill();
    check(kind, directory);
    store.len()
}

/// Clears the store, so that the keys of the first client are all there will be: it may clear the
/// store again.
fn begin_anew(clients: &mut [Client], server: &mut Server) {
    redis::cmd("FLUSHALL").query::<()>(&mut server.connect()).unwrap();
    clients.iter_mut().for_each(|client| client.journal = Journal::default());
    let first = &mut clients[0];
    let counters = (0..COUNTERS).map(|nth| format!("counter:{}:{nth}", first.id).into_bytes());
    first.clears = Some(Arc::new(first.words.iter().cloned().chain(counters).collect()));
}

/// Looks at all that the store has.
fn check(kind: Kind, directory: &std::path::Path) {
    let mut check = program();
    check.arg("check");
    match kind {
        Kind::Disk | Kind::Tiered => check.arg("--dir").arg(directory.join("kill.store")),
        Kind::Pool | Kind::Cache | Kind::TieredInPool => check.arg("--pool").arg(directory.join("kill.pool")),
    };
    let checked = check.output().unwrap();
    let text =
        String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{text}");
}

fn judge(clients: &mut [Client], store: &Contents, kill: u64, seed: u64) {
    for client in &mut *clients {
        if let Err(wrong) = client.journal.resolve(store) {
            panic!("after kill {kill} (seed {seed}), client {}: {wrong}", client.id);
        }
    }
    if let Err(wrong) = Journal::compare(clients.iter().map(|client| &client.journal), store) {
        panic!("after kill {kill} (seed {seed}): {wrong}");
    }
}
