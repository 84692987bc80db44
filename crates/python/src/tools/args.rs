//! Checks and reads arguments from Python (T13): times, integers, indices, names.

use std::convert::Infallible;

use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBoolMethods, PyByteArray, PyBytes, PyDelta, PyFloat, PyInt, PyIterator, PySequence, PyString,
};

use crate::tools::describe::{text_or, type_and_value, type_name};
use crate::tools::made_once::intern;
use tickwheel::LIMIT_MS;

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

/// A finite number of milliseconds below 2^52. Ints below 2^52 are exact in a float.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Ms(pub(crate) f64);

impl Ms {
    /// In whole microseconds, rounded up; zero or less is 0. A float that is the nearest one to a whole microsecond
    /// counts as that microsecond: 399.999 is 399,999 us, although the float is slightly larger.
    pub(crate) fn to_us(self) -> u64 {
        // Most delays are whole milliseconds: two casts, and no call to round.
        let whole_ms = self.0 as i64;
        #[expect(clippy::float_cmp, reason = "whether it is whole")]
        let is_whole = whole_ms as f64 == self.0;
        if is_whole {
            return u64::try_from(whole_ms).unwrap_or(0).saturating_mul(1000);
        }
        if self.0 <= 0.0 {
            return 0;
        }
        let whole = self.0.trunc();
        let rest_us = ((self.0 - whole) * 1000.0).round();
        let nearest_us = (whole as u64).saturating_mul(1000).saturating_add(rest_us as u64);
        // The float that a literal of this value gives. One division rounds once, as a literal does. A sum of rounded
        // parts rounds twice, and differs for 396 of the first 99,999 values. Above 2^53 us the number itself is
        // rounded; a float has so few decimal places there that the sum is exact enough.
        let nearest_ms = if nearest_us < 1 << 53 { nearest_us as f64 / 1000.0 } else { whole + rest_us / 1000.0 };
        nearest_us + u64::from(self.0 > nearest_ms)
    }

    pub(crate) fn from_us(us: u64) -> Self {
        Self(us as f64 / 1000.0)
    }

    /// As Python shows it: an int if it is whole.
    pub(crate) fn to_python<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.0.fract() == 0.0 && self.0.abs() < LIMIT_MS as f64 {
            return Ok((self.0 as i64).into_pyobject(py)?.into_any());
        }
        Ok(PyFloat::new(py, self.0).into_any())
    }
}

/// Reads a time; `what` is the argument's name.
pub(crate) fn ms(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Ms> {
    // By far the most frequent case, without the checks that the other cases need.
    if let Ok(int) = value.cast_exact::<PyInt>()
        && let Ok(int) = int.extract::<i64>()
        && int < LIMIT_MS as i64
    {
        return Ok(Ms(int as f64));
    }
    if let Ok(float) = value.cast::<PyFloat>() {
        return finite(float.value(), what);
    }
    if let Ok(delta) = value.cast::<PyDelta>() {
        return from_delta(delta, what);
    }
    let int = whole(value, what, "an int, a finite float or a timedelta", "pass milliseconds, as in 20 or 0.5")?;
    match int.extract::<i64>() {
        Ok(int) if int < LIMIT_MS as i64 => Ok(Ms(int as f64)),
        // An int that is too small for i64 is in the past, as the smallest one is.
        Err(_) if int.lt(0)? => Ok(Ms(i64::MIN as f64)),
        _ => Err(too_far(what, &number(&int)?)),
    }
}

/// Reads a time in seconds; `what` is the argument's name.
pub(crate) fn seconds(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Ms> {
    if let Ok(delta) = value.cast::<PyDelta>() {
        return from_delta(delta, what);
    }
    let is_number =
        (value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>()) && !value.is_instance_of::<PyBool>();
    match value.extract::<f64>() {
        Ok(seconds) if is_number => finite(seconds * 1000.0, what),
        _ => {
            let given = type_and_value(value)?;
            Err(PyTypeError::new_err(format!("{what} must be seconds, got {given}: pass a number, or a timedelta")))
        }
    }
}

/// A `timedelta`, exactly. Its three fields are integers that only its own class sets.
fn from_delta(delta: &Bound<'_, PyDelta>, what: &str) -> PyResult<Ms> {
    let field = |name: &str| delta.getattr(name)?.extract::<i64>();
    let (days, seconds, rest_us) = (field("days")?, field("seconds")?, field("microseconds")?);
    let us = (i128::from(days) * 86_400 + i128::from(seconds)) * 1_000_000 + i128::from(rest_us);
    finite(us as f64 / 1000.0, what)
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

/// Converts a delay of an array from milliseconds to microseconds; zero or less is 0.
pub(crate) fn delay_us(delay_ms: i64, index: usize) -> PyResult<u64> {
    let delay_ms = u64::try_from(delay_ms).unwrap_or(0);
    if delay_ms >= LIMIT_MS {
        return Err(too_far(&format!("delays_ms[{index}]"), &delay_ms.to_string()));
    }
    Ok(delay_ms * 1000)
}

fn finite(value: f64, what: &str) -> PyResult<Ms> {
    if !value.is_finite() {
        let text = format!("{what} must be finite, got {value}: {}", instead(what));
        return Err(PyValueError::new_err(text.to_lowercase()));
    }
    if value >= LIMIT_MS as f64 {
        return Err(too_far(what, &value.to_string()));
    }
    Ok(Ms(value))
}

/// The suggestion of an error message in place of a time that is not finite.
fn instead(what: &str) -> &'static str {
    match what {
        "delay_ms" | "due_ms" => "leave the task out to wait for ever",
        _ if what.starts_with("delays_ms") => "leave the task out to wait for ever",
        _ => "pass a finite number of milliseconds",
    }
}

fn too_far(what: &str, given: &str) -> PyErr {
    PyValueError::new_err(format!("{what} must be below 2^52 ms (142,000 years), got {given}: {}", instead(what)))
}

/// An int, or an object with `__index__`; not a bool.
fn whole<'py>(value: &Bound<'py, PyAny>, what: &str, allowed: &str, hint: &str) -> PyResult<Bound<'py, PyInt>> {
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
fn number(int: &Bound<'_, PyInt>) -> PyResult<String> {
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
