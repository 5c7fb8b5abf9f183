//! Checks of an open pool.

use crate::allocator::verify::Verifier;
use crate::format::finding::Finding;
use crate::format::superblock;
use crate::pool::Pool;
use crate::pool::inner::Inner;
use terrace_medium::MappedMedium;

impl<M: MappedMedium> Pool<M> {
    /// Checks the allocator: bitmaps, lists, counts, and how they agree. No thread may allocate or
    /// free meanwhile. An empty result means a sound pool.
    pub fn verify_memory(&self) -> Vec<Finding> {
        let mut findings = Verifier::new(self.0.heap()).run();
        if self.faults() != 0 && findings.is_empty() {
            let found = format!("{}", self.faults());
            findings.push(Finding::new(
                self.layout().allocator,
                "the count of invalid frees and damaged lists",
                "0",
                found,
            ));
        }
        findings
    }

    /// Checks the superblock and the root directory. (A damaged copy of the superblock was repaired
    /// if the pool was opened for writing.)
    pub fn verify_superblock_and_roots(&self) -> Vec<Finding> {
        let mut findings = self.0.verify_superblock();
        findings.extend(self.0.directory().verify());
        findings
    }
}

impl<M: MappedMedium> Inner<M> {
    /// Checks both copies of the superblock.
    fn verify_superblock(&self) -> Vec<Finding> {
        // The guard is held, so no update is running.
        let superblock = self.superblock();
        let verify = |copy: usize| {
            let finding = |found: String| {
                let expected = format!("update {} of pool {:032x}", superblock.sequence, superblock.uuid);
                let offset = copy as u64 * crate::format::layout::SUPERBLOCK_STEP;
                Finding::new(offset, "a copy of the superblock", expected, found)
            };
            match superblock::load_copy(&self.base().region, copy) {
                Ok(found) if found == *superblock => None,
                Ok(found) => Some(finding(format!("update {} of pool {:032x}", found.sequence, found.uuid))),
                Err(_) => Some(finding("no valid superblock".into())),
            }
        };
        [0, 1].into_iter().filter_map(verify).collect()
    }
}

#[cfg(test)]
#[path = "tests/check.rs"]
mod tests;
