//! The functions of libfabric's shim (`shim/libfabric.c`). All but the first need the library open.

use std::ffi::{c_char, c_int, c_void};

pub(super) const FI_EAGAIN: i64 = 11;
pub(super) const FI_EACCES: i32 = 13;
pub(super) const FI_EPERM: i32 = 1;
pub(super) const FI_EADDRINUSE: i32 = 98;
pub(super) const FI_EKEYREJECTED: i32 = 129;

/// Any object of libfabric: they all begin with their `struct fid`.
pub(super) type Raw = *mut c_void;

unsafe extern "C" {
    pub(super) fn terrace_fi_load(version: *mut u32) -> *const c_char;
    pub(super) fn terrace_fi_freeinfo(info: Raw);
    pub(super) fn terrace_fi_strerror(error: c_int) -> *const c_char;
    pub(super) fn terrace_fi_getinfo(
        provider: *const c_char,
        node: *const c_char,
        automatic: c_int,
        persistent: c_int,
        info: *mut Raw,
    ) -> c_int;
    pub(super) fn terrace_fi_at_port(info: Raw, port: u16, at_port: *mut Raw) -> c_int;
    pub(super) fn terrace_fi_fabric(info: Raw, fabric: *mut Raw) -> c_int;
    pub(super) fn terrace_fi_domain(fabric: Raw, info: Raw, domain: *mut Raw) -> c_int;
    pub(super) fn terrace_fi_endpoint(domain: Raw, info: Raw, endpoint: *mut Raw) -> c_int;
    pub(super) fn terrace_fi_av_open(domain: Raw, addresses: *mut Raw) -> c_int;
    pub(super) fn terrace_fi_cq_open(domain: Raw, completions: *mut Raw) -> c_int;
    pub(super) fn terrace_fi_enable(endpoint: Raw, addresses: Raw, completions: Raw) -> c_int;
    pub(super) fn terrace_fi_getname(endpoint: Raw, name: *mut c_void, length: *mut usize) -> c_int;
    pub(super) fn terrace_fi_av_insert(addresses: Raw, name: *const c_void, peer: *mut u64) -> c_int;
    pub(super) fn terrace_fi_mr_reg(
        domain: Raw,
        info: Raw,
        memory: *mut c_void,
        length: usize,
        read: c_int,
        write: c_int,
        wanted_key: u64,
        region: *mut Raw,
        key: *mut u64,
        base: *mut u64,
    ) -> c_int;
    pub(super) fn terrace_fi_read(
        endpoint: Raw,
        into: *mut c_void,
        length: usize,
        peer: u64,
        address: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize;
    pub(super) fn terrace_fi_write(
        endpoint: Raw,
        bytes: *const c_void,
        length: usize,
        peer: u64,
        address: u64,
        key: u64,
        persistent: c_int,
        context: *mut c_void,
    ) -> isize;
    pub(super) fn terrace_fi_compare_atomic(
        endpoint: Raw,
        words: *mut u64,
        peer: u64,
        address: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize;
    pub(super) fn terrace_fi_fetch_atomic(
        endpoint: Raw,
        words: *mut u64,
        peer: u64,
        address: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize;
    pub(super) fn terrace_fi_cq_read(completions: Raw, context: *mut *mut c_void, error: *mut c_int)
    -> isize;
    pub(super) fn terrace_fi_wait(fabric: Raw, completions: Raw, timeout_ms: c_int) -> c_int;
    pub(super) fn terrace_fi_close(object: Raw) -> c_int;
}
