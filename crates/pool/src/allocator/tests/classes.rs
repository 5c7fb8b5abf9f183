//! Tests of `classes`.

use super::*;

#[test]
fn a_size_has_the_smallest_class_that_holds_it() {
    for slab_log2 in 12..=19 {
        let classes = Classes::new(slab_log2);
        assert!(classes.len() <= CLASSES_MAX);
        let largest = LARGEST << classes.granule_log2;
        for bytes in 1..=largest {
            let class = classes.of(bytes).unwrap();
            let size = u64::from(classes.get(class).unwrap().size);
            assert!(size >= bytes, "{bytes} bytes do not fit in {size}");
            assert!(class == 0 || u64::from(classes.get(class - 1).unwrap().size) < bytes, "{bytes} bytes");
        }
        assert_eq!(classes.of(largest), Some(classes.len() - 1));
        assert_eq!(classes.of(largest + 1), None);
    }
}

/// Internal waste of every size up to 1 MiB is at most 12% of the block, or 7 bytes. The unused
/// part of a slab, header and tail, is at most an eighth, and 3 to 6% on average.
#[test]
fn a_block_wastes_little() {
    for slab_log2 in [12, 14, 16] {
        let classes = Classes::new(slab_log2);
        for bytes in 1..=1 << 20 {
            let (taken, asked) = (classes.footprint(bytes), bytes);
            let waste = taken - asked;
            assert!(waste < 8 || waste * 100 <= taken * 12, "{waste} of {taken} bytes wasted on {asked}");
        }
        let slab = 1u64 << slab_log2;
        let unused = |class: &Class| slab - u64::from(class.blocks) * u64::from(class.size);
        let worst = classes.table.iter().map(unused).max().unwrap();
        let mean = classes.table.iter().map(unused).sum::<u64>() / classes.len() as u64;
        assert!(worst * 8 <= slab, "{worst} of {slab} bytes of a slab are not blocks");
        assert!(mean * 1000 <= slab * 65, "{mean} of {slab} bytes of a slab are not blocks on average");
    }
}

#[test]
fn blocks_do_not_overlap_and_are_found_by_start() {
    for slab_log2 in [12, 16, 19] {
        let classes = Classes::new(slab_log2);
        for class in classes.table {
            assert!(class.first >= class.words * 16 && class.first % 64 == 0);
            assert!(class.position(u64::from(class.blocks)) <= 1 << slab_log2);
            assert!(class.size % 64 == 0 || class.size < 512);
            assert!(class.size % 256 != 0 || class.first % 256 == 0, "{} bytes", class.size);
            for block in 0..u64::from(class.blocks) {
                let at = class.position(block);
                assert_eq!(class.block_at(at), Some(block));
                assert_eq!(class.block_at(at + 1), None);
                assert_eq!(class.block_around(at + u64::from(class.size) - 1), Some(block));
            }
            assert_eq!(class.block_at(0), None);
            assert_eq!(class.block_at(class.position(u64::from(class.blocks))), None);
            assert_eq!(class.block_around(class.position(u64::from(class.blocks))), None);
            let bits: u32 = (0..u64::from(class.words) + 1).map(|word| class.valid(word).count_ones()).sum();
            assert_eq!(bits, class.blocks);
        }
    }
}
