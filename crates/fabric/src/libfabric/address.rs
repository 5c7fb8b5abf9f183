//! The address of an endpoint, as its peer gets it.
//!
//! ```text
//!   | release 1 | length 1 | provider | region 16 | pulse 8 | libfabric's own address |
//! ```
//! The *pulse* is a random word in a region of the endpoint's own. A connection reads it first:
//! what answers at an address may be another endpoint, which got the same port later.

use crate::{Error, RegionKey};

const RELEASE: u8 = 1;

pub(super) struct Address<'a> {
    /// Where the pulse is.
    pub(super) region: RegionKey,
    /// The pulse.
    pub(super) pulse: u64,
    /// The provider's name of the endpoint.
    pub(super) name: &'a [u8],
}

impl<'a> Address<'a> {
    pub(super) fn encode(&self, provider: &str) -> Vec<u8> {
        let length = u8::try_from(provider.len()).expect("a provider's name is short");
        let mut bytes = vec![RELEASE, length];
        bytes.extend(provider.as_bytes());
        bytes.extend(self.region.to_bytes());
        bytes.extend(self.pulse.to_le_bytes());
        bytes.extend(self.name);
        bytes
    }

    pub(super) fn parse(bytes: &'a [u8], provider: &str) -> Result<Self, Error> {
        let bad = |why| move || Error::Address(why);
        let (&[release, length], rest) = bytes.split_first_chunk().ok_or_else(bad("is cut short"))?;
        if release != RELEASE {
            return Err(Error::Address("is of another release"));
        }
        let (named, rest) = rest.split_at_checked(length.into()).ok_or_else(bad("is cut short"))?;
        if named != provider.as_bytes() {
            return Err(Error::Address("is of another provider of libfabric"));
        }
        let (region, rest) = rest.split_first_chunk().ok_or_else(bad("is cut short"))?;
        let (pulse, name) = rest.split_first_chunk().ok_or_else(bad("is cut short"))?;
        Ok(Self { region: RegionKey::from_bytes(*region), pulse: u64::from_le_bytes(*pulse), name })
    }
}
