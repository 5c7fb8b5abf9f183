//! The server beside memcached with extstore: gets over the wire, the same DRAM.

use super::tables::{Table, Tables};
use super::work::dram;
use super::{NAME, records, runner};
use crate::files::{Outcome, Place, alternate, rounds};
use crate::plan::{Plan, say};
use crate::server::{Server, memcached, send_each, terrace_tiered};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use terrace_bench::{Bound, Choice, Operations, Random, Workload, Zipfian, spread};

const TABLE: Table = Table::beside(
    "Beside memcached with extstore: gets over the wire, zipf 0.99, 50 connections with a request each; keys of 16 bytes and values of 1,000, DRAM for a quarter of them and the index; server \
     and client on a processor each",
    "thousand/s",
    &["memcached"],
);
const GET: &str = "server GET";
const CONNECTIONS: usize = 50;
const VALUE_BYTES: usize = 1000;

#[derive(Clone, Copy)]
enum Protocol {
    Resp,
    Memcached,
}

const PROTOCOLS: [Protocol; 2] = [Protocol::Resp, Protocol::Memcached];

pub(super) fn measure(plan: &Plan, place: &Place, tables: &mut Tables) -> Outcome<()> {
    if !plan.begins(NAME, GET) {
        return Ok(());
    }
    let records = (records(plan) / 10).max(100_000);
    let memory = dram(records, (16 + VALUE_BYTES) as u64, 0.25);
    let text = |error: Box<dyn std::error::Error>| error.to_string();
    let ours = terrace_tiered(place.fresh()?, memory).map_err(text)?;
    let theirs = memcached(place.fresh()?, memory, 4 * records * VALUE_BYTES as u64).map_err(text)?;
    let servers = [ours, theirs];
    for (server, protocol) in servers.iter().zip(PROTOCOLS) {
        say("  filling a server");
        fill(server, protocol, records)?;
    }
    let missed = Cell::new(0.0);
    let time = Duration::from_millis(if plan.quick { 500 } else { 5000 });
    let once = |side: usize, round| {
        let (found, asked, seconds) = gets(&servers[side], PROTOCOLS[side], records, round, time)?;
        if side == 1 {
            missed.set(1.0 - found as f64 / asked as f64);
        } else if found < asked {
            return Err("the server has lost a key".into());
        }
        Ok(found as f64 / seconds / 1e3)
    };
    (0..2).try_for_each(|side| once(side, 100).map(drop))?;
    let measured = alternate(runner(plan), once)?;
    let note = format!("memcached has dropped {:.1}% of what was asked for", missed.get() * 100.0);
    tables.add(TABLE, rounds(GET.into(), measured, Some(Bound::AtLeast(1.5))).noting(note));
    Ok(())
}

fn key(record: u64) -> String {
    format!("{:016x}", spread(record))
}

fn fill(server: &Server, protocol: Protocol, records: u64) -> Outcome<()> {
    let mut value = [0; VALUE_BYTES / 2];
    Random::new(1).fill(&mut value);
    let value: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    let (expected, set): (&[u8], _) = match protocol {
        Protocol::Resp => (b"+OK\r\n", "*3\r\n$3\r\nSET\r\n$16\r\n"),
        Protocol::Memcached => (b"STORED\r\n", "set "),
    };
    let filled = send_each(server, records, expected, |request, number| match protocol {
        Protocol::Resp => write!(request, "{set}{}\r\n${VALUE_BYTES}\r\n{value}\r\n", key(number)),
        Protocol::Memcached => write!(request, "{set}{} 0 0 {VALUE_BYTES}\r\n{value}\r\n", key(number)),
    });
    filled.map_err(|error| error.to_string().into())
}

/// Values found, gets, and seconds.
fn gets(
    server: &Server,
    protocol: Protocol,
    records: u64,
    seed: u64,
    time: Duration,
) -> Outcome<(u64, u64, f64)> {
    let workload = Workload::reads_and_updates(100, Choice::Skewed(Zipfian::THETA));
    let mut operations = Operations::new(workload, records, 0, 1, seed);
    let connect = |_| server.connect();
    let mut connections: Vec<TcpStream> = (0..CONNECTIONS).map(connect).collect::<Result<_, _>>()?;
    let (start, mut found, mut asked, mut reply) = (Instant::now(), 0, 0, Vec::new());
    while start.elapsed() < time {
        for connection in &mut connections {
            let key = key(operations.next().ok_or("operations never end")?.record);
            let request = match protocol {
                Protocol::Resp => format!("*2\r\n$3\r\nGET\r\n$16\r\n{key}\r\n"),
                Protocol::Memcached => format!("get {key}\r\n"),
            };
            connection.write_all(request.as_bytes())?;
        }
        for connection in &mut connections {
            found += u64::from(read_reply(connection, protocol, &mut reply)?);
            asked += 1;
        }
    }
    Ok((found, asked, start.elapsed().as_secs_f64()))
}

/// Reads the reply to a get. Returns whether there was a value.
fn read_reply(connection: &mut TcpStream, protocol: Protocol, reply: &mut Vec<u8>) -> Outcome<bool> {
    let (absent, head, tail): (&[u8], usize, usize) = match protocol {
        Protocol::Resp => (b"$-1\r\n", "$1000\r\n".len(), "\r\n".len()),
        Protocol::Memcached => (b"END\r\n", "VALUE 0123456789abcdef 0 1000\r\n".len(), "\r\nEND\r\n".len()),
    };
    let whole = head + VALUE_BYTES + tail;
    reply.clear();
    let mut piece = [0; 2048];
    while reply.len() < whole && reply != absent {
        match connection.read(&mut piece)? {
            0 => return Err("a server has closed a connection".into()),
            read => reply.extend_from_slice(&piece[..read]),
        }
    }
    if reply.len() > whole {
        return Err(format!("a reply of {} bytes, not {whole}", reply.len()).into());
    }
    Ok(reply != absent)
}
