//! `scan`: lists keys. What is no text is escaped, so that nothing in a key reaches the terminal as a command to it.

use std::{
    io::{self, BufWriter, Write},
    os::unix::ffi::OsStrExt,
    process::ExitCode,
};

use terrace::{Cursor, Entry, Store};
use terrace_protocol::Glob;

use crate::{
    args::ScanOptions,
    failure::{Failure, Outcome},
    open, record,
    text::escaped,
};

pub(crate) fn run(options: &ScanOptions) -> Outcome {
    let store = open::to_read(&options.pool.config()?)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = options.limit.unwrap_or(u64::MAX);
    each_entry(&store, &mut |key, entry| {
        if left == 0 {
            return Ok(false);
        }
        if is_wanted(options, key) {
            left -= 1;
            write(&mut out, options, key, &entry)?;
        }
        Ok(left > 0)
    })?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Calls `each` with every entry, until it says that it has enough.
pub(crate) fn each_entry(
    store: &Store,
    each: &mut dyn FnMut(&[u8], Entry<'_>) -> io::Result<bool>,
) -> Result<(), Failure> {
    const AT_LEAST: usize = 256;
    let mut cursor = Cursor::default();
    loop {
        let mut more: io::Result<bool> = Ok(true);
        cursor = store
            .scan(cursor, AT_LEAST, &mut |key, entry| {
                if matches!(more, Ok(true)) {
                    more = each(key, entry);
                }
            })
            .map_err(Failure::new)?;
        if !more? || cursor == Cursor::default() {
            return Ok(());
        }
    }
}

fn is_wanted(options: &ScanOptions, key: &[u8]) -> bool {
    let begins = options.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix.as_bytes()));
    // A pattern that takes too many steps to match is one that no one wrote to match it.
    begins && options.pattern.as_ref().is_none_or(|p| Glob::new(p.as_bytes()).matches(key).unwrap_or(false))
}

fn write(out: &mut dyn Write, options: &ScanOptions, key: &[u8], entry: &Entry<'_>) -> io::Result<()> {
    if options.json {
        return writeln!(out, "{}", record::to_json(key, entry.value, entry.expires_at));
    }
    let shown = |bytes: &[u8]| if options.raw { bytes.to_vec() } else { escaped(bytes).into_bytes() };
    out.write_all(&shown(key))?;
    if options.values {
        out.write_all(b"\t")?;
        out.write_all(&shown(entry.value))?;
    }
    out.write_all(b"\n")
}
