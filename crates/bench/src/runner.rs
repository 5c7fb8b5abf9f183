//! Measures the sides of a row alternately, and checks that the machine kept its speed.

use crate::steady::fixed_loop_ns;

/// Measures one side once and returns its figure.
pub type Measure<'a> = Box<dyn FnMut() -> f64 + 'a>;

/// How rows are measured.
#[derive(Clone, Copy, Debug)]
pub struct Runner {
    /// How often each side is measured.
    pub rounds: usize,
    /// How often a row is measured again because the fixed loop's time moved.
    pub retries: usize,
    /// How far the fixed loop's time may move, as a share.
    pub tolerance: f64,
}

/// The measurements of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The median of each side, in the order of the sides.
    pub medians: Vec<f64>,
    /// Every figure: a list for each side.
    pub figures: Vec<Vec<f64>>,
    /// How far the fixed loop's time moved in the run that counts, as a share.
    pub moved: f64,
    /// Runs that were discarded because it moved too far.
    pub repeated: usize,
    /// Whether it stayed within the tolerance in the run that counts.
    pub steady: bool,
}

impl Runner {
    /// Five rounds, two retries, 10%.
    pub const FULL: Self = Self { rounds: 5, retries: 2, tolerance: 0.1 };
    /// Three rounds: to see that it runs.
    pub const QUICK: Self = Self { rounds: 3, retries: 0, tolerance: 0.1 };

    /// Measures every side once a round, alternating, between two runs of the fixed loop. If its
    /// time moved too far, measures again, at most `retries` times, and keeps the run in which it
    /// moved least.
    pub fn row(&self, sides: &mut [Measure<'_>]) -> Measured {
        let mut best: Option<Measured> = None;
        for repeated in 0..=self.retries {
            let run = self.run(sides, repeated);
            let steady = run.steady;
            if best.as_ref().is_none_or(|best| run.moved < best.moved) {
                best = Some(run);
            }
            if steady {
                break;
            }
        }
        best.expect("a row is measured at least once")
    }

    fn run(&self, sides: &mut [Measure<'_>], repeated: usize) -> Measured {
        let mut figures = vec![Vec::with_capacity(self.rounds); sides.len()];
        let before = fixed_loop_ns();
        for round in 0..self.rounds {
            // Each round starts with another side, so that no side always follows the same other
            // one.
            for i in 0..sides.len() {
                let side = (round + i) % sides.len();
                figures[side].push(sides[side]());
            }
        }
        let after = fixed_loop_ns();
        let moved = before.max(after) / before.min(after) - 1.0;
        let medians = figures.iter().map(|figures| median(figures)).collect();
        Measured { medians, figures, moved, repeated, steady: moved <= self.tolerance }
    }
}

/// The middle figure, or the mean of the two middle ones.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_alternate_and_medians_keep_their_order() {
        let order = std::cell::RefCell::new(String::new());
        let side = |name: char, figure: f64| -> Measure<'_> {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name);
                figure
            })
        };
        let runner = Runner { rounds: 3, retries: 0, tolerance: f64::INFINITY };
        let measured = runner.row(&mut [side('a', 1.0), side('b', 2.0)]);
        assert_eq!(order.borrow().as_str(), "abbaab");
        assert_eq!((measured.medians, measured.repeated, measured.steady), (vec![1.0, 2.0], 0, true));
    }

    #[test]
    fn unsteady_row_is_repeated_and_marked() {
        let mut runs = 0;
        let runner = Runner { rounds: 1, retries: 2, tolerance: -1.0 };
        let measured = runner.row(&mut [Box::new(|| {
            runs += 1;
            1.0
        })]);
        assert!(!measured.steady);
        assert_eq!(runs, 3);
    }

    #[test]
    fn median_sorts_the_figures() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
