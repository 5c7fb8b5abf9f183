//! `scan`: lists keys. Bytes that are not text are escaped, so that no key sends control sequences
//! to the terminal.

use std::{
    io::{self, BufWriter, Write},
    ops::Bound,
    os::unix::ffi::OsStrExt,
    process::ExitCode,
};

use terrace::{Direction, prefix_range};
use terrace_protocol::Glob;

use crate::{args::ScanOptions, failure::Outcome, record, target::Target, text::escaped};

/// Selects the entries of an iteration, and what is read of them.
pub(crate) struct Wanted<'a> {
    /// The keys to visit.
    pub(crate) range: Range,
    /// Whether to include a key.
    pub(crate) key: &'a dyn Fn(&[u8]) -> bool,
    /// Whether to read values and expiry times as well.
    pub(crate) values: bool,
}

/// The keys that an iteration visits. If it need not be in order, a store without order visits all
/// its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Range {
    /// The lowest key.
    pub(crate) from: Vec<u8>,
    /// The key before which the range ends.
    pub(crate) to: Option<Vec<u8>>,
    /// What all keys of the range begin with.
    pub(crate) prefix: Vec<u8>,
    /// The direction, if the keys must be visited in order, and no others.
    pub(crate) order: Option<Direction>,
}

impl Range {
    /// The range that a command line selects.
    fn of(options: &ScanOptions) -> Range {
        let bytes = |text: &Option<std::ffi::OsString>| text.as_ref().map(|text| text.as_bytes().to_vec());
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

    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Included(&self.from), self.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded))
    }
}

/// A key's value, and its expiry in Unix milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found<'a> {
    pub(crate) value: &'a [u8],
    pub(crate) expires_at: Option<u64>,
}

pub(crate) fn run(options: &ScanOptions) -> Outcome {
    let mut target = Target::to_read(&options.pool.config()?, &options.password)?;
    target.select(options.database.number)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = options.limit.unwrap_or(u64::MAX);
    let (range, values) = (Range::of(options), options.values || options.json);
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
