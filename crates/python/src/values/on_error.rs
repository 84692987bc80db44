//! The `on_error` of a timer, and whether it may still be called (border rule 8).
//!
//! The collector clears a garbage function before it frees the function. A call of a cleared function crashes.
//! `docs/internals/concurrency-proofs.md` says how this is avoided, under "What the garbage collector sees".

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyWeakrefMethods, PyWeakrefReference};

use crate::tools::gil_cell::GilCell;

#[derive(Default)]
pub(crate) struct OnError(GilCell<Option<Callee>>);

/// An object that the user passed to be called.
struct Callee {
    object: Py<PyAny>,
    /// The collector clears this weak reference before it clears the object.
    weak_ref: Option<Py<PyWeakrefReference>>,
}

impl Callee {
    fn new(object: &Bound<'_, PyAny>) -> Self {
        Self { object: object.clone().unbind(), weak_ref: weak_ref_to(object) }
    }

    /// Runs no Python code.
    fn clone_ref(&self, py: Python<'_>) -> Self {
        let weak_ref = self.weak_ref.as_ref().map(|weak_ref| weak_ref.clone_ref(py));
        Self { object: self.object.clone_ref(py), weak_ref }
    }

    fn is_intact(&self, py: Python<'_>) -> bool {
        self.weak_ref.as_ref().is_none_or(|weak_ref| weak_ref.bind(py).upgrade().is_some())
    }
}

impl OnError {
    pub(crate) fn new(on_error: Option<&Bound<'_, PyAny>>) -> Self {
        Self(GilCell::new(on_error.map(Callee::new)))
    }

    /// The object to call; `None` if the collector may have cleared it or is about to. `is_hidden`: the collector does
    /// not see it now, so it is not cleared, whatever its weak references say.
    pub(crate) fn get<'py>(&self, py: Python<'py>, is_hidden: bool) -> Option<Bound<'py, PyAny>> {
        let callee = self.0.with(py, |callee| callee.as_ref().map(|callee| callee.clone_ref(py)))?;
        (is_hidden || callee.is_intact(py)).then(|| callee.object.into_bound(py))
    }

    /// May run destructors.
    pub(crate) fn drop_callee(&self, py: Python<'_>) {
        let callee = self.0.with(py, Option::take);
        drop(callee);
    }

    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.visit(visit, |callee| callee.as_ref().map_or(Ok(()), |callee| visit.call(&callee.object)))
    }
}

/// An object without weak references is of a class of the user: when it was cleared, a call of it raises an exception.
fn weak_ref_to(on_error: &Bound<'_, PyAny>) -> Option<Py<PyWeakrefReference>> {
    PyWeakrefReference::new(on_error).ok().map(Bound::unbind)
}
