//! `cluster backup`: all keys of a running cluster, as `dump` writes them.
//!
//! The nodes are read one after the other. What a node tells counts for the slots that it has
//! served all the while: those that were its own before and after, if no slot has come to it in
//! between. The others are read again, from the nodes that have them then.

use std::{
    collections::BTreeSet,
    io::{self, BufWriter, Write},
    net::ToSocketAddrs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use terrace_cluster::{
    directory::{Directory, Member, State, parse_ranges, ranges_text},
    slot::{SLOTS, SlotRange},
};
use terrace_medium::files::SystemFiles;
use terrace_protocol::slot;

use super::{asking::number, status::require_cluster};
use crate::{
    clock,
    command::{
        dump::{DumpFormat, Seen, push_record, to_new_file},
        node,
    },
    entry::Found,
    failure::{Failure, Outcome, say},
    password::password_in,
    remote::{Answer, Connection, Place},
    text::{counted, escaped},
};

#[derive(Debug, Args)]
#[command(after_help = "\
The nodes are read as clients read them. Each key that exists throughout is in the copy, with its value and expiry of
one instant; different keys are of different instants. Slots that move meanwhile, or whose node dies, are read again.

Only exit code 0 means that the copy is complete: the last line on standard error gives the number of keys. The file gets
its name when it has the keys of all slots.")]
pub(crate) struct BackupOptions {
    /// The file to write, which must not exist; `-` is standard output
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The format to write
    #[arg(long, default_value = "jsonl")]
    pub(crate) format: DumpFormat,
    #[command(flatten)]
    pub(crate) place: node::Place,
    /// File whose first line is the password that clients must give
    #[arg(long, value_name = "PATH")]
    pub(crate) password_file: Option<PathBuf>,
}

/// Rounds over all nodes in which no slot is copied, before the copy is given up.
const ROUNDS: u32 = 120;
/// Between two such rounds: a death is over in a second or two.
const PAUSE: Duration = Duration::from_millis(500);
/// Keys of a step of a scan.
const KEYS: &[u8] = b"512";
/// Bytes of commands that are sent before their replies are read.
const SENT_AHEAD: usize = 48 << 10;

pub(super) fn run(options: &BackupOptions) -> Outcome {
    let password = options.password_file.as_deref().map(password_in).transpose()?;
    let directory = options.place.directory()?;
    let state = directory.read().map_err(Failure::new)?;
    require_cluster(&options.place, &state)?;
    let copy = |out: &mut dyn Write| {
        let mut out = BufWriter::with_capacity(1 << 20, out);
        let mut copy = Copy::new(options.format, password.as_deref(), &mut out);
        copy.all(&directory, state)?;
        copy.seen.warn();
        let done = (copy.keys, copy.damaged, copy.left_out);
        out.flush()?;
        Ok(done)
    };
    let is_stdout = options.file == Path::new("-");
    let (keys, damaged, left_out) = match is_stdout {
        true => copy(&mut io::stdout().lock()).map_err(|failure: Failure| {
            failure.or_if_unread("the reader of the copy closed the pipe".into())
        })?,
        false => to_new_file(&SystemFiles, &options.file, copy)?,
    };
    let copied = counted(keys, "key", "keys");
    let to = if is_stdout { "standard output".into() } else { options.file.display().to_string() };
    say(&format!("copied {copied} of all {SLOTS} slots to {to}"));
    let Some((key, why)) = damaged.first() else { return check_left_out(left_out) };
    let failure = Failure::new(format!(
        "{} cannot be read, and the copy lacks them; the first is {}: {why}",
        counted(damaged.len() as u64, "key", "keys"),
        escaped(key)
    ));
    Err(match check_left_out(left_out) {
        Ok(_) => failure,
        Err(also) => failure.hint(also.one_line()),
    })
}

/// Fails if records of the pool are damaged, whose keys nobody knows.
fn check_left_out(records: u64) -> Outcome {
    if records == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let damaged = counted(records, "record", "records");
    Err(Failure::new(format!("the memory node's pool has damage, and the copy lacks {damaged}"))
        .hint("stop the memory node, and look at its pool: terrace check --pool PATH"))
}

/// Why a node is not read further.
enum Stop {
    /// Nor any other one: the copy cannot be made.
    All(Failure),
    /// Its slots are to be read again.
    Node(String),
}

impl From<String> for Stop {
    fn from(why: String) -> Stop {
        Stop::Node(why)
    }
}

/// A copy that is being made.
struct Copy<'o> {
    format: DumpFormat,
    password: Option<&'o str>,
    out: &'o mut dyn Write,
    /// Slots whose keys are not all copied yet.
    todo: BTreeSet<u16>,
    seen: Seen,
    keys: u64,
    /// Keys that the cluster has and cannot read, and why.
    damaged: BTreeSet<(Vec<u8>, String)>,
    /// Damaged records that the scan of one node has met, if it has met one: each scan meets all of
    /// the pool. The least number, since scans of other clients count at the same time.
    left_out: u64,
    line: Vec<u8>,
}

