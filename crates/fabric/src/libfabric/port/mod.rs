//! Objects of libfabric, owned so that the library never reaches memory that is gone.
//!
//! 1. A posted operation owns its buffer, and the port owns the operation until it completes. The
//!    rest goes once the endpoint is closed: a closed endpoint receives nothing.
//! 2. A port keeps each memory that it registered until the endpoint is closed, since a payload
//!    outlives its region.
//! 3. If the library cannot close an endpoint, all that it may reach is leaked.

mod calls;
mod objects;

pub(super) use objects::{Info, Progress, load};

use crate::{Access, Error, Memory, Operation, Output, RegionKey, Until};
use calls::*;
use objects::{Fid, checked, failed};
use slab::Slab;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// As many operations as the completion queue has room for.
const UNDER_WAY_MAX: usize = 1024;
/// No memory is longer. A provider may wrap around when it checks bounds.
const OFFSET_MAX: u64 = 1 << 48;
/// The longest name of an endpoint.
const NAME_MAX: usize = 256;

/// An operation for a port, with the caller's number.
pub(super) struct Item {
    pub(super) number: Option<u64>,
    pub(super) operation: Operation,
}

/// What became of posting an item.
pub(super) enum Attempt {
    Posted,
    /// The library has no room, or is still connecting.
    Later(Item),
    Refused(Item),
    Failed(Item),
}

/// The end of an item.
pub(super) enum Completed {
    Done(Option<u64>, Output),
    /// Whether the target said so, or nobody knows why. Without an item something else failed.
    Failed(Option<Item>, Verdict),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Refused,
    Unknown,
}

struct UnderWay {
    item: Item,
    /// Operand, comparand and result of an atomic operation, else nothing.
    words: Vec<u64>,
}

/// In the order in which they are closed.
struct Objects {
    endpoint: Option<Fid>,
    regions: BTreeMap<RegionKey, Fid>,
    completions: Fid,
    addresses: Fid,
    domain: Fid,
    fabric: Fid,
    info: Arc<Info>,
    under_way: Slab<UnderWay>,
    memories: Vec<Arc<dyn Memory>>,
}

/// An endpoint with all that belongs to it.
pub(super) struct Port(Option<Objects>);

// SAFETY: the objects were made for any thread (FI_THREAD_SAFE); each call here takes the port.
unsafe impl Send for Port {}

/// The words at these bytes, of which there is one at least, if they are whole ones.
fn whole_words(memory: &dyn Memory, bytes: Range<usize>) -> Result<&[AtomicU64], Error> {
    let is_whole = bytes.start.is_multiple_of(8) && bytes.end.is_multiple_of(8);
    let words = memory.words().get(bytes.start / 8..bytes.end / 8).filter(|words| !words.is_empty());
    words.filter(|_| is_whole).ok_or(Error::Range)
}

impl Port {
    pub(super) fn open(info: &Arc<Info>) -> Result<Self, Error> {
        let raw = info.raw();
        let opened = |call, make: &dyn Fn(*mut Raw) -> c_int| Fid::open(call, info, make);
        // SAFETY: the info is alive, and so is each object that a later one belongs to. Each call
        // sets the pointer that it gets.
        let (fabric, domain, addresses, completions, endpoint) = unsafe {
            let fabric = opened("open the fabric", &|made| terrace_fi_fabric(raw, made))?;
            let domain = opened("open a domain", &|made| terrace_fi_domain(fabric.raw(), raw, made))?;
            let of = domain.raw();
            let addresses = opened("open a list of peers", &|made| terrace_fi_av_open(of, made))?;
            let completions = opened("open a completion queue", &|made| terrace_fi_cq_open(of, made))?;
            let endpoint = opened("open an endpoint", &|made| terrace_fi_endpoint(of, raw, made))?;
            let enabled = terrace_fi_enable(endpoint.raw(), addresses.raw(), completions.raw());
            checked("listen at the address", enabled, info.advice())?;
            (fabric, domain, addresses, completions, endpoint)
        };
        Ok(Self(Some(Objects {
            endpoint: Some(endpoint),
            regions: BTreeMap::new(),
            completions,
            addresses,
            domain,
            fabric,
            info: Arc::clone(info),
            under_way: Slab::new(),
            memories: Vec::new(),
        })))
    }

