//! Admits one thread at a time: the thread that shuts a timer down. Ctrl-C or a time-out ends the wait of the others.
//!
//! It knows the thread that is inside. A signal handler or a destructor may call `shutdown` during a shutdown of the
//! same thread, and would wait for itself.

use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::tools::fork::fork_epoch;
use crate::tools::native_lock::{self, SIGNAL_CHECK_US};
use tickwheel::internal::sync::{PlainCondvar, PlainMutex};

#[derive(Default)]
pub(crate) struct Turnstile {
    inside: PlainMutex<Option<ThreadId>>,
    freed: PlainCondvar,
}

/// What a thread finds when it tries to enter.
pub(crate) enum Entry<'a> {
    /// It is inside, until this is dropped.
    Entered(#[expect(dead_code, reason = "held")] Pass<'a>),
    /// The same thread was inside already.
    SameThread,
    /// Another thread is inside.
    OtherThread,
}

pub(crate) struct Pass<'a> {
    gate: &'a Turnstile,
    epoch: u32,
}

impl Turnstile {
    pub(crate) fn try_enter(&self, py: Python<'_>) -> Entry<'_> {
        let this = thread::current().id();
        let mut inside = native_lock::lock_plain(py, &self.inside);
        match *inside {
            Some(thread) if thread == this => Entry::SameThread,
            Some(_) => Entry::OtherThread,
            None => {
                *inside = Some(this);
                Entry::Entered(Pass { gate: self, epoch: fork_epoch() })
            }
        }
    }

    /// Waits without the GIL, at the longest until `until`. It calls `wakes` now and then; an error of that ends the
    /// wait.
    pub(crate) fn enter(
        &self,
        py: Python<'_>,
        until: Option<Instant>,
        wakes: impl Fn() -> PyResult<()>,
    ) -> PyResult<Entry<'_>> {
        loop {
            let entry = self.try_enter(py);
            let now = Instant::now();
            if !matches!(entry, Entry::OtherThread) || until.is_some_and(|until| until <= now) {
                return Ok(entry);
            }
            let slice_end = now + Duration::from_micros(SIGNAL_CHECK_US);
            py.detach(|| {
                let inside = self.inside.lock();
                if inside.is_some() {
                    drop(self.freed.wait_until(inside, until.map_or(slice_end, |until| until.min(slice_end))));
                }
            });
            wakes()?;
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.epoch != fork_epoch() {
            return; // a signal handler forked, and this is the child: the lock may be held by a thread that does not exist here
        }
        native_lock::attach(|py| *native_lock::lock_plain(py, &self.gate.inside) = None);
        self.gate.freed.notify_all();
    }
}
