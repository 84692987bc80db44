//! What a timer may still call, and how much it still owes: what decides what the garbage collector sees (border rule 8).
//!
//! The GIL guards all of it. `docs/concurrency.md` has the rules, under "What the garbage collector sees".

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use super::gil::GilCell;
use super::worker::Target;

/// What a timer may still call, and the counts by which the collector is shown it.
#[derive(Default)]
pub(super) struct Callees {
    on_error: OnError,
    target: GilCell<Target>,
    has_loop: bool,
    uses: GilCell<Uses>,
    /// The `Timer` object is gone.
    is_unheld: GilCell<bool>,
}

/// What may still call something for a timer.
#[derive(Default, Clone, Copy)]
pub(super) struct Uses {
    /// Entries that were added and have neither been taken out nor run to their end.
    pub(super) owed: usize,
    /// Threads that use the timer without the GIL.
    pub(super) outside: usize,
}

/// A thread may use the timer without the GIL while this lives. Made and dropped with the GIL held.
pub(super) struct Outside<'a, 'py> {
    callees: &'a Callees,
    py: Python<'py>,
}

impl Callees {
    pub(super) fn new(on_error: Option<&Bound<'_, PyAny>>, target: Target) -> Self {
        let has_loop = target.is_loop();
        Self { on_error: OnError::new(on_error), target: GilCell::new(target), has_loop, ..Self::default() }
    }

    /// As [`OnError::get`].
    pub(super) fn on_error<'py>(&self, py: Python<'py>, is_hidden: bool) -> Option<Bound<'py, PyAny>> {
        self.on_error.get(py, is_hidden)
    }

    /// Where callbacks run; once the timer has let go of its executor, nothing is left to run.
    pub(super) fn target(&self, py: Python<'_>) -> Target {
        self.target.with(py, |target| target.clone_ref(py))
    }

    /// Whether callbacks run in a loop. It does not change.
    #[inline]
    pub(super) fn has_loop(&self) -> bool {
        self.has_loop
    }

    /// The loop that callbacks run in.
    pub(super) fn event_loop<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.target
            .with(py, |target| target.event_loop().map(|event_loop| event_loop.clone_ref(py)))
            .map(|event_loop| event_loop.into_bound(py))
    }

    /// So many entries were added.
    #[inline]
    pub(super) fn owe(&self, py: Python<'_>, count: usize) {
        self.uses.with(py, |uses| uses.owed += count);
    }

    /// So many entries have been taken out, or have run to their end, and the timer calls nothing for them any more.
    /// May run destructors: no native lock may be held.
    #[inline]
    pub(super) fn settle(&self, py: Python<'_>, count: usize) {
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
    pub(super) fn unhold(&self, py: Python<'_>) {
        self.is_unheld.with(py, |is_unheld| *is_unheld = true);
        if self.uses(py).owed == 0 {
            self.let_go(py);
        }
    }

    /// Lets go of what it calls. May run destructors.
    pub(super) fn let_go(&self, py: Python<'_>) {
        let target = self.target.with(py, std::mem::take);
        self.on_error.let_go(py);
        drop(target);
    }

    /// This thread is about to use the timer without the GIL.
    #[must_use]
    pub(super) fn enter_outside<'py>(&self, py: Python<'py>) -> Outside<'_, 'py> {
        self.uses.with(py, |uses| uses.outside += 1);
        Outside { callees: self, py }
    }

    pub(super) fn uses(&self, py: Python<'_>) -> Uses {
        self.uses.with(py, |uses| *uses)
    }

    /// As [`Callees::uses`], for the collector.
    pub(super) fn uses_seen(&self, visit: &PyVisit<'_>) -> Uses {
        self.uses.visit(visit, |uses| *uses)
    }

    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.on_error.visit(visit)?;
        self.target.visit(visit, |target| visit.call(target.object()))
    }
}

/// What `on_error` was set to.
#[derive(Default)]
pub(super) struct OnError(GilCell<Option<Callee>>);

/// Something that the user gave to be called.
pub(super) struct Callee {
    object: Py<PyAny>,
    /// A weak reference to it. The collector takes it away before it clears the object, and a function that was cleared
    /// crashes when it is called: a destructor in the middle of a collection can bring that about.
    watch: Option<Py<PyWeakrefReference>>,
}

impl Callee {
    fn new(object: &Bound<'_, PyAny>) -> Self {
        // What takes no weak reference is an object of the user's own class: cleared, it raises.
        let watch = PyWeakrefReference::new(object).ok().map(Bound::unbind);
        Self { object: object.clone().unbind(), watch }
    }

    /// Runs no Python code.
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        let watch = self.watch.as_ref().map(|watch| watch.clone_ref(py));
        Self { object: self.object.clone_ref(py), watch }
    }

    /// What to call; `None` if the collector is about to clear it.
    pub(super) fn whole(self, py: Python<'_>) -> Option<Bound<'_, PyAny>> {
        let is_whole = self.watch.is_none_or(|watch| watch.bind(py).upgrade().is_some());
        is_whole.then(|| self.object.into_bound(py))
    }

    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)
    }
}

impl OnError {
    pub(super) fn new(on_error: Option<&Bound<'_, PyAny>>) -> Self {
        Self(GilCell::new(on_error.map(Callee::new)))
    }

    /// Runs no Python code.
    pub(super) fn callee(&self, py: Python<'_>) -> Option<Callee> {
        self.0.with(py, |callee| Some(callee.as_ref()?.clone_ref(py)))
    }

    /// What to call; `None` also if the collector is about to clear it. What is hidden from the collector now is not cleared,
    /// although its weak references may be gone: a destructor may have brought the timer back.
    fn get<'py>(&self, py: Python<'py>, is_hidden: bool) -> Option<Bound<'py, PyAny>> {
        let callee = self.callee(py)?;
        if is_hidden { Some(callee.object.into_bound(py)) } else { callee.whole(py) }
    }

    /// May run destructors.
    pub(super) fn let_go(&self, py: Python<'_>) {
        let callee = self.0.with(py, Option::take);
        drop(callee);
    }

    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.visit(visit, |callee| callee.as_ref().map_or(Ok(()), |callee| callee.visit(visit)))
    }
}

impl Drop for Outside<'_, '_> {
    fn drop(&mut self) {
        self.callees.uses.with(self.py, |uses| uses.outside -= 1);
    }
}
