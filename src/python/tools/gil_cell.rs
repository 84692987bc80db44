//! What the GIL guards, and what the garbage collector is told of.
//!
//! Unsafe code; the crate's other is in `arrow.rs`, `arrow_stream.rs`, `coroutine_functions.rs` and `fork.rs`. Why it is needed:
//! a lock inside every task costs eight bytes and, at each of some four looks at it, as much as the timer's own lock; and
//! pyo3 has no safe way to take an object off the collector's lists. Why it is sound is said at each of the three places.
#![expect(unsafe_code, reason = "the GIL is the lock, and the collector's lists are C")]

use std::cell::Cell;

use pyo3::gc::PyVisit;
use pyo3::prelude::*;

#[cfg(Py_GIL_DISABLED)]
compile_error!("GilCell takes the GIL for a lock: this interpreter has none, use one that has");

/// A value that the GIL guards: state of a Python object, touched only in short stretches in which the GIL is not let go
/// and no Python code runs.
#[derive(Default)]
pub(crate) struct GilCell<T>(Cell<T>);

// SAFETY: a `Cell` is not to be reached by two threads at once. Every method asks for proof that this thread holds the GIL,
// as only one can, and moves the value in or out in one go, without letting the GIL go. Nothing ever points inside, so even
// an `f` that let the GIL go, or called back, would find a default value and do no worse.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T: Default> GilCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Cell::new(value))
    }

    /// Runs `f` on the value. `f` must neither run Python code nor drop a Python object: move it out instead.
    #[inline]
    pub(crate) fn with<R>(&self, _py: Python<'_>, f: impl FnOnce(&mut T) -> R) -> R {
        self.lend(f)
    }

    /// For a destructor: nothing else refers to it.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// For the garbage collector, which calls with the GIL held, and gives no token.
    pub(crate) fn visit<R>(&self, _visit: &PyVisit<'_>, f: impl FnOnce(&T) -> R) -> R {
        self.lend(|value| f(value))
    }

    #[inline]
    fn lend<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.0.take();
        let result = f(&mut value);
        // What stood in for it is a default value, of which there is nothing to drop.
        std::mem::forget(self.0.replace(value));
        result
    }
}

/// Takes an object off the garbage collector's lists: what it refers to is alive as long as it is. An object that is not
/// tracked is skipped by every collection, which makes an add of a task several times as fast with a million pending.
pub(crate) fn untrack<T>(object: &Bound<'_, T>) {
    // SAFETY: the object is alive, and of a class with the collector's header, as every class of pyo3 is. To untrack what
    // is not tracked does nothing.
    unsafe { pyo3::ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) };
}

/// Puts an object back on the garbage collector's lists.
pub(crate) fn track<T>(object: &Bound<'_, T>) {
    // SAFETY: as above; what is tracked already must not be tracked again, hence the question. Its fields are valid, as
    // the collector may visit them from now on.
    unsafe {
        if pyo3::ffi::PyObject_GC_IsTracked(object.as_ptr()) == 0 {
            pyo3::ffi::PyObject_GC_Track(object.as_ptr().cast());
        }
    }
}
