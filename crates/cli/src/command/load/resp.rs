//! A Redis protocol stream: commands, executed by this process as by a server, or by the server
//! that has the pool open.
//!
//! Commands are parsed here first, since some must not be executed: those for a database that does
//! not exist would overwrite keys of another, and those about a connection would change this
//! client's.

use std::{
    io::{BufRead, Read},
    sync::Arc,
};

use terrace_protocol::{Args, Limits, Parser, Reply};
use terrace_server::{
    config::Config,
    databases::DATABASES,
    session::{Flow, Peer, Session},
    shared::Shared,
};

use super::loader::Loader;
use crate::{
    clock::now_ms,
    failure::Failure,
    remote::{Answer, parse},
    target::Target,
    text::{counted, escaped, thousands},
};

/// Bytes per read.
const CHUNK: u64 = 1 << 20;
/// Commands parsed per step.
const AHEAD: usize = 64;
/// Bytes of commands executed together. They fit the socket's buffers, so sending them never waits
/// for their replies to be read.
const TOGETHER: usize = 48 << 10;

/// The stream's state between two commands.
struct Stream {
    /// Commands parsed so far. Their numbers count from 1.
    commands: u64,
    /// Whether a database was selected that does not exist.
    is_nowhere: bool,
    /// Commands since a MULTI without its EXEC.
    queued: Option<u64>,
    /// Encoded commands to execute.
    ready: Vec<u8>,
    /// Their numbers.
    numbers: Vec<u64>,
    /// Executes them; `None` if a server does.
    session: Option<Session>,
    output: Vec<u8>,
}

