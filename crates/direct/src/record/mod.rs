//! Records and the block that counts them: `format`, `view`, `key`, `layout`, `counters`, `stage`.

pub(crate) mod counters;
pub(crate) mod format;
pub(crate) mod key;
pub(crate) mod layout;
pub(crate) mod stage;
pub(crate) mod view;
