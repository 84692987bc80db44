//! Converts events of a timer to columns for Python, and columns back to events for a replay.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::core::settings::{self, WheelSettings};
use crate::tools::args::{self, Omittable};
use crate::tools::describe::set_items;
use crate::tools::finalizing::ForeignCall;
use crate::tools::int64s;
use tickwheel::{Event, EventKind, LIMIT_US, Recorded, Replay as NativeReplay};

/// The number of events; their columns as native-endian bytes (at, number, due, other: 8 bytes each; kind, level: 1);
/// and how many events were lost since the recording began.
pub(crate) type EventColumns<'py> = (usize, [Bound<'py, PyBytes>; 6], u64);

/// Converts recorded events to columns, without the GIL. `take` gets the events from the timer.
pub(crate) fn columns<'py>(py: Python<'py>, take: impl FnOnce() -> Recorded + Send) -> EventColumns<'py> {
    let (count, [at, number, due, other, kind, level], lost) = py.detach(|| {
        let recorded = take();
        let mut columns: [Vec<u8>; 6] = Default::default();
        let count = recorded.chunks.iter().map(Vec::len).sum();
        for event in recorded.chunks.iter().flatten() {
            let words = [event.at_us, event.number, event.due_us, event.other];
            for (column, word) in columns.iter_mut().zip(words) {
                column.extend_from_slice(&word.to_ne_bytes());
            }
            columns[4].push(event.kind as u8);
            columns[5].push(event.level);
        }
        (count, columns, recorded.lost)
    });
    let bytes = |column: Vec<u8>| PyBytes::new(py, &column);
    (count, [bytes(at), bytes(number), bytes(due), bytes(other), bytes(kind), bytes(level)], lost)
}

/// Replays recorded adds, moves and cancels on a wheel with these settings, in virtual time.
///
/// `tick_ms`, `wheel_size`, `precision`, `slack_us`: as for `SystemTimer`. It is the timer itself, with a reaper that
/// wakes up without delay.
#[pyclass(module = "tickwheel._native")]
pub(crate) struct Replay {
    /// `None` once it is finished.
    native: Option<NativeReplay>,
}

#[pymethods]
impl Replay {
    #[new]
    #[pyo3(
        signature = (tick_ms=Omittable::OMITTED, wheel_size=Omittable::OMITTED, *, precision=Omittable::OMITTED, slack_us=Omittable::OMITTED),
        text_signature = "(tick_ms=1, wheel_size=20, *, precision='exact', slack_us=100)"
    )]
    fn new(
        tick_ms: Omittable<'_>,
        wheel_size: Omittable<'_>,
        precision: Omittable<'_>,
        slack_us: Omittable<'_>,
    ) -> PyResult<Self> {
        let given = [&tick_ms, &wheel_size, &precision, &slack_us].into_iter().find_map(Omittable::get);
        let _call = given.map(|given| ForeignCall::enter(given.py())).transpose()?;
        let config = settings::config(&WheelSettings { tick_ms, wheel_size, precision, slack_us })?;
        Ok(Self { native: Some(NativeReplay::new(&config).map_err(|error| PyValueError::new_err(error.to_string()))?) })
    }

    /// Replay more events: arrays of one length, `kind` from 0 to 5 as in `recording.KINDS`; O(levels) each.
    ///
    /// The call takes all events or none. Errors: `ValueError` for different lengths, an unknown kind, a negative
    /// number, or a number that is added twice. The replay can continue after an error.
    fn feed(
        &mut self,
        py: Python<'_>,
        at_us: &Bound<'_, PyAny>,
        kind: &Bound<'_, PyAny>,
        number: &Bound<'_, PyAny>,
        due_us: &Bound<'_, PyAny>,
        other: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _call = ForeignCall::enter(py)?;
        let columns = [
            int64s::read(at_us, "at_us")?,
            int64s::read(kind, "kind")?,
            int64s::read(number, "number")?,
            int64s::read(due_us, "due_us")?,
            int64s::read(other, "other")?,
        ];
        let native = self.native.as_mut().ok_or_else(finished)?;
        py.detach(|| native.feed(&events(&columns)?).map_err(|error| error.to_string())).map_err(PyValueError::new_err)
    }

    /// Advance the time to the end of `until_us` and return the results. The replay takes no more events after that.
    ///
    /// Errors: `ValueError` and `TypeError` for an instant that no clock can show.
    fn finish<'py>(&mut self, until_us: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let py = until_us.py();
        let _call = ForeignCall::enter(py)?;
        let hint = "pass the instant at which the recording ended, in microseconds";
        let until_us = args::int_in(until_us, "until_us", 0, LIMIT_US - 1, hint)?;
        let native = self.native.take().ok_or_else(finished)?;
        let replayed = py.detach(|| native.finish(until_us));
        let (dict, stats) = (PyDict::new(py), &replayed.stats);
        set_items!(dict, stats.[added, moved, cancelled, expired, pending, cascaded, wake_ups]);
        set_items!(dict, replayed.[flushed, early_us, max_early_us, peak_pending, peak_bytes, unknown]);
        Ok(dict)
    }
}

fn finished() -> PyErr {
    PyValueError::new_err("this replay is finished: make a new one")
}

fn events([at_us, kind, number, due_us, other]: &[Vec<i64>; 5]) -> Result<Vec<Event>, String> {
    let lengths = [at_us, kind, number, due_us, other].map(Vec::len);
    if lengths.iter().any(|length| *length != at_us.len()) {
        return Err(format!("the columns of events must be equally long, got {lengths:?}"));
    }
    let word =
        |value: i64, name: &str| u64::try_from(value).map_err(|_| format!("{name} must be 0 or more, got {value}"));
    let event = |row: usize| -> Result<Event, String> {
        let known = usize::try_from(kind[row]).ok().and_then(|kind| EventKind::ALL.get(kind));
        let at_us = word(at_us[row], "at_us")?;
        if at_us >= LIMIT_US {
            return Err(format!("at_us must be below 2^52 ms, got {at_us} us: no clock goes further"));
        }
        Ok(Event {
            at_us,
            number: word(number[row], "number")?,
            due_us: word(due_us[row], "due_us")?,
            other: word(other[row], "other")?,
            kind: *known.ok_or_else(|| format!("kind must be from 0 to 5, got {}", kind[row]))?,
            level: 0,
        })
    };
    (0..at_us.len()).map(|row| event(row).map_err(|error| format!("event {row}: {error}"))).collect()
}
