//! Tests of the engines on files, in one program, so that what they share is compiled once.

mod damage;
mod expiring;
mod place;
mod rig;
mod subject;
mod tiered;
#[path = "../../../tiered/tests/common/tiny.rs"]
mod tiny;
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
