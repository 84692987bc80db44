//! The one reader of times from Python (T13). Timers read milliseconds and seconds, with the same types. Event loops read
//! seconds, of each type that asyncio's loops take.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyFloat, PyInt};

use crate::tools::args::{number, whole};
use crate::tools::describe::type_and_value;
use crate::tools::made_once::intern;
use tickwheel::LIMIT_MS;

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

/// The unit of a number. A `timedelta` has its own.
#[derive(Clone, Copy)]
enum Unit {
    Milliseconds,
    Seconds,
}

impl Unit {
    fn in_ms(self, value: f64) -> f64 {
        match self {
            Self::Milliseconds => value,
            Self::Seconds => value * 1000.0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "milliseconds",
            Self::Seconds => "seconds",
        }
    }

    fn limit(self) -> &'static str {
        match self {
            Self::Milliseconds => "2^52 ms",
            Self::Seconds => "2^52 ms, which is 4.5e12 seconds",
        }
    }

    /// The advice of an error about a time that is not finite.
    fn instead(self, what: &str) -> String {
        match what {
            "delay_ms" | "due_ms" | "delay" => "leave the task out to wait for ever".to_owned(),
            _ if what.starts_with("delays_ms") => "leave the task out to wait for ever".to_owned(),
            _ => format!("pass a finite number of {}", self.name()),
        }
    }

    fn too_far(self, what: &str, given: &str) -> PyErr {
        let (limit, instead) = (self.limit(), self.instead(what));
        PyValueError::new_err(format!("{what} must be below {limit} (142,000 years), got {given}: {instead}"))
    }
}

