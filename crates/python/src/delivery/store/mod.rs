//! A store that no engine of this process has open: read, checked, compacted, backed up, restored.

pub(crate) mod maintenance;
pub(crate) mod snapshot;
