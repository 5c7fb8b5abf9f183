//! Tests of `error`.

use super::*;
use std::error::Error;

#[test]
fn os_error_is_the_source_of_the_problem() {
    let said = || io::Error::other("so it is");
    let source = |problem| {
        let error = OpenError { pool: "a.pool".into(), problem };
        error.source().map(|source| source.to_string())
    };
    let messages = [
        Problem::Denied(said()),
        Problem::LockFailed(said()),
        Problem::GateTimeout(said()),
        Problem::Os("read", said()),
    ];
    messages.into_iter().for_each(|problem| assert_eq!(source(problem).as_deref(), Some("so it is")));
    assert!(source(Problem::Map(MapError::NoSpace { wanted: 1 })).is_some());
    assert_eq!(source(Problem::Missing), None);
}

#[test]
fn missing_pool_in_dev_shm_mentions_containers() {
    let messages = |pool: &str| OpenError { pool: pool.into(), problem: Problem::Missing }.to_string();
    assert!(
        messages("/dev/shm/a.pool").contains("container") && !messages("/tmp/a.pool").contains("container")
    );
}

#[test]
fn refused_requests_have_these_messages() {
    let refused = || io::Error::other("so it is");
    let (asked, reserved) = (6 << 20, 3 << 19);
    let messages = [
        (
            Problem::NotReadable,
            "the pool P cannot be opened read-only without any store to it: it lies on huge pages or on a device, which \
             cannot be mapped privately\n  open it read-only and shared, which stores only to its head, or open it \
             for writing",
        ),
        (
            Problem::NotPersistent,
            "durability `power` is not possible on P: it lives in memory or on a disk whose writes a power cut can \
             erase\n  use a DAX file system (mount -o dax=always) or a persistent CXL device, or --durability process",
        ),
        (
            Problem::OtherDurability { pool: Durability::Power, asked: Durability::Process },
            "the pool P was left in use with durability `power` and cannot be opened with `process` now\n  first \
             open it with --durability power and close it in order",
        ),
        (
            Problem::Size { asked: 1000, smallest: reserved, largest: 1 << 47 },
            "the pool P cannot have 1000 bytes: its size must be from 1.5 MiB to 128.0 TiB",
        ),
        (Problem::Geometry("so it is"), "the pool P cannot have this geometry: so it is"),
        (Problem::LabelTooLong, "the label of the pool P is longer than 63 bytes"),
        (
            Problem::Map(MapError::NoSpace { wanted: asked }),
            "no room for 6.0 MiB on the file system of P\n  choose a smaller --size, or make room",
        ),
        (
            Problem::Map(MapError::Reserved { wanted: asked, reserved }),
            "the pool P has grown to 6.0 MiB while it was being opened, and 1.5 MiB were reserved for it\n  open it \
             again with a --max-size of at least that",
        ),
        (
            Problem::Map(MapError::Os("map", refused())),
            "the pool P cannot be mapped: could not map: so it is",
        ),
        (Problem::Os("read", refused()), "could not read P: so it is"),
    ];
    for (problem, words) in messages {
        assert_eq!(OpenError { pool: "P".into(), problem }.to_string(), words);
    }
}

#[test]
fn bytes_display_in_the_largest_fitting_unit() {
    let messages =
        [0, 1, 1023, 1024, 5 << 9, 3 << 19, 1 << 30, 1 << 40, 1 << 50].map(|it| Bytes(it).to_string());
    let expected =
        ["0 bytes", "1 bytes", "1023 bytes", "1.0 KiB", "2.5 KiB", "1.5 MiB", "1.0 GiB", "1.0 TiB"];
    assert_eq!(messages[..8], expected);
    assert_eq!(messages[8], "1024.0 TiB");
}

#[test]
fn release_displays_its_parts() {
    let messages = Release(1 << 40 | 22 << 28 | 333 << 16 | 4).to_string();
    assert!(messages.contains("1.22.333 ") && messages.contains("sharing version 4)"), "{messages}");
}

#[test]
fn idle_since_compares_process_and_run_time() {
    let seen = Holder { pid: 1, since_ms: 2, ran_ticks: 3, ..Holder::default() };
    assert!(seen.idle_since(&Holder { stopped: true, ..seen.clone() }));
    for other in [
        Holder { pid: 2, ..seen.clone() },
        Holder { since_ms: 3, ..seen.clone() },
        Holder { ran_ticks: 4, ..seen.clone() },
    ] {
        assert!(!other.idle_since(&seen));
    }
}
