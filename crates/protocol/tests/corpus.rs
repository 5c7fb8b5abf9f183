//! Tests: the fuzzer's corpus, and random mutations of it, without the fuzzer.

mod common;

use std::path::Path;

use common::same_at_every_split;

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/resp");
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut seeds: Vec<Vec<u8>> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    seeds.sort();
    assert!(seeds.len() > 10, "the corpus is there");
    seeds
}

/// SplitMix64.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as usize >> 8
}

fn mutate(input: &mut Vec<u8>, random: &mut u64) {
    let at = next(random) % (input.len() + 1);
    match next(random) % 5 {
        0 if at < input.len() => input[at] = next(random) as u8,
        1 if at < input.len() => drop(input.remove(at)),
        2 => input.insert(at, b"*$\r\n0123456789-\" '\\"[next(random) % 19]),
        3 => input.truncate(at),
        _ => input.extend_from_within(at..),
    }
    input.truncate(200);
}

#[test]
fn corpus_parses_the_same_at_every_split() {
    corpus().iter().for_each(|seed| same_at_every_split(seed));
}

#[test]
fn mutated_corpus_parses_the_same_at_every_split() {
    let (seeds, mut random) = (corpus(), 1);
    for round in 0..2000 {
        let mut input = seeds[round % seeds.len()].clone();
        for _ in 0..1 + next(&mut random) % 6 {
            mutate(&mut input, &mut random);
        }
        same_at_every_split(&input);
    }
}
