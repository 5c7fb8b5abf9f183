//! Opening completes a change of the directory, wherever a crash has cut it off.

use super::*;
use crate::baselines::tests::space;
use crate::spread;
use terrace_medium::Dram;

/// Keys of which the first bits of the hash are these.
fn keys(bits: u64, prefix: u64) -> impl Iterator<Item = u64> {
    (0..).map(spread).filter(move |key| top(hash(*key), bits) == prefix)
}

/// A table whose upper half is one segment, which many words of the directory name; and its keys.
fn lopsided() -> (SpotCceh<Dram>, Vec<u64>) {
    let mut spot = SpotCceh::create(space(4 << 20), false).expect("room for a table");
    let keys: Vec<u64> = keys(3, 0).take(1500).chain(keys(1, 1).take(400)).collect();
    keys.iter().for_each(|&key| assert_eq!(spot.change((key, Some(!key))), Ok(())));
    (spot, keys)
}

/// Checks that all words which should name one segment do, and only they.
fn check_directory(spot: &SpotCceh<Dram>) {
    let Directory { depth, entries } = Directory::read(&spot.table);
    let mut from = 0;
    while from < entries.len() {
        let words = 1 << (depth - entries[from].depth());
        assert!(from.is_multiple_of(words), "word {from} of {words}");
        assert!(entries[from..from + words].iter().all(|entry| *entry == entries[from]));
        let others = entries.iter().filter(|entry| entry.segment() == entries[from].segment()).count();
        assert_eq!(others, words, "a segment has one range of hashes");
        from += words;
    }
}

/// What a change of the directory makes its words name: segments, each with the image of it.
type Names = dyn Fn(&mut SpotCceh<Dram>, Entry, &Image) -> Vec<(Image, u64)>;

/// Cuts a change of the upper half off after so many words. Returns whether that is all of it.
fn cut(names: &Names, after: usize) -> bool {
    let (mut spot, keys) = lopsided();
    let hash = u64::MAX;
    let (root, entry) = (spot.pool_directory(), spot.entry(hash));
    assert_eq!((entry.depth(), words_of(root.depth(), &spot.image(entry, hash)).count() >= 4), (1, true));
    let image = spot.image(entry, hash);
    let named = names(&mut spot, entry, &image).into_iter().flat_map(|(image, segment)| {
        words_of(root.depth(), &image).map(move |word| (word, Entry(segment | image.depth)))
    });
    let named: Vec<(u64, Entry)> = named.collect();
    for &(word, entry) in named.iter().take(after) {
        spot.table.point(root, word..word + 1, entry);
    }
    let table = SpotCceh::open(spot.table.space.clone(), spot.root(), false);
    let mut spot = table.expect("no memory is needed");
    check_directory(&spot);
    let mut model: Vec<u64> = keys;
    for key in self::keys(1, 1).skip(400).take(2000) {
        assert_eq!(spot.change((key, Some(!key))), Ok(()));
        model.push(key);
    }
    check_directory(&spot);
    assert!(model.iter().all(|key| spot.get(*key) == Some(!key)), "after {after} words");
    after >= named.len()
}

#[test]
fn split_in_place_is_completed_from_any_word() {
    let halves = |spot: &mut SpotCceh<Dram>, entry: Entry, image: &Image| {
        let [low, high] = [0, 1].map(|upper| image.half(upper));
        let upper = spot.write(&high).expect("room");
        vec![(high, upper), (low, entry.segment())]
    };
    assert!((0..).find(|after| cut(&halves, *after)).is_some_and(|words| words >= 4));
}

#[test]
fn split_out_of_place_is_completed_from_any_word() {
    let halves = |spot: &mut SpotCceh<Dram>, _: Entry, image: &Image| {
        let [low, high] = [0, 1].map(|upper| image.half(upper));
        let [upper, lower] = [&high, &low].map(|half| spot.write(half).expect("room"));
        vec![(high, upper), (low, lower)]
    };
    assert!((0..).find(|after| cut(&halves, *after)).is_some_and(|words| words >= 4));
}

#[test]
fn copy_of_a_segment_is_named_by_all_words_or_none() {
    let copy = |spot: &mut SpotCceh<Dram>, _: Entry, image: &Image| {
        vec![(image.clone(), spot.write(image).expect("room"))]
    };
    assert!((0..).find(|after| cut(&copy, *after)).is_some_and(|words| words >= 4));
}
