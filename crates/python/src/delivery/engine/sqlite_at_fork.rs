//! Whether this process may use the engine's SQLite: not if it was forked while another thread could be inside it.
//!
//! SQLite has locks of its own, in its memory allocator too. A child that is forked while a thread of the parent holds one
//! inherits it locked, and would wait for ever, on whatever store. So such a child is refused; border rule 7 of the timers,
//! for a library that has no hook for forks. A process that had no store open at the fork has no such lock.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use pyo3::prelude::*;

use crate::delivery::calls::failures;
use crate::tools::fork::fork_epoch;

/// How many stores are open, in the process with this [`fork_epoch`]. In a child both are as they were at the fork.
static OPEN: AtomicUsize = AtomicUsize::new(0);
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// One store that is open, or read. Dropped when SQLite has closed it.
pub(crate) struct SqliteInUse {
    epoch: u32,
}

impl SqliteInUse {
    /// Errors: `WrongUsage` in a child that was forked while a store was open.
    pub(crate) fn begin(py: Python<'_>) -> PyResult<Self> {
        // The GIL is held throughout, so no other thread begins at the same time.
        let epoch = fork_epoch();
        if EPOCH.load(Ordering::Relaxed) != epoch {
            if OPEN.load(Ordering::Relaxed) > 0 {
                let text = "this process was forked while its parent had a queue or a store open, so SQLite can't be used \
                            in it: start processes with spawn or forkserver (multiprocessing.set_start_method), or fork \
                            before the first queue is opened";
                return Err(failures::wrong_usage(py, text));
            }
            EPOCH.store(epoch, Ordering::Relaxed);
        }
        OPEN.fetch_add(1, Ordering::Relaxed);
        Ok(Self { epoch })
    }
}

impl Drop for SqliteInUse {
    fn drop(&mut self) {
        if self.epoch == fork_epoch() {
            OPEN.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