impl<'o> Copy<'o> {
    fn new(format: DumpFormat, password: Option<&'o str>, out: &'o mut dyn Write) -> Copy<'o> {
        let (seen, keys, damaged, left_out, line) = Default::default();
        Copy { format, password, out, todo: (0..SLOTS).collect(), seen, keys, damaged, left_out, line }
    }

    /// Copies all slots.
    fn all(&mut self, directory: &dyn Directory, mut state: State) -> Result<(), Failure> {
        let mut rounds = 0;
        loop {
            let before = self.todo.len();
            let why = self.round(&state)?;
            if self.todo.is_empty() {
                return Ok(());
            }
            rounds = if self.todo.len() < before { 0 } else { rounds + 1 };
            if rounds == ROUNDS {
                let lacks = ranges_text(&SlotRange::of(self.todo.iter().copied()));
                return Err(Failure::new(format!(
                    "no copy was made: slots {lacks} could not be read; {}",
                    why.unwrap_or_else(|| "no node serves them".into())
                ))
                .hint("terrace cluster status shows the nodes"));
            }
            clock::pause(PAUSE);
            // Without etcd, the nodes are where they were.
            state = directory.read().unwrap_or(state);
        }
    }

    /// Reads each node that serves slots which are not copied. Tells what the last one met that
    /// could not be read.
    fn round(&mut self, state: &State) -> Result<Option<String>, Failure> {
        let mut why = None;
        for member in state.members.values() {
            match self.node(member) {
                _ if self.todo.is_empty() => break,
                Ok(()) => {}
                Err(Stop::All(failure)) => return Err(failure),
                Err(Stop::Node(met)) => why = Some(format!("node {}:{}: {met}", member.host, member.port)),
            }
        }
        Ok(why)
    }

    /// Copies the slots of a node that are not copied yet.
    fn node(&mut self, member: &Member) -> Result<(), Stop> {
        let mut node = Node::open(member, self.password)?;
        let arrivals = node.arrivals()?;
        let mut served = node.served()?;
        served.retain(|slot| self.todo.contains(slot));
        if served.is_empty() {
            return Ok(());
        }
        let skipped = node.skipped()?;
        let mut cursor = b"0".to_vec();
        loop {
            let (next, mut keys) = node.scan(&cursor)?;
            keys.retain(|key| served.contains(&slot(key)));
            self.fetch(&mut node, &keys)?;
            if next == b"0" {
                break;
            }
            cursor = next;
        }
        self.left_out = match (self.left_out, node.skipped()?.saturating_sub(skipped)) {
            (known, 0) => known,
            (0, met) => met,
            (known, met) => known.min(met),
        };
        let after = node.served()?;
        // Asked last: a slot that had left and come back is one of `after`.
        if node.arrivals()? != arrivals {
            return Err(Stop::Node("slots have come to it meanwhile".into()));
        }
        served.retain(|slot| after.contains(slot));
        self.todo.retain(|slot| !served.contains(slot));
        Ok(())
    }

    /// Copies keys of a node.
    fn fetch(&mut self, node: &mut Node, keys: &[Vec<u8>]) -> Result<(), Stop> {
        let mut rest = keys;
        while !rest.is_empty() {
            let mut together = 0;
            while together < rest.len() && (together == 0 || node.connection.queued() < SENT_AHEAD) {
                node.queue_entry(&rest[together]);
                together += 1;
            }
            node.connection.send().map_err(said)?;
            let (now, later) = rest.split_at(together);
            for key in now {
                match node.entry()? {
                    Entry::Found(value, expires_at) => {
                        self.write(key, Found { value: &value, expires_at })?
                    }
                    Entry::Gone => {}
                    Entry::Damaged(why) => _ = self.damaged.insert((key.clone(), why)),
                }
            }
            rest = later;
        }
        Ok(())
    }

    fn write(&mut self, key: &[u8], found: Found<'_>) -> Result<(), Stop> {
        // A scan may visit a key twice, and a slot may be read twice.
        if !self.seen.is_new(key) {
            return Ok(());
        }
        self.line.clear();
        push_record(&mut self.line, (self.format, 0), key, found);
        self.out.write_all(&self.line).map_err(|error| Stop::All(error.into()))?;
        self.keys += 1;
        Ok(())
    }
}

