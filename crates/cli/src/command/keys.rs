//! `get`, `put` and `del`: single keys, directly in the pool or through the server that has it
//! open.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    os::unix::ffi::OsStrExt,
    process::ExitCode,
};

use clap::Args;

use crate::{
    clock::now_ms,
    failure::{Failure, Outcome},
    password::Password,
    record::Record,
    remote::Refused,
    settings::{OfChange, OfPool, OfReader, Settings},
    target::{Database, Target},
    text::{counted, escaped, parse_ttl},
};

#[derive(Debug, Args)]
pub(crate) struct GetOptions {
    /// The key
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) database: Database,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfReader>,
}

#[derive(Debug, Args)]
pub(crate) struct PutOptions {
    /// The key
    pub(crate) key: OsString,
    /// The value; `-` reads it from standard input
    pub(crate) value: OsString,
    /// Expire after this time: seconds, or 500ms, 10m, 2h, 7d
    #[arg(long, value_parser = parse_ttl)]
    pub(crate) ttl: Option<u64>,
    #[command(flatten)]
    pub(crate) database: Database,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfPool>,
}

#[derive(Debug, Args)]
pub(crate) struct DelOptions {
    /// The keys
    #[arg(required = true)]
    pub(crate) keys: Vec<OsString>,
    #[command(flatten)]
    pub(crate) database: Database,
    #[command(flatten)]
    pub(crate) password: Password,
    #[command(flatten)]
    pub(crate) pool: Settings<OfChange>,
}

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
