//! How libfabric is opened: when it is wanted, and with an error where it is absent or too old. The
//! layouts that the shim takes for granted are compared with its header.

use crate::half::print_line;
use std::env;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;
use terrace_fabric::{Error, Libfabric};

/// Compiles a text of C.
fn compile(arguments: &[&str], source: &Path) -> Output {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    Command::new(compiler).args(arguments).arg(source).output().expect("a C compiler")
}

/// Where libfabric's header is absent nothing can be compared.
#[test]
fn declarations_are_those_of_libfabrics_header() {
    let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim");
    let directory = TempDir::new().expect("a directory");
    let header = directory.path().join("header.c");
    std::fs::write(&header, "#include <rdma/fabric.h>\n").expect("written");
    if !compile(&["-fsyntax-only"], &header).status.success() {
        return print_line("not compared: libfabric's header is not here (Debian: libfabric-dev)");
    }
    let strict = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"];
    let same = compile(&strict, &shim.join("abi_check.c"));
    assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stderr));
}

/// What opening says in a process that finds this library.
fn said(library: &[u8]) -> String {
    let directory = TempDir::new().expect("a directory");
    std::fs::write(directory.path().join("libfabric.so.1"), library).expect("written");
    let output = Command::new(env::current_exe().expect("this program"))
        .args(["library::process_that_opens", "--exact", "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", directory.path())
        .output()
        .expect("this program");
    String::from_utf8(output.stdout).expect("a text")
}

#[test]
#[ignore = "a process of other tests"]
fn process_that_opens() {
    for error in [Libfabric::load().err(), Libfabric::new(Libfabric::TCP, "127.0.0.1").err()] {
        let Some(Error::NoLibrary { reason }) = &error else { panic!("{error:?}") };
        assert!(!reason.is_empty());
        print_line(&format!("said: {}", error.expect("an error")));
    }
}

#[test]
fn absent_library_is_an_error_with_its_packages() {
    let said = said(b"no library");
    assert_eq!(said.matches("said: a cluster's nodes need libfabric 1.17 or later").count(), 2, "{said}");
    assert!(said.contains("libfabric.so.1: "), "{said}");
    assert!(said.contains("libfabric1 (Debian, Ubuntu) or libfabric (Fedora, Arch)"), "{said}");
}

#[test]
fn older_library_is_an_error_with_its_version() {
    let directory = TempDir::new().expect("a directory");
    let (source, made) = (directory.path().join("old.c"), directory.path().join("old.so"));
    let versions = directory.path().join("versions");
    let (mut code, mut map) = (String::new(), String::new());
    for (version, names) in [
        ("FABRIC_1.0", &["version", "strerror"][..]),
        ("FABRIC_1.1", &["fabric"]),
        ("FABRIC_1.3", &["getinfo", "freeinfo", "dupinfo"]),
    ] {
        let symbols: String = names.iter().map(|name| format!("fi_{name};")).collect();
        map += &format!("{version} {{ global: {symbols} }};\n");
        code.extend(names.iter().map(|name| format!("unsigned fi_{name}(void) {{ return 65552; }}\n")));
    }
    std::fs::write(&source, code).expect("written");
    std::fs::write(&versions, map).expect("written");
    let script = format!("-Wl,--version-script={}", versions.display());
    let out = made.to_str().expect("a path");
    let built = compile(&["-shared", "-fPIC", "-o", out, &script], &source);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let said = said(&std::fs::read(&made).expect("a library"));
    assert!(said.contains("version 1.16: it is older than 1.17"), "{said}");
    // One without the functions at all.
    std::fs::write(&source, "").expect("written");
    let built = compile(&["-shared", "-fPIC", "-o", out], &source);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let said = self::said(&std::fs::read(&made).expect("a library"));
    assert!(said.contains("it has not all functions of libfabric 1.17"), "{said}");
}
