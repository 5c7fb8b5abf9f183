//! Tests of `room.rs`: pages that have a number and that nothing leads to.

use super::super::build::empty_root;
use super::super::stored::BwShape;
use super::*;
use crate::{PointIndex, U64};
use terrace_medium::Dram;
use terrace_pool::Pool;

fn tree() -> BwTree<Dram, U64> {
    let pool = Pool::<Dram>::anonymous(4 << 20).unwrap();
    let shape = BwShape { most: 4, least: 2, slots: 2, numbers_log2: 3, spares: 2, is_scarce: false };
    BwTree::with_shape(&pool, "map", shape).unwrap()
}

fn numbered(index: &BwTree<Dram, U64>) -> Numbered {
    let guard = index.pool().pin();
    index.number(&guard, empty_root(), Entry::of_page(64, 0)).unwrap()
}

fn is_page(index: &BwTree<Dram, U64>, page: Numbered) -> bool {
    index.tree.page(&index.pool().pin(), page.pid).unwrap().is_some()
}

fn trace(index: &BwTree<Dram, U64>) -> Vec<(u64, u64)> {
    let pool = index.pool();
    pool.reachable(&mut |marker| index.trace(&pool.pin(), marker, |_, _| ()))
}

/// The collector's walk gives back the number of a thread that has died, and not that of one that
/// is still at it.
#[test]
fn number_of_the_dead_comes_back() {
    let index = tree();
    let page = numbered(&index);
    let bytes = page.block.bytes as u64;
    assert!(trace(&index).contains(&(page.block.offset, bytes)), "it may be linked yet");
    assert!(is_page(&index, page));
    (0..4).for_each(|_| _ = index.pool().is_grace_period_over(index.pool().epoch()));
    assert!(!trace(&index).contains(&(page.block.offset, bytes)));
    assert!(!is_page(&index, page));
}

/// The walk changes the column of a page that nothing leads to; it is ended all the same.
#[test]
fn page_of_another_column_is_forgotten() {
    let index = tree();
    let page = numbered(&index);
    let word = index.tree.entry_word(page.pid).unwrap();
    word.store(index.pool().medium(), page.entry.with_column(1).0, std::sync::atomic::Ordering::Relaxed);
    index.forget(&index.pool().pin(), page);
    assert!(!is_page(&index, page));
}
