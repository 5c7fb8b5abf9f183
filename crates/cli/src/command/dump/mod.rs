//! `dump`: all records, as JSON lines or as a Redis protocol stream; `load` reads both back.

mod seen;

use std::{
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum, value_parser};
use terrace_medium::files::{Files, SystemFiles, Unpublished};
use terrace_protocol::Reply;

use crate::{
    clock,
    entry::{Found, Range, Wanted},
    failure::{Failure, Outcome, say},
    password::Password,
    record,
    settings::{OfReader, Settings},
    target::Target,
    text::counted,
};
pub(crate) use seen::Seen;

#[derive(Debug, Args)]
#[command(after_help = "\
If a server has the pool open, the dump goes through it and backs up a store in use. Each key that exists throughout is
in the dump once, with its value and expiry of one instant. The dump as a whole is not a snapshot: a key that is
written, added or removed meanwhile may appear as it was before or after.

Only exit code 0 means that the dump is complete: the last line on standard error gives the number of records. A file
(--output) gets its name when it is complete.")]
pub(crate) struct DumpOptions {
    /// The format to write; CSV is not among them, as it cannot hold every byte
    #[arg(long, default_value = "jsonl")]
    pub(crate) format: DumpFormat,
    /// The file to write, which must not exist; default and `-`: standard output
    #[arg(long, short, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Only this database, from 0 to 15; default: all
    #[arg(long = "db", value_name = "N", value_parser = value_parser!(u8).range(0..16))]
    pub(crate) database: Option<u8>,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfReader>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// One JSON object per line
    #[value(alias = "json", alias = "ndjson")]
    Jsonl,
    /// The Redis protocol, for redis-cli --pipe
    #[value(alias = "redis")]
    Resp,
}

/// Size of the write buffer in bytes.
const BUFFER: usize = 1 << 20;

pub(crate) fn run(options: &DumpOptions) -> Outcome {
    let mut target = Target::to_read(&options.pool.config()?, &options.password)?;
    let databases = match options.database {
        Some(database) => vec![database],
        None => target.databases()?,
    };
    let what = (options.format, &databases[..]);
    let output = options.output.as_deref().filter(|path| *path != Path::new("-"));
    let records = match output {
        None => write_all(&mut target, what, io::stdout().lock())?,
        Some(path) => to_file(&mut target, what, &SystemFiles, path)?,
    };
    say(&format!("dumped {}", counted(records, "record", "records")));
    // A dump of the sound records is still useful; the exit code says that it is incomplete.
    target.check_left_out()?;
    Ok(ExitCode::SUCCESS)
}

/// Dumps to a new file.
fn to_file(
    target: &mut Target,
    what: (DumpFormat, &[u8]),
    files: &dyn Files,
    path: &Path,
) -> Result<u64, Failure> {
    to_new_file(files, path, |out| write_all(target, what, out))
}

/// Writes a new file that appears under its name only when it is complete and durable.
pub(crate) fn to_new_file<T>(
    files: &dyn Files,
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let cannot = |error: io::Error| Failure::new(format!("cannot write {}: {error}", path.display()));
    let unique = u64::from(std::process::id()) << 40 ^ clock::now_ms();
    let new = Unpublished::new(files, path, unique).map_err(cannot)?;
    let written = write(&mut Named { out: new.appender(), path })?;
    new.publish().map_err(cannot)?;
    Ok(written)
}

/// Adds the path to the text of write errors.
struct Named<'a, W> {
    out: W,
    path: &'a Path,
}

impl<W: Write> Write for Named<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let path = self.path.display();
        self.out.write(bytes).map_err(|e| io::Error::new(e.kind(), format!("cannot write {path}: {e}")))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes every record of these databases once; returns how many there are.
fn write_all(
    target: &mut Target,
    (format, databases): (DumpFormat, &[u8]),
    out: impl Write,
) -> Result<u64, Failure> {
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let mut records = 0;
    let written = databases
        .iter()
        .try_for_each(|database| write_database(target, format, *database, &mut out, &mut records));
    written.and_then(|()| Ok(out.flush()?)).map_err(|failure| {
        failure.or_if_unread(format!(
            "the reader of the dump closed the pipe after about {}",
            counted(records, "record", "records")
        ))
    })?;
    Ok(records)
}

