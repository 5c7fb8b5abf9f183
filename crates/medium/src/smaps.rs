//! The kernel's description of a mapping: /proc/self/smaps, proc_pid_smaps(5).

use crate::HugePages;
use std::ops::Range;

/// The process's own smaps file.
pub(crate) fn read() -> std::io::Result<String> {
    std::fs::read_to_string("/proc/self/smaps")
}

/// How much of `addresses` is resident, and how much of that on huge pages.
pub(crate) fn huge_pages(smaps: &str, addresses: Range<u64>) -> HugePages {
    let mut pages = HugePages { huge: 0, resident: 0 };
    for (range, name, value) in fields(smaps) {
        if range.start < addresses.start || range.end > addresses.end {
            continue;
        }
        let bytes =
            || value.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024;
        match name {
            "Rss" => pages.resident += bytes(),
            "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => pages.huge += bytes(),
            "Shared_Hugetlb" | "Private_Hugetlb" => {
                pages.huge += bytes();
                pages.resident += bytes();
            }
            _ => {}
        }
    }
    pages
}

/// Whether the mapping around `address` has synchronous page faults (`sf`), which MAP_SYNC asks
/// for.
pub(crate) fn is_synchronous(smaps: &str, address: u64) -> bool {
    fields(smaps).any(|(range, name, value)| {
        name == "VmFlags" && range.contains(&address) && value.split_whitespace().any(|flag| flag == "sf")
    })
}

/// Every field, with the addresses that it describes.
fn fields(smaps: &str) -> impl Iterator<Item = (Range<u64>, &str, &str)> {
    let mut range = 0..0;
    smaps.lines().filter_map(move |line| {
        if let Some(next) = address_range(line) {
            range = next;
            return None;
        }
        let (name, value) = line.split_once(':')?;
        Some((range.clone(), name, value))
    })
}

fn address_range(line: &str) -> Option<Range<u64>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-s 00000000 103:00 12 /mnt/pmem/pool
Size:               4096 kB
Rss:                3072 kB
FilePmdMapped:      2048 kB
VmFlags: rd wr sh mr mw me ms sf mm hg
7f0000400000-7f0000800000 rw-s 00000000 08:01 77 /home/pool
Size:               4096 kB
Rss:                  64 kB
FilePmdMapped:         0 kB
VmFlags: rd wr sh mr mw me ms
";

    #[test]
    fn is_synchronous_reads_the_sf_flag() {
        assert!(is_synchronous(SMAPS, 0x7f00_0000_0000));
        assert!(is_synchronous(SMAPS, 0x7f00_003f_ffff));
        assert!(!is_synchronous(SMAPS, 0x7f00_0040_0000), "the next mapping");
        assert!(!is_synchronous(SMAPS, 0x7eff_ffff_ffff), "no mapping at all");
    }

    #[test]
    fn huge_pages_counts_within_the_addresses() {
        let first = huge_pages(SMAPS, 0x7f00_0000_0000..0x7f00_0040_0000);
        assert_eq!((first.huge, first.resident), (2 << 20, 3 << 20));
        let both = huge_pages(SMAPS, 0x7f00_0000_0000..0x7f00_0080_0000);
        assert_eq!((both.huge, both.resident), (2 << 20, (3 << 20) + (64 << 10)));
    }

    #[test]
    fn huge_pages_skips_a_straddling_mapping() {
        for partly in [0x7f00_0000_0000..0x7f00_003f_ffff, 0x7f00_0000_0001..0x7f00_0040_0000] {
            let pages = huge_pages(SMAPS, partly);
            assert_eq!((pages.huge, pages.resident), (0, 0));
        }
        let second = huge_pages(SMAPS, 0x7f00_0040_0000..0x7f00_0080_0000);
        assert_eq!((second.huge, second.resident), (0, 64 << 10));
    }

    #[test]
    fn huge_pages_counts_every_kind() {
        let pages = |fields: &str| {
            let pages = huge_pages(&format!("1000-2000 rw-p 0 0:0 0\n{fields}"), 0x1000..0x2000);
            (pages.huge, pages.resident)
        };
        assert_eq!(pages("Rss: 8 kB\nAnonHugePages: 4 kB\n"), (4096, 8192));
        assert_eq!(pages("Rss: 8 kB\nShmemPmdMapped: 4 kB\n"), (4096, 8192));
        // Huge pages of hugetlbfs are not part of what is resident.
        assert_eq!(pages("Rss: 0 kB\nShared_Hugetlb: 4 kB\nPrivate_Hugetlb: 8 kB\n"), (12288, 12288));
        assert_eq!(pages("Rss: many kB\n"), (0, 0));
    }
}