/// What a node says of a key.
enum Entry {
    Found(Vec<u8>, Option<u64>),
    /// It has been removed, or its slot has left.
    Gone,
    Damaged(String),
}

/// A connection to a node, as a client's.
struct Node {
    connection: Connection,
}

impl Node {
    fn open(member: &Member, password: Option<&str>) -> Result<Node, Stop> {
        let mut found = (&*member.host, member.port).to_socket_addrs().map_err(said)?;
        let address = found.next().ok_or_else(|| "the name has no address".to_owned())?;
        let connection = Connection::open(&Place::Tcp(address)).map_err(said)?;
        // A node that stands still is left.
        connection.set_timeout(true).map_err(said)?;
        let mut node = Node { connection };
        if let Some(password) = password
            && let Answer::Error(why) = node.ask(&[b"AUTH", password.as_bytes()]).map_err(said)?
        {
            return Err(refused(member, &escaped(why)));
        }
        match node.text(&[b"PING"]) {
            Err(why) if why.starts_with("NOAUTH") => Err(refused(member, &why)),
            _ => Ok(node),
        }
    }

    /// The reply to a command.
    fn ask(&mut self, words: &[&[u8]]) -> io::Result<Answer<'_>> {
        self.connection.queue(words);
        self.connection.send()?;
        self.connection.answer()
    }

    /// The text that answers a command.
    fn text(&mut self, words: &[&[u8]]) -> Result<String, String> {
        match self.ask(words).map_err(said)? {
            Answer::Error(text) => Err(escaped(text)),
            answer => Ok(String::from_utf8_lossy(answer.last_bytes()).into_owned()),
        }
    }

    /// How often a slot has come to the node.
    fn arrivals(&mut self) -> Result<u64, String> {
        let info = self.text(&[b"INFO", b"cluster"])?;
        number(&info, "cluster_slot_arrivals").ok_or_else(|| "it does not tell which slots come".into())
    }

    /// Damaged records that its scans have left out.
    fn skipped(&mut self) -> Result<u64, String> {
        let info = self.text(&[b"INFO", b"stats"])?;
        number(&info, "damaged_records_skipped").ok_or_else(|| "it does not tell what is damaged".into())
    }

    /// The slots that it serves: all that the map gives it, or this fails.
    fn served(&mut self) -> Result<BTreeSet<u16>, String> {
        let nodes = self.text(&[b"CLUSTER", b"NODES"])?;
        let row = nodes.lines().map(|row| row.split(' ').collect::<Vec<_>>());
        let row = row.into_iter().find(|row| row.get(2).is_some_and(|flags| flags.starts_with("myself")));
        let row = row.filter(|row| row.len() >= 8).ok_or("it is no node of a cluster")?;
        let (epoch, ranges) = (row[6], parse_ranges(&row[8..].join(" ")));
        let info = self.text(&[b"CLUSTER", b"INFO"])?;
        let is_settled = number(&info, "cluster_slots_pfail") == Some(0)
            && number(&info, "cluster_current_epoch").is_some_and(|now| now.to_string() == epoch);
        let ranges = ranges.filter(|_| is_settled).ok_or("slots are on their way to it")?;
        Ok(ranges.iter().flat_map(|range| range.slots()).collect())
    }

    /// A step of a scan: where to go on, and keys.
    fn scan(&mut self, cursor: &[u8]) -> Result<(Vec<u8>, Vec<Vec<u8>>), String> {
        let answer = self.ask(&[b"SCAN", cursor, b"COUNT", KEYS]).map_err(said)?;
        match &answer {
            Answer::Array(parts) => match parts.as_slice() {
                [Answer::Bytes(next), Answer::Array(keys)] => {
                    Ok((next.to_vec(), keys.iter().map(|key| key.last_bytes().to_vec()).collect()))
                }
                _ => Err(answer.error_text()),
            },
            _ => Err(answer.error_text()),
        }
    }

    /// Queues a transaction for one key: its value and expiry are of one instant.
    fn queue_entry(&mut self, key: &[u8]) {
        self.connection.queue(&[b"MULTI"]);
        self.connection.queue(&[b"GET", key]);
        self.connection.queue(&[b"PEXPIRETIME", key]);
        self.connection.queue(&[b"EXEC"]);
    }

    /// The reply to such a transaction.
    fn entry(&mut self) -> Result<Entry, Stop> {
        let mut refused = None;
        for _ in ["MULTI", "GET", "PEXPIRETIME"] {
            if let Answer::Error(text) = self.connection.answer().map_err(said)? {
                refused.get_or_insert_with(|| escaped(text));
            }
        }
        let answer = self.connection.answer().map_err(said)?;
        match (&answer, refused) {
            (_, Some(why)) if why.starts_with("MOVED") => Ok(Entry::Gone),
            (_, Some(why)) => Err(Stop::Node(why)),
            (Answer::Array(parts), None) => match parts.as_slice() {
                [Answer::Bytes(value), Answer::Integer(at)] => {
                    Ok(Entry::Found(value.to_vec(), u64::try_from(*at).ok()))
                }
                [Answer::Null, Answer::Integer(_)] => Ok(Entry::Gone),
                [Answer::Error(why), ..] => {
                    let why = escaped(why);
                    // The others pass; this one is about the record.
                    let passes =
                        ["MOVED", "TRYAGAIN", "CLUSTERDOWN"].iter().any(|word| why.starts_with(word));
                    if passes { Err(Stop::Node(why)) } else { Ok(Entry::Damaged(why)) }
                }
                _ => Err(Stop::Node(answer.error_text())),
            },
            _ => Err(Stop::Node(answer.error_text())),
        }
    }
}

