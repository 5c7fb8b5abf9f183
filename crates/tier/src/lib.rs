//! Files in a pool: what engines on files need, on memory that can be addressed byte by byte.
//!
//! [`PoolFiles`] is a [`Files`](terrace_medium::files::Files) whose names and bytes lie in a
//! [`Pool`](terrace_pool::Pool): on CXL or persistent memory, without a file system or a page cache
//! above it. Reading order: `words` (how a word shows that it is damaged), `inode` (the bytes of a
//! file), `names` (which files there are), `files`.
//!
//! A change of names is durable, whole or not at all, when its call returns. Bytes that make a file
//! longer are durable before its length, so a crash never shows what was not written. Bytes written
//! inside of a file become durable with the next sync.
#![forbid(unsafe_code)]

mod file;
mod files;
mod inode;
mod names;
mod record;
mod words;

pub use file::PoolFile;
pub use files::{PoolFiles, PoolLock};
