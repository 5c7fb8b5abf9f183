//! Rows with one peer, which their names say. Each is printed when it is made: the whole report
//! comes much later.

use super::Outcome;
use crate::plan::say;
use std::cell::RefCell;
use terrace_bench::{Bound, Measure, Measured, Row, Runner};

/// A row of one figure a side, judged by the ratio if there is a bound.
pub(crate) fn beside(name: String, ours: f64, other: f64, bound: Option<Bound>) -> Row {
    let row = Row { ours: Some(ours), peers: vec![Some(other)], ..Row::new(name) };
    judged(row, bound)
}

/// A row of alternating rounds.
pub(crate) fn rounds(name: String, measured: Measured, bound: Option<Bound>) -> Row {
    judged(Row::from_measured(name, measured), bound)
}

fn judged(row: Row, bound: Option<Bound>) -> Row {
    told(match bound {
        Some(bound) => row.against(0, bound),
        None => Row { ratio: row.ours.zip(row.peers[0]).map(|(ours, other)| ours / other), ..row },
    })
}

/// The row, after its figures have been printed: the whole report comes much later.
fn told(row: Row) -> Row {
    let figures = [row.ours, row.peers.first().copied().flatten(), row.ratio];
    let figures = figures.map(|figure| figure.map_or("-".to_owned(), |figure| format!("{figure:.2}")));
    say(&format!("  {}: {}", row.name, figures.join(" | ")));
    row
}

/// A row of our figure alone.
pub(crate) fn alone(name: String, ours: f64, bound: Option<Bound>) -> Row {
    let row = Row { ours: Some(ours), ..Row::new(name) };
    told(bound.into_iter().fold(row, Row::judged))
}

/// Measures two sides in turn: `once(side, round)` returns a figure.
pub(crate) fn alternate(runner: Runner, once: impl Fn(usize, u64) -> Outcome<f64>) -> Outcome<Measured> {
    let (failed, once) = (RefCell::new(None), &once);
    let mut sides = [0, 1].map(|side| -> Measure<'_> {
        let (failed, mut round) = (&failed, 0);
        Box::new(move || {
            round += 1;
            once(side, round).unwrap_or_else(|error| {
                *failed.borrow_mut() = Some(error);
                f64::NAN
            })
        })
    });
    let measured = runner.row(&mut sides);
    drop(sides);
    failed.into_inner().map_or(Ok(measured), Err)
}
