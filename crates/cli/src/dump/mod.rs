//! `dump`: all records, as JSON lines or as a Redis protocol stream; `load` reads both back.

mod seen;

use std::{
    io::{self, BufWriter, Write},
    path::Path,
    process::ExitCode,
};

use terrace_medium::files::{Files, SystemFiles, Unpublished};
use terrace_protocol::Reply;

use crate::{
    args::{DumpFormat, DumpOptions},
    clock,
    failure::{Failure, Outcome, say},
    record,
    scan::{Range, Wanted},
    target::Target,
    text::counted,
};
use seen::Seen;

/// Size of the write buffer in bytes.
const BUFFER: usize = 1 << 20;

pub(crate) fn run(options: &DumpOptions) -> Outcome {
    let mut target = Target::to_read(&options.pool.config()?, &options.password)?;
    let records = match &options.output {
        None => write_all(&mut target, options.format, io::stdout().lock())?,
        Some(path) => to_file(&mut target, options.format, &SystemFiles, path)?,
    };
    say(&format!("dumped {}", counted(records, "record", "records")));
    // A dump of the sound records is still useful; the exit code says that it is incomplete.
    target.check_left_out()?;
    Ok(ExitCode::SUCCESS)
}

/// Dumps to a new file that appears under its name only when it is complete and durable.
fn to_file<F: Files>(
    target: &mut Target,
    format: DumpFormat,
    files: &F,
    path: &Path,
) -> Result<u64, Failure> {
    let cannot = |error: io::Error| Failure::new(format!("cannot write {}: {error}", path.display()));
    let unique = u64::from(std::process::id()) << 40 ^ clock::now_ms();
    let new = Unpublished::new(files, path, unique).map_err(cannot)?;
    let records = write_all(target, format, Named { out: new.appender(), path })?;
    new.publish().map_err(cannot)?;
    Ok(records)
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

/// Writes every record once; returns how many there are.
fn write_all(target: &mut Target, format: DumpFormat, out: impl Write) -> Result<u64, Failure> {
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let (mut line, mut records) = (Vec::new(), 0);
    let mut seen = target.is_shared().then(Seen::default);
    let written = target.each_entry(
        &Wanted { range: Range::default(), key: &|_| true, values: true },
        &mut |key, found| {
            if seen.as_mut().is_some_and(|seen| !seen.is_new(key)) {
                return Ok(true);
            }
            line.clear();
            match format {
                DumpFormat::Jsonl => {
                    line.extend_from_slice(record::to_json(key, found.value, found.expires_at).as_bytes());
                    line.push(b'\n');
                }
                DumpFormat::Resp => command(&mut line, key, found.value, found.expires_at),
            }
            out.write_all(&line)?;
            records += 1;
            Ok(true)
        },
    );
    written.and_then(|()| Ok(out.flush()?)).map_err(|failure| {
        failure.or_if_unread(format!(
            "the reader of the dump closed the pipe after about {}",
            counted(records, "record", "records")
        ))
    })?;
    if seen.is_some_and(|seen| seen.is_full()) {
        say(
            "warning: too many keys to detect duplicates: a key that moved during the dump may be in it twice; load keeps the later one",
        );
    }
    Ok(records)
}

/// Appends `SET key value [PXAT ms]`. A command is encoded like a reply: an array of bulk strings.
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

#[cfg(test)]
mod tests {
    use super::*;
    use terrace::{ByteSize, Store};
    use terrace_testkit::simfs::{Fault, Faulty, SimFs};

    fn filled(records: u32) -> Target {
        let store = Store::options().anonymous().size(ByteSize::mib(16)).create().unwrap();
        (0..records).for_each(|n| store.put(format!("key {n}").as_bytes(), [b'7'; 100]).unwrap());
        Target::Pool(store)
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
            to_file(&mut store, DumpFormat::Jsonl, &counting, path).unwrap();
            for (nth, fault) in (0..=counting.calls()).flat_map(|nth| Fault::ALL.map(|fault| (nth, fault))) {
                let below = make();
                let faulty = Faulty::failing(below.clone(), nth, fault).short(1);
                let dumped = to_file(&mut store, DumpFormat::Jsonl, &faulty, path);
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
        assert!(to_file(&mut filled(1), DumpFormat::Resp, &files, Path::new("/d/dump")).is_err());
        assert_eq!(files.content(Path::new("/d/dump")).unwrap(), b"mine");
        assert_eq!(files.names().len(), 1);
    }
}
