//! Measures the sides of a row in turns, and says whether the machine kept still meanwhile.

use crate::steady::fixed_loop_ns;

/// Measures one side once and returns its figure.
pub type Measure<'a> = Box<dyn FnMut() -> f64 + 'a>;

/// How rows are measured.
#[derive(Clone, Copy, Debug)]
pub struct Runner {
    /// Times that each side is measured.
    pub rounds: usize,
    /// Times that a row is measured again because the fixed loop moved.
    pub retries: usize,
    /// How far the fixed loop may move, as a share.
    pub tolerance: f64,
}

/// What came out of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The median of each side, in the order in which they were given.
    pub medians: Vec<f64>,
    /// Every figure: a list a side.
    pub figures: Vec<Vec<f64>>,
    /// How far the fixed loop moved in the run that counts, as a share.
    pub moved: f64,
    /// Runs that were thrown away because it moved further than allowed.
    pub repeated: usize,
    /// Whether it stayed within the tolerance in the run that counts.
    pub steady: bool,
}

impl Runner {
    /// Five rounds, two retries, 10%.
    pub const FULL: Self = Self { rounds: 5, retries: 2, tolerance: 0.1 };
    /// Three rounds: to see that it runs.
    pub const QUICK: Self = Self { rounds: 3, retries: 0, tolerance: 0.1 };

    /// Measures every side once a round, alternating. Runs the fixed loop before and after; if it moved further than allowed, does it all again, at most
    /// `retries` times, and keeps the run in which it moved least.
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
            // Each round starts with another side, so that no side is always the one after a given other.
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

/// The middle figure, or the mean of the two in the middle.
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
    fn sides_take_turns_and_medians_are_in_their_order() {
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
    fn a_row_whose_loop_moves_is_measured_again_and_says_so() {
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
    fn medians_are_of_sorted_figures() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
