//! What is refused.

use super::subject::{Subject, add, read, swap, write};
use terrace_fabric::{Access, Connection, Endpoint, Error, Fabric, Failure, Operation, Posted, RegionKey};

/// One of each kind, on 8 bytes.
fn each(region: RegionKey, offset: u64) -> [Operation; 4] {
    let stored = write(region, offset, &[9; 8]);
    [read(region, offset, 8), stored, swap(region, offset, 0, 9), add(region, offset, 9)]
}

/// Each on a connection of its own, since a refusal ends one.
fn assert_refused<S: Subject>(
    subject: &mut S,
    address: &[u8],
    operations: impl IntoIterator<Item = Operation>,
) {
    for operation in operations {
        let mut connection = subject.initiator().connect(address).expect("a connection");
        let outcome = subject.perform_one(&mut connection, operation.clone());
        assert_eq!(outcome, Err(Failure::Refused), "{operation:?}");
    }
}

pub(super) fn operation_beyond_its_region_is_refused<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(64, Access::Read);
    let region =
        served.endpoint.register(served.memory.clone(), 64..128, Access::ReadWrite).expect("a region");
    let address = served.endpoint.address();
    for offset in [64, 1 << 40, 1 << 63, u64::MAX - 7] {
        assert_refused(&mut subject, address, each(region, offset));
    }
    for offset in [57, 63, u64::MAX - 3] {
        assert_refused(&mut subject, address, [read(region, offset, 8), write(region, offset, &[9; 8])]);
    }
    assert_refused(&mut subject, address, [read(region, 0, 72), write(region, 0, &[9; 72])]);
    assert_eq!(served.bytes(0, 512), [0; 512]);
    let outcomes = subject.perform(&mut served.connection, each(region, 56).into());
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
}

pub(super) fn operation_without_the_right_is_refused<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(8, Access::Read);
    let write_only = served.endpoint.register(served.memory.clone(), 0..64, Access::Write).expect("a region");
    let address = served.endpoint.address();
    let [_, stored, swapped, added] = each(served.region, 0);
    assert_refused(&mut subject, address, [stored, swapped, added]);
    let [found, _, swapped, added] = each(write_only, 0);
    assert_refused(&mut subject, address, [found, swapped, added]);
    assert_eq!(served.bytes(0, 64), [0; 64]);
    let permitted = vec![read(served.region, 0, 8), write(write_only, 8, &[1; 8])];
    let outcomes = subject.perform(&mut served.connection, permitted);
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
}

pub(super) fn unknown_key_is_refused<S: Subject>() {
    let mut subject = S::new();
    let served = subject.served(8, Access::ReadWrite);
    let mut bytes = served.region.to_bytes();
    bytes[3] ^= 1;
    assert_refused(&mut subject, served.endpoint.address(), each(RegionKey::from_bytes(bytes), 0));
    assert_eq!(served.bytes(0, 64), [0; 64]);
    assert_eq!(RegionKey::from_bytes(served.region.to_bytes()), served.region);
}

pub(super) fn key_of_another_endpoint_is_refused<S: Subject>() {
    let mut subject = S::new();
    let served = subject.served(8, Access::ReadWrite);
    let other = subject.target().open().expect("an endpoint");
    assert_refused(&mut subject, other.address(), each(served.region, 0));
    assert_eq!(served.bytes(0, 64), [0; 64]);
}

pub(super) fn revoked_region_is_refused<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(8, Access::ReadWrite);
    let other = served.endpoint.register(served.memory.clone(), 0..64, Access::ReadWrite).expect("a region");
    let outcome = subject.perform_one(&mut served.connection, write(served.region, 0, &[1; 8]));
    assert!(outcome.is_ok(), "{outcome:?}");
    served.endpoint.revoke(served.region).expect("revoked");
    assert_eq!(served.endpoint.revoke(served.region), Err(Error::NoRegion));
    let outcome = subject.perform_one(&mut served.connection, write(other, 8, &[2; 8]));
    assert!(outcome.is_ok(), "another region of the endpoint: {outcome:?}");
    assert_refused(&mut subject, served.endpoint.address(), each(served.region, 16));
    assert_eq!(served.bytes(16, 48), [0; 48]);
}

pub(super) fn refusal_ends_the_connection<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(8, Access::Read);
    let batch = vec![read(served.region, 0, 8), write(served.region, 0, &[1; 8]), read(served.region, 8, 8)];
    let outcomes = subject.perform(&mut served.connection, batch);
    assert_eq!(outcomes[1], Err(Failure::Refused));
    assert!(outcomes.iter().all(|outcome| *outcome != Err(Failure::Lost)), "{outcomes:?}");
    let later = subject.perform_one(&mut served.connection, read(served.region, 0, 8));
    assert_eq!(later, Err(Failure::Refused));
    let mut again = subject.initiator().connect(served.endpoint.address()).expect("a connection");
    assert!(subject.perform_one(&mut again, read(served.region, 0, 8)).is_ok());
}

pub(super) fn operation_without_sense_is_an_error<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(8, Access::ReadWrite);
    let region = served.region;
    for (operation, error) in [
        (read(region, 0, 0), Error::Empty),
        (write(region, 0, &[]), Error::Empty),
        (swap(region, 4, 0, 1), Error::Unaligned(4)),
        (add(region, 57, 1), Error::Unaligned(57)),
    ] {
        let sound = Posted { number: 0, operation: write(region, 0, &[1; 8]) };
        let batch = vec![sound, Posted { number: 1, operation }];
        assert_eq!(served.connection.post(batch), Err(error));
    }
    assert!(subject.perform_one(&mut served.connection, read(region, 0, 8)).is_ok());
    assert_eq!(served.bytes(0, 8), [0; 8], "a part of a batch was posted");
}

pub(super) fn range_outside_of_the_memory_is_an_error<S: Subject>() {
    let mut subject = S::new();
    let mut served = subject.served(8, Access::Read);
    let reversed = [(usize::MAX - 7, 8), (72, 64)];
    for (begin, end) in [(0, 72), (64, 72), (0, 0), (8, 8), (4, 16), (8, 12)].into_iter().chain(reversed) {
        let region = served.endpoint.register(served.memory.clone(), begin..end, Access::Read);
        assert_eq!(region, Err(Error::Range), "{begin}..{end}");
    }
}

pub(super) fn address_of_nonsense_is_an_error<S: Subject>() {
    let mut subject = S::new();
    let served = subject.served(8, Access::Read);
    let address = served.endpoint.address();
    for len in 0..address.len() {
        let connection = subject.initiator().connect(&address[..len]);
        assert!(matches!(connection.err(), Some(Error::Address(_))), "the first {len} bytes");
    }
}
