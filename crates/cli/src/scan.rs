//! `scan`: lists keys. Bytes that are not text are escaped, so that no key sends control sequences
//! to the terminal.

use std::{
    io::{self, BufWriter, Write},
    os::unix::ffi::OsStrExt,
    process::ExitCode,
};

use terrace_protocol::Glob;

use crate::{args::ScanOptions, failure::Outcome, record, target::Target, text::escaped};

/// Selects the entries of an iteration, and what is read of them.
pub(crate) struct Wanted<'a> {
    /// Whether to include a key.
    pub(crate) key: &'a dyn Fn(&[u8]) -> bool,
    /// Whether to read values and expiry times as well.
    pub(crate) values: bool,
}

/// A key's value, and its expiry in Unix milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found<'a> {
    pub(crate) value: &'a [u8],
    pub(crate) expires_at: Option<u64>,
}

pub(crate) fn run(options: &ScanOptions) -> Outcome {
    let mut target = Target::to_read(&options.pool.config()?, &options.password)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = options.limit.unwrap_or(u64::MAX);
    let wanted = Wanted { key: &|key| is_wanted(options, key), values: options.values || options.json };
    if left > 0 {
        target.each_entry(&wanted, &mut |key, found| {
            left -= 1;
            write(&mut out, options, key, found)?;
            Ok(left > 0)
        })?;
    }
    out.flush()?;
    target.check_left_out()?;
    Ok(ExitCode::SUCCESS)
}

fn is_wanted(options: &ScanOptions, key: &[u8]) -> bool {
    let begins = options.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix.as_bytes()));
    // A pattern that takes too many steps counts as not matching.
    begins && options.pattern.as_ref().is_none_or(|p| Glob::new(p.as_bytes()).matches(key).unwrap_or(false))
}

fn write(out: &mut dyn Write, options: &ScanOptions, key: &[u8], found: Found<'_>) -> io::Result<()> {
    if options.json {
        return writeln!(out, "{}", record::to_json(key, found.value, found.expires_at));
    }
    let shown = |bytes: &[u8]| if options.raw { bytes.to_vec() } else { escaped(bytes).into_bytes() };
    out.write_all(&shown(key))?;
    if options.values {
        out.write_all(b"\t")?;
        out.write_all(&shown(found.value))?;
    }
    out.write_all(b"\n")
}
