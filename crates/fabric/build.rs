//! Compiles the C shim of libfabric. It needs neither the library nor its headers.

fn main() {
    println!("cargo:rerun-if-changed=shim");
    #[cfg(feature = "libfabric")]
    cc::Build::new()
        .file("shim/libfabric.c")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .compile("terrace_fabric_shim");
}
