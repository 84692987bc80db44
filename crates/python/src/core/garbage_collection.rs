//! What the garbage collector sees of a timer (border rule 8). `docs/internals/concurrency-proofs.md` has the rules.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::core::callees::UseCounts;
use crate::core::timer_core::{Driver, TaskRef, TimerCore};
use tickwheel::internal::State;
use tickwheel::internal::sync::MutexGuard;

impl TimerCore {
    /// Returns the timer's lock if every open entry is pending in the timer, so that only a call of the timer can
    /// change anything. The answer stays the same throughout a collection; `docs/internals/concurrency-proofs.md` says why.
    fn idle_state(&self, uses: UseCounts) -> Option<MutexGuard<'_, State<TaskRef>>> {
        if self.hides_pending() || self.is_forked() || uses.detached_uses > 0 {
            return None;
        }
        let state = self.timer.try_lock()?;
        let pending = match self.driver {
            // There is no worker: released tasks wait for the next call.
            Driver::Manual => state.schedule.slab.len(),
            _ => state.schedule.len(),
        };
        (pending == uses.open_entries).then_some(state)
    }

    /// Shows the garbage collector the objects of the timer that only calls of the timer can use.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let uses = self.callees.use_counts_for_collector(visit);
        if uses.open_entries == 0 {
            return self.callees.visit(visit);
        }
        let Some(state) = self.idle_state(uses) else { return Ok(()) };
        self.callees.visit(visit)?;
        // Each entry is a reference of its own; entries of one batch are references to the same batch.
        let pages = (0..).map_while(|page| state.schedule.page(page));
        pages.flatten().try_for_each(|(_, _, task)| visit.call(task))
    }

    /// The collector clears the `Timer` object. It may do so while entries are open: then the timer keeps what the
    /// collector did not see.
    pub(crate) fn clear(&self, py: Python<'_>) {
        let uses = self.callees.use_counts(py);
        let drops_callees = uses.open_entries == 0 || self.idle_state(uses).is_some();
        self.callees.clear(py, drops_callees);
    }
}
