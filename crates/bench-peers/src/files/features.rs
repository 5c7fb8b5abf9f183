//! Some peers are features of this program, since RocksDB takes long to build. A
//! program without them builds and runs itself again with them.

use crate::plan::say;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Whether this program has the peers that are wanted.
pub(crate) fn is_built(without_rocksdb: bool) -> bool {
    cfg!(feature = "fjall") && (without_rocksdb || cfg!(feature = "rocksdb"))
}

/// Builds this program with its features, and runs it in the place of this process, with the same
/// arguments. Returns only with an error.
pub(crate) fn build_again(without_rocksdb: bool, arguments: &[String]) -> String {
    let features = match without_rocksdb {
        true => "fjall",
        false => {
            say(
                "builds RocksDB if it is not there yet: half an hour, the first time; it needs Debian's libclang-dev. --without-rocksdb leaves it out",
            );
            if !has_libclang() {
                return "libclang is missing, which RocksDB's build needs\n  \
                        sudo apt-get install libclang-dev, or leave RocksDB out with --without-rocksdb"
                    .into();
            }
            "rocksdb,fjall"
        }
    };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--release", "--package", env!("CARGO_PKG_NAME"), "--features", features, "--"]);
    let error = cargo.args(arguments).exec();
    format!("could not build again with cargo: {error}")
}

/// Whether bindgen will find libclang where Debian has it, or where the user says.
fn has_libclang() -> bool {
    let is_libclang = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("libclang") && name.contains(".so") && !name.starts_with("libclang-cpp")
    };
    let holds = |directory: &Path| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| is_libclang(&entry.path()))
    };
    let llvm = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    std::env::var_os("LIBCLANG_PATH").is_some()
        || llvm.flat_map(|path| [path.join("lib"), path]).any(|path| holds(&path))
}
