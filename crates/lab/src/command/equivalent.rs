//! Mutants that are no bugs: with them the program does what it promises, and why. They do not count.

use std::panic::Location;
use terrace_testkit::crash::{Fault, Kind};

/// A mutant and the proof that it is none.
struct Equivalent {
    /// The end of the file's path.
    file: &'static str,
    /// The line.
    code: &'static str,
    kinds: &'static [Kind],
    because: &'static str,
}

const ALL: [Equivalent; 2] = [
    Equivalent {
        file: "pool/src/pages.rs",
        code: "self.region.write_back(hint);",
        kinds: &[Kind::NoWriteBack, Kind::LateWriteBack],
        because: "a search begins where the hint says and goes on around to there again, so it finds the same whatever a crash leaves of the hint: \
                  only the time of the first search after it depends on that",
    },
    Equivalent {
        file: "pool/src/slabs.rs",
        code: "self.region.write_back(reserve);",
        kinds: &[Kind::LateWriteBack],
        because: "the reserve is set aside when a pool is made, before all fences of its superblock but the first, \
                  so it is durable before the making returns; and a pool that has no reserve takes one at the next collection",
    },
];

/// Why a mutant is none; nothing if it is one.
pub(super) fn why_equivalent(fault: Fault) -> Option<&'static str> {
    let is_it = |one: &&Equivalent| {
        fault.site.file().ends_with(one.file)
            && one.kinds.contains(&fault.kind)
            && line(fault.site).is_some_and(|line| line == one.code)
    };
    ALL.iter().find(is_it).map(|one| one.because)
}

/// The line of the source, if this is run at the root of the project.
pub(super) fn line(site: &Location<'_>) -> Option<String> {
    let text = std::fs::read_to_string(site.file()).ok()?;
    text.lines().nth(site.line() as usize - 1).map(|line| line.trim().to_string())
}
