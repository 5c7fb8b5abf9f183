//! A write that asks for a commit completion, though the provider does not offer one: through the
//! shim, since the library refuses it.

use crate::median;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use terrace_fabric::{Access, Connection, Endpoint, Fabric, Libfabric, Memory, RegionKey, Words};

const LEN: usize = 8 << 20;

type Raw = *mut c_void;

unsafe extern "C" {
    fn terrace_fi_getinfo(
        p: *const c_char,
        node: *const c_char,
        auto: c_int,
        pmem: c_int,
        info: *mut Raw,
    ) -> c_int;
    fn terrace_fi_fabric(info: Raw, fabric: *mut Raw) -> c_int;
    fn terrace_fi_domain(fabric: Raw, info: Raw, domain: *mut Raw) -> c_int;
    fn terrace_fi_endpoint(domain: Raw, info: Raw, endpoint: *mut Raw) -> c_int;
    fn terrace_fi_av_open(domain: Raw, addresses: *mut Raw) -> c_int;
    fn terrace_fi_cq_open(domain: Raw, completions: *mut Raw) -> c_int;
    fn terrace_fi_enable(endpoint: Raw, addresses: Raw, completions: Raw) -> c_int;
    fn terrace_fi_av_insert(addresses: Raw, name: *const c_void, peer: *mut u64) -> c_int;
    fn terrace_fi_write(
        endpoint: Raw,
        bytes: *const c_void,
        len: usize,
        peer: u64,
        address: u64,
        key: u64,
        persistent: c_int,
        context: *mut c_void,
    ) -> isize;
    fn terrace_fi_cq_read(completions: Raw, context: *mut *mut c_void, error: *mut c_int) -> isize;
}

pub(crate) fn run() {
    println!("-- commit completions over {}", Libfabric::TCP);
    let fabric = crate::fabric();
    let mut endpoint = fabric.open().expect("an endpoint");
    let offered = fabric.connect(endpoint.address()).expect("a connection").persists();
    println!("FI_RMA_PMEM offered: {offered}");
    let memory = Arc::new(Words::new(LEN / 8));
    let region = endpoint.register(memory.clone(), 0..LEN, Access::ReadWrite).expect("a region");
    let mut writer = crate::initiator("commit-to", endpoint.address(), region);
    println!("target's process: {}", std::process::id());
    for _ in 0..4 {
        println!("{}", writer.line("times: "));
    }
    assert!(memory.words().iter().all(|word| word.load(std::sync::atomic::Ordering::Relaxed) != 0));
}

/// A port of libfabric that asks for what it was not offered.
struct Port {
    endpoint: Raw,
    completions: Raw,
    peer: u64,
}

impl Port {
    fn new(name: &[u8]) -> Self {
        let (provider, node) = (CString::new(Libfabric::TCP).unwrap(), CString::new("127.0.0.1").unwrap());
        let [mut info, mut fabric, mut domain, mut addresses, mut completions, mut endpoint] =
            [null_mut(); 6];
        let mut peer = 0;
        // SAFETY: in the order that libfabric asks for; nothing is closed before the process ends.
        let codes = unsafe {
            [
                terrace_fi_getinfo(provider.as_ptr(), node.as_ptr(), 0, 0, &raw mut info),
                terrace_fi_fabric(info, &raw mut fabric),
                terrace_fi_domain(fabric, info, &raw mut domain),
                terrace_fi_av_open(domain, &raw mut addresses),
                terrace_fi_cq_open(domain, &raw mut completions),
                terrace_fi_endpoint(domain, info, &raw mut endpoint),
                terrace_fi_enable(endpoint, addresses, completions),
                terrace_fi_av_insert(addresses, name.as_ptr().cast(), &raw mut peer),
            ]
        };
        assert_eq!(codes, [0; 8]);
        Self { endpoint, completions, peer }
    }

    fn write(&self, bytes: &[u8], key: u64, persistent: bool) {
        let (mut context, mut error) = (null_mut(), 0);
        // SAFETY: the bytes live until the completion below.
        unsafe {
            let (from, persistent) = (bytes.as_ptr().cast(), persistent.into());
            while terrace_fi_write(
                self.endpoint,
                from,
                bytes.len(),
                self.peer,
                0,
                key,
                persistent,
                null_mut(),
            ) != 0
            {
                terrace_fi_cq_read(self.completions, &raw mut context, &raw mut error);
            }
            while terrace_fi_cq_read(self.completions, &raw mut context, &raw mut error) == 0 {}
        }
        assert_eq!(error, 0);
    }
}

/// The initiator. The provider's name is what the address ends with, the key its region's begin.
pub(crate) fn write_to(address: &[u8], region: RegionKey) {
    let port = Port::new(&address[address.len() - 16..]);
    let key = u64::from_le_bytes(region.to_bytes()[..8].try_into().expect("eight bytes"));
    for (len, rounds) in [(64, 2000), (4096, 2000), (64 << 10, 1000), (LEN, 40)] {
        let bytes = vec![1; len];
        let [mut delivered, mut committed] = [f64::MAX; 2];
        // In turns, so that neither meets a busier machine.
        for _ in 0..5 {
            delivered = delivered.min(crate::micros(median(rounds / 5, || port.write(&bytes, key, false))));
            committed = committed.min(crate::micros(median(rounds / 5, || port.write(&bytes, key, true))));
        }
        crate::half::print_line(&format!(
            "times: {len} bytes: delivery {delivered:.1} us, commit {committed:.1} us"
        ));
    }
}