/// Writes the records of a database, and counts them.
fn write_database(
    target: &mut Target,
    format: DumpFormat,
    database: u8,
    out: &mut impl Write,
    records: &mut u64,
) -> Result<(), Failure> {
    target.select(database)?;
    let mut line = Vec::new();
    if format == DumpFormat::Resp && database != 0 {
        words(&mut line, &[b"SELECT", database.to_string().as_bytes()]);
        out.write_all(&line)?;
    }
    let mut seen = target.is_shared().then(Seen::default);
    target.each_entry(
        &Wanted { range: Range::default(), key: &|_| true, values: true },
        &mut |key, found| {
            if seen.as_mut().is_some_and(|seen| !seen.is_new(key)) {
                return Ok(true);
            }
            line.clear();
            push_record(&mut line, (format, database), key, found);
            out.write_all(&line)?;
            *records += 1;
            Ok(true)
        },
    )?;
    seen.iter().for_each(Seen::warn);
    Ok(())
}

/// Appends a record of a database.
pub(crate) fn push_record(
    line: &mut Vec<u8>,
    (format, database): (DumpFormat, u8),
    key: &[u8],
    found: Found<'_>,
) {
    match format {
        DumpFormat::Jsonl => {
            line.extend_from_slice(record::to_json(database, key, found).as_bytes());
            line.push(b'\n');
        }
        DumpFormat::Resp => command(line, key, found),
    }
}

/// Appends `SET key value [PXAT ms]`.
fn command(line: &mut Vec<u8>, key: &[u8], Found { value, expires_at }: Found<'_>) {
    match expires_at.map(|at| at.to_string()) {
        None => words(line, &[b"SET", key, value]),
        Some(at) => words(line, &[b"SET", key, value, b"PXAT", at.as_bytes()]),
    }
}

/// Appends a command. It is encoded like a reply: an array of bulk strings.
fn words(line: &mut Vec<u8>, words: &[&[u8]]) {
    let mut command = Reply::new(line, false);
    command.array(words.len());
    words.iter().for_each(|word| command.bulk(word));
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace::{ByteSize, Store};
    use terrace_testkit::simfs::{Fault, Faulty, SimFs};

    fn filled(records: u32) -> Target {
        let store = Store::options().anonymous().size(ByteSize::mib(16)).create().unwrap();
        (0..records).for_each(|n| store.put(format!("key {n}").as_bytes(), [b'7'; 100]).unwrap());
        Target::of(store).unwrap_or_else(|_| panic!("a store without a record"))
    }

    fn lines(dump: &[u8]) -> usize {
        dump.iter().filter(|&&byte| byte == b'\n').count()
    }

    /// Lets each call fail in turn, then the power: the dump exists in full or not at all, and
    /// exists if its success was reported.
    #[test]
    fn dump_is_complete_or_absent_whichever_call_fails() {
        let (mut store, path) = (filled(300), Path::new("/d/dump"));
        for make in [|| SimFs::new(["/d"]), || SimFs::new(["/d"]).with_unnamed_files()] {
            let counting = Faulty::counting(make()).short(1);
            to_file(&mut store, (DumpFormat::Jsonl, &[0]), &counting, path).unwrap();
            for (nth, fault) in (0..=counting.calls()).flat_map(|nth| Fault::ALL.map(|fault| (nth, fault))) {
                let below = make();
                let faulty = Faulty::failing(below.clone(), nth, fault).short(1);
                let dumped = to_file(&mut store, (DumpFormat::Jsonl, &[0]), &faulty, path);
                assert_eq!(dumped.is_ok(), nth == counting.calls(), "call {nth}");
                for seed in 0..8 {
                    let there = below.content(path).map(|dump| lines(&dump));
                    assert!(
                        there.is_none_or(|lines| lines == 300),
                        "call {nth}, seed {seed}: {there:?} lines"
                    );
                    assert!(dumped.is_err() || there.is_some(), "call {nth}, seed {seed}");
                    below.crash(seed);
                }
            }
        }
    }

    #[test]
    fn dump_does_not_replace_a_file() {
        let files = SimFs::new(["/d"]);
        files.put(Path::new("/d/dump"), b"mine");
        assert!(to_file(&mut filled(1), (DumpFormat::Resp, &[0]), &files, Path::new("/d/dump")).is_err());
        assert_eq!(files.content(Path::new("/d/dump")).unwrap(), b"mine");
        assert_eq!(files.names().len(), 1);
    }
}
