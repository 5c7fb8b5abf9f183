//! `math.random` and `math.randomseed`: the generator of POSIX's `lrand48`, as in Redis. Each run
//! begins elsewhere, and what a script seeds it with ends with its run.

use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
    rc::Rc,
};

use mlua::{Lua, MultiValue, Table, Value};

use crate::{fault, number::truncated};

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const BITS: u64 = (1 << 48) - 1;
/// One more than the largest number that is drawn.
const END: u64 = 0x7fff_ffff;

/// The generator of a state.
pub(crate) struct Random {
    state: Cell<u64>,
    /// Where runs begin: a number for each.
    keys: RandomState,
    runs: Cell<u64>,
}

impl Random {
    pub(crate) fn new() -> Random {
        Random { state: Cell::new(0), keys: RandomState::new(), runs: Cell::new(0) }
    }

    /// Begins a run.
    pub(crate) fn begin(&self) {
        self.runs.set(self.runs.get() + 1);
        self.state.set(self.keys.hash_one(self.runs.get()) & BITS);
    }

    fn seed(&self, seed: i64) {
        self.state.set((seed as u64 & 0xffff_ffff) << 16 | 0x330E);
    }

    /// A number of 31 bits.
    fn draw(&self) -> u64 {
        let next = self.state.get().wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & BITS;
        self.state.set(next);
        next >> 17
    }

    fn fraction(&self) -> f64 {
        (self.draw() % END) as f64 / END as f64
    }
}

/// Replaces the two functions in a table of `math`.
pub(crate) fn install(lua: &Lua, math: &Table, random: &Rc<Random>) -> mlua::Result<()> {
    let of = Rc::clone(random);
    let draw = lua.create_function(move |lua, args: MultiValue| {
        let r = of.fraction();
        let bounds: Vec<f64> =
            args.iter().enumerate().map(|(nth, arg)| bound(lua, nth, arg)).collect::<mlua::Result<_>>()?;
        match bounds[..] {
            [] => Ok(r),
            [most] if 1.0 <= most => Ok((r * most).floor() + 1.0),
            [least, most] if least <= most => Ok((r * (most - least + 1.0)).floor() + least),
            [_] | [_, _] => Err(fault::bad_argument(lua, bounds.len(), "random", "interval is empty")),
            _ => Err(fault::at_call(lua, "wrong number of arguments")),
        }
    })?;
    let of = Rc::clone(random);
    let seed = lua.create_function(move |lua, arg: Value| {
        of.seed(truncated(bound(lua, 0, &arg)?));
        Ok(())
    })?;
    math.raw_set("random", draw)?;
    math.raw_set("randomseed", seed)
}

fn bound(lua: &Lua, nth: usize, value: &Value) -> mlua::Result<f64> {
    let number = lua.coerce_number(value.clone())?;
    number.map(f64::floor).ok_or_else(|| fault::bad_argument(lua, nth + 1, "random", "number expected"))
}
