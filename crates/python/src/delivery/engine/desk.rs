//! `DeliveryDesk`: the engine without threads, on clocks that a test moves. Each step is a call, so a run repeats.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::delivery::calls::callees::Callees;
use crate::delivery::calls::failures;
use crate::delivery::calls::raised::Raised;
use crate::delivery::engine::engine_class::{Counts, counts_of, next_id, opener_of};
use crate::delivery::engine::observer::{events_to_python, put_letters};
use crate::delivery::engine::sqlite_at_fork::SqliteInUse;
use crate::delivery::values::items;
use crate::delivery::values::operations;
use crate::delivery::values::settings::settings_of;
use crate::tools::native_lock::lock_plain;
use tickwheel::Clock;
use tickwheel::internal::sync::PlainMutex;
use tickwheel_delivery::internal::{DueClock, Engine, Ownership, Sends};
use tickwheel_delivery::{Answer, DeliveryError, Sink};

type Answered = (Py<PyAny>, Result<Vec<Answer>, DeliveryError>);

/// An engine for tests. `clock_us` and `wall_us` are what the timer's clock and the wall clock read at first.
#[pyclass(frozen, module = "tickwheel._native")]
pub(crate) struct DeliveryDesk {
    /// `None` after a crash.
    open: PlainMutex<Option<Arc<Open>>>,
    sink: PlainMutex<Option<(Box<dyn Sink>, Sends)>>,
    wall_us: Arc<AtomicI64>,
    put_letters: Py<PyAny>,
    /// Dropped last, because SQLite has the store open until then.
    _in_use: SqliteInUse,
}

struct Open {
    engine: Engine,
    answered: Arc<PlainMutex<Vec<Answered>>>,
}

