//! What a timer may still call, and how much it still owes: what decides what the garbage collector sees (border rule 8).
//!
//! The GIL guards all of it. `docs/concurrency.md` has the rules, under "What the garbage collector sees".

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::python::tools::gil_cell::GilCell;
use crate::python::values::callback_target::CallbackTarget;
use crate::python::values::on_error::OnError;

/// What a timer may still call, and the counts by which the collector is shown it.
#[derive(Default)]
pub(crate) struct Callees {
    on_error: OnError,
    target: GilCell<CallbackTarget>,
    has_loop: bool,
    uses: GilCell<Uses>,
    /// The `Timer` object is gone.
    is_unheld: GilCell<bool>,
}

/// What may still call something for a timer.
#[derive(Default, Clone, Copy)]
pub(crate) struct Uses {
    /// Entries that were added and have neither been taken out nor run to their end.
    pub(crate) owed: usize,
    /// Threads that use the timer without the GIL.
    pub(crate) outside: usize,
}

/// A thread may use the timer without the GIL while this lives. Made and dropped with the GIL held.
pub(crate) struct Outside<'a, 'py> {
    callees: &'a Callees,
    py: Python<'py>,
}

impl Callees {
    pub(crate) fn new(on_error: Option<&Bound<'_, PyAny>>, target: CallbackTarget) -> Self {
        let has_loop = target.is_loop();
        Self { on_error: OnError::new(on_error), target: GilCell::new(target), has_loop, ..Self::default() }
    }

    /// As [`OnError::get`].
    pub(crate) fn on_error<'py>(&self, py: Python<'py>, is_hidden: bool) -> Option<Bound<'py, PyAny>> {
        self.on_error.get(py, is_hidden)
    }

    /// Where callbacks run; once the timer has let go of its executor, nothing is left to run.
    pub(crate) fn target(&self, py: Python<'_>) -> CallbackTarget {
        self.target.with(py, |target| target.clone_ref(py))
    }

    /// Whether callbacks run in a loop. It does not change.
    #[inline]
    pub(crate) fn has_loop(&self) -> bool {
        self.has_loop
    }

    /// The loop that callbacks run in.
    pub(crate) fn event_loop<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.target
            .with(py, |target| target.event_loop().map(|event_loop| event_loop.clone_ref(py)))
            .map(|event_loop| event_loop.into_bound(py))
    }

    /// So many entries were added.
    #[inline]
    pub(crate) fn owe(&self, py: Python<'_>, count: usize) {
        self.uses.with(py, |uses| uses.owed += count);
    }

    /// So many entries have been taken out, or have run to their end, and the timer calls nothing for them any more.
    /// May run destructors: no native lock may be held.
    #[inline]
    pub(crate) fn settle(&self, py: Python<'_>, count: usize) {
        let owed = self.uses.with(py, |uses| {
            debug_assert!(uses.owed >= count, "more was settled than owed");
            uses.owed -= count;
            uses.owed
        });
        if owed == 0 && count > 0 && self.is_unheld.with(py, |is_unheld| *is_unheld) {
            self.let_go(py);
        }
    }

    /// The `Timer` object is gone: with the last entry the timer lets go of what it calls, as no object shows it any more.
    pub(crate) fn unhold(&self, py: Python<'_>) {
        self.on_error.owner_is_gone(py);
        self.is_unheld.with(py, |is_unheld| *is_unheld = true);
        if self.uses(py).owed == 0 {
            self.let_go(py);
        }
    }

    /// The collector clears the `Timer` object.
    pub(crate) fn clear(&self, py: Python<'_>, lets_go: bool) {
        self.on_error.owner_is_gone(py);
        if lets_go {
            self.let_go(py);
        }
    }

    /// Lets go of what it calls. May run destructors.
    fn let_go(&self, py: Python<'_>) {
        let target = self.target.with(py, std::mem::take);
        self.on_error.let_go(py);
        drop(target);
    }

    /// This thread is about to use the timer without the GIL.
    #[must_use]
    pub(crate) fn enter_outside<'py>(&self, py: Python<'py>) -> Outside<'_, 'py> {
        self.uses.with(py, |uses| uses.outside += 1);
        Outside { callees: self, py }
    }

    pub(crate) fn uses(&self, py: Python<'_>) -> Uses {
        self.uses.with(py, |uses| *uses)
    }

    /// As [`Callees::uses`], for the collector.
    pub(crate) fn uses_seen(&self, visit: &PyVisit<'_>) -> Uses {
        self.uses.visit(visit, |uses| *uses)
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.on_error.visit(visit)?;
        self.target.visit(visit, |target| visit.call(target.object()))
    }
}

impl Drop for Outside<'_, '_> {
    fn drop(&mut self) {
        self.callees.uses.with(self.py, |uses| uses.outside -= 1);
    }
}
