//! What a Python function is made of: its code; and the function of a method.
//!
//! Unsafe code: to read these by attribute takes twenty nanoseconds and raises an audit event; the C API of one Python
//! version takes one. The limited API has no such calls. A build for it (the feature `abi3`) reads the attributes.

pub(crate) use parts::{code_of, function_of_method};

/// For one version of Python.
#[cfg(not(Py_LIMITED_API))]
#[expect(unsafe_code, reason = "the C API gives a function's code without an attribute look-up")]
mod parts {
    use pyo3::ffi;
    use pyo3::prelude::*;
    use pyo3::types::PyFunction;

    unsafe extern "C" {
        /// `PyMethod_Function` of the C API, which pyo3 does not declare. Returns a borrowed reference.
        fn PyMethod_Function(method: *mut ffi::PyObject) -> *mut ffi::PyObject;
    }

    /// Its code object. `None` if it cannot be read.
    #[inline]
    pub(crate) fn code_of<'a, 'py>(function: &'a Bound<'py, PyFunction>) -> Option<Borrowed<'a, 'py, PyAny>> {
        // SAFETY: it is a function, and alive. It keeps its code alive.
        unsafe { Borrowed::from_ptr_or_opt(function.py(), ffi::PyFunction_GetCode(function.as_ptr())) }
    }

    /// What a method calls, if that is a plain function. `method` is of the type `types.MethodType`, not of another.
    #[inline]
    pub(crate) fn function_of_method<'py>(method: &Bound<'py, PyAny>) -> Option<Bound<'py, PyFunction>> {
        // SAFETY: it is a method, alive, and keeps its function alive; this takes a reference of its own.
        let function = unsafe { Bound::from_borrowed_ptr(method.py(), PyMethod_Function(method.as_ptr())) };
        function.cast_into_exact().ok()
    }
}

/// For every version of Python.
#[cfg(Py_LIMITED_API)]
mod parts {
    use pyo3::prelude::*;
    use pyo3::types::PyFunction;

    use crate::tools::made_once::intern;

    /// Its code object. `None` if it cannot be read: an audit hook may refuse.
    #[inline]
    pub(crate) fn code_of<'py>(function: &Bound<'py, PyFunction>) -> Option<Bound<'py, PyAny>> {
        function.getattr(intern!(function.py(), "__code__")).ok()
    }

    /// What a method calls, if that is a plain function. `method` is of the type `types.MethodType`.
    #[inline]
    pub(crate) fn function_of_method<'py>(method: &Bound<'py, PyAny>) -> Option<Bound<'py, PyFunction>> {
        method.getattr(intern!(method.py(), "__func__")).ok()?.cast_into_exact().ok()
    }
}
