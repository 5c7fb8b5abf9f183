//! What is wrong with a pool's metadata.

use crate::pool::Pool;
use crate::superblock;
use terrace_medium::MappedMedium;

/// Something in a pool that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where, in bytes from the start of the pool.
    pub offset: u64,
    /// What lies there.
    pub what: &'static str,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub found: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { offset, what, expected, found } = self;
        write!(f, "{offset:#x}: {what}: expected {expected}, found {found}")
    }
}

impl<M: MappedMedium> Pool<M> {
    /// What is wrong with the superblock and the root directory. (A copy of the superblock that was damaged when the pool was opened to
    /// be written is whole again since.)
    pub fn verify_head(&self) -> Vec<Finding> {
        let mut findings = self.verify_superblock();
        findings.extend(self.verify_roots());
        findings
    }

    fn verify_superblock(&self) -> Vec<Finding> {
        // Held, so that no update is under way.
        let superblock = self.0.superblock();
        let verify = |copy: usize| {
            let finding = |found: String| Finding {
                offset: copy as u64 * crate::layout::SUPERBLOCK_STEP,
                what: "a copy of the superblock",
                expected: format!("update {} of pool {:032x}", superblock.sequence, superblock.uuid),
                found,
            };
            match superblock::load_copy(self.region(), copy) {
                Ok(found) if found == *superblock => None,
                Ok(found) => Some(finding(format!("update {} of pool {:032x}", found.sequence, found.uuid))),
                Err(_) => Some(finding("no superblock".into())),
            }
        };
        [0, 1].into_iter().filter_map(verify).collect()
    }
}
