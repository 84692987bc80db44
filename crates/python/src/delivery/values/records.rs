//! `Records`: the records of an input, as items of the engine, without a Python object for each.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyType};

use crate::delivery::calls::failures::bad_record;
use crate::delivery::values::message::message_to_python;
use crate::tools::made_once::MadeOnce;
use tickwheel_delivery::BadRecord;
use tickwheel_delivery::internal::{Incoming, Item, Origin, Parsed, Record, check_traceparent, write_stream};

/// The place of a record, and its original bytes if they were kept.
type Place<'py> = (String, u64, Option<Bound<'py, PyBytes>>);

/// The error of a record: its line, the reason, and the allowed values.
type Fault = (u64, String, String);

/// The id of a record, its key, and when it is due.
type NameAndDue<'a> = (&'a str, Option<&'a str>, Option<i64>);

/// Records in their order: messages, cancels, and bad records. It does not change after it is made.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct Records(Arc<Found>);

/// The records of a part of an input.
#[derive(Clone)]
pub(crate) struct Found {
    items: Arc<[Parsed]>,
    /// Whether a record that can't be used becomes a dead letter. If not, the caller only gets its error.
    letters: bool,
    /// Whether each message takes the place of the message with its name.
    replaces: Option<Replaces>,
    /// The `traceparent` for messages without one.
    traceparent: Option<Box<str>>,
}

/// The settings of a replacement.
#[derive(Clone, Copy)]
struct Replaces {
    /// How long after the first call of a series they are due at the latest.
    at_latest_ms: Option<i64>,
}

impl Found {
    /// Returns the items for the engine.
    pub(crate) fn items(&self) -> impl Iterator<Item = Item> {
        let taken = self.items.iter().filter(|item| self.letters || !matches!(item, Parsed::Bad(..)));
        let item = |parsed: &Parsed| match (Item::from(parsed.clone()), self.replaces) {
            (Item::Put(put), Some(Replaces { at_latest_ms })) => Item::Replace { put: self.traced(put), at_latest_ms },
            (Item::Put(put), None) => Item::Put(self.traced(put)),
            (item, _) => item,
        };
        taken.map(item)
    }

    fn traced(&self, mut put: Incoming) -> Incoming {
        if let Some(given) = &self.traceparent
            && put.message.traceparent().is_none()
        {
            put.message = put.message.with_traceparent(given);
        }
        put
    }
}

impl Records {
    pub(crate) fn new(items: Vec<Parsed>, letters: bool) -> Self {
        Self(Arc::new(Found { items: items.into(), letters, replaces: None, traceparent: None }))
    }

