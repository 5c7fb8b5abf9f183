//! Mutants that do not count, and why: with some the program does what it promises, others take away what no accident of the lab's needs.

use std::panic::Location;
use terrace_testkit::crash::{Fault, Kind};

/// Mutants of one place that do not count.
struct Excused {
    /// The end of the file's path.
    file: &'static str,
    /// The line.
    code: &'static str,
    kinds: &'static [Kind],
    because: &'static str,
}

const NOTES: &str = "not tried: a note of a lock is made durable for the death of a host that takes its cache along, and no participant of the lab's does; what it costs is counted in engine/tests/costs.rs";

const ALL: [Excused; 5] = [
    Excused {
        file: "pool/src/pages.rs",
        code: "self.region.write_back(hint);",
        kinds: &[Kind::NoWriteBack, Kind::LateWriteBack],
        because: "equivalent: a search begins where the hint says and goes on around to there again, so it finds the same whatever a crash leaves of the hint: \
                  only the time of the first search after it depends on that",
    },
    Excused {
        file: "pool/src/slabs.rs",
        code: "self.region.write_back(reserve);",
        kinds: &[Kind::LateWriteBack],
        because: "equivalent: the reserve is set aside when a pool is made, before all fences of its superblock but the first, \
                  so it is durable before the making returns; and a pool that has no reserve takes one at the next collection",
    },
    Excused {
        file: "pool/src/notes.rs",
        code: "pool.region.write_back(&seat.notes[number as usize]);",
        kinds: &[Kind::NoWriteBack, Kind::LateWriteBack],
        because: NOTES,
    },
    Excused {
        file: "pool/src/notes.rs",
        code: "pool.region.write_back(&seat.noted);",
        kinds: &[Kind::NoWriteBack, Kind::LateWriteBack],
        because: NOTES,
    },
    Excused {
        file: "pool/src/notes.rs",
        code: "pool.region.fence();",
        kinds: &[Kind::NoFence, Kind::LateFence],
        because: NOTES,
    },
];

/// Why a mutant does not count; nothing if it does.
pub(super) fn why_excused(fault: Fault) -> Option<&'static str> {
    let is_it = |one: &&Excused| {
        fault.site.file().ends_with(one.file)
            && one.kinds.contains(&fault.kind)
            && line(fault.site).is_some_and(|line| line == one.code)
    };
    ALL.iter().find(is_it).map(|one| one.because)
}

/// The line of the source, if this is run at the root of the project.
fn line(site: &Location<'_>) -> Option<String> {
    let text = std::fs::read_to_string(site.file()).ok()?;
    text.lines().nth(site.line() as usize - 1).map(|line| line.trim().to_string())
}
