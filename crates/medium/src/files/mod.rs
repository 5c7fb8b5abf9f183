//! Files: what an engine may ask of a file system, as a trait, so that a test can replace it.

mod direct;
mod layer;
mod mapped;
mod publish;
mod ring;
mod system;

pub use layer::{DIRECT_BLOCK, FileLock, Files, Purpose, Replace, StoredFile, directory_of};
pub use mapped::mapped_at;
pub use publish::{Appender, Unpublished};
pub use ring::{AlignedBytes, Done, Ring};
pub use system::{SystemFile, SystemFiles, SystemLock};
