//! The release of this program, as processes that share a pool compare it.

/// Version of what processes share beyond the format that the pool was created with: thread slots,
/// allocator words, lock words, contents of later formats. Increase it when one of these changes
/// between releases. A program with another version is refused.
const SHARING_VERSION: u64 = 5;

/// Sharing protocol version: `| major (8) | minor (12) | patch (12) | SHARING_VERSION (16) |`.
/// Processes share a pool only if these words are equal. The release number is part of it, so that
/// a forgotten increase of [`SHARING_VERSION`] does no harm between releases.
pub(crate) const SHARING: u64 = {
    let [major, minor, patch] =
        [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
    number(major) << 40 | number(minor) << 28 | number(patch) << 16 | SHARING_VERSION
};

const fn number(digits: &str) -> u64 {
    match u64::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => panic!("the parts of a version are numbers"),
    }
}
