//! Reclamation: when a retired block may be used again.
//!
//! Reading order: `slots` (what each thread owns), `epoch` (which threads may reach which blocks),
//! `barrier` (what makes a pin cheap), `limbo` (where retired blocks wait).

pub(crate) mod barrier;
pub(crate) mod epoch;
pub(crate) mod last_slot;
pub(crate) mod lifecycle;
pub(crate) mod limbo;
pub(crate) mod shortage;
pub(crate) mod slots;
