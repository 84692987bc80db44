//! Forks: which process a timer belongs to (T12, border rule 7).
//!
//! The C library calls a hook in the child of every `fork()`, before the call returns there. So a hook of
//! `os.register_at_fork` already sees the new count, and forks made by C code are counted too. `vfork`, and
//! `posix_spawn` which uses it, call no hook. They need none: their child only executes another program.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counts forks, in the child. A timer made before the last fork belongs to the parent.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The number of forks between the first process and this one.
pub(crate) fn fork_epoch() -> u32 {
    // Relaxed: it changes only in the child of a fork, which then has a single thread.
    FORKS.load(Ordering::Relaxed)
}

/// Counts a fork. Called in its child. It uses atomics only: any lock may be held by a thread that the child does not
/// have.
pub(crate) fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Makes the system call `in_child` in the child of every fork from now on. Called once, when the module is made.
/// `in_child` must use atomics only.
#[cfg(unix)]
#[expect(unsafe_code, reason = "a C function registers the hook")]
pub(crate) fn register_hook(in_child: extern "C" fn()) -> std::io::Result<()> {
    static ERROR: std::sync::OnceLock<i32> = std::sync::OnceLock::new();
    // A module may be made twice in one process; its forks must be counted once.
    let error = ERROR.get_or_init(|| {
        // SAFETY: `in_child` is a plain function with C's calling convention, takes nothing and cannot unwind. It stays
        // in memory as long as the process: Python never unloads an extension module. It uses atomics only (the
        // caller's promise), which is all that POSIX allows in the child of a process with threads.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) }
    });
    match *error {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error)),
    }
}

/// This system has no forks.
#[cfg(not(unix))]
pub(crate) fn register_hook(_in_child: extern "C" fn()) -> std::io::Result<()> {
    Ok(())
}

/// An object of one process.
pub(crate) trait BelongsToProcess {
    /// The [`fork_epoch`] in which it was made.
    fn epoch(&self) -> u32;
}

/// A reference to an object of one process. Dropped in a forked child, it is leaked.
#[derive(Debug)]
pub(crate) struct ProcessOwned<T: BelongsToProcess>(Option<Arc<T>>);

impl<T: BelongsToProcess> ProcessOwned<T> {
    pub(crate) fn new(object: Arc<T>) -> Self {
        Self(Some(object))
    }

    pub(crate) fn arc(&self) -> &Arc<T> {
        self.0.as_ref().expect("taken out only by its drop")
    }

    pub(crate) fn clone_arc(&self) -> Arc<T> {
        Arc::clone(self.arc())
    }
}

impl<T: BelongsToProcess> Deref for ProcessOwned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.arc()
    }
}

impl<T: BelongsToProcess> Drop for ProcessOwned<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(object) = self.0.take()
            && object.epoch() != fork_epoch()
        {
            std::mem::forget(object);
        }
    }
}