    fn objects(&mut self) -> &mut Objects {
        self.0.as_mut().expect("a port that is open")
    }

    /// The provider's name of the endpoint.
    pub(super) fn name(&mut self) -> Result<Vec<u8>, Error> {
        let mut name = vec![0; NAME_MAX];
        let mut length = name.len();
        let endpoint = self.objects().endpoint();
        // SAFETY: the endpoint is open, and the buffer as long as `length` says.
        let code = unsafe { terrace_fi_getname(endpoint, name.as_mut_ptr().cast(), &raw mut length) };
        checked("read the name of an endpoint", code, self.objects().info.advice())?;
        name.truncate(length);
        Ok(name)
    }

    /// Adds the peer with this name.
    pub(super) fn peer(&mut self, name: &[u8]) -> Result<u64, Error> {
        if !same_family(&self.name()?, name) {
            return Err(Error::Address("is of another family of addresses"));
        }
        let mut peer = 0;
        let addresses = self.objects().addresses.raw();
        // SAFETY: the list is open; a name of this provider has the length of any other one.
        let code = unsafe { terrace_fi_av_insert(addresses, name.as_ptr().cast(), &raw mut peer) };
        if code == 0 { Ok(peer) } else { Err(Error::Address("is none that the provider knows")) }
    }

    pub(super) fn register(
        &mut self,
        memory: Arc<dyn Memory>,
        bytes: Range<usize>,
        access: Access,
        wanted_key: u64,
    ) -> Result<RegionKey, Error> {
        let objects = self.objects();
        let words = whole_words(&*memory, bytes)?;
        let begin = words.as_ptr().cast_mut().cast();
        let (mut key, mut base) = (0, 0);
        // SAFETY: the words are atomic, so that a peer may store to them any time. The memory lives
        // until the endpoint is closed (2).
        let region = Fid::open("register memory", &objects.info, |region| unsafe {
            terrace_fi_mr_reg(
                objects.domain.raw(),
                objects.info.raw(),
                begin,
                size_of_val(words),
                access.reads().into(),
                access.writes().into(),
                wanted_key,
                region,
                &raw mut key,
                &raw mut base,
            )
        })?;
        let key = RegionKey { key, base };
        objects.regions.insert(key, region);
        if !objects.memories.iter().any(|kept| Arc::ptr_eq(kept, &memory)) {
            objects.memories.push(memory);
        }
        Ok(key)
    }

    pub(super) fn revoke(&mut self, region: RegionKey) -> Result<(), Error> {
        let region = self.objects().regions.remove(&region).ok_or(Error::NoRegion)?;
        let advice = "close the endpoint, which ends all its regions";
        region.close().map_err(|code| failed("revoke a region", code, advice.into()))
    }

    pub(super) fn post(&mut self, peer: u64, item: Item) -> Attempt {
        let objects = self.objects();
        let place = item.operation.place();
        if objects.under_way.len() == UNDER_WAY_MAX {
            return Attempt::Later(item);
        }
        let end = place.offset.checked_add(item.operation.len() as u64);
        let address = place.region.base.checked_add(place.offset);
        let Some(address) = address.filter(|_| end.is_some_and(|end| end <= OFFSET_MAX)) else {
            return Attempt::Refused(item);
        };
        let words = words_of(&item.operation);
        let index = objects.under_way.insert(UnderWay { item, words });
        match objects.start(peer, address, place.region.key, index) {
            0 => Attempt::Posted,
            code if code == -FI_EAGAIN => Attempt::Later(objects.under_way.remove(index).item),
            _ => Attempt::Failed(objects.under_way.remove(index).item),
        }
    }

    /// The next completion, after some progress.
    pub(super) fn completed(&mut self) -> Option<Completed> {
        let objects = self.objects();
        let (mut context, mut error) = (null_mut(), 0);
        // SAFETY: the queue is open; the call sets both.
        let count =
            unsafe { terrace_fi_cq_read(objects.completions.raw(), &raw mut context, &raw mut error) };
        if count == 0 {
            return None;
        }
        let index = (context as usize).checked_sub(1).filter(|index| objects.under_way.contains(*index));
        let under_way = index.map(|index| objects.under_way.remove(index));
        let verdict = match error {
            FI_EACCES | FI_EPERM | FI_EKEYREJECTED => Verdict::Refused,
            _ => Verdict::Unknown,
        };
        Some(match under_way {
            Some(UnderWay { item, words }) if count > 0 && error == 0 => {
                Completed::Done(item.number, output(item.operation, &words))
            }
            under_way => Completed::Failed(under_way.map(|under_way| under_way.item), verdict),
        })
    }

