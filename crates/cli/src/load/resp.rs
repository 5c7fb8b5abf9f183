//! A Redis protocol stream: commands, carried out as the server would.

use std::{
    io::{BufRead, Read},
    sync::Arc,
};

use terrace_server::{
    config::Config,
    session::{Flow, Peer, Session},
    shared::Shared,
};

use super::{Loader, replies::each_reply};
use crate::{
    clock::now_ms,
    failure::Failure,
    text::{escaped, thousands},
};

/// Bytes handed to the session at once.
const CHUNK: u64 = 1 << 20;

/// The stream's state between two chunks.
#[derive(Default)]
struct Stream {
    input: Vec<u8>,
    output: Vec<u8>,
    commands: u64,
}

pub(super) fn load(mut reader: Box<dyn BufRead>, loader: &mut Loader<'_>) -> Result<(), Failure> {
    let config = Config::default();
    config.assign("proto-max-bulk-len", "512mb").map_err(Failure::new)?;
    let shared = Arc::new(Shared::new(loader.store.clone(), config));
    let mut session = Session::new(shared, Peer::default(), now_ms());
    let mut stream = Stream::default();
    loop {
        let read = reader.by_ref().take(CHUNK).read_to_end(&mut stream.input);
        // What came before a read that failed is good.
        let flow = stream.run(&mut session, loader)?;
        let read = read?;
        if flow != Flow::Continue {
            return Err(stream.ended(loader));
        }
        if read == 0 {
            break;
        }
    }
    if !stream.input.is_empty() {
        let number = stream.commands + 1;
        loader.bad(number, "the stream ends before the command does");
    }
    Ok(())
}

impl Stream {
    /// Executes what is whole.
    fn run(&mut self, session: &mut Session, loader: &mut Loader<'_>) -> Result<Flow, Failure> {
        loop {
            let flow = session.process(&mut self.input, &mut self.output, now_ms());
            self.count(loader)?;
            if flow != Flow::More {
                return Ok(flow);
            }
        }
    }

    /// Counts the replies, and tells of errors.
    fn count(&mut self, loader: &mut Loader<'_>) -> Result<(), Failure> {
        let (mut good, mut full) = (0, None);
        let commands = &mut self.commands;
        let taken = each_reply(&self.output, &mut |error| {
            *commands += 1;
            match error {
                None => good += 1,
                Some(error) if error.starts_with(b"OOM") => full = full.take().or(Some(escaped(error))),
                Some(error) => loader.bad(*commands, &escaped(error)),
            }
        });
        self.output.drain(..taken);
        loader.took(good);
        let Some(full) = full else { return Ok(()) };
        Err(Failure::new(full).hint(format!(
            "stopped by command {} of {}",
            thousands(self.commands),
            loader.name
        )))
    }

    fn ended(&self, loader: &Loader<'_>) -> Failure {
        let number = thousands(self.commands);
        Failure::new(format!("command {number} of {} ended the stream before its end", loader.name))
            .hint("a stream holds commands in the Redis protocol, without QUIT or SHUTDOWN")
    }
}
