//! The parts of a Python purgatory besides the protocol: name, timer, keys.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::core::timer_core::TimerCore;
use crate::core::timer_ref::TimerRef;
use crate::tools::fork::ProcessOwned;
use crate::values::keys::KeyTable;

/// The parts of a Python purgatory besides the protocol.
pub(crate) struct PurgatorySetup {
    pub(crate) name: String,
    pub(crate) core: ProcessOwned<TimerCore>,
    pub(crate) timer_ref: Py<TimerRef>,
    pub(crate) timer_enabled: bool,
    pub(crate) keys: Arc<KeyTable>,
}
