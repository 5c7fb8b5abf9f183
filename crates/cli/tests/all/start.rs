//! What a start of the program loads: no library beyond the system's own, which took 200 ms.

use std::{collections::BTreeSet, fs};

use crate::common::{Place, Served, program};

/// The libraries of C, and what Rust links with.
const SYSTEM: [&str; 5] = ["libc.so", "libgcc_s.so", "libm.so", "ld-linux", "linux-vdso"];

/// The names of files that are libraries, but not the system's.
fn others<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let names = paths.filter_map(|path| path.rsplit('/').next()).filter(|name| name.contains(".so"));
    names.filter(|name| !SYSTEM.iter().any(|system| name.starts_with(system))).collect()
}

#[test]
fn version_begins_no_library_but_the_systems() {
    let output = program().arg("--version").env("LD_DEBUG", "libs").output().unwrap();
    assert!(output.stdout.starts_with(b"terrace "));
    let told = String::from_utf8_lossy(&output.stderr);
    let begun =
        told.lines().filter_map(|line| line.split_once("calling init: ")).map(|(_, path)| path.trim());
    // The loader tells each library that it begins.
    assert!(begun.clone().any(|path| path.contains("/libc.so")), "{told}");
    assert_eq!(others(begun), BTreeSet::new());
}

#[test]
fn server_maps_no_library_but_the_systems() {
    let place = Place::new();
    let server = Served::start(&place.pool(), &[]);
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.child.id())).unwrap();
    let mapped = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    assert!(mapped.clone().any(|path| path.contains("/libc.so")), "{maps}");
    assert_eq!(others(mapped), BTreeSet::new());
}
