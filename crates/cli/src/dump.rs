//! `dump`: all records, as JSON lines or as a Redis protocol stream; `load` reads both back.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    process::ExitCode,
};

use terrace_protocol::Reply;

use crate::{
    args::{DumpFormat, DumpOptions},
    failure::{Failure, Outcome},
    open, record,
    scan::each_entry,
};

pub(crate) fn run(options: &DumpOptions) -> Outcome {
    let store = open::to_read(&options.pool.config()?)?;
    let mut out = BufWriter::with_capacity(1 << 20, target(options.output.as_deref())?);
    let mut line = Vec::new();
    each_entry(&store, &mut |key, entry| {
        line.clear();
        match options.format {
            DumpFormat::Jsonl => {
                line.extend_from_slice(record::to_json(key, entry.value, entry.expires_at).as_bytes());
                line.push(b'\n');
            }
            DumpFormat::Resp => command(&mut line, key, entry.value, entry.expires_at),
        }
        out.write_all(&line)?;
        Ok(true)
    })?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Where the dump goes.
enum Target {
    Stdout(io::StdoutLock<'static>),
    File(File),
}

fn target(path: Option<&Path>) -> Result<Target, Failure> {
    let Some(path) = path else { return Ok(Target::Stdout(io::stdout().lock())) };
    File::create_new(path)
        .map(Target::File)
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}

impl Target {
    /// A dump that was written is on the disk.
    fn finish(self) -> io::Result<()> {
        match self {
            Target::Stdout(mut out) => out.flush(),
            Target::File(file) => file.sync_all(),
        }
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Target::Stdout(out) => out.write(bytes),
            Target::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Target::Stdout(out) => out.flush(),
            Target::File(file) => file.flush(),
        }
    }
}

/// `SET key value [PXAT ms]`. A command has the form of an array of bulk strings, as a reply may.
fn command(line: &mut Vec<u8>, key: &[u8], value: &[u8], expires_at: Option<u64>) {
    let mut words = Reply::new(line, false);
    words.array(if expires_at.is_some() { 5 } else { 3 });
    words.bulk(b"SET");
    words.bulk(key);
    words.bulk(value);
    if let Some(at) = expires_at {
        words.bulk(b"PXAT");
        words.bulk(at.to_string().as_bytes());
    }
}
