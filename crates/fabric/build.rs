//! Compiles the C shim of libfabric, and links the library.

fn main() {
    println!("cargo:rerun-if-changed=shim/libfabric.c");
    #[cfg(feature = "libfabric")]
    build_shim();
}

#[cfg(feature = "libfabric")]
fn build_shim() {
    let library =
        pkg_config::Config::new().atleast_version("1.17").probe("libfabric").unwrap_or_else(|error| {
            panic!(
                "terrace-fabric needs libfabric 1.17: install libfabric-dev and pkg-config, or build \
             with --no-default-features, without access to other machines.\n{error}"
            )
        });
    cc::Build::new()
        .file("shim/libfabric.c")
        .includes(library.include_paths)
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("terrace_fabric_shim");
}
