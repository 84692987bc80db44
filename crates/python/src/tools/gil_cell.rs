//! State that the GIL guards, and objects that the garbage collector skips.
//!
//! Unsafe code, as in `arrow.rs`, `function_parts.rs` and `fork.rs`. It is needed because a
//! lock in every task would take eight bytes and, at each of about four accesses, cost as much as the timer's own lock;
//! and pyo3 has no safe way to take an object off the collector's lists. Each of the three places says why it is sound.
#![expect(unsafe_code, reason = "the GIL is the lock, and the collector's lists are C")]

use std::cell::Cell;

use pyo3::gc::PyVisit;
use pyo3::prelude::*;

#[cfg(Py_GIL_DISABLED)]
compile_error!("GilCell uses the GIL as its lock, and this interpreter has no GIL: use one with a GIL");

/// A value that the GIL guards: state of a Python object. It is accessed only in short sections that neither release
/// the GIL nor run Python code.
#[derive(Default)]
pub(crate) struct GilCell<T>(Cell<T>);

// SAFETY: two threads must not use a `Cell` at the same time. Every method asks for proof that this thread holds the
// GIL, as one thread at a time does. It moves the value out or in without a release of the GIL. Nothing ever points
// inside. So even an `f` that releases the GIL, or calls back, finds a default value, which is safe.
unsafe impl<T: Send> Sync for GilCell<T> {}

impl<T: Default> GilCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Cell::new(value))
    }

    /// Runs `f` on the value. `f` must neither run Python code nor drop a Python object: it moves the object out
    /// instead.
    #[inline]
    pub(crate) fn with<R>(&self, _py: Python<'_>, f: impl FnOnce(&mut T) -> R) -> R {
        self.lend(f)
    }

    /// For a destructor, which has the only reference.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// For the garbage collector, which holds the GIL but gives no token.
    pub(crate) fn visit<R>(&self, _visit: &PyVisit<'_>, f: impl FnOnce(&T) -> R) -> R {
        self.lend(|value| f(value))
    }

    #[inline]
    fn lend<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.0.take();
        let result = f(&mut value);
        // The value that stood in is a default, which has nothing to drop.
        std::mem::forget(self.0.replace(value));
        result
    }
}

/// Takes an object off the garbage collector's lists. Collections skip it, so what it refers to is alive as long as it
/// is. With a million tasks pending this makes an add several times as fast.
pub(crate) fn untrack<T>(object: &Bound<'_, T>) {
    // SAFETY: the object is alive, and its class has the collector's header, as every class of pyo3 has. Untracking an
    // object that is not tracked does nothing.
    unsafe { pyo3::ffi::PyObject_GC_UnTrack(object.as_ptr().cast()) };
}

/// Whether it is on the garbage collector's lists. For the collector.
pub(crate) fn is_tracked<T>(object: &Py<T>, _visit: &PyVisit<'_>) -> bool {
    // SAFETY: the object is alive, and the collector, which calls this, holds the GIL.
    unsafe { pyo3::ffi::PyObject_GC_IsTracked(object.as_ptr()) != 0 }
}

/// Whether nobody else refers to it. For the collector.
pub(crate) fn is_held_once<T>(object: &Py<T>, _visit: &PyVisit<'_>) -> bool {
    // SAFETY: as above.
    unsafe { pyo3::ffi::Py_REFCNT(object.as_ptr()) == 1 }
}

/// As [`track`], for an object that others refer to, too.
pub(crate) fn track_if_shared<T>(object: &Bound<'_, T>) {
    // SAFETY: the object is alive, and the GIL is held.
    if unsafe { pyo3::ffi::Py_REFCNT(object.as_ptr()) } > 1 {
        track(object);
    }
}

/// Puts an object back on the garbage collector's lists.
pub(crate) fn track<T>(object: &Bound<'_, T>) {
    // SAFETY: as above. A tracked object must not be tracked again, so it is checked first. Its fields are valid, and
    // the collector may visit them from now on.
    unsafe {
        if pyo3::ffi::PyObject_GC_IsTracked(object.as_ptr()) == 0 {
            pyo3::ffi::PyObject_GC_Track(object.as_ptr().cast());
        }
    }
}
