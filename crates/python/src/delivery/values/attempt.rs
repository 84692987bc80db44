//! `Delivery`: one attempt to deliver a message, as a Python sink sees it. Its parts are made when they are read.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::delivery::values::message::{message_of, message_to_python};
use crate::tools::gil_cell::GilCell;
use crate::tools::made_once::intern;
use tickwheel_delivery::Delivery as Attempt;
use tickwheel_delivery::internal::LineWriter;

/// One attempt to send a message, with the wall time of the send and its lateness in whole microseconds.
///
/// `seq` numbers the messages of one store in order of acceptance, and stays the same when a message is sent again.
/// `attempt` counts from 1. `redelivered`: it may have arrived before, as a send had no answer or a run crashed (D5).
/// `digest`: 128 bits by which a destination knows the message, whatever store it comes from. `first_seq`: the lowest
/// `seq` that the message may have been sent with; 0 if another store may have sent it. A digest that came with a lower
/// one is of an earlier message, whose name the store has forgotten. `cause`: of a message with `until_event`,
/// `"event"` or `"deadline"`; `event`: name, id and payload of the event that has let it go. `owner`: of a replicated
/// store, its id, which is another one after a restore, and the number of the take-over by the process that sends. A
/// destination that has seen a higher one from this store refuses the message: an earlier owner sends it.
#[pyclass(frozen, module = "tickwheel.delivery")]
pub(crate) struct Delivery {
    attempt: Attempt,
    message: GilCell<Option<Py<PyAny>>>,
}

impl Delivery {
    pub(crate) fn of(attempt: Attempt) -> Self {
        Self { attempt, message: GilCell::new(None) }
    }
}

#[pymethods]
impl Delivery {
    #[new]
    #[pyo3(signature = (seq, message, delivered_at_ms, lateness_us, attempt=1, redelivered=false))]
    fn new(
        seq: i64,
        message: &Bound<'_, PyAny>,
        delivered_at_ms: i64,
        lateness_us: i64,
        attempt: u32,
        redelivered: bool,
    ) -> PyResult<Self> {
        let made = message_of(message)?;
        let attempt = Attempt::from_parts(made, seq, delivered_at_ms, lateness_us, attempt, redelivered);
        Ok(Self { attempt, message: GilCell::new(Some(message.clone().unbind())) })
    }

    /// The number of the message in its store.
    #[getter]
    fn seq(&self) -> i64 {
        self.attempt.seq
    }

    /// The message.
    #[getter]
    fn message<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let kept = self.message.with(py, |message| message.as_ref().map(|message| message.clone_ref(py)));
        if let Some(kept) = kept {
            return Ok(kept.into_bound(py));
        }
        let made = message_to_python(py, &self.attempt)?;
        let kept = made.clone().unbind();
        drop(self.message.with(py, |message| message.replace(kept)));
        Ok(made)
    }

    /// The wall time of the send, in milliseconds since 1970.
    #[getter]
    fn delivered_at_ms(&self) -> i64 {
        self.attempt.delivered_at_ms
    }

    /// How late that is, in microseconds.
    #[getter]
    fn lateness_us(&self) -> i64 {
        self.attempt.lateness_us
    }

    /// Lateness in milliseconds, to the microsecond, as in every output.
    #[getter]
    fn lateness_ms(&self) -> f64 {
        self.attempt.lateness_us as f64 / 1000.0
    }

    /// From 1.
    #[getter]
    fn attempt(&self) -> u32 {
        self.attempt.attempt
    }

    /// Whether an earlier run may have sent it before it crashed.
    #[getter]
    fn redelivered(&self) -> bool {
        self.attempt.redelivered
    }

    /// `"event"` or `"deadline"`.
    #[getter]
    fn cause(&self) -> Option<&'static str> {
        self.attempt.cause()
    }

    /// A dict with `name`, `id`, and `payload`, or `payload_base64` for bytes.
    #[getter]
    fn event<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(data) = self.attempt.event() else { return Ok(None) };
        py.import(intern!(py, "json"))?.call_method1(intern!(py, "loads"), (data,)).map(Some)
    }

    /// 16 bytes, equal for messages with the same key and id, but where the name is used again after an outcome.
    #[getter]
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.attempt.digest())
    }

    /// `seq`, or the number before a reschedule or a requeue; 0 if another store may have sent it.
    #[getter]
    fn first_seq(&self) -> i64 {
        self.attempt.first_seq()
    }

    /// The id of the store, and the number of the take-over, from 1; `None`: the store is not replicated.
    #[getter]
    fn owner(&self) -> Option<(&str, i64)> {
        self.attempt.owner()
    }

    /// The payload, decoded from JSON. Errors: `ValueError` for bytes that are no JSON.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let bytes = PyBytes::new(py, self.attempt.payload());
        py.import(intern!(py, "json"))?.call_method1(intern!(py, "loads"), (bytes,))
    }

    /// The line of NDJSON that files and webhooks get, with its newline.
    #[getter]
    fn line<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut line = Vec::new();
        LineWriter::default().write(&mut line, &self.attempt);
        PyBytes::new(py, &line)
    }

    fn __repr__(&self) -> String {
        let Attempt { seq, attempt, .. } = &self.attempt;
        let key = self.attempt.key().map_or_else(|| "None".to_owned(), |key| format!("{key:?}"));
        format!("Delivery(seq={seq}, id={:?}, key={key}, attempt={attempt})", self.attempt.id())
    }
}
