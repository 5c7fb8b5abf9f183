//! A write of 8 MB whose writer is stopped in the middle, while its target revokes the region or
//! closes the endpoint.

use crate::half::{Child, PAYLOAD};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use terrace_fabric::{Access, Endpoint, Fabric, LibfabricEndpoint, Memory, RegionKey, Words};

pub(crate) fn run() {
    println!("-- a write of {PAYLOAD} bytes whose writer is stopped in the middle");
    let (memory, mut endpoint, region, mut writer) = half_written();
    let before = arrived(&memory);
    let began = Instant::now();
    endpoint.revoke(region).expect("revoked");
    let took = began.elapsed();
    writer.go_on();
    let ended = writer.line("ended: ");
    println!("region revoked ({took:?}) after {before} bytes: {} arrived, writer: {ended}", arrived(&memory));

    let (memory, endpoint, _, mut writer) = half_written();
    let before = arrived(&memory);
    let began = Instant::now();
    endpoint.close().expect("closed");
    let (took, at_close) = (began.elapsed(), arrived(&memory));
    writer.go_on();
    let ended = writer.line("ended: ");
    let after = arrived(&memory);
    println!(
        "endpoint closed ({took:?}) after {before} bytes: {at_close} when it was closed, {after} at the end, writer: {ended}"
    );
}

fn half_written() -> (Arc<Words>, LibfabricEndpoint, RegionKey, Child) {
    let attempt = || {
        let memory = Arc::new(Words::new(PAYLOAD / 8));
        let mut endpoint = crate::fabric().open().expect("an endpoint");
        let region = endpoint.register(memory.clone(), 0..PAYLOAD, Access::Write).expect("a region");
        let writer = crate::initiator("write-and-stop", endpoint.address(), region);
        writer.wait_until_stopped();
        std::thread::sleep(Duration::from_millis(300));
        let half = (9..PAYLOAD).contains(&arrived(&memory));
        half.then_some((memory, endpoint, region, writer))
    };
    (0..50).find_map(|_| attempt()).expect("a payload that is under way")
}

fn arrived(memory: &Words) -> usize {
    let ones = |word: u64| word.to_ne_bytes().iter().filter(|byte| **byte == 1).count();
    memory.words().iter().map(|word| ones(word.load(Relaxed))).sum()
}
