//! One at a time, with a wait that Ctrl-C ends: who shuts a timer down.

use std::time::{Duration, Instant};

use pyo3::prelude::*;

use super::border;
use crate::sync::{PlainCondvar, PlainMutex};

/// How long a wait goes on before it looks whether Ctrl-C was pressed.
const SLICE: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Gate {
    is_taken: PlainMutex<bool>,
    freed: PlainCondvar,
}

/// Inside the gate, until it is dropped.
pub(super) struct Pass<'a>(&'a Gate);

impl Gate {
    pub(super) fn try_enter(&self, py: Python<'_>) -> Option<Pass<'_>> {
        let mut is_taken = border::lock_plain(py, &self.is_taken);
        let is_free = !std::mem::replace(&mut *is_taken, true);
        drop(is_taken);
        is_free.then(|| Pass(self))
    }

    /// Waits detached. Errors: what a signal handler raises.
    pub(super) fn enter(&self, py: Python<'_>) -> PyResult<Pass<'_>> {
        loop {
            if let Some(pass) = self.try_enter(py) {
                return Ok(pass);
            }
            py.detach(|| {
                let is_taken = self.is_taken.lock();
                if *is_taken {
                    drop(self.freed.wait(is_taken, Instant::now() + SLICE));
                }
            });
            py.check_signals()?;
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        border::attach(|py| *border::lock_plain(py, &self.0.is_taken) = false);
        self.0.freed.notify_all();
    }
}
