//! Tests of `arena.rs`.

use super::*;

#[test]
fn bytes_of_every_length_come_back() {
    let (arena, mut end) = (Arena::new(), End::default());
    let bytes: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    let lens = (0..100usize).chain([4095, 16_384, 65_536, 131_072, 200_000]);
    let kept: Vec<(At, usize)> = lens
        .map(|len| {
            let at = arena.take(&mut end, len.div_ceil(8)).unwrap();
            store_bytes(arena.words(at), &bytes[..len]);
            (at, len)
        })
        .collect();
    for (at, len) in kept {
        let mut read = b"before".to_vec();
        load_bytes(arena.words(at), len, &mut read);
        assert!(at < 1 << 40 && read[6..] == bytes[..len], "{len}");
    }
}
