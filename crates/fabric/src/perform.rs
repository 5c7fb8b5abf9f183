//! A batch, for threads that may block.

use crate::{Completion, Connection, Error, Failure, Operation, Output, Posted};
use std::time::{Duration, Instant};

/// A connection that a thread can wait for.
pub trait Wait: Connection {
    /// Waits until [`Connection::poll`] may have something to do, but not longer than this.
    ///
    /// # Errors
    /// If the system cannot wait.
    fn wait(&mut self, at_most: Duration) -> Result<(), Error>;
}

/// Posts operations and waits for all of them. If some are not complete in time, the connection
/// counts as lost.
///
/// # Errors
/// If the batch has an operation that makes no sense, or the system cannot wait.
///
/// # Panics
/// If the caller has posted other operations to the connection that are not complete.
#[allow(clippy::disallowed_methods, reason = "a caller that blocks has no clock of its own")]
pub fn perform<C: Wait>(
    connection: &mut C,
    operations: Vec<Operation>,
    at_most: Duration,
) -> Result<Vec<Result<Output, Failure>>, Error> {
    let mut outcomes: Vec<_> = operations.iter().map(|_| None).collect();
    let numbered = (0..).zip(operations).map(|(number, operation)| Posted { number, operation });
    connection.post(numbered.collect())?;
    let began = Instant::now();
    let (mut completions, mut missing) = (Vec::new(), outcomes.len());
    loop {
        connection.poll(&mut completions);
        missing -= completions.len();
        for Completion { number, outcome } in completions.drain(..) {
            let place = &mut outcomes[usize::try_from(number).expect("a number of the batch")];
            assert!(place.replace(outcome).is_none(), "operation {number} completed twice");
        }
        if missing == 0 {
            return Ok(outcomes.into_iter().flatten().collect());
        }
        match at_most.checked_sub(began.elapsed()) {
            Some(left) => connection.wait(left)?,
            None => connection.give_up(),
        }
    }
}
