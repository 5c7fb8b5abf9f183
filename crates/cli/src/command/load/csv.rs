//! CSV with a header, by RFC 4180. Malformed rows are rejected, as a guess may merge or alter
//! records.

use std::io::{self, BufRead, ErrorKind};

use terrace::{KEY_MAX, VALUE_MAX};

use super::loader::Loader;
use crate::{
    clock::now_ms,
    failure::Failure,
    record::{Record, expiry},
    text::{escaped, thousands},
};

/// The longest row without quotes: the longest key and value, and a time.
const ROW_MAX: usize = KEY_MAX + VALUE_MAX + 1024;

pub(super) fn load(reader: Box<dyn BufRead>, loader: &mut Loader<'_>) -> Result<(), Failure> {
    let mut rows = Rows { reader, line: 1 };
    let header = rows.next()?.unwrap_or_default();
    let columns = Columns::of(&header, &loader.name)?;
    while let Some(row) = rows.next()? {
        let (first, last) = (row.line, row.line + row.lines.saturating_sub(1));
        match columns.record(&row) {
            Ok(record) => loader.add(first, record)?,
            Err(why) => loader.bad_lines(first, last, &why),
        }
        if row.is_unended {
            loader.warn(last, "it has no line end: if the file was truncated, so is this value");
        }
    }
    Ok(())
}

/// Maximum number of fields of a row; a valid header has at most 3.
const FIELDS_MAX: usize = 1000;

/// The columns, by their positions.
struct Columns {
    count: usize,
    key: usize,
    value: usize,
    ttl: Option<usize>,
    expires_at_ms: Option<usize>,
}

impl Columns {
    fn of(header: &Row, name: &str) -> Result<Columns, Failure> {
        const KNOWN: [&str; 4] = ["key", "value", "ttl", "expires_at_ms"];
        let names: Vec<String> =
            header.fields.iter().map(|name| escaped(name.trim_ascii()).to_ascii_lowercase()).collect();
        let wrong = |what: String| {
            Err(Failure::new(format!("the header of {name} {what}")).hint(
                "it must name the columns key and value, and may name ttl (seconds) or expires_at_ms, in any order",
            ))
        };
        if let Some(fault) = &header.fault {
            return wrong(format!("is malformed: {fault}"));
        }
        if let Some(unknown) = names.iter().find(|name| !KNOWN.contains(&name.as_str())) {
            return wrong(format!("has a column `{unknown}`"));
        }
        let [key, value, ttl, expires_at_ms] = KNOWN.map(|known| names.iter().position(|name| name == known));
        let different = [key, value, ttl, expires_at_ms].iter().flatten().count();
        match (key, value) {
            (Some(_), Some(_)) if different < names.len() => wrong("names a column twice".into()),
            (Some(key), Some(value)) => Ok(Columns { count: names.len(), key, value, ttl, expires_at_ms }),
            (None, _) => wrong("has no column `key`".into()),
            (_, None) => wrong("has no column `value`".into()),
        }
    }

    fn record(&self, row: &Row) -> Result<Record, String> {
        if let Some(fault) = &row.fault {
            return Err(fault.clone());
        }
        if row.fields.len() != self.count {
            return Err(format!("{} fields, expected {}", row.fields.len(), self.count));
        }
        // The store accepts an empty key, but in a table it is most likely an empty cell.
        if row.fields[self.key].is_empty() {
            return Err("the key is empty".into());
        }
        let cell = |column: Option<usize>| {
            let text = column.map(|column| escaped(row.fields[column].trim_ascii()));
            text.filter(|text| !text.is_empty())
        };
        let (ttl, at) = (cell(self.ttl), cell(self.expires_at_ms));
        let expires_at = expiry(ttl.as_deref(), at.as_deref(), now_ms())?;
        let (key, value) = (row.fields[self.key].clone(), row.fields[self.value].clone());
        Ok(Record { key, value, expires_at, database: None })
    }
}

/// The parser's position in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    FieldStart,
    Plain,
    Quoted,
    /// After a quote that ends the field, unless a second quote follows.
    Closed,
}

/// A row: one line, or several if a field has line ends.
#[derive(Debug, Default)]
struct Row {
    /// The first line's number.
    line: u64,
    /// Number of line ends in it, its own included.
    lines: u64,
    fields: Vec<Vec<u8>>,
    /// Why the row is malformed.
    fault: Option<String>,
    /// Whether the file ends without a line end.
    is_unended: bool,
    place: Place,
    /// Line of the last opening quote.
    opened: u64,
    /// Whether the last byte was a carriage return outside of quotes.
    has_return: bool,
    /// Whether it has any content; otherwise the line is blank.
    has_begun: bool,
    bytes: usize,
}

struct Rows<R> {
    reader: R,
    /// The next line's number.
    line: u64,
}

impl<R: BufRead> Rows<R> {
    /// The next row that is not blank.
    fn next(&mut self) -> io::Result<Option<Row>> {
        loop {
            let mut row = Row { line: self.line, fields: vec![Vec::new()], ..Row::default() };
            let is_there = self.read(&mut row)?;
            self.line += row.lines;
            if row.has_begun || !is_there {
                return Ok(is_there.then_some(row));
            }
        }
    }