    /// Waits until there may be a completion or work to do.
    pub(super) fn wait(&mut self, at_most: Duration) -> Result<(), Error> {
        let timeout_ms = c_int::try_from(at_most.as_millis()).unwrap_or(c_int::MAX);
        let objects = self.objects();
        // SAFETY: both objects are open.
        let code = unsafe { terrace_fi_wait(objects.fabric.raw(), objects.completions.raw(), timeout_ms) };
        checked("wait for a completion", code, objects.info.advice())
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&mut self) -> bool {
        self.objects().under_way.is_empty()
    }

    /// Takes the numbers of what is under way.
    pub(super) fn take_numbers(&mut self) -> Vec<u64> {
        let under_way = self.objects().under_way.iter_mut();
        under_way.filter_map(|(_, under_way)| under_way.item.number.take()).collect()
    }

    pub(super) fn close(&mut self) -> Result<(), Error> {
        let Some(mut rest) = self.0.take() else { return Ok(()) };
        let Err(code) = rest.endpoint.take().map_or(Ok(()), Fid::close) else { return Ok(()) };
        // The library may still reach the buffers and memories (3).
        std::mem::forget(rest);
        let advice = "its peer may still write: only the end of this process stops it";
        Err(failed("close an endpoint", code, advice.into()))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

impl Objects {
    fn endpoint(&self) -> Raw {
        self.endpoint.as_ref().expect("a port that is open").raw()
    }

    /// Gives an operation of the table to the library.
    fn start(&mut self, peer: u64, address: u64, key: u64, index: usize) -> i64 {
        let endpoint = self.endpoint();
        let UnderWay { item, words } = &mut self.under_way[index];
        let words = words.as_mut_ptr();
        let context = (index + 1) as *mut c_void;
        // SAFETY: the endpoint is open. Buffers and words are on the heap, and stay there until the
        // operation completes or the endpoint is closed (1). The context is a number.
        let code = unsafe {
            match &mut item.operation {
                Operation::Read { into, .. } => {
                    let (to, length) = (into.as_mut_ptr().cast(), into.len());
                    terrace_fi_read(endpoint, to, length, peer, address, key, context)
                }
                Operation::Write { bytes, until, .. } => {
                    let (from, length) = (bytes.as_ptr().cast(), bytes.len());
                    let persistent = c_int::from(*until == Until::Persistent);
                    terrace_fi_write(endpoint, from, length, peer, address, key, persistent, context)
                }
                Operation::CompareAndSwap { .. } => {
                    terrace_fi_compare_atomic(endpoint, words, peer, address, key, context)
                }
                Operation::FetchAdd { .. } => {
                    terrace_fi_fetch_atomic(endpoint, words, peer, address, key, context)
                }
            }
        };
        code as i64
    }
}

/// Whether two names are of the same kind. Of a socket's address, the library takes the length from
/// the family, and would read on behind a shorter one.
fn same_family(own: &[u8], other: &[u8]) -> bool {
    let is_of_socket = matches!((own, own.len()), (&[2, 0, ..], 16) | (&[10, 0, ..], 28));
    own.len() == other.len() && (!is_of_socket || own[..2] == other[..2])
}

/// The words of an atomic operation, in the order of the shim.
fn words_of(operation: &Operation) -> Vec<u64> {
    match *operation {
        Operation::CompareAndSwap { expected, new, .. } => vec![new, expected, 0],
        Operation::FetchAdd { add, .. } => vec![add, 0, 0],
        Operation::Read { .. } | Operation::Write { .. } => Vec::new(),
    }
}

fn output(operation: Operation, words: &[u64]) -> Output {
    match operation {
        Operation::Read { into: buffer, .. } | Operation::Write { bytes: buffer, .. } => {
            Output::Buffer(buffer)
        }
        Operation::CompareAndSwap { .. } | Operation::FetchAdd { .. } => Output::Before(words[2]),
    }
}
