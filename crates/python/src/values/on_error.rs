//! The `on_error` of a timer or a purgatory, and whether it may still be called (border rule 8).
//!
//! The collector clears a garbage function before it frees the function. A call of a cleared function crashes.
//! `docs/internals/concurrency-proofs.md` says how this is avoided, under "What the garbage collector sees".

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyWeakrefMethods, PyWeakrefReference};

use crate::tools::gil_cell::GilCell;

#[derive(Default)]
pub(crate) struct OnError {
    callee: GilCell<Option<Callee>>,
    /// The object that shows `on_error` to the collector was cleared or freed. `on_error` may have been cleared with
    /// it.
    is_owner_gone: GilCell<bool>,
}

/// An object that the user passed to be called.
pub(crate) struct Callee {
    object: Py<PyAny>,
    /// The collector clears this weak reference before it clears the object.
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

    /// The object to call; `None` if the collector is about to clear it.
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

    /// Another reference, to be called even after this one was dropped. Runs no Python code.
    pub(crate) fn callee(&self, py: Python<'_>) -> Option<Callee> {
        self.callee.with(py, |callee| Some(callee.as_ref()?.clone_ref(py)))
    }

    /// The object to call; `None` if the collector may have cleared it or is about to. `is_hidden`: the collector does
    /// not see it now, so it is not cleared. Its weak references may be dead all the same, because a destructor has
    /// resurrected the timer.
    pub(crate) fn get<'py>(&self, py: Python<'py>, is_hidden: bool) -> Option<Bound<'py, PyAny>> {
        let callee = self.callee(py)?;
        let is_intact = is_hidden || callee.is_intact(py) || self.was_resurrected(callee.object.bind(py));
        is_intact.then(|| callee.object.into_bound(py))
    }

    /// The object that shows it to the collector was cleared, or is about to be freed.
    pub(crate) fn owner_is_gone(&self, py: Python<'_>) {
        self.is_owner_gone.with(py, |is_owner_gone| *is_owner_gone = true);
    }

    /// Whether a destructor has resurrected the object. Its weak references are dead, but no collection is running. If one
    /// had cleared the object, the same collection would have cleared its owner too, and the owner is intact. The object
    /// then gets a new weak reference.
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

/// An object without weak references is of a class of the user: when it was cleared, a call of it raises an exception.
fn weak_ref_to(on_error: &Bound<'_, PyAny>) -> Option<Py<PyWeakrefReference>> {
    PyWeakrefReference::new(on_error).ok().map(Bound::unbind)
}

/// Whether the collector is running, in any thread. It starts no collection inside another, and calls `gc.callbacks`
/// when it starts one. So this asks for the smallest collection.
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

/// Notes that a collection has started.
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
