//! The single-threaded targets, by name.

use crate::targets::{
    ArtBytes, ArtU64, BwTreeBytes, BwTreeU64, ClhtBytes, ClhtU64, DirectEngine, DiskEngine, Full, HotBytes,
    HotU64, LevelBytes, LevelU64, MasstreeBytes, MasstreeU64, PoolFile, RewoBytes, RewoU64, Roots,
    SpTreeBytes, SpTreeU64, TieredEngine, TurboBytes, TurboU64,
};
use std::collections::BTreeSet;
use terrace_testkit::crash::{Fault, Finding, Lab, Outcome, Plan, Profile, Target};

/// A target, independent of its type.
pub struct Suite {
    /// Its name.
    pub name: &'static str,
    /// The profiles that it passes under.
    pub profiles: &'static [Profile],
    plan: fn(u64) -> Plan,
    run: fn(&Lab<'_>, &Plan) -> Outcome,
    minimise: fn(&Lab<'_>, Box<Finding>, usize) -> Box<Finding>,
    faults: fn(&Lab<'_>, &Plan) -> [BTreeSet<Fault>; 2],
}

impl Suite {
    const fn of<T: Target>(profiles: &'static [Profile]) -> Self {
        Self {
            name: T::NAME,
            profiles,
            plan: T::plan,
            run: |lab, plan| lab.run::<T>(plan),
            minimise: |lab, finding, tries| lab.minimise::<T>(finding, tries),
            faults: |lab, plan| lab.faults::<T>(plan),
        }
    }

    /// The plan of the run with this seed.
    pub fn plan(&self, run: u64) -> Plan {
        (self.plan)(run)
    }
    /// See [`Lab::run`].
    pub fn run(&self, lab: &Lab<'_>, plan: &Plan) -> Outcome {
        (self.run)(lab, plan)
    }
    /// See [`Lab::minimise`].
    pub fn minimise(&self, lab: &Lab<'_>, finding: Box<Finding>, tries: usize) -> Box<Finding> {
        (self.minimise)(lab, finding, tries)
    }
    /// See [`Lab::faults`].
    pub fn faults(&self, lab: &Lab<'_>, plan: &Plan) -> [BTreeSet<Fault>; 2] {
        (self.faults)(lab, plan)
    }
}

const MEMORY: &[Profile] = &[Profile::Pmem, Profile::Shm, Profile::Eadr, Profile::Arm];
const MEMORY_AND_FILE: &[Profile] =
    &[Profile::Pmem, Profile::Shm, Profile::Eadr, Profile::Arm, Profile::File];

/// All targets. Their indices are part of the seeds of findings, so new ones are appended. Not a
/// constant, which each crate that names it would compile again.
pub static SUITES: [Suite; 24] = [
    Suite::of::<ClhtU64>(MEMORY),
    Suite::of::<ClhtBytes>(MEMORY),
    Suite::of::<Roots>(MEMORY_AND_FILE),
    Suite::of::<DirectEngine>(MEMORY_AND_FILE),
    Suite::of::<TurboU64>(MEMORY),
    Suite::of::<TurboBytes>(MEMORY),
    Suite::of::<RewoU64>(MEMORY),
    Suite::of::<RewoBytes>(MEMORY),
    Suite::of::<LevelU64>(MEMORY),
    Suite::of::<LevelBytes>(MEMORY),
    Suite::of::<Full>(MEMORY),
    Suite::of::<ArtU64>(MEMORY),
    Suite::of::<ArtBytes>(MEMORY),
    Suite::of::<PoolFile>(MEMORY_AND_FILE),
    Suite::of::<TieredEngine>(MEMORY_AND_FILE),
    // Its store is made for files, so two kinds of memory show what there is to find.
    Suite::of::<DiskEngine>(&[Profile::Pmem, Profile::Shm]),
    Suite::of::<HotU64>(MEMORY),
    Suite::of::<HotBytes>(MEMORY),
    Suite::of::<BwTreeU64>(MEMORY),
    Suite::of::<BwTreeBytes>(MEMORY),
    Suite::of::<MasstreeU64>(MEMORY),
    Suite::of::<MasstreeBytes>(MEMORY),
    Suite::of::<SpTreeU64>(MEMORY),
    Suite::of::<SpTreeBytes>(MEMORY),
];

/// The target with this name, and its index.
pub fn suite(name: &str) -> Option<(usize, &'static Suite)> {
    SUITES.iter().enumerate().find(|(_, suite)| suite.name == name)
}
