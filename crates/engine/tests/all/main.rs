//! Tests of the engine, in one program, so that what they have in common is compiled once.

mod costs;
mod evict;
mod grown;
mod limits;
mod place;
mod remote;
mod rig;
mod room;
mod subject;
mod tiered;
mod tiered_damage;
mod tiered_order;
mod tiered_threads;
mod wip;
mod wip_changes;
mod wip_damage;
mod wip_descriptors;
mod wip_faults;
mod wip_interleaved;
mod wip_moments;
mod wip_script;
mod wip_space;
mod wip_split;
mod wip_states;
mod wip_syncs;
mod words;
