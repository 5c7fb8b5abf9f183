//! Objects of libfabric with an owner.

use super::calls::{
    FI_EADDRINUSE, Raw, terrace_fi_at_port, terrace_fi_close, terrace_fi_freeinfo, terrace_fi_getinfo,
    terrace_fi_load, terrace_fi_strerror,
};
use crate::Error;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, PoisonError};

/// Opens the library, unless it is open already. To load it takes 200 ms.
pub(in crate::libfabric) fn load() -> Result<(), Error> {
    static IS_OPEN: Mutex<bool> = Mutex::new(false);
    let mut is_open = IS_OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_open {
        return Ok(());
    }
    let mut version = 0;
    // SAFETY: under the lock, so by no two threads at once; the call sets the version.
    let why = unsafe { terrace_fi_load(&raw mut version) };
    if why.is_null() {
        *is_open = true;
        return Ok(());
    }
    // SAFETY: a text that stays until this thread calls dlopen() or the like again.
    let mut reason = unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned();
    if version > 0 {
        reason = format!("version {}.{}: {reason}", version >> 16, version & 0xffff);
    }
    Err(Error::NoLibrary { reason })
}

/// Which thread moves the bytes of a port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::libfabric) enum Progress {
    OfTheCaller,
    OfTheLibrary,
}

/// A provider at an address of this machine.
pub(in crate::libfabric) struct Info {
    raw: NonNull<c_void>,
    provider: String,
    host: String,
}

// SAFETY: a `struct fi_info` that nobody changes after fi_getinfo() made it.
unsafe impl Send for Info {}
// SAFETY: see above.
unsafe impl Sync for Info {}

impl Info {
    pub(in crate::libfabric) fn new(
        provider: &str,
        host: &str,
        progress: Progress,
        persistent: bool,
    ) -> Result<Self, Error> {
        load()?;
        let text = |text: &str| {
            CString::new(text).map_err(|_| Error::Library {
                call: "find the provider",
                reason: "a name with a zero byte".into(),
                advice: advice(provider, host),
            })
        };
        let (name, node) = (text(provider)?, text(host)?);
        let automatic = c_int::from(progress == Progress::OfTheLibrary);
        // SAFETY: the library is open; both texts end in a zero byte and live through the call; it
        // sets the pointer.
        let raw = made(|info| unsafe {
            terrace_fi_getinfo(name.as_ptr(), node.as_ptr(), automatic, persistent.into(), info)
        });
        let raw = raw.map_err(|code| failed("find the provider", code, advice(provider, host)))?;
        Ok(Self { raw, provider: provider.into(), host: host.into() })
    }

    /// The same, to listen on this port.
    pub(in crate::libfabric) fn at_port(&self, port: u16) -> Result<Self, Error> {
        // SAFETY: the library is open, the info alive. The call copies it, and sets the pointer.
        let raw = made(|info| unsafe { terrace_fi_at_port(self.raw(), port, info) });
        let raw = raw.map_err(|code| failed("choose a port", code, self.advice()))?;
        Ok(Self { raw, provider: self.provider.clone(), host: self.host.clone() })
    }

    /// What to look at if something cannot be opened.
    pub(super) fn advice(&self) -> String {
        advice(&self.provider, &self.host)
    }

    pub(in crate::libfabric) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn raw(&self) -> Raw {
        self.raw.as_ptr()
    }
}

fn advice(provider: &str, host: &str) -> String {
    format!(
        "provider \"{provider}\", address {host}: `fi_info -p \"{provider}\"` lists what there is, \
         FI_LOG_LEVEL=warn tells more"
    )
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: from fi_getinfo(), and nothing uses it later: ports have copied what they need.
        unsafe { terrace_fi_freeinfo(self.raw()) }
    }
}

/// An object of the library, to be closed.
pub(super) struct Fid(NonNull<c_void>);

impl Fid {
    pub(super) fn open(
        call: &'static str,
        info: &Info,
        make: impl FnOnce(*mut Raw) -> c_int,
    ) -> Result<Self, Error> {
        made(make).map(Self).map_err(|code| failed(call, code, info.advice()))
    }

    pub(super) fn raw(&self) -> Raw {
        self.0.as_ptr()
    }

    pub(super) fn close(self) -> Result<(), i32> {
        let raw = self.raw();
        std::mem::forget(self);
        // SAFETY: an open object, and `self` is gone.
        match unsafe { terrace_fi_close(raw) } {
            0 => Ok(()),
            code => Err(code),
        }
    }
}

impl Drop for Fid {
    fn drop(&mut self) {
        // SAFETY: an open object that nobody uses any more. If the library refuses, it is leaked.
        unsafe { terrace_fi_close(self.raw()) };
    }
}

/// An object that a call makes.
fn made(make: impl FnOnce(*mut Raw) -> c_int) -> Result<NonNull<c_void>, i32> {
    let mut raw = null_mut();
    match make(&raw mut raw) {
        0 => Ok(NonNull::new(raw).expect("a call that succeeds sets its pointer")),
        code => Err(code),
    }
}

pub(super) fn checked(call: &'static str, code: c_int, advice: String) -> Result<(), Error> {
    if code == 0 { Ok(()) } else { Err(failed(call, code, advice)) }
}

pub(super) fn failed(call: &'static str, code: i32, advice: String) -> Error {
    if code == -FI_EADDRINUSE {
        return Error::PortTaken { advice };
    }
    // SAFETY: the library is open, since a call of it failed; a constant text for any number.
    let reason = unsafe { CStr::from_ptr(terrace_fi_strerror(code.wrapping_neg())) };
    Error::Library { call, reason: reason.to_string_lossy().into_owned(), advice }
}