    /// Reads a row; false at the end of the file.
    fn read(&mut self, row: &mut Row) -> io::Result<bool> {
        loop {
            let chunk = match self.reader.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                chunk => chunk?,
            };
            if chunk.is_empty() {
                return Ok(row.end_of_file());
            }
            let end = chunk.iter().position(|&byte| row.take(byte));
            let used = end.map_or(chunk.len(), |end| end + 1);
            self.reader.consume(used);
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

impl Row {
    /// Takes a byte; returns whether it ended the row.
    fn take(&mut self, byte: u8) -> bool {
        if std::mem::take(&mut self.has_return) && byte != b'\n' {
            self.reject(|| "a carriage return without a line feed outside of quotes".into());
        }
        if byte == b'\n' {
            self.lines += 1;
            if self.place != Place::Quoted {
                return true;
            }
        }
        self.place = match (self.place, byte) {
            (Place::Quoted, b'"') => Place::Closed,
            (Place::Closed, b'"') => self.push(byte, Place::Quoted),
            (Place::Quoted, _) => self.push(byte, Place::Quoted),
            (place, b'\r') => {
                self.has_return = true;
                place
            }
            (_, b',') => {
                self.has_begun = true;
                match self.fields.len() < FIELDS_MAX {
                    true => self.fields.push(Vec::new()),
                    false => self.reject(|| format!("it has more than {FIELDS_MAX} fields")),
                }
                Place::FieldStart
            }
            (Place::FieldStart, b'"') => {
                (self.has_begun, self.opened) = (true, self.line + self.lines);
                Place::Quoted
            }
            (Place::Closed, _) => {
                let opened = thousands(self.opened);
                self.reject(|| {
                    format!(
                        "the closing quote of the one opened in line {opened} is followed by `{}`",
                        escaped(&[byte])
                    )
                });
                Place::Plain
            }
            _ => self.push(byte, Place::Plain),
        };
        false
    }

    fn push(&mut self, byte: u8, place: Place) -> Place {
        (self.has_begun, self.bytes) = (true, self.bytes + 1);
        match self.fields.last_mut() {
            Some(field) if self.bytes <= ROW_MAX => field.push(byte),
            _ => self.reject(|| "it is longer than any record can be".into()),
        }
        place
    }

    /// Marks the row as malformed; the first reason is kept.
    fn reject(&mut self, why: impl FnOnce() -> String) {
        if self.fault.is_none() {
            self.fault = Some(why());
        }
        if self.bytes > ROW_MAX {
            self.fields.clear();
        }
    }

    /// Ends the row at the end of the file; returns whether there is a row.
    fn end_of_file(&mut self) -> bool {
        if self.place == Place::Quoted {
            let opened = thousands(self.opened);
            // Other faults of this row follow from this one.
            self.fault = Some(format!(
                "the quote opened in line {opened} is never closed, so nothing after it was loaded"
            ));
        }
        let is_there = self.has_begun || self.has_return;
        (self.is_unended, self.has_begun) = (is_there && self.fault.is_none(), is_there);
        self.lines += u64::from(is_there && self.place != Place::Quoted);
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a text: first line, fields, and the fault.
    fn rows(text: &[u8]) -> Vec<(u64, Vec<String>, Option<String>)> {
        let (mut rows, mut found) = (Rows { reader: text, line: 1 }, Vec::new());
        while let Some(row) = rows.next().unwrap() {
            let fields = row.fields.iter().map(|field| field.escape_ascii().to_string()).collect();
            found.push((row.line, fields, row.fault));
        }
        found
    }

    fn good(text: &[u8]) -> Vec<Vec<String>> {
        rows(text)
            .into_iter()
            .map(|(_, fields, fault)| {
                assert_eq!(fault, None, "{}", text.escape_ascii());
                fields
            })
            .collect()
    }

    #[test]
    fn fields_are_taken_literally() {
        for (text, fields) in [
            (&b"a,b\n"[..], ["a", "b"]),
            (b"a,b\r\n", ["a", "b"]),
            (b"a,b", ["a", "b"]),
            (b" a ,\tb\n", [" a ", "\\tb"]),
            (b"\"a\",\"b,\"\"c\"\"\r\nd\"\n", ["a", "b,\\\"c\\\"\\r\\nd"]),
            (b"a\"b,c\"\n", ["a\\\"b", "c\\\""]),
            (b"\"\",\n", ["", ""]),
            (b"\xff\x00,\xc3\xbc\n", ["\\xff\\x00", "\\xc3\\xbc"]),
            (b"\n\r\n\na,b\n\n", ["a", "b"]),
        ] {
            assert_eq!(good(text), [fields], "{}", text.escape_ascii());
        }
        assert!(good(b"").is_empty() && good(b"\n\r\n").is_empty());
    }

    #[test]
    fn rows_have_the_numbers_of_their_first_lines() {
        let lines: Vec<u64> = rows(b"a\n\n\"b\nb\"\nc\n").into_iter().map(|(line, ..)| line).collect();
        assert_eq!(lines, [1, 3, 5]);
    }

    #[test]
    fn malformed_row_is_reported_and_the_next_is_read() {
        for (text, why) in [
            (&b"a,\"b\"c\nd,e\n"[..], "line 1 is followed by `c`"),
            (b"a,\"b\nx,\"y\"\nd,e\n", "line 1 is followed by `y`"),
            (b"a,b\rc\nd,e\n", "a carriage return without a line feed"),
        ] {
            let found = rows(text);
            assert_eq!(found.len(), 2, "{}", text.escape_ascii());
            assert!(found[0].2.as_ref().unwrap().contains(why), "{found:?}");
            assert_eq!((&found[1].1[..], &found[1].2), (&["d".to_string(), "e".into()][..], &None));
        }
    }

    #[test]
    fn unclosed_quote_is_reported_with_its_line() {
        let found = rows(b"a,b\nc,\"d\ne,f\ng,h\n");
        assert_eq!(found.len(), 2);
        let why = found[1].2.as_ref().unwrap();
        assert!(found[1].0 == 2 && why.contains("opened in line 2 is never closed"), "{why}");
        assert!(rows(b"a,\"b\"\"")[0].2.as_ref().unwrap().contains("line 1 is never closed"));
    }
}