#[pymethods]
impl DeliveryDesk {
    #[new]
    #[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts it")]
    #[pyo3(signature = (path, settings, sink, *, put_letters, clock_us, wall_us))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        settings: &Bound<'_, PyAny>,
        sink: &Bound<'_, PyAny>,
        put_letters: Py<PyAny>,
        clock_us: u64,
        wall_us: i64,
    ) -> PyResult<Self> {
        let failed = |error: DeliveryError| failures::to_python(py, &error);
        let settings = settings_of(settings)?;
        let concurrency = settings.concurrency;
        let in_use = SqliteInUse::begin(py)?;
        let ownership = Ownership::take(&path, &mut |_| {}, &mut || false).map_err(failed)?;
        let wall_us = Arc::new(AtomicI64::new(wall_us));
        let clock = Clock::manual(0);
        clock.set_us(clock_us);
        let wall = wall_us.clone();
        let wall = Arc::new(move || wall.load(Ordering::Relaxed));
        let engine = Engine::open(ownership, settings, clock, wall).map_err(failed)?;
        let raised = Raised::default();
        let opened = opener_of(sink, &Callees::of_engine(next_id()), &raised, concurrency)(engine.store_id());
        let mut sink = opened.map_err(|error| raised.take(py).unwrap_or_else(|| failed(error)))?;
        if sink.overlap() > 1 {
            return Err(PyRuntimeError::new_err("this destination has threads of its own, and a desk has none"));
        }
        engine.recover(&mut *sink).map_err(|error| raised.take(py).unwrap_or_else(|| failed(error)))?;
        let open = Open { engine, answered: Arc::default() };
        Ok(Self {
            open: PlainMutex::new(Some(Arc::new(open))),
            sink: PlainMutex::new(Some((sink, Sends::default()))),
            wall_us,
            put_letters,
            _in_use: in_use,
        })
    }

    /// Sets both clocks.
    fn set_clocks(&self, py: Python<'_>, clock_us: u64, wall_us: i64) -> PyResult<()> {
        self.open(py)?.engine.clock().set_us(clock_us);
        self.wall_us.store(wall_us, Ordering::Relaxed);
        Ok(())
    }

    /// From now on messages are due by the wall clock.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.open(py)?;
        open.engine.start(open.engine.wall_clock());
        Ok(())
    }

    /// From now on recorded times are replayed.
    fn start_replay(&self, py: Python<'_>, speed: f64, from_ms: i64) -> PyResult<()> {
        let open = self.open(py)?;
        open.engine.start(DueClock::replay(open.engine.clock(), speed, from_ms, 0.0));
        Ok(())
    }

    /// As `DeliveryEngine.submit`; the future has its answers after a `write`.
    #[pyo3(signature = (items, future, max_payload=1_048_576))]
    fn submit(&self, py: Python<'_>, items: &Bound<'_, PyAny>, future: Py<PyAny>, max_payload: usize) -> PyResult<()> {
        let open = self.open(py)?;
        let answered = open.answered.clone();
        let complete = Box::new(move |result| answered.lock().push((future, result)));
        let submitted = open.engine.submit_with(items::items_of(items, max_payload)?.items(), complete);
        submitted.map_err(|error| failures::to_python(py, &error))
    }

    /// Commits one group, answers and tells what is to be told; whether there is more to do.
    fn write(&self, py: Python<'_>) -> PyResult<bool> {
        let open = self.open(py)?;
        let sync = lock_plain(py, &self.sink).as_ref().and_then(|(sink, _)| sink.sync());
        let written = py.detach(|| open.engine.write(&|| sync.as_ref().map_or(Ok(()), |sync| sync())));
        let answered = std::mem::take(&mut *lock_plain(py, &open.answered));
        for (future, result) in answered {
            match result {
                Ok(answers) => {
                    future.call_method1(py, "set_result", (operations::answers_to_python(py, &answers)?,))?
                }
                Err(error) => future.call_method1(py, "set_exception", (failures::to_python(py, &error),))?,
            };
        }
        let more = written.map_err(|error| failures::to_python(py, &error))?;
        let Some((letters, through)) = open.engine.take_letters() else { return Ok(more) };
        if let Err(error) = put_letters(py, self.put_letters.bind(py), &letters) {
            open.engine.fail(&failures::from_python(py, &error));
            return Err(error);
        }
        open.engine.letters_told(through);
        Ok(true)
    }

    /// Sends what can be sent, in one call of the sink; whether there was anything.
    fn send(&self, py: Python<'_>) -> PyResult<bool> {
        let open = self.open(py)?;
        let Some((mut sink, mut sends)) = lock_plain(py, &self.sink).take() else { return Ok(false) };
        let taken = open.engine.take(sink.max_messages(), sink.max_bytes(), false);
        let has_some = taken.is_some();
        let sent = taken.map_or(Ok(()), |(flight, deliveries)| {
            sends.tell(&open.engine, &mut *sink);
            let verdicts = sink.send(&deliveries)?;
            open.engine.settle(flight, verdicts, sink.position());
            sends.settled(&open.engine);
            Ok(())
        });
        drop(lock_plain(py, &self.sink).replace((sink, sends)));
        sent.map_err(|error: DeliveryError| failures::to_python(py, &error))?;
        Ok(has_some)
    }

    /// Looks whether the wall clock was stepped.
    fn follow_clock(&self, py: Python<'_>) -> PyResult<()> {
        self.open(py)?.engine.follow_clock();
        Ok(())
    }

    /// When there is something to do next, on the timer's clock.
    fn next_wake_us(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(self.open(py)?.engine.next_wake_us())
    }

    /// Events since the last call.
    fn events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        events_to_python(py, &self.open(py)?.engine.take_events())
    }

    /// The counts, in the order of `Summary`.
    fn counts(&self, py: Python<'_>) -> PyResult<Counts> {
        Ok(counts_of(&self.open(py)?.engine.summary()))
    }

    /// As of `DeliveryEngine`.
    fn percentiles(&self, py: Python<'_>) -> PyResult<[Option<f64>; 4]> {
        let it = self.open(py)?.engine.percentiles();
        Ok([it.p50, it.p99, it.p999, it.max])
    }

    /// The due time of the first message that waits, before the start.
    #[getter]
    fn first_due_ms(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        self.open(py)?.engine.first_due_ms().map_err(|error| failures::to_python(py, &error))
    }

    /// Messages without an outcome.
    #[getter]
    fn waiting(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.open(py)?.engine.open_count())
    }

    /// Whether nothing waits, is under way, or is to be told.
    fn is_empty(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.open(py)?.engine.is_empty())
    }

    /// Messages and bytes in memory.
    fn in_memory(&self, py: Python<'_>) -> PyResult<(usize, usize)> {
        Ok(self.open(py)?.engine.in_memory())
    }

    /// Why the destination is down, if it is.
    #[getter]
    fn down(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.open(py)?.engine.down())
    }

    /// Sends nothing more; what waits for an answer gets the error.
    fn fail(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<()> {
        let error = failures::from_python(py, &PyErr::from_value(error.clone()));
        self.open(py)?.engine.fail(&error);
        Ok(())
    }

    /// The end of a run; whether it is clean: no send failed in a way that ends it.
    fn close(&self, py: Python<'_>, is_clean: bool) -> PyResult<()> {
        let open = self.open(py)?;
        let closed = py.detach(|| open.engine.close(is_clean));
        if let Some((mut sink, _)) = lock_plain(py, &self.sink).take() {
            sink.close().map_err(|error| failures::to_python(py, &error))?;
        }
        closed.map(drop).map_err(|error| failures::to_python(py, &error))
    }

    /// Acts like `kill -9`: uncommitted work is lost.
    fn crash(&self, py: Python<'_>) {
        let (open, sink) = (lock_plain(py, &self.open).take(), lock_plain(py, &self.sink).take());
        py.detach(|| drop(open));
        drop(sink);
    }
}

impl DeliveryDesk {
    fn open(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        let open = lock_plain(py, &self.open).clone();
        open.ok_or_else(|| PyRuntimeError::new_err("this desk has crashed"))
    }
}
