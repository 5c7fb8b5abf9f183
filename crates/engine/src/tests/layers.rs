//! Tests of the figures of layers.

use super::*;

#[test]
fn each_figure_has_a_place_of_its_own() {
    let mut stats = LayerStats::default();
    LAYER_FIGURES.iter().zip(1..).for_each(|(figure, number)| (figure.set)(&mut stats, number));
    let expected = LayerStats {
        budget: 1,
        bytes: 2,
        nodes: [3, 4],
        buffers: 5,
        buffered: 6,
        log_bytes: 7,
        filtered: 8,
        false_positives: 9,
        passed: 10,
    };
    assert_eq!(stats, expected);
    let read: Vec<u64> = LAYER_FIGURES.iter().map(|figure| (figure.get)(&stats)).collect();
    assert_eq!(read, (1..=10).collect::<Vec<_>>());
    assert_eq!(Layers::InDram(stats).stats(), stats);
}

#[test]
fn path_that_serves_is_said_with_its_reason() {
    assert_eq!(Layers::InDram(LayerStats::default()).to_string(), "layers in DRAM");
    for (why, text) in [
        (NoLayers::Shared, "the pool alone: shared"),
        (NoLayers::NotAsked, "the pool alone: not asked for"),
        (NoLayers::FastMedium, "the pool alone: the medium is as fast as DRAM"),
        (NoLayers::NotMade, "the pool alone: the index has made none"),
    ] {
        let layers = Layers::PoolAlone(why);
        assert_eq!((layers.to_string(), layers.stats()), (text.to_string(), LayerStats::default()));
    }
}
