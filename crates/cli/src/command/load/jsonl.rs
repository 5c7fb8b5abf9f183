//! JSON lines.

use std::io::{BufRead, Read};

use super::loader::Loader;
use crate::{clock::now_ms, failure::Failure, record::from_json};

/// The longest line: the longest value in base64, or with every byte of a shorter one escaped.
const LINE_MOST: u64 = 1 << 30;

pub(super) fn load(mut reader: Box<dyn BufRead>, loader: &mut Loader<'_>) -> Result<(), Failure> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if reader.by_ref().take(LINE_MOST).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.len() as u64 == LINE_MOST && line.last() != Some(&b'\n') {
            return Err(Failure::new(format!("line {number} of {} is longer than 1 GiB", loader.name)));
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        match from_json(text, now_ms()) {
            Ok(record) => loader.add(number, record)?,
            Err(why) => loader.bad(number, &why),
        }
    }
    Ok(())
}
