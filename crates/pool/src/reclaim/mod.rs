//! Reclamation: when a retired block may be used again.
//!
//! Two receivers, each on the one before: `epoch::Epochs` (which threads are pinned) on the heap,
//! and `limbo::Limbo` (retired blocks). Neither can recover a dead participant: what to do about a
//! lock that stays held is given to them, see `limbo::OnStuck`.
//!
//! Reading order: `epoch` (which threads may reach which blocks), `barrier` (what makes a pin
//! cheap), `slots` (what each thread owns) with `last_slot`, `limbo` (where retired blocks wait),
//! `shortage` (when memory is short), `lifecycle` (how all of it begins and ends).

pub(crate) mod barrier;
pub(crate) mod epoch;
pub(crate) mod last_slot;
pub(crate) mod lifecycle;
pub(crate) mod limbo;
pub(crate) mod shortage;
pub(crate) mod slots;
