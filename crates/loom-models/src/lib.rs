//! Models of the five places where the order of plain memory accesses decides, each in every order that the C11 memory model allows (loom).
//!
//! The schedules of `testkit` run the product itself, but every access there is seen by all threads at once, as on no processor. Here it is the other way round: what
//! runs is a restatement of a few lines, but loads may return any value that the orderings permit. What ties a model to the product is only
//! that its steps carry the names and the orderings of the functions that it names at its head: whoever changes those changes the model, too.
//!
//! Each model takes its orderings as a value, and its tests run it with those of the product, which must hold, and with each one that matters weakened, which
//! loom must reject: a model that cannot fail proves nothing.
//!
//! Loom treats a sequentially consistent *access* as an acquiring and releasing one, so where the product relies on those, the model has fences instead.
#![forbid(unsafe_code)]

#[cfg(test)]
mod bucket;
#[cfg(test)]
mod epoch;
#[cfg(test)]
mod lock;
#[cfg(test)]
mod shadow;
#[cfg(test)]
mod slab;

#[cfg(test)]
mod check {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Runs `model` in all orders with at most `switches` involuntary changes of thread.
    fn run(switches: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(switches);
        builder.check(model);
    }

    /// The model holds with the product's orderings.
    pub(crate) fn holds<O: Copy + Send + Sync + 'static>(orders: O, switches: usize, model: fn(O)) {
        run(switches, move || model(orders));
    }

    /// Loom finds an order in which the model does not hold.
    pub(crate) fn breaks<O: Copy + Send + Sync + 'static>(
        what: &str,
        orders: O,
        switches: usize,
        model: fn(O),
    ) {
        let outcome = catch_unwind(AssertUnwindSafe(move || run(switches, move || model(orders))));
        assert!(outcome.is_err(), "{what}: the model holds all the same, so it proves nothing about it");
    }
}
