//! `Destination`: a destination that the engine itself writes to or calls. Other sinks are Python objects.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::delivery::calls::callees::Callees;
use crate::delivery::calls::failures;
use crate::delivery::calls::raised::Raised;
use crate::delivery::sinks::coroutine_sink::CoroutineSink;
use crate::delivery::sinks::function::FunctionSink;
use crate::tools::native_lock::attach;
use tickwheel_delivery::internal::{OpenSink, Opened, beside_webhooks};
use tickwheel_delivery::{DeliveryError, Destination as To, SharedWebhook, Webhook};

/// A destination of the engine's own. Nothing is opened yet.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct Destination(Kind);

enum Kind {
    Own(To),
    Webhook(SharedWebhook),
    Function(Py<PyAny>),
    Coroutines(Py<PyAny>),
    /// The start of the calls, whether they take messages that name no destination, and the webhook that does otherwise.
    Handlers(Py<PyAny>, bool, Option<SharedWebhook>),
}

#[pymethods]
impl Destination {
    /// Lines of NDJSON on standard output, which stays open at the end.
    #[staticmethod]
    fn standard_output() -> Self {
        Self(Kind::Own(To::standard_output()))
    }

    /// Lines of NDJSON, appended to a file.
    #[staticmethod]
    fn file(path: PathBuf) -> Self {
        Self(Kind::Own(To::file(path)))
    }

    /// A POST for each message, with these headers, and signed by these secrets. Raises
    /// `WrongUsage` if this is no address, or one of them is none.
    #[staticmethod]
    #[pyo3(signature = (url, *, headers=Vec::new(), secrets=Vec::new()))]
    fn http(py: Python<'_>, url: &str, headers: Vec<(String, String)>, secrets: Vec<String>) -> PyResult<Self> {
        let webhook = webhook_of(url, headers, secrets).map_err(|error| failures::to_python(py, &error))?;
        Ok(Self(Kind::Webhook(webhook.into())))
    }

    /// Webhooks that messages name.
    #[staticmethod]
    fn named() -> Self {
        Self(Kind::Own(To::named()))
    }

    /// A call for each message, from up to eight threads.
    #[staticmethod]
    fn function(function: Py<PyAny>) -> Self {
        Self(Kind::Function(function))
    }

    /// A task for each message on an event loop, to which `start` gives the `CoroutineCalls` that it gets.
    #[staticmethod]
    fn coroutines(start: Py<PyAny>) -> Self {
        Self(Kind::Coroutines(start))
    }

    /// As `coroutines`, for the destinations that are functions; the others are webhooks. Messages that name no destination go
    /// to the functions if `has_own`, and otherwise to the webhook `to`.
    #[staticmethod]
    fn handlers(start: Py<PyAny>, has_own: bool, to: Option<&Self>) -> Self {
        let webhook = match to.map(|it| &it.0) {
            Some(Kind::Webhook(webhook)) => Some(webhook.clone()),
            _ => None,
        };
        Self(Kind::Handlers(start, has_own, webhook))
    }

    /// An engine that was made with it has a reference of its own to the function.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.0 {
            Kind::Function(function) | Kind::Coroutines(function) | Kind::Handlers(function, ..) => {
                visit.call(function)
            }
            Kind::Own(_) | Kind::Webhook(_) => Ok(()),
        }
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            Kind::Own(destination) => without_secrets(destination),
            Kind::Webhook(webhook) => without_secrets(&To::webhook(webhook.clone())),
            Kind::Function(_) => "Destination.function(...)".to_owned(),
            Kind::Coroutines(_) => "Destination.coroutines(...)".to_owned(),
            Kind::Handlers(..) => "Destination.handlers(...)".to_owned(),
        }
    }
}

impl Destination {
    /// Returns a function that opens this destination for the engine of these callees. `concurrency` comes from the
    /// settings.
    pub(crate) fn opener(&self, py: Python<'_>, callees: &Callees, raised: &Raised, concurrency: usize) -> OpenSink {
        match &self.0 {
            Kind::Own(destination) => destination.clone().into_opener(),
            Kind::Webhook(webhook) => To::webhook(webhook.clone()).into_opener(),
            Kind::Function(function) => {
                let engine = callees.engine();
                let function = callees.add(py, function.clone_ref(py));
                Arc::new(move |_| {
                    attach(|py| {
                        let function = function.get(py).ok_or(DeliveryError::Closed)?;
                        Ok(Opened::Sink(Box::new(FunctionSink::new(engine, function.unbind()))))
                    })
                })
            }
            Kind::Coroutines(start) => {
                let open = coroutines_of(py, start, callees, raised, concurrency);
                Arc::new(move |_| Ok(Opened::ReplySink(Box::new(open()?))))
            }
            Kind::Handlers(start, has_own, webhook) => {
                let open = coroutines_of(py, start, callees, raised, concurrency);
                let (has_own, webhook) = (*has_own, webhook.clone());
                Arc::new(move |_| beside_webhooks(Box::new(open()?), has_own, webhook.clone()))
            }
        }
    }
}

fn coroutines_of(
    py: Python<'_>,
    start: &Py<PyAny>,
    callees: &Callees,
    raised: &Raised,
    concurrency: usize,
) -> impl Fn() -> Result<CoroutineSink, DeliveryError> + use<> {
    let engine = callees.engine();
    let (start, raised) = (callees.add(py, start.clone_ref(py)), raised.clone());
    move || {
        attach(|py| {
            let start = start.get(py).ok_or(DeliveryError::Closed)?;
            CoroutineSink::open(&start, engine, concurrency).map_err(|error| raised.kept(py, error))
        })
    }
}

fn webhook_of(url: &str, headers: Vec<(String, String)>, secrets: Vec<String>) -> Result<Webhook, DeliveryError> {
    Webhook::to(url)
        .and_then(|to| headers.into_iter().try_fold(to, |to, (name, value)| to.with_header(&name, &value)))
        .and_then(|to| secrets.into_iter().try_fold(to, |to, secret| to.with_secret(&secret)))
}

fn without_secrets(destination: &To) -> String {
    format!("{destination:?}").replacen("::", ".", 1)
}