/// Reads a time in milliseconds; `what` is the argument's name.
pub(crate) fn ms(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Ms> {
    // By far the most frequent case, without the checks that the other cases need.
    if let Ok(int) = value.cast_exact::<PyInt>()
        && let Ok(int) = int.extract::<i64>()
        && int < LIMIT_MS as i64
    {
        return Ok(Ms(int as f64));
    }
    read(value, what, Unit::Milliseconds)
}

/// Reads a time in seconds; `what` is the argument's name.
pub(crate) fn seconds(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Ms> {
    read(value, what, Unit::Seconds)
}

/// Reads a time in seconds of the types that a loop takes; `what` is the argument's name.
pub(crate) fn loop_delay(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Ms> {
    in_range(loop_seconds(value, what, LoopUse::Delay)?, what, Unit::Seconds)
}

fn read(value: &Bound<'_, PyAny>, what: &str, unit: Unit) -> PyResult<Ms> {
    if let Ok(float) = value.cast::<PyFloat>() {
        return in_range(float.value(), what, unit);
    }
    if let Ok(delta) = value.cast::<PyDelta>() {
        return in_range(ms_of_delta(delta)?, what, Unit::Milliseconds);
    }
    let hint = format!("pass {}, as in 20 or 0.5", unit.name());
    let int = whole(value, what, "an int, a finite float or a timedelta", &hint)?;
    match int.extract::<i64>() {
        Ok(int) if unit.in_ms(int as f64) < LIMIT_MS as f64 => Ok(Ms(unit.in_ms(int as f64))),
        // An int that is too small for i64 is in the past, as the smallest one is.
        Err(_) if int.lt(0)? => Ok(Ms(i64::MIN as f64)),
        _ => Err(unit.too_far(what, &number(&int)?)),
    }
}

fn in_range(value: f64, what: &str, unit: Unit) -> PyResult<Ms> {
    if !value.is_finite() {
        let text = format!("{what} must be finite, got {value}: {}", unit.instead(what));
        return Err(PyValueError::new_err(text.to_lowercase()));
    }
    let ms = unit.in_ms(value).max(f64::MIN); // so many seconds ago that the milliseconds are infinite
    if ms >= LIMIT_MS as f64 {
        return Err(unit.too_far(what, &value.to_string()));
    }
    Ok(Ms(ms))
}

/// A `timedelta`, exactly. Its three fields are integers that only its own class sets.
fn ms_of_delta(delta: &Bound<'_, PyDelta>) -> PyResult<f64> {
    let field = |name: &str| delta.getattr(name)?.extract::<i64>();
    let (days, seconds, rest_us) = (field("days")?, field("seconds")?, field("microseconds")?);
    let us = (i128::from(days) * 86_400 + i128::from(seconds)) * 1_000_000 + i128::from(rest_us);
    Ok(us as f64 / 1000.0)
}

/// Converts a delay of an array from milliseconds to microseconds; zero or less is 0.
pub(crate) fn delay_us(delay_ms: i64, index: usize) -> PyResult<u64> {
    let delay_ms = u64::try_from(delay_ms).unwrap_or(0);
    if delay_ms >= LIMIT_MS {
        return Err(Unit::Milliseconds.too_far(&format!("delays_ms[{index}]"), &delay_ms.to_string()));
    }
    Ok(delay_ms * 1000)
}

/// What a loop does with a number of seconds.
#[derive(Clone, Copy)]
pub(crate) enum LoopUse {
    /// It is added to the time, which is a float.
    Delay,
    /// It is compared with the time.
    Time,
}

/// Reads seconds for an event loop: a `timedelta`, or what asyncio takes there. Booleans, NaN, and the times and booleans
/// of numpy are refused. `what` is the argument's name.
#[inline]
pub(crate) fn loop_seconds(value: &Bound<'_, PyAny>, what: &str, used: LoopUse) -> PyResult<f64> {
    let seconds = if let Ok(float) = value.cast::<PyFloat>() {
        float.value()
    } else if let Ok(int) = value.cast_exact::<PyInt>()
        && let Ok(int) = int.extract::<i64>()
    {
        int as f64
    } else {
        other_seconds(value, what, used)?
    };
    if seconds.is_nan() {
        let text = format!("{what} must be a number of seconds, got nan: check how it was computed");
        return Err(PyValueError::new_err(text));
    }
    Ok(seconds)
}

#[cold]
fn other_seconds(value: &Bound<'_, PyAny>, what: &str, used: LoopUse) -> PyResult<f64> {
    let py = value.py();
    if let Ok(delta) = value.cast::<PyDelta>() {
        return delta.call_method0(intern!(py, "total_seconds"))?.extract();
    }
    let used_as = |value: &Bound<'_, PyAny>| match used {
        LoopUse::Delay => PyFloat::new(py, 0.0).add(value)?.extract::<f64>(),
        LoopUse::Time => PyFloat::new(py, 0.0).lt(value).and_then(|_| value.extract::<f64>()),
    };
    match if is_no_time(value) { None } else { Some(used_as(value)) } {
        Some(Ok(seconds)) => Ok(seconds),
        Some(Err(error)) if error.is_instance_of::<PyOverflowError>(py) => match value.lt(0) {
            Ok(true) => Ok(f64::NEG_INFINITY), // however far below zero it is, it is due now
            _ => Err(PyOverflowError::new_err(format!(
                "{what} must be seconds that a float can hold, got a larger int: pass math.inf to wait for ever"
            ))),
        },
        Some(Err(error)) if !error.is_instance_of::<PyTypeError>(py) => Err(error),
        _ => {
            let given = type_and_value(value)?;
            Err(PyTypeError::new_err(format!("{what} must be seconds, got {given}: pass a number, or a timedelta")))
        }
    }
}

/// Whether it is a boolean, or a time of numpy, which is a number in a unit of its own.
fn is_no_time(value: &Bound<'_, PyAny>) -> bool {
    let kind = || value.getattr(intern!(value.py(), "dtype"))?.getattr(intern!(value.py(), "kind"))?.extract::<char>();
    value.is_instance_of::<PyBool>() || kind().is_ok_and(|kind| matches!(kind, 'b' | 'm' | 'M'))
}

/// As [`loop_seconds`], for the parts of `tickwheel.aio` that are in Python. `what` is the argument's name there.
#[pyfunction]
#[pyo3(signature = (delay, what="delay"))]
pub(crate) fn _delay_s(delay: &Bound<'_, PyAny>, what: &str) -> PyResult<f64> {
    loop_seconds(delay, what, LoopUse::Delay)
}

#[pyfunction]
#[pyo3(signature = (when, what="when"))]
pub(crate) fn _time_s(when: &Bound<'_, PyAny>, what: &str) -> PyResult<f64> {
    loop_seconds(when, what, LoopUse::Time)
}
