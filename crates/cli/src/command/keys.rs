//! `get`, `put` and `del`: single keys, directly in the pool or through the server that has it
//! open.

use std::{
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt,
    process::ExitCode,
};

use crate::{
    args::{DelOptions, GetOptions, PutOptions},
    clock::now_ms,
    failure::{Failure, Outcome},
    record::Record,
    remote::Refused,
    target::Target,
    text::{counted, escaped},
};

/// Length of the longest value, plus one byte to detect longer ones.
const READ_MOST: u64 = (512 << 20) + 1;

pub(crate) fn get(options: &GetOptions) -> Outcome {
    let mut target = Target::to_read(&options.pool.config()?, &options.password)?;
    target.select(options.database.number)?;
    let key = options.key.as_bytes();
    match target.get(key)? {
        Some(value) => {
            let mut out = io::stdout().lock();
            out.write_all(&value)?;
            out.flush()?;
        }
        None => return Err(Failure::new(format!("there is no key `{}`", escaped(key)))),
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn put(options: &PutOptions) -> Outcome {
    let mut value = options.value.as_bytes().to_vec();
    if value == b"-" {
        value.clear();
        io::stdin().lock().take(READ_MOST).read_to_end(&mut value)?;
    }
    let mut target = Target::or_create(&options.pool.config()?, &options.password)?;
    target.select(options.database.number)?;
    let expires_at = options.ttl.map(|ttl| now_ms() + ttl);
    let record = Record { key: options.key.as_bytes().to_vec(), value, expires_at, database: None };
    target.put_many(&[&record]).into_iter().collect::<Result<(), _>>().map_err(|refused| match refused {
        Refused::Record(why) => Failure::new(why),
        Refused::All(failure) => failure,
    })?;
    target.close()
}

pub(crate) fn del(options: &DelOptions) -> Outcome {
    let mut target = Target::to_write(&options.pool.config()?, &options.password)?;
    target.select(options.database.number)?;
    let keys: Vec<&[u8]> = options.keys.iter().map(|key| key.as_bytes()).collect();
    let removed = target.remove(&keys)?;
    writeln!(io::stdout(), "removed {}", counted(removed, "key", "keys"))?;
    target.close()
}

/// A time to live in milliseconds: `30` (seconds), `500ms`, `10m`, `2h`, `7d`.
pub(crate) fn parse_ttl(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[digits..] {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("give seconds, or 500ms, 10m, 2h, 7d".into()),
    };
    let number: u64 = text[..digits].parse().map_err(|_| "give seconds, or 500ms, 10m, 2h, 7d")?;
    match number.checked_mul(unit) {
        Some(ms) if ms > 0 && ms < 1 << 62 => Ok(ms),
        _ => Err("a time to live must be above 0 and below 2^62 ms".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_ttl;

    #[test]
    fn times_to_live_have_units() {
        for (text, ms) in [
            ("30", 30_000),
            ("500ms", 500),
            ("1s", 1000),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
            ("4611686018427387903ms", (1 << 62) - 1),
        ] {
            assert_eq!(parse_ttl(text), Ok(ms));
        }
        for text in [
            "",
            "0",
            "-1",
            "1.5",
            "1w",
            "s",
            "99999999999999999999",
            "9999999999999999d",
            "4611686018427387904ms",
        ] {
            assert!(parse_ttl(text).is_err(), "{text}");
        }
    }
}
