//! The series of `aio.every` (T20): the rules of a periodic task, in seconds of a loop's clock.
//!
//! A loop's clock may read anything, so instants are counted from the start of the series.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::scheduled::periodic::Periods;
use crate::tools::times::{self, LoopUse};
use tickwheel::internal::Occurrences;
use tickwheel::{Every, LIMIT_MS, When};

/// What `aio.every` was given.
#[pyclass(frozen, name = "_Series", module = "tickwheel._native")]
pub(crate) struct LoopSeries {
    every: Every,
    start_s: Option<f64>,
    until_s: f64,
}

/// An instant of a series. Times are those of the loop's clock.
#[pyclass(frozen, name = "_Instant", module = "tickwheel._native")]
#[derive(Clone)]
pub(crate) struct LoopInstant {
    occurrences: Occurrences,
    start_s: f64,
    until_s: f64,
    has_come: bool,
}

#[pymethods]
impl LoopSeries {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "they are the arguments of aio.every")]
    fn new(
        period: Option<&Bound<'_, PyAny>>,
        gap: Option<&Bound<'_, PyAny>>,
        start: Option<&Bound<'_, PyAny>>,
        first: Option<&Bound<'_, PyAny>>,
        jitter: Option<&Bound<'_, PyAny>>,
        missed: Option<&Bound<'_, PyAny>>,
        times: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (has_start, in_seconds) = (start.is_some(), true);
        let (_, every) = Periods { period, gap, first, jitter, missed, times, has_start, in_seconds }.read()?;
        Occurrences::new(&every, (0, 0)).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let start_s = start.map(|start| time_s(start, "start")).transpose()?;
        let until_s = until.map_or(Ok(f64::INFINITY), |until| time_s(until, "until"))?;
        Ok(Self { every, start_s, until_s })
    }

    /// The first instant, which has not come.
    fn begin(&self, now_s: f64) -> PyResult<LoopInstant> {
        let first_s = if self.every.start.is_some() { now_s } else { now_s + self.every.period.as_secs_f64() };
        let start_s = self.start_s.unwrap_or(first_s);
        let every = Every { start: Some(When::AtUs(0)), ..self.every };
        let occurrences = Occurrences::new(&every, us_since(start_s, now_s));
        let occurrences = occurrences.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(LoopInstant { occurrences, start_s, until_s: self.until_s, has_come: false })
    }
}

#[pymethods]
impl LoopInstant {
    /// The instant to wait for now: the next one, or this one if the wait for it was given up. `None` after the last one.
    fn next(&self, now_s: f64) -> Option<Self> {
        let mut next = Self { has_come: true, ..self.clone() };
        let now = us_since(self.start_s, now_s);
        if self.has_come {
            next.occurrences.end_call(now);
        } else {
            next.occurrences.wait_again(now);
        }
        (next.occurrences.due_us().is_some() && next.due() <= next.until_s).then_some(next)
    }

    /// The wait for it was given up.
    fn given_up(&self) -> Self {
        Self { has_come: false, ..self.clone() }
    }

    #[getter]
    fn when(&self) -> f64 {
        self.start_s + self.occurrences.instant_us() as f64 / 1e6
    }

    /// As `when`, with the jitter.
    #[getter]
    fn due(&self) -> f64 {
        self.start_s + self.occurrences.due_us().unwrap_or(0) as f64 / 1e6
    }
}

fn time_s(value: &Bound<'_, PyAny>, what: &str) -> PyResult<f64> {
    let time_s = times::loop_seconds(value, what, LoopUse::Time)?;
    if time_s.abs() < LIMIT_MS as f64 / 1000.0 {
        return Ok(time_s);
    }
    Err(PyValueError::new_err(format!("{what} is a time of the loop's clock, got {time_s}: leave it out")))
}

/// Microseconds since the start, rounded down and rounded up; 0 before it.
fn us_since(start_s: f64, now_s: f64) -> (u64, u64) {
    let us = (now_s - start_s) * 1e6;
    (us.floor() as u64, us.ceil() as u64)
}
