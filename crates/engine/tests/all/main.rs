//! Tests of the engines on files, in one program, so that what they share is compiled once.

#[path = "../common/contents.rs"]
mod contents;
mod damage;
mod expiring;
mod faults;
mod moments;
mod place;
mod rig;
mod script;
#[path = "../../../wip/tests/common/small.rs"]
mod small;
mod states;
mod subject;
mod syncs;
mod tiered;
#[path = "../../../tiered/tests/common/tiny.rs"]
mod tiny;
mod wip;
mod wip_damage;
