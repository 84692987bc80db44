//! Checks and reads arguments from Python (T13): integers, indices, names. `times` reads the times.

use std::convert::Infallible;

use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBoolMethods, PyByteArray, PyBytes, PyInt, PyIterator, PySequence, PyString};

use crate::tools::describe::{text_or, type_and_value, type_name};
use crate::tools::made_once::intern;

/// An argument that may be omitted. `None` is a value like any other here: it does not mean "omitted".
pub(crate) struct Omittable<'py>(Option<Bound<'py, PyAny>>);

impl<'py> Omittable<'py> {
    pub(crate) const OMITTED: Self = Self(None);

    pub(crate) fn get(&self) -> Option<&Bound<'py, PyAny>> {
        self.0.as_ref()
    }

    /// `True` or `False`, or `otherwise` if it was omitted. `what` is the argument's name; `hint` says what to pass
    /// instead.
    pub(crate) fn flag(self, what: &str, otherwise: bool, hint: &str) -> PyResult<bool> {
        let Some(value) = self.0 else { return Ok(otherwise) };
        let flag = value.cast::<PyBool>().map(PyBoolMethods::is_true);
        flag.map_err(|_| refused(&value, &format!("{what} must be True or False"), hint))
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Omittable<'py> {
    type Error = Infallible;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> Result<Self, Infallible> {
        Ok(Self(Some(value.to_owned())))
    }
}

/// Iterates over a collection. `what` is the argument's name; `of` says what it must contain.
pub(crate) fn items<'py>(
    value: &Bound<'py, PyAny>,
    what: &str,
    of: &str,
    hint: &str,
) -> PyResult<Bound<'py, PyIterator>> {
    let class = value.get_type();
    let is_collection = class.hasattr(intern!(value.py(), "__iter__"))? || class.hasattr("__getitem__")?;
    if is_collection {
        value.try_iter()
    } else {
        Err(refused(value, &format!("{what} must be a collection of {of}"), hint))
    }
}

fn refused(value: &Bound<'_, PyAny>, must: &str, hint: &str) -> PyErr {
    type_and_value(value)
        .map_or_else(|error| error, |given| PyTypeError::new_err(format!("{must}, got {given}: {hint}")))
}

/// A whole number in a range. `what` is the argument's name; `hint` says what to pass instead.
pub(crate) fn int_in(value: &Bound<'_, PyAny>, what: &str, low: u64, high: u64, hint: &str) -> PyResult<u64> {
    let int = whole(value, what, "an int", hint)?;
    match int.extract::<u64>() {
        Ok(int) if (low..=high).contains(&int) => Ok(int),
        _ => Err(PyValueError::new_err(format!("{what} must be from {low} to {high}, got {}: {hint}", number(&int)?))),
    }
}

/// One wheel size for every level, or a sequence of sizes.
pub(crate) fn wheel_sizes(value: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    let hint = "use 20, or one size per level as in (60, 60, 12)";
    let size = |value: &Bound<'_, PyAny>| -> PyResult<u32> { Ok(int_in(value, "wheel_size", 2, 65_536, hint)? as u32) };
    let is_text = value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>();
    let Some(sizes) = value.cast::<PySequence>().ok().filter(|_| !is_text) else { return Ok(vec![size(value)?]) };
    let sizes = sizes.try_iter()?.map(|item| size(&item?)).collect::<PyResult<Vec<_>>>()?;
    if sizes.is_empty() {
        return Err(PyValueError::new_err("wheel_size must name at least one level, got none: use 20"));
    }
    Ok(sizes)
}

/// `TypeError` unless the value can be called.
pub(crate) fn callable(value: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    if value.is_callable() {
        return Ok(());
    }
    let given = type_and_value(value)?;
    Err(PyTypeError::new_err(format!("{what} must be callable, got {given}: pass a function, or a lambda")))
}

/// An index in a batch of `count` timers.
pub(crate) fn index(value: &Bound<'_, PyAny>, count: usize) -> PyResult<usize> {
    let int = whole(value, "an index of a batch", "an int", "pass its position in delays_ms")?;
    match int.extract::<usize>() {
        Ok(index) if index < count => Ok(index),
        _ => Err(no_timer(count, &number(&int)?)),
    }
}

/// As [`index`]; the number was read already.
pub(crate) fn index_of(given: i64, count: usize) -> PyResult<usize> {
    usize::try_from(given).ok().filter(|index| *index < count).ok_or_else(|| no_timer(count, &given.to_string()))
}

fn no_timer(count: usize, given: &str) -> PyErr {
    if count == 0 {
        return PyIndexError::new_err(format!("the batch is empty, got index {given}"));
    }
    PyIndexError::new_err(format!("the batch has timers 0 to {}, got {given}", count - 1))
}

/// An int, or an object with `__index__`; not a bool.
pub(super) fn whole<'py>(
    value: &Bound<'py, PyAny>,
    what: &str,
    allowed: &str,
    hint: &str,
) -> PyResult<Bound<'py, PyInt>> {
    if !value.is_instance_of::<PyBool>() {
        if let Ok(int) = value.cast::<PyInt>() {
            return Ok(int.clone());
        }
        // Look the method up on the class, as Python does: a class has the methods of its instances, and a mock has
        // every attribute.
        if value.get_type().hasattr(intern!(value.py(), "__index__"))? {
            let index = value.py().import("operator")?.getattr("index")?;
            return Ok(index.call1((value,))?.cast_into::<PyInt>()?);
        }
    }
    Err(PyTypeError::new_err(format!("{what} must be {allowed}, got {}: {hint}", type_and_value(value)?)))
}

/// Formats an int for an error message.
pub(super) fn number(int: &Bound<'_, PyInt>) -> PyResult<String> {
    text_or(int.repr(), "an int too long to print", int.py())
}

/// The text of a `str`, without calling the `__str__` of a subclass.
pub(crate) fn text(value: &Bound<'_, PyAny>, what: &str, hint: &str) -> PyResult<String> {
    let text = value.cast::<PyString>().map_err(|_| {
        let given = type_name(value);
        PyTypeError::new_err(format!("{what} must be text, got {given}: {hint}"))
    })?;
    match text.to_str() {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(PyValueError::new_err(format!(
            "{what} must be text that UTF-8 can encode, got {}: remove unpaired surrogates",
            text.repr()?
        ))),
    }
}

/// The name of a task, as an exact `str`. An object of a subclass may refer to the task, and the collector does not see
/// the name.
pub(crate) fn task_name(name: &Bound<'_, PyAny>) -> PyResult<Py<PyString>> {
    let Ok(text) = name.cast::<PyString>() else {
        let given = text_or(name.repr(), "?", name.py())?;
        return Err(PyTypeError::new_err(format!("name must be text, got {given}: snapshots show it")));
    };
    if let Ok(exact) = text.cast_exact::<PyString>() {
        return Ok(exact.clone().unbind());
    }
    // `str.__str__` itself: `str(name)` would call the method of the subclass.
    let exact = name.py().get_type::<PyString>().call_method1(intern!(name.py(), "__str__"), (text,))?;
    Ok(exact.cast_into::<PyString>()?.unbind())
}
