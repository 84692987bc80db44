//! Whether this process may use the engine's SQLite. It may not if it was forked while another thread could be inside
//! SQLite.
//!
//! SQLite has its own locks, also in its memory allocator. If a thread of the parent holds a lock at the fork, the
//! child inherits the locked lock, and would wait for ever, whatever store it uses. So such a child is refused. This is
//! border rule 7 of the timers, for a library without a hook for forks. If a process had no open store at the fork, no
//! lock is held.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use pyo3::prelude::*;

use crate::delivery::calls::failures;
use crate::tools::fork::fork_epoch;

/// How many stores are open, in the process with this [`fork_epoch`]. In a child both are as they were at the fork.
static OPEN: AtomicUsize = AtomicUsize::new(0);
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// A store that is open or being read. It is dropped after SQLite has closed the store.
pub(crate) struct SqliteInUse {
    epoch: u32,
}

impl SqliteInUse {
    /// Errors: `WrongUsage` in a child, if a store was open at the fork.
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
