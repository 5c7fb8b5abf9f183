//! Files: what an engine may ask of a file system, so that a test can stand in for it.

mod layer;
mod publish;
mod system;

pub use layer::{Files, Purpose, Replace, StoredFile, directory_of};
pub use publish::{Appending, Unpublished};
pub use system::SystemFiles;
