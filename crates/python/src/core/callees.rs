//! The objects that a timer may still call, and the counts that decide what the garbage collector sees of them (border
//! rule 8).
//!
//! The GIL guards all of it. `docs/internals/concurrency-proofs.md` has the rules, under "What the garbage collector sees".

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::tools::gil_cell::GilCell;
use crate::values::callback_target::CallbackTarget;
use crate::values::on_error::OnError;

/// The objects that a timer may still call: its `on_error` and its executor.
#[derive(Default)]
pub(crate) struct Callees {
    on_error: OnError,
    target: GilCell<CallbackTarget>,
    has_loop: bool,
    uses: GilCell<UseCounts>,
    /// The `Timer` object is gone.
    is_timer_object_gone: GilCell<bool>,
}

/// Counts of what may still make the timer call them.
#[derive(Default, Clone, Copy)]
pub(crate) struct UseCounts {
    /// Entries that were added and have neither been taken out nor run to their end.
    pub(crate) open_entries: usize,
    /// Sections without the GIL in which a thread uses the timer.
    pub(crate) detached_uses: usize,
}

/// A section in which a thread may use the timer without the GIL. Created and dropped with the GIL held.
pub(crate) struct DetachedUse<'a, 'py> {
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

    /// Where callbacks run. Once the timer has dropped its executor, nothing is left to run.
    pub(crate) fn target(&self, py: Python<'_>) -> CallbackTarget {
        self.target.with(py, |target| target.clone_ref(py))
    }

    /// Whether callbacks run in a loop. It does not change.
    #[inline]
    pub(crate) fn has_loop(&self) -> bool {
        self.has_loop
    }

    /// The loop in which callbacks run.
    pub(crate) fn event_loop<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.target
            .with(py, |target| target.event_loop().map(|event_loop| event_loop.clone_ref(py)))
            .map(|event_loop| event_loop.into_bound(py))
    }

    /// Counts entries that were added.
    #[inline]
    pub(crate) fn entries_added(&self, py: Python<'_>, count: usize) {
        self.uses.with(py, |uses| uses.open_entries += count);
    }

    /// Counts entries that were taken out or have run to their end: the timer calls nothing for them any more. May run
    /// destructors, so no native lock may be held.
    #[inline]
    pub(crate) fn entries_ended(&self, py: Python<'_>, count: usize) {
        let open_entries = self.uses.with(py, |uses| {
            debug_assert!(uses.open_entries >= count, "more entries ended than were added");
            uses.open_entries -= count;
            uses.open_entries
        });
        if open_entries == 0
            && count > 0
            && self.is_timer_object_gone.with(py, |is_timer_object_gone| *is_timer_object_gone)
        {
            self.drop_callees(py);
        }
    }

    /// The `Timer` object was freed, so no object shows the callees to the collector any more. The timer drops them
    /// with its last entry.
    pub(crate) fn timer_object_was_freed(&self, py: Python<'_>) {
        self.is_timer_object_gone.with(py, |is_timer_object_gone| *is_timer_object_gone = true);
        if self.use_counts(py).open_entries == 0 {
            self.drop_callees(py);
        }
    }

    /// The collector clears the `Timer` object.
    pub(crate) fn clear(&self, py: Python<'_>, drops_callees: bool) {
        if drops_callees {
            self.drop_callees(py);
        }
    }

    /// Drops the callees. May run destructors.
    fn drop_callees(&self, py: Python<'_>) {
        let target = self.target.with(py, std::mem::take);
        self.on_error.drop_callee(py);
        drop(target);
    }

    /// This thread is about to use the timer without the GIL.
    #[must_use]
    pub(crate) fn begin_detached_use<'py>(&self, py: Python<'py>) -> DetachedUse<'_, 'py> {
        self.uses.with(py, |uses| uses.detached_uses += 1);
        DetachedUse { callees: self, py }
    }

    pub(crate) fn use_counts(&self, py: Python<'_>) -> UseCounts {
        self.uses.with(py, |uses| *uses)
    }

    /// As [`Callees::use_counts`], for the collector.
    pub(crate) fn use_counts_for_collector(&self, visit: &PyVisit<'_>) -> UseCounts {
        self.uses.visit(visit, |uses| *uses)
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.on_error.visit(visit)?;
        self.target.visit(visit, |target| visit.call(target.object()))
    }
}

impl Drop for DetachedUse<'_, '_> {
    fn drop(&mut self) {
        self.callees.uses.with(self.py, |uses| uses.detached_uses -= 1);
    }
}
