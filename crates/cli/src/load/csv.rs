//! CSV with a header.

use std::io::BufRead;

use csv::{ByteRecord, ReaderBuilder};

use super::Loader;
use crate::{
    clock::now_ms,
    failure::Failure,
    record::{Record, expiry_after},
    text::escaped,
};

/// Which column holds what.
struct Columns {
    count: usize,
    key: usize,
    value: usize,
    ttl: Option<usize>,
}

pub(super) fn load(reader: Box<dyn BufRead>, loader: &mut Loader<'_>) -> Result<(), Failure> {
    let mut reader = ReaderBuilder::new().flexible(true).from_reader(reader);
    let header = reader.byte_headers().map_err(|error| broken(&error, loader))?;
    let columns = columns(header, &loader.name)?;
    let mut row = ByteRecord::new();
    while reader.read_byte_record(&mut row).map_err(|error| broken(&error, loader))? {
        let line = row.position().map_or(0, csv::Position::line);
        match record(&row, &columns) {
            Ok(record) => loader.add(line, record)?,
            Err(why) => loader.bad(line, &why),
        }
    }
    Ok(())
}

/// With bytes for text and rows of any length, only reading itself can fail.
fn broken(error: &csv::Error, loader: &Loader<'_>) -> Failure {
    Failure::new(format!("cannot read {}: {error}", loader.name))
}

fn columns(header: &ByteRecord, name: &str) -> Result<Columns, Failure> {
    let names: Vec<String> =
        header.iter().map(|name| escaped(name.trim_ascii()).to_ascii_lowercase()).collect();
    let find = |wanted: &str| names.iter().position(|name| name == wanted);
    let wrong = |what: String| {
        Err(Failure::new(format!("the header of {name} {what}"))
            .hint("it must name the columns key and value, and may name ttl (seconds), in any order"))
    };
    if let Some(unknown) = names.iter().find(|name| !["key", "value", "ttl"].contains(&name.as_str())) {
        return wrong(format!("has a column `{unknown}`"));
    }
    match (find("key"), find("value")) {
        (Some(key), Some(value)) if names.len() == 2 + usize::from(find("ttl").is_some()) => {
            Ok(Columns { count: names.len(), key, value, ttl: find("ttl") })
        }
        (Some(_), Some(_)) => wrong("names a column twice".into()),
        (None, _) => wrong("has no column `key`".into()),
        (_, None) => wrong("has no column `value`".into()),
    }
}

fn record(row: &ByteRecord, columns: &Columns) -> Result<Record, String> {
    if row.len() != columns.count {
        return Err(format!("{} fields, expected {}", row.len(), columns.count));
    }
    // It would do, but in a table it is a cell that nobody filled.
    if row[columns.key].is_empty() {
        return Err("the key is empty".into());
    }
    let expires_at = match columns.ttl.map(|ttl| row[ttl].trim_ascii()) {
        None | Some(b"") => None,
        Some(text) => Some(expiry(text)?),
    };
    Ok(Record { key: row[columns.key].to_vec(), value: row[columns.value].to_vec(), expires_at })
}

fn expiry(text: &[u8]) -> Result<u64, String> {
    let ttl = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let ttl = ttl.ok_or_else(|| format!("the ttl `{}` is not a number of seconds above 0", escaped(text)))?;
    expiry_after(ttl, now_ms())
}
