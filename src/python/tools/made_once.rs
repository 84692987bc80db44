//! Python objects that are made at their first use and kept for good: names of attributes, imported classes.
//!
//! The GIL guards them, and no lock does. pyo3's `PyOnceLock` and `intern!` let the GIL go between taking a lock of their own
//! and storing the object. A process that is forked in this moment leaves its child a lock that no thread will ever let go
//! of, and the child hangs at the same name (T12).

use pyo3::PyTypeCheck;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::python::tools::gil_cell::GilCell;

pub(crate) struct MadeOnce<T: 'static>(GilCell<Option<&'static T>>);

impl<T: Send + Sync> MadeOnce<T> {
    pub(crate) const fn new() -> Self {
        Self(GilCell::new(None))
    }

    /// What is kept. Where two threads make it at once, what the second one made is never used, and never freed.
    #[inline]
    pub(crate) fn get_or_try_init(&self, py: Python<'_>, make: impl FnOnce() -> PyResult<T>) -> PyResult<&'static T> {
        match self.0.with(py, |kept| *kept) {
            Some(kept) => Ok(kept),
            None => self.init(py, make),
        }
    }

    #[cold]
    fn init(&self, py: Python<'_>, make: impl FnOnce() -> PyResult<T>) -> PyResult<&'static T> {
        let made: &'static T = Box::leak(Box::new(make()?));
        Ok(self.0.with(py, |kept| *kept.get_or_insert(made)))
    }
}

impl<T> MadeOnce<Py<T>> {
    /// An attribute of a module.
    pub(crate) fn import<'py>(&self, py: Python<'py>, module: &str, name: &str) -> PyResult<&'py Bound<'py, T>>
    where
        T: PyTypeCheck,
    {
        let import = || Ok(py.import(module)?.getattr(name)?.cast_into::<T>()?.unbind());
        Ok(self.get_or_try_init(py, import)?.bind(py))
    }
}

impl MadeOnce<Py<PyString>> {
    #[inline]
    pub(crate) fn interned<'py>(&self, py: Python<'py>, text: &'static str) -> &'py Bound<'py, PyString> {
        let kept = self.0.with(py, |kept| *kept);
        kept.unwrap_or_else(|| self.intern(py, text)).bind(py)
    }

    #[cold]
    fn intern(&self, py: Python<'_>, text: &'static str) -> &'static Py<PyString> {
        let made: &'static Py<PyString> = Box::leak(Box::new(PyString::intern(py, text).unbind()));
        self.0.with(py, |kept| *kept.get_or_insert(made))
    }
}

/// The Python text of a literal, made once.
macro_rules! intern {
    ($py:expr, $text:literal) => {{
        static KEPT: $crate::python::tools::made_once::MadeOnce<pyo3::Py<pyo3::types::PyString>> =
            $crate::python::tools::made_once::MadeOnce::new();
        KEPT.interned($py, $text)
    }};
}
pub(crate) use intern;
