//! What `on_error` was set to, and whether it may still be called (border rule 8).
//!
//! The collector clears a function of its garbage before it frees it, and a function that was cleared crashes when it is
//! called. `docs/concurrency.md` says how such a call is avoided, under "What the garbage collector sees".

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyWeakrefMethods, PyWeakrefReference};

use crate::python::tools::gil_cell::GilCell;

#[derive(Default)]
pub(crate) struct OnError {
    callee: GilCell<Option<Callee>>,
    /// The object that shows it to the collector was cleared, or is gone: it may have been cleared with that object.
    is_owner_gone: GilCell<bool>,
}

/// Something that the user gave to be called.
pub(crate) struct Callee {
    object: Py<PyAny>,
    /// A weak reference to it. The collector takes it away before it clears the object.
    weak_ref: Option<Py<PyWeakrefReference>>,
}

impl Callee {
    fn new(object: &Bound<'_, PyAny>) -> Self {
        Self { object: object.clone().unbind(), weak_ref: weak_ref_to(object) }
    }

    /// Runs no Python code.
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        let weak_ref = self.weak_ref.as_ref().map(|weak_ref| weak_ref.clone_ref(py));
        Self { object: self.object.clone_ref(py), weak_ref }
    }

    /// What to call; `None` if the collector is about to clear it.
    pub(crate) fn if_intact(self, py: Python<'_>) -> Option<Bound<'_, PyAny>> {
        self.is_intact(py).then(|| self.object.into_bound(py))
    }

    fn is_intact(&self, py: Python<'_>) -> bool {
        self.weak_ref.as_ref().is_none_or(|weak_ref| weak_ref.bind(py).upgrade().is_some())
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)
    }
}

impl OnError {
    pub(crate) fn new(on_error: Option<&Bound<'_, PyAny>>) -> Self {
        Self { callee: GilCell::new(on_error.map(Callee::new)), is_owner_gone: GilCell::default() }
    }

    /// A reference to it, for what may be called after this has let go. Runs no Python code.
    pub(crate) fn callee(&self, py: Python<'_>) -> Option<Callee> {
        self.callee.with(py, |callee| Some(callee.as_ref()?.clone_ref(py)))
    }

    /// What to call; `None` also if the collector is about to clear it, or may have cleared it. What is hidden from the
    /// collector now is not cleared, although its weak references may be gone: a destructor may have brought the timer back.
    pub(crate) fn get<'py>(&self, py: Python<'py>, is_hidden: bool) -> Option<Bound<'py, PyAny>> {
        let callee = self.callee(py)?;
        let is_intact = is_hidden || callee.is_intact(py) || self.was_resurrected(callee.object.bind(py));
        is_intact.then(|| callee.object.into_bound(py))
    }

    /// The object that shows it to the collector was cleared, or is about to go.
    pub(crate) fn owner_is_gone(&self, py: Python<'_>) {
        self.is_owner_gone.with(py, |is_owner_gone| *is_owner_gone = true);
    }

    /// Whether a destructor has brought it back to life: its weak references are gone, yet no collection is under way that
    /// could clear it, and none has cleared the object that shows it, which is cleared in the same collection. Then it is
    /// watched anew.
    #[cold]
    fn was_resurrected(&self, object: &Bound<'_, PyAny>) -> bool {
        let py = object.py();
        let may_be_cleared = || self.is_owner_gone.with(py, |is_owner_gone| *is_owner_gone);
        if may_be_cleared() || is_collecting(py).unwrap_or(true) || may_be_cleared() {
            return false;
        }
        let new_ref = weak_ref_to(object);
        let old_ref = self.callee.with(py, |callee| Some(std::mem::replace(&mut callee.as_mut()?.weak_ref, new_ref)));
        drop(old_ref);
        true
    }

    /// May run destructors.
    pub(crate) fn drop_callee(&self, py: Python<'_>) {
        let callee = self.callee.with(py, Option::take);
        drop(callee);
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.callee.visit(visit, |callee| callee.as_ref().map_or(Ok(()), |callee| callee.visit(visit)))
    }
}

/// What takes no weak reference is an object of the user's own class: cleared, it raises.
fn weak_ref_to(on_error: &Bound<'_, PyAny>) -> Option<Py<PyWeakrefReference>> {
    PyWeakrefReference::new(on_error).ok().map(Bound::unbind)
}

/// Whether the collector is at work, in whatever thread. It begins no collection inside another, and tells of each that it
/// begins, so this asks for the smallest one.
fn is_collecting(py: Python<'_>) -> PyResult<bool> {
    let gc = py.import("gc")?;
    let callbacks = gc.getattr("callbacks")?;
    let witness = Bound::new(py, CollectionWitness::default())?;
    callbacks.call_method1("append", (&witness,))?;
    let collected = gc.call_method1("collect", (0,));
    callbacks.call_method1("remove", (&witness,))?;
    collected?;
    Ok(!witness.get().has_seen_one.with(py, |has_seen_one| *has_seen_one))
}

/// Hears of a collection.
#[pyclass(frozen, module = "tickwheel._native")]
#[derive(Default)]
pub(crate) struct CollectionWitness {
    has_seen_one: GilCell<bool>,
}

#[pymethods]
impl CollectionWitness {
    fn __call__(&self, py: Python<'_>, _phase: &Bound<'_, PyAny>, _info: &Bound<'_, PyAny>) {
        self.has_seen_one.with(py, |has_seen_one| *has_seen_one = true);
    }
}