/// What to do with a command.
enum Fate {
    Execute,
    /// Execute it before all that follow: they depend on it.
    Select,
    /// Skip it: its database does not exist.
    Skip,
    /// Report it and continue.
    Refuse(&'static str),
    /// End the load: nothing after it can be executed.
    Stop(&'static str),
}

pub(super) fn load(mut reader: Box<dyn BufRead>, loader: &mut Loader<'_>) -> Result<(), Failure> {
    let mut stream = Stream::new(loader.target, loader.database)?;
    let (mut input, mut parser) = (Vec::new(), Parser::new());
    let limits = Limits::with_bulk_bytes(terrace::VALUE_MAX);
    loop {
        let read = reader.by_ref().take(CHUNK).read_to_end(&mut input);
        loop {
            let parsed = parser.parse(&mut input, &limits, AHEAD);
            let whole = parser.len();
            for nth in 0..whole {
                stream.take(parser.command(&input, nth), loader)?;
            }
            input.drain(..parser.release(whole));
            if let Err(error) = parsed {
                stream.execute(loader)?;
                let number = thousands(stream.commands + 1);
                let why = escaped(&error.message());
                return Err(Failure::new(format!("command {number} of {} is malformed: {why}", loader.name))
                    .hint("nothing after it was loaded"));
            }
            if whole < AHEAD {
                break;
            }
        }
        // Commands before the end, or before a failed read, are executed.
        if !matches!(read, Ok(1..)) {
            stream.execute(loader)?;
        }
        if read? == 0 {
            break;
        }
    }
    stream.end(&input, loader);
    Ok(())
}

impl Stream {
    /// A stream for this database, until it selects another one.
    fn new(target: &mut Target, database: u8) -> Result<Stream, Failure> {
        target.select(database)?;
        let session = match target {
            Target::Server(_) => None,
            Target::Pool(store, _) => {
                let config = Config::default();
                config.assign("proto-max-bulk-len", "512mb").map_err(Failure::new)?;
                let shared = Arc::new(Shared::new(store.clone(), config));
                let mut session = Session::new(shared, Peer::default(), now_ms());
                let mut select = format!("SELECT {database}\r\n").into_bytes();
                session.process(&mut select, &mut Vec::new(), now_ms());
                Some(session)
            }
        };
        let (ready, numbers, output) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Stream { commands: 0, is_nowhere: false, queued: None, ready, numbers, session, output })
    }

    /// Takes the next command.
    fn take(&mut self, args: Args<'_>, loader: &mut Loader<'_>) -> Result<(), Failure> {
        self.commands += 1;
        let number = self.commands;
        match self.fate(args) {
            Fate::Execute => {
                self.push(args);
                // A long command is thus the last of its batch, and the server reads all of it.
                if self.ready.len() >= TOGETHER { self.execute(loader) } else { Ok(()) }
            }
            Fate::Select => {
                self.execute(loader)?;
                self.push(args);
                let bad = loader.bad;
                self.execute(loader)?;
                self.is_nowhere = loader.bad > bad;
                if self.is_nowhere {
                    loader.warn(number, "all commands up to the next SELECT are skipped");
                }
                Ok(())
            }
            Fate::Skip => {
                loader.skip();
                Ok(())
            }
            Fate::Refuse(why) => {
                self.execute(loader)?;
                loader.bad(number, why);
                Ok(())
            }
            Fate::Stop(why) => {
                self.execute(loader)?;
                let place = format!("command {} of {}", thousands(number), loader.name);
                Err(Failure::new(format!("{place} {why}")).hint("nothing after it was loaded"))
            }
        }
    }

    fn push(&mut self, args: Args<'_>) {
        let mut command = Reply::new(&mut self.ready, false);
        command.array(args.len());
        args.iter().for_each(|word| command.bulk(word));
        self.numbers.push(self.commands);
    }

    fn fate(&mut self, args: Args<'_>) -> Fate {
        if args.is(0, "SELECT") && self.queued.is_none() {
            return Fate::Select;
        }
        let exists = |word| {
            terrace_protocol::parse_i64(word).is_some_and(|number| (0..DATABASES.into()).contains(&number))
        };
        match () {
            () if ["QUIT", "SHUTDOWN"].iter().any(|word| args.is(0, word)) => {
                Fate::Stop("would end the connection in the middle of the stream")
            }
            () if ["AUTH", "HELLO", "RESET"].iter().any(|word| args.is(0, word)) => {
                Fate::Refuse("it changes the connection, not data")
            }
            () if self.is_nowhere => Fate::Skip,
            () if args.is(0, "SELECT") && !(args.len() == 2 && exists(args.at(1))) => {
                Fate::Stop("selects a database inside a transaction that does not exist")
            }
            () => {
                self.follow_transaction(args);
                Fate::Execute
            }
        }
    }

    fn follow_transaction(&mut self, args: Args<'_>) {
        match &mut self.queued {
            _ if args.is(0, "EXEC") || args.is(0, "DISCARD") => self.queued = None,
            Some(queued) => *queued += 1,
            None if args.is(0, "MULTI") && args.len() == 1 => self.queued = Some(0),
            None => {}
        }
    }

    /// Executes the commands that are ready, and reports errors.
    fn execute(&mut self, loader: &mut Loader<'_>) -> Result<(), Failure> {
        let numbers = std::mem::take(&mut self.numbers);
        let mut ready = std::mem::take(&mut self.ready);
        let mut errors: Vec<Option<String>> = Vec::with_capacity(numbers.len());
        let mut see = |answer: &Answer<'_>| errors.push(answer.error().map(escaped));
        let executed = match (&mut self.session, &mut *loader.target) {
            (Some(session), _) => here(session, &mut ready, &mut self.output, &mut see),
            (None, Target::Server(client)) => client.execute(&ready, numbers.len(), &mut see),
            (None, Target::Pool(..)) => Ok(()),
        };
        let mut full = None;
        for (number, error) in numbers.iter().zip(errors) {
            match error {
                None => loader.add_loaded(1),
                Some(why) if why.starts_with("OOM") => full = full.or(Some((*number, why))),
                Some(why) => loader.bad(*number, &why),
            }
        }
        executed?;
        let Some((number, why)) = full else { return Ok(()) };
        Err(Failure::new(why).hint(format!("stopped by command {} of {}", thousands(number), loader.name)))
    }

    /// Reports a command or transaction that the end of the stream cut off.
    fn end(&self, rest: &[u8], loader: &mut Loader<'_>) {
        if !rest.is_empty() {
            loader.bad(self.commands + 1, "the stream ends before the command does");
        }
        if let Some(queued) = self.queued {
            let queued = counted(queued, "command", "commands");
            loader.bad(
                self.commands,
                &format!("the stream ends inside a transaction: {queued} after its MULTI were not executed"),
            );
        }
    }
}

/// Executes whole commands in this process.
fn here(
    session: &mut Session,
    ready: &mut Vec<u8>,
    output: &mut Vec<u8>,
    see: &mut dyn FnMut(&Answer<'_>),
) -> Result<(), Failure> {
    loop {
        let flow = session.process(ready, output, now_ms());
        let mut at = 0;
        while let Some((answer, len)) = parse(&output[at..]).map_err(Failure::new)? {
            see(&answer);
            at += len;
        }
        output.drain(..at);
        match flow {
            // The last is for a node of a cluster.
            Flow::More | Flow::Long | Flow::Script | Flow::Cold | Flow::Later => {}
            Flow::Continue => return Ok(()),
            // `Stream::fate` lets no such command through.
            Flow::Close | Flow::Shutdown => {
                return Err(Failure::new("a command ended the connection in the middle of the stream"));
            }
        }
    }
}