/// A node wants a password, or another one: so will all others.
fn refused(member: &Member, why: &str) -> Stop {
    let failure = Failure::new(format!("node {}:{} refuses: {why}", member.host, member.port));
    Stop::All(failure.hint("give the password of the cluster's clients with --password-file FILE"))
}

/// Why a connection ended.
fn said(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not answer".into(),
        io::ErrorKind::UnexpectedEof => "it has closed the connection".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Read,
        net::TcpListener,
        sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        thread,
    };
    use terrace_cluster::directory::memory::Service;

    /// A node that answers commands by this function of its connection's number. An empty answer
    /// closes the connection.
    #[allow(clippy::disallowed_methods, reason = "a server of the test's own")]
    fn node(answer: impl Fn(usize, &str) -> String + Send + 'static) -> Member {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for (nth, stream) in listener.incoming().enumerate() {
                let (mut stream, mut input, mut more) = (stream.unwrap(), Vec::new(), [0; 4096]);
                'connection: while let Ok(len @ 1..) = stream.read(&mut more) {
                    input.extend_from_slice(&more[..len]);
                    while let Some((Answer::Array(words), len)) = crate::remote::parse(&input).unwrap() {
                        let words = words.iter().map(|word| String::from_utf8_lossy(word.last_bytes()));
                        let reply = answer(nth, &words.collect::<Vec<_>>().join(" "));
                        if reply.is_empty() {
                            break 'connection;
                        }
                        stream.write_all(reply.as_bytes()).unwrap();
                        input.drain(..len);
                    }
                }
            }
        });
        Member { host: "127.0.0.1".into(), port, wire: 0 }
    }

    fn bulk(text: &str) -> String {
        format!("${}\r\n{text}\r\n", text.len())
    }

    /// What a node says that serves these slots, has these keys, and to which so many have come.
    fn reply(command: &str, slots: &str, keys: &[&str], arrivals: usize) -> String {
        let key = command.split(' ').nth(1).unwrap_or_default();
        match command.split(' ').next().unwrap() {
            "INFO" => bulk(&format!("cluster_slot_arrivals:{arrivals}\r\ndamaged_records_skipped:0\r\n")),
            "CLUSTER" if key == "NODES" => {
                bulk(&format!("x 127.0.0.1:1@2 myself,master - 0 0 5 connected {slots}\n"))
            }
            "CLUSTER" => bulk("cluster_slots_pfail:0\r\ncluster_current_epoch:5\r\n"),
            "SCAN" => {
                let keys: String = keys.iter().map(|key| bulk(key)).collect();
                format!("*2\r\n{}*{}\r\n{keys}", bulk("0"), keys.matches('$').count())
            }
            "EXEC" => format!("*2\r\n{}:-1\r\n", bulk("value")),
            _ => "+OK\r\n".into(),
        }
    }

    /// The lines of a copy of the cluster with these nodes.
    fn copy(nodes: &[Member]) -> Vec<String> {
        let directory = Service::default().connect();
        let kept = nodes.iter().zip(["a", "b"]).map(|(node, id)| directory.register(id, node));
        let _kept: Vec<_> = kept.collect();
        let mut out = Vec::new();
        let mut copy = Copy::new(DumpFormat::Jsonl, None, &mut out);
        let state = directory.read().unwrap();
        copy.all(&directory, state).unwrap_or_else(|failure| panic!("{}", failure.one_line()));
        assert!(copy.damaged.is_empty());
        String::from_utf8(out).unwrap().lines().map(Into::into).collect()
    }

    fn line(key: &str) -> String {
        format!(r#"{{"key":"{key}","value":"value"}}"#)
    }

    /// The scan misses keys of a slot that leaves and comes back, as it does before the third pass.
    #[test]
    fn slots_that_come_back_during_a_pass_are_read_again() {
        let asked = AtomicUsize::new(0);
        let node = node(move |pass, command| {
            let has_come_back = command == "INFO cluster" && asked.fetch_add(1, Relaxed) % 2 == 1;
            let keys: &[&str] = if pass == 2 { &["one", "two"] } else { &["one"] };
            reply(command, "0-16383", keys, 7 + pass + usize::from(has_come_back && pass < 2))
        });
        assert_eq!(copy(&[node]), [line("one"), line("two")]);
    }

    #[test]
    fn slots_that_move_during_a_pass_are_read_where_they_are() {
        // "two" has slot 2127, "one" has 9084.
        assert_eq!((slot(b"two"), slot(b"one")), (2127, 9084));
        let (asked, has_moved) = (AtomicUsize::new(0), AtomicBool::new(false));
        let first = node(move |_, command| {
            let is_before = command == "CLUSTER NODES" && asked.fetch_add(1, Relaxed) == 0;
            match command {
                "GET two" => {
                    has_moved.store(true, Relaxed);
                    "-MOVED 2127 127.0.0.1:1\r\n".into()
                }
                "EXEC" if has_moved.swap(false, Relaxed) => "-EXECABORT refused\r\n".into(),
                _ => reply(command, if is_before { "0-16383" } else { "8192-16383" }, &["one", "two"], 7),
            }
        });
        let second = node(|_, command| reply(command, "0-8191", &["two"], 9));
        let mut lines = copy(&[first, second]);
        lines.sort();
        assert_eq!(lines, [line("one"), line("two")]);
    }

    #[test]
    fn node_that_wants_a_password_ends_the_copy_at_once() {
        let node = node(|_, _| "-NOAUTH Authentication required.\r\n".into());
        let directory = Service::default().connect();
        let _kept = directory.register("a", &node);
        let mut out = Vec::new();
        let mut copy = Copy::new(DumpFormat::Jsonl, None, &mut out);
        let failure = copy.all(&directory, directory.read().unwrap()).err().unwrap().one_line();
        assert!(failure.contains("refuses: NOAUTH") && failure.contains("--password-file"), "{failure}");
    }

    #[test]
    fn node_that_does_not_answer_is_asked_again() {
        let node = node(|pass, command| match command {
            "AUTH password" if pass == 0 => String::new(),
            _ => reply(command, "0-16383", &["one"], 7),
        });
        let directory = Service::default().connect();
        let _kept = directory.register("a", &node);
        let mut out = Vec::new();
        let mut copy = Copy::new(DumpFormat::Jsonl, Some("password"), &mut out);
        let done = copy.all(&directory, directory.read().unwrap());
        done.unwrap_or_else(|failure| panic!("{}", failure.one_line()));
        assert_eq!(String::from_utf8(out).unwrap().trim(), line("one"));
    }

    /// Both nodes meet the same two, and another client scans the first node at the same time.
    #[test]
    fn damaged_records_that_each_node_meets_count_once() {
        let damaged = |slots: &'static str, met: usize| {
            let asked = AtomicUsize::new(0);
            node(move |_, command| match command {
                "INFO stats" => {
                    let before = asked.fetch_add(met, Relaxed);
                    bulk(&format!("damaged_records_skipped:{before}\r\n"))
                }
                _ => reply(command, slots, &[], 7),
            })
        };
        let nodes = [damaged("0-5000", 3), damaged("5001-10000", 2), damaged("10001-16383", 0)];
        let directory = Service::default().connect();
        let kept = nodes.iter().zip(["a", "b", "c"]).map(|(node, id)| directory.register(id, node));
        let _kept: Vec<_> = kept.collect();
        let mut out = Vec::new();
        let mut copy = Copy::new(DumpFormat::Jsonl, None, &mut out);
        copy.all(&directory, directory.read().unwrap())
            .unwrap_or_else(|failure| panic!("{}", failure.one_line()));
        assert_eq!(copy.left_out, 2);
    }
}
