//! `scan`: lists keys. Bytes that are not text are escaped, so that no key sends control sequences
//! to the terminal.

use std::{
    ffi::OsString,
    io::{self, BufWriter, Write},
    ops::Bound,
    os::unix::ffi::OsStrExt,
    process::ExitCode,
};

use clap::Args;
use terrace::{Direction, prefix_range};
use terrace_protocol::Glob;

use crate::{
    entry::{Found, Range, Wanted},
    failure::Outcome,
    password::Password,
    record,
    settings::{OfReader, Settings},
    target::{Database, Target},
    text::escaped,
};

#[derive(Debug, Args)]
#[command(after_help = "\
A pool whose index keeps keys in order (art, hot, masstree, bwtree, sptree) is listed in their
order, and only the keys of the range are read. --from, --to and --reverse need such a pool. Any
other is read as a whole, in no order.")]
pub(crate) struct ScanOptions {
    /// Only this key and those after it
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<OsString>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<OsString>,
    /// From the last key to the first
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Only keys with this prefix
    #[arg(long)]
    pub(crate) prefix: Option<OsString>,
    /// Only keys that match this pattern, as in Redis's KEYS: user:*:name
    #[arg(long = "match", value_name = "PATTERN")]
    pub(crate) pattern: Option<OsString>,
    /// Maximum number of keys
    #[arg(long)]
    pub(crate) limit: Option<u64>,
    /// Write each key's value too, after a tab
    #[arg(long)]
    pub(crate) values: bool,
    /// Write keys byte for byte; without this flag, bytes that are not text are escaped
    #[arg(long, conflicts_with = "json")]
    pub(crate) raw: bool,
    /// Write JSON lines, as `dump` does
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) database: Database,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfReader>,
}

pub(crate) fn run(options: &ScanOptions) -> Outcome {
    let mut target = Target::to_read(&options.pool.config()?, &options.password)?;
    target.select(options.database.number)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = options.limit.unwrap_or(u64::MAX);
    let (range, values) = (range_of(options), options.values || options.json);
    let wanted = Wanted { range, key: &|key| is_wanted(options, key), values };
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

/// The range that a command line selects.
fn range_of(options: &ScanOptions) -> Range {
    let bytes = |text: &Option<OsString>| text.as_ref().map(|text| text.as_bytes().to_vec());
    let prefix = bytes(&options.prefix)
        .or_else(|| options.pattern.as_ref().map(|pattern| Glob::new(pattern.as_bytes()).prefix()))
        .unwrap_or_default();
    let end = match prefix_range(&prefix).1 {
        Bound::Excluded(end) => Some(end.into_vec()),
        _ => None,
    };
    let (from, to) = (bytes(&options.from), bytes(&options.to));
    let must_be_in_order = from.is_some() || to.is_some() || options.reverse;
    let direction = if options.reverse { Direction::Backward } else { Direction::Forward };
    Range {
        from: from.unwrap_or_default().max(prefix.clone()),
        to: to.into_iter().chain(end).min(),
        prefix,
        order: must_be_in_order.then_some(direction),
    }
}

fn is_wanted(options: &ScanOptions, key: &[u8]) -> bool {
    let begins = options.prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix.as_bytes()));
    // A pattern that takes too many steps counts as not matching.
    begins && options.pattern.as_ref().is_none_or(|p| Glob::new(p.as_bytes()).matches(key).unwrap_or(false))
}

fn write(out: &mut dyn Write, options: &ScanOptions, key: &[u8], found: Found<'_>) -> io::Result<()> {
    if options.json {
        return writeln!(out, "{}", record::to_json(options.database.number, key, found));
    }
    let shown = |bytes: &[u8]| if options.raw { bytes.to_vec() } else { escaped(bytes).into_bytes() };
    out.write_all(&shown(key))?;
    if options.values {
        out.write_all(b"\t")?;
        out.write_all(&shown(found.value))?;
    }
    out.write_all(b"\n")
}