    pub(crate) fn found(&self) -> Arc<Found> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl Records {
    /// A record that can't be used, for reasons that the caller found.
    #[staticmethod]
    fn bad(source: &str, line: u64, reason: &str, allowed: &str, record: &[u8]) -> Self {
        let origin = Origin { source: source.into(), line, record: Some(Record::from(record)) };
        let bad = BadRecord { reason: reason.to_owned(), allowed: allowed.to_owned() };
        Self::new(vec![Parsed::Bad(bad, origin)], true)
    }

    fn __len__(&self) -> usize {
        self.0.items.len()
    }

    /// The same records, but each message takes the place of the message with its name. `at_latest_ms`: how long after
    /// the first call of a series it is due at the latest. A recurring message can't be put off like this: it becomes a
    /// bad record.
    fn replacing(&self, at_latest_ms: Option<i64>) -> Self {
        let is_refused =
            |item: &Parsed| matches!(item, Parsed::Message(it) if at_latest_ms.is_some() && it.message.recurs());
        let item = |item: &Parsed| match item {
            Parsed::Message(it) if is_refused(item) => Parsed::Bad(
                BadRecord {
                    reason: "a message that recurs can't be debounced".to_owned(),
                    allowed: "every or cron without at_latest_ms".to_owned(),
                },
                it.origin.clone().unwrap_or(Origin { source: "".into(), line: 0, record: None }),
            ),
            other => other.clone(),
        };
        let found = self.0.as_ref().clone();
        let has_refused = found.items.iter().any(is_refused);
        let items = if has_refused { found.items.iter().map(item).collect() } else { found.items };
        Self(Arc::new(Found { items, replaces: Some(Replaces { at_latest_ms }), ..found }))
    }

    /// The same records, but messages without a `traceparent` get this one. An invalid `traceparent` is ignored, as W3C
    /// Trace Context asks.
    fn traced_by(&self, traceparent: &str) -> Self {
        let traceparent = check_traceparent(traceparent).is_ok().then(|| traceparent.into());
        Self(Arc::new(Found { traceparent, ..self.0.as_ref().clone() }))
    }

    /// Returns for each record, in order, its id, its key and its due time (`None` for a cancel). A bad record has
    /// `None`.
    fn names(&self) -> Vec<Option<NameAndDue<'_>>> {
        fn name(item: &Parsed) -> Option<NameAndDue<'_>> {
            match item {
                Parsed::Message(incoming) => {
                    let message = &incoming.message;
                    let first_ms = message.body.recurrence().and_then(|it| it.first_ms().ok());
                    Some((message.id(), message.key(), Some(first_ms.unwrap_or(message.due_ms))))
                }
                Parsed::Cancel(it, _) => Some((&it.id, it.key.as_deref(), None)),
                Parsed::Reschedule(it, _) => Some((&it.id, it.key.as_deref(), Some(it.due_ms))),
                Parsed::Bad(..) => None,
            }
        }
        self.0.items.iter().map(name).collect()
    }

    /// Returns for each record, in order, the name of its operation in the table of operations. A bad record has `put`.
    fn operations(&self) -> Vec<&'static str> {
        let put = if self.0.replaces.is_some() { "replace" } else { "put" };
        let operation = |item: &Parsed| match item {
            Parsed::Message(_) | Parsed::Bad(..) => put,
            Parsed::Cancel(..) => "cancel",
            Parsed::Reschedule(..) => "reschedule",
        };
        self.0.items.iter().map(operation).collect()
    }

    /// For each record in order a `Message`, a `Cancel`, a `Reschedule` or a `BadRecord`.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        static CANCEL: MadeOnce<Py<PyType>> = MadeOnce::new();
        static RESCHEDULE: MadeOnce<Py<PyType>> = MadeOnce::new();
        let list = PyList::empty(py);
        for item in &*self.0.items {
            list.append(match item {
                Parsed::Message(incoming) => message_to_python(py, &incoming.message)?,
                Parsed::Cancel(cancel, _) => CANCEL
                    .import(py, "tickwheel.delivery.model.message", "Cancel")?
                    .call1((&cancel.id, &cancel.key, cancel.keep_days))?,
                Parsed::Reschedule(to, _) => RESCHEDULE
                    .import(py, "tickwheel.delivery.model.entries", "Reschedule")?
                    .call1((&to.id, &to.key, to.due_ms))?,
                Parsed::Bad(bad, _) => bad_record(py, bad).into_value(py).into_bound(py).into_any(),
            })?;
        }
        Ok(list)
    }

    /// Returns for each record, in order, `None` or its error: the line, the reason, and the allowed values.
    fn faults(&self) -> Vec<Option<Fault>> {
        let fault = |item: &Parsed| match item {
            Parsed::Bad(bad, origin) => Some((origin.line, bad.reason.clone(), bad.allowed.clone())),
            _ => None,
        };
        self.0.items.iter().map(fault).collect()
    }

    /// Returns for each record, in order, its source, its line, and the original record. `None` if these were not kept.
    fn places<'py>(&self, py: Python<'py>) -> Vec<Option<Place<'py>>> {
        let place = |origin: &Origin| {
            let record = origin.record.as_ref().map(|record| PyBytes::new(py, record.as_bytes()));
            (origin.source.to_string(), origin.line, record)
        };
        self.0.items.iter().map(|item| item.origin().map(place)).collect()
    }

    /// The rows of a hand-off with their partitions, as an Arrow IPC stream with one batch.
    fn to_hand_off<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let stream = py.detach(|| write_stream(&self.0.items));
        PyBytes::new(py, &stream)
    }
}
