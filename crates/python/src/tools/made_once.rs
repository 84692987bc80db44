//! Python objects that are made when they are first used and never freed: attribute names, imported classes.
//!
//! The GIL guards them, not a lock. pyo3's `PyOnceLock` and `intern!` release the GIL after they take a lock of their
//! own and before they store the object. If the process is forked at that moment, the child inherits a lock that no
//! thread releases, and hangs when it uses the same name (T12).

use pyo3::PyTypeCheck;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::tools::gil_cell::GilCell;

pub(crate) struct MadeOnce<T: 'static>(GilCell<Option<&'static T>>);

impl<T: Send + Sync> MadeOnce<T> {
    pub(crate) const fn new() -> Self {
        Self(GilCell::new(None))
    }

    /// The object. If two threads make it at the same time, the second one is never used and never freed.
    #[inline]
    pub(crate) fn get_or_try_init(&self, py: Python<'_>, make: impl FnOnce() -> PyResult<T>) -> PyResult<&'static T> {
        match self.0.with(py, |object| *object) {
            Some(object) => Ok(object),
            None => self.init(py, make),
        }
    }

    #[cold]
    fn init(&self, py: Python<'_>, make: impl FnOnce() -> PyResult<T>) -> PyResult<&'static T> {
        let made: &'static T = Box::leak(Box::new(make()?));
        Ok(self.0.with(py, |object| *object.get_or_insert(made)))
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
        let object = self.0.with(py, |object| *object);
        object.unwrap_or_else(|| self.intern(py, text)).bind(py)
    }

    #[cold]
    fn intern(&self, py: Python<'_>, text: &'static str) -> &'static Py<PyString> {
        let made: &'static Py<PyString> = Box::leak(Box::new(PyString::intern(py, text).unbind()));
        self.0.with(py, |object| *object.get_or_insert(made))
    }
}

/// The Python string of a literal, made once.
macro_rules! intern {
    ($py:expr, $text:literal) => {{
        static KEPT: $crate::tools::made_once::MadeOnce<pyo3::Py<pyo3::types::PyString>> =
            $crate::tools::made_once::MadeOnce::new();
        KEPT.interned($py, $text)
    }};
}
pub(crate) use intern;

/// An attribute of a module, imported once.
macro_rules! imported {
    ($py:expr, $module:expr, $name:literal) => {{
        static KEPT: $crate::tools::made_once::MadeOnce<pyo3::Py<pyo3::PyAny>> =
            $crate::tools::made_once::MadeOnce::new();
        KEPT.import($py, $module, $name)
    }};
}
pub(crate) use imported;
